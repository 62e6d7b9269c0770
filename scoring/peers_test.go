package scoring

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newTestPeers(t *testing.T, limit int) (*Peers, *InFlight, *Speculation, *KVAtlas) {
	t.Helper()
	loads, err := NewInFlight(InFlightOptions{})
	require.NoError(t, err)
	loads.Add(1)
	loads.Add(2)
	spec, err := NewSpeculation(SpeculationOptions{})
	require.NoError(t, err)
	atlas, err := NewKVAtlas(KVAtlasOptions{})
	require.NoError(t, err)
	p, err := NewPeers(PeersOptions{InFlight: loads, Speculation: spec, KVAtlas: atlas, MaxRequests: limit})
	require.NoError(t, err)
	return p, loads, spec, atlas
}

func load(t *testing.T, a *InFlight, w WorkerID) (l Load) {
	t.Helper()
	require.NoError(t, a.Load(w, &l))
	return l
}

func TestPeersCountInWhatTheyHear(t *testing.T) {
	p, loads, spec, atlas := newTestPeers(t, 0)
	sent := PeerNote{Request: 7, Observation: Observation{Worker: 1, PromptTokens: 100, CachedTokens: 32}, Keys: []uint64{3, 4, 5, 6}, BlockSize: 16}
	require.NoError(t, p.Heard(&sent))
	require.NoError(t, p.Heard(&sent), "twice counts once")
	l := load(t, loads, 1)
	require.Equal(t, []Gauge{Known(1), Known(1), Known(68)}, []Gauge{l.Requests, l.Peers, l.PrefillTokens})
	require.True(t, spec.Has(1, 6))
	require.False(t, spec.Has(2, 6))

	// A sibling from a third replica is to be computed from where the first ends.
	sibling := sent
	sibling.Request, sibling.Keys = 8, []uint64{3, 4, 5, 9}
	require.NoError(t, p.Heard(&sibling))
	require.Equal(t, Known(68+68-3*16), load(t, loads, 1).PrefillTokens)

	before := atlas.Rate(1)
	require.NoError(t, p.Heard(&PeerNote{Request: 7, Event: PeerFirstToken, Observation: Observation{
		Worker: 1, PromptTokens: 1000, ReportedTokens: -1, TTFT: time.Second}}))
	require.Less(t, atlas.Rate(1), before, "it was slow")
	require.Equal(t, Known(20), load(t, loads, 1).PrefillTokens)
	require.NoError(t, p.Heard(&PeerNote{Request: 7, Event: PeerFinished}))
	require.NoError(t, p.Heard(&PeerNote{Request: 7, Event: PeerFinished}))
	require.True(t, spec.Has(1, 6), "the engine's event is on its way")
	require.NoError(t, p.Heard(&PeerNote{Request: 8, Event: PeerFailed}))
	require.False(t, spec.Has(1, 9))
	l = load(t, loads, 1)
	require.Equal(t, []Gauge{Known(0), Known(0), Known(0)}, []Gauge{l.Requests, l.Peers, l.PrefillTokens})

	sent.Request, sent.Worker = 9, 5
	require.ErrorIs(t, p.Heard(&sent), ErrUnknownWorker)
	require.NoError(t, p.Heard(&PeerNote{Request: 9, Event: PeerFinished}), "nothing is known of it")
	require.False(t, spec.Has(5, 3))

	// One's own request is no peer's.
	own, err := loads.Begin(2, Sent{PromptTokens: 5})
	require.NoError(t, err)
	require.Equal(t, []Gauge{Known(1), Known(0)}, []Gauge{load(t, loads, 2).Requests, load(t, loads, 2).Peers})
	require.NoError(t, own.Finish())

	_, err = NewPeers(PeersOptions{})
	require.Error(t, err)
	_, err = NewPeers(PeersOptions{InFlight: loads, MaxRequests: -1})
	require.Error(t, err)
}

func TestPeersAreBounded(t *testing.T) {
	p, loads, spec, _ := newTestPeers(t, 10)
	for i := range uint64(1000) {
		require.NoError(t, p.Heard(&PeerNote{Request: i, Observation: Observation{Worker: 1, PromptTokens: 20}, Keys: []uint64{i}, BlockSize: 16}))
		if i%3 == 1 {
			require.NoError(t, p.Heard(&PeerNote{Request: i, Event: PeerFinished}))
		}
	}
	require.Equal(t, Known(10), load(t, loads, 1).Requests)
	require.False(t, spec.Has(1, 2), "the oldest were let go")
	require.True(t, spec.Has(1, 998))
	require.LessOrEqual(t, len(p.order), 128)
	// Without speculation and policy only loads are counted.
	bare, err := NewPeers(PeersOptions{InFlight: loads})
	require.NoError(t, err)
	require.NoError(t, bare.Heard(&PeerNote{Request: 1, Observation: Observation{Worker: 2, PromptTokens: 20}, Keys: []uint64{1}}))
	require.NoError(t, bare.Heard(&PeerNote{Request: 1, Event: PeerFirstToken}))
	require.NoError(t, bare.Heard(&PeerNote{Request: 1, Event: PeerFinished}))
	require.Equal(t, Known(0), load(t, loads, 2).Requests)
}

func TestPeersConcurrent(t *testing.T) {
	p, loads, _, _ := newTestPeers(t, 0)
	var wg sync.WaitGroup
	for r := range uint64(4) {
		wg.Go(func() {
			for i := range uint64(200) {
				id := r<<32 | i
				for _, e := range []PeerEvent{PeerSent, PeerFirstToken, PeerFinished} {
					_ = p.Heard(&PeerNote{Request: id, Event: e, Keys: []uint64{i}, BlockSize: 16,
						Observation: Observation{Worker: WorkerID(1 + i%2), PromptTokens: 40, TTFT: time.Millisecond}})
				}
			}
		})
	}
	wg.Wait()
	for w := WorkerID(1); w <= 2; w++ {
		require.Equal(t, Known(0), load(t, loads, w).Requests)
	}
}

// TestPeersLetGo: what has ended is not kept, though one request goes on all the while;
// and what is on its way to a worker is waited for no longer than after one's own.
func TestPeersLetGo(t *testing.T) {
	p, loads, _, atlas := newTestPeers(t, 0)
	now := time.Unix(1000, 0)
	spec, err := NewSpeculation(SpeculationOptions{Now: func() time.Time { return now }})
	require.NoError(t, err)
	p.o.Speculation = spec
	prompt := Observation{Worker: 1, PromptTokens: 64}
	require.NoError(t, p.Heard(&PeerNote{Request: 1, Observation: prompt, Keys: []uint64{1, 2, 3, 4}, BlockSize: 16}))
	require.NoError(t, p.Heard(&PeerNote{Request: 2, Observation: prompt, Keys: []uint64{1, 2, 3, 4}, BlockSize: 16}))
	require.Equal(t, Known(65), load(t, loads, 1).PrefillTokens, "the last token of the sibling is computed")
	for id := uint64(3); id < 5000; id++ {
		require.NoError(t, p.Heard(&PeerNote{Request: id, Observation: prompt}))
		require.NoError(t, p.Heard(&PeerNote{Request: id, Event: PeerFinished}))
	}
	require.LessOrEqual(t, len(p.order), 100)
	require.Len(t, p.open, 2)

	before := atlas.Rate(1)
	require.NoError(t, p.Heard(&PeerNote{Request: 2, Event: PeerFailed, Observation: Observation{Worker: 1, PromptTokens: 64, TTFT: time.Hour}}))
	require.Equal(t, before, atlas.Rate(1), "a request that failed does not teach")

	for id, event := range []PeerEvent{PeerFirstToken, PeerFinished} {
		key := uint64(10_000 + id) // a request of its own
		require.NoError(t, p.Heard(&PeerNote{Request: key, Observation: prompt, Keys: []uint64{key}, BlockSize: 16}))
		now = now.Add(3 * time.Second)
		require.True(t, spec.Has(1, key))
		require.NoError(t, p.Heard(&PeerNote{Request: key, Event: event}))
		require.True(t, spec.Has(1, key))
		now = now.Add(3 * time.Second)
		require.False(t, spec.Has(1, key))
	}
}

// TestPeersOfRemovedWorkers: requests sent to a worker go with it, for nothing may tell of
// their ends any more, and those of others stay.
func TestPeersOfRemovedWorkers(t *testing.T) {
	p, loads, spec, _ := newTestPeers(t, 0)
	for id := range uint64(10) {
		require.NoError(t, p.Heard(&PeerNote{Request: id, Observation: Observation{Worker: WorkerID(1 + id%2), PromptTokens: 20}, Keys: []uint64{id}, BlockSize: 16}))
	}
	loads.Remove(1)
	p.Remove(1)
	require.Len(t, p.open, 5)
	require.Equal(t, 5, loads.Stats().Requests)
	require.Equal(t, Known(5), load(t, loads, 2).Requests)
	require.False(t, spec.Has(1, 0))
	require.True(t, spec.Has(2, 1))
	require.NoError(t, p.Heard(&PeerNote{Request: 0, Event: PeerFinished}), "not known any more")
	require.Equal(t, 5, loads.Stats().Requests)
}

// TestPeersLateCopies: a copy of the first note that comes after the last begins nothing;
// one that failed may be tried again.
func TestPeersLateCopies(t *testing.T) {
	p, loads, spec, _ := newTestPeers(t, 0)
	note := func(id uint64, e PeerEvent) *PeerNote {
		return &PeerNote{Request: id, Event: e, Observation: Observation{Worker: 1, PromptTokens: 20}, Keys: []uint64{id}, BlockSize: 16}
	}
	for id := range uint64(5 * doneKept) {
		require.NoError(t, p.Heard(note(id, PeerSent)))
		require.NoError(t, p.Heard(note(id, PeerFinished)))
		require.NoError(t, p.Heard(note(id-min(id, doneKept-1), PeerSent)))
	}
	require.Empty(t, p.open)
	require.Zero(t, loads.Stats().Requests)
	require.LessOrEqual(t, len(p.done)+len(p.doneBefore), 2*doneKept)
	require.NoError(t, p.Heard(note(0, PeerFailed)))
	require.NoError(t, p.Heard(note(1<<40, PeerSent)))
	require.NoError(t, p.Heard(note(1<<40, PeerFailed)))
	require.False(t, spec.Has(1, 1<<40))
	require.NoError(t, p.Heard(note(1<<40, PeerSent)))
	require.Equal(t, Known(1), load(t, loads, 1).Requests)
}

// TestPeersSentAgain: a request that failed and is sent again is as old as its last time,
// and as often as that happens nothing is kept of the times before.
func TestPeersSentAgain(t *testing.T) {
	p, _, _, _ := newTestPeers(t, 3)
	heard := func(id uint64, e PeerEvent) {
		require.NoError(t, p.Heard(&PeerNote{Request: id, Event: e, Observation: Observation{Worker: 1, PromptTokens: 20}}))
	}
	for id := range uint64(3) {
		heard(id, PeerSent)
	}
	heard(0, PeerFailed)
	heard(0, PeerSent)
	heard(3, PeerSent)
	require.Contains(t, p.open, peerRequest{0, 0})
	require.NotContains(t, p.open, peerRequest{0, 1}, "was the oldest")
	for range 1000 {
		heard(0, PeerFailed)
		heard(0, PeerSent)
	}
	require.LessOrEqual(t, len(p.order), 2*len(p.open)+64)
}

// TestPeersUnknownEvent: an event that is not known is an error, and changes and teaches
// nothing.
func TestPeersUnknownEvent(t *testing.T) {
	p, loads, spec, atlas := newTestPeers(t, 0)
	prompt := Observation{Worker: 1, PromptTokens: 20, TTFT: time.Hour}
	require.NoError(t, p.Heard(&PeerNote{Request: 1, Observation: prompt, Keys: []uint64{1}, BlockSize: 16}))
	before := atlas.Rate(1)
	for _, e := range []PeerEvent{PeerFailed + 1, 255} {
		err := p.Heard(&PeerNote{Request: 1, Event: e, Observation: prompt})
		require.ErrorIs(t, err, ErrPeerEvent)
		require.ErrorContains(t, err, "want 0 (PeerSent) to 3 (PeerFailed)")
	}
	require.Equal(t, before, atlas.Rate(1))
	require.Equal(t, Known(1), load(t, loads, 1).Requests)
	require.True(t, spec.Has(1, 1))
}

// TestPeersNumberTheirOwn: requests of replicas that say who they are may have the same
// numbers.
func TestPeersNumberTheirOwn(t *testing.T) {
	p, loads, _, _ := newTestPeers(t, 0)
	for replica := uint64(1); replica <= 3; replica++ {
		for range 2 {
			require.NoError(t, p.Heard(&PeerNote{Request: 7, Replica: replica, Observation: Observation{Worker: 1, PromptTokens: 100}}))
		}
	}
	require.Equal(t, Known(3), load(t, loads, 1).Requests)
	require.NoError(t, p.Heard(&PeerNote{Request: 7, Replica: 2, Event: PeerFinished}))
	require.NoError(t, p.Heard(&PeerNote{Request: 7, Replica: 4, Event: PeerFailed}), "nobody's")
	require.NoError(t, p.Heard(&PeerNote{Request: 7, Replica: 2, Observation: Observation{Worker: 1, PromptTokens: 100}}), "is complete")
	require.Equal(t, Known(2), load(t, loads, 1).Requests)
}

// TestPeersTooLate: notes of a request that has expired change no load, and let it go.
func TestPeersTooLate(t *testing.T) {
	h := newHand()
	loads := h.inFlight(t, InFlightOptions{TTL: time.Minute})
	loads.Add(1)
	spec, err := NewSpeculation(SpeculationOptions{Now: loads.o.Now})
	require.NoError(t, err)
	atlas := plainAtlas(t, KVAtlasOptions{})
	p, err := NewPeers(PeersOptions{InFlight: loads, Speculation: spec, KVAtlas: atlas})
	require.NoError(t, err)
	sent := PeerNote{Request: 1, Observation: Observation{Worker: 1, PromptTokens: 1000}, Keys: []uint64{1}, BlockSize: 16}
	require.NoError(t, p.Heard(&sent))
	h.advance(time.Minute)
	require.Equal(t, Known(0), load(t, loads, 1).Requests)
	require.NoError(t, p.Heard(&sent), "is heard twice still")
	slow := Observation{Worker: 1, PromptTokens: 1000, ReportedTokens: -1, TTFT: time.Second}
	before := atlas.Rate(1)
	for _, e := range []PeerEvent{PeerFirstToken, PeerFinished} {
		require.NoError(t, p.Heard(&PeerNote{Request: 1, Event: e, Observation: slow}))
		require.Equal(t, Known(0), load(t, loads, 1).Requests)
		require.False(t, spec.Has(1, 1))
	}
	require.Less(t, atlas.Rate(1), before, "it teaches")
	require.Empty(t, p.open)

	// A beginning that is overtaken by its end counts for as long as any.
	require.NoError(t, p.Heard(&PeerNote{Request: 2, Event: PeerFinished}))
	sent.Request = 2
	require.NoError(t, p.Heard(&sent))
	h.advance(59 * time.Second)
	require.Equal(t, Known(1), load(t, loads, 1).Requests)
	h.advance(time.Second)
	require.Equal(t, Known(0), load(t, loads, 1).Requests)
}

// TestPeersNames: what replicas could not agree on is nobody's first, nor is what was
// removed here only, whose requests count on until the account forgets it too.
func TestPeersNames(t *testing.T) {
	loads, err := NewInFlight(InFlightOptions{})
	require.NoError(t, err)
	p, err := NewPeers(PeersOptions{InFlight: loads, Replica: 1})
	require.NoError(t, err)
	for w, name := range []string{"", "", "b", "a", "b", "c"} {
		loads.Add(WorkerID(w))
		p.Add(WorkerID(w), name)
	}
	require.NoError(t, p.Heard(&PeerNote{Request: 1, Replica: 2, Observation: Observation{Worker: 0, PromptTokens: 10}}))
	theirs := func() (all []WorkerID) {
		for w := range WorkerID(6) {
			if acc := loads.workers.get(w); acc != nil && acc.others {
				all = append(all, w)
			}
		}
		return all
	}
	require.Equal(t, []WorkerID{5}, theirs(), "a is this one's")
	p.Add(2, "d")
	require.Equal(t, []WorkerID{2, 4}, theirs(), "b and d are the other's")
	p.Remove(4)
	require.Equal(t, []WorkerID{5}, theirs())
	note := PeerNote{Request: 2, Replica: 2, Observation: Observation{Worker: 4, PromptTokens: 10}}
	require.NoError(t, p.Heard(&note))
	require.Equal(t, Known(1), load(t, loads, 4).Requests)
	loads.Remove(4)
	note.Request = 3
	require.ErrorIs(t, p.Heard(&note), ErrUnknownWorker)
	require.Equal(t, Known(1), load(t, loads, 0).Requests)
	loads.Remove(5)
	require.Empty(t, theirs())
	p.Remove(5)
	require.Equal(t, []WorkerID{2}, theirs(), "c takes no turn any more")
	p.Remove(1)
	require.Equal(t, []WorkerID{2}, theirs(), "one without a name takes none, though it is alone")
}

// TestPeersWhoTell: who does not say who it is takes no turn, those who tell on stay, and
// nothing is learned for turns while nobody takes one.
func TestPeersWhoTell(t *testing.T) {
	h := newHand()
	loads := h.inFlight(t, InFlightOptions{})
	p, err := NewPeers(PeersOptions{InFlight: loads, Replica: 1})
	require.NoError(t, err)
	loads.Add(1)
	told := func(replica, id uint64, prompt, cached int) {
		require.NoError(t, p.Heard(&PeerNote{Request: id, Replica: replica, Observation: Observation{Worker: 1, PromptTokens: prompt, CachedTokens: cached}}))
	}
	_, err = loads.Begin(1, Sent{PromptTokens: 10})
	require.NoError(t, err)
	told(0, 1, 100, 0)
	require.Empty(t, p.replicas)
	require.Zero(t, loads.unheard)
	for replica := uint64(2); replica < 300; replica++ {
		told(replica, 1, 100, 0)
	}
	require.Len(t, p.replicas, mostReplicas)
	for range 5 {
		h.advance(replicaGone / 2)
		told(2, 1, 100, 0)
		require.Contains(t, p.replicas, uint64(2))
	}
	require.Len(t, p.replicas, 1)
	_, err = loads.Begin(1, Sent{PromptTokens: 10})
	require.NoError(t, err)
	was := loads.unheard.heard
	told(2, 2, 100, 400)
	require.Equal(t, was, loads.unheard.heard, "nothing of it is to be computed")
	told(2, 3, math.MaxInt, 0)
	require.Equal(t, was+mostTokens, loads.unheard.heard)
}
