package scoring

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// heardLater plays decisions of four replicas to what one of them learns: its own at
// once, the others' after the lag, 1,000 tokens each.
func heardLater(u *unheard, lag time.Duration, decisions map[time.Duration][]int) {
	type step struct {
		at  time.Duration
		own bool
	}
	var steps []step
	for at, by := range decisions {
		for _, replica := range by {
			if replica == 0 {
				steps = append(steps, step{at, true})
			} else {
				steps = append(steps, step{at + lag, false})
			}
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int {
		if n := cmp.Compare(a.at, b.at); n != 0 || a.own == b.own {
			return n
		} else if a.own {
			return -1
		}
		return 1
	})
	for _, s := range steps {
		if now := time.Unix(1000, 0).Add(s.at); s.own {
			u.decided(now)
		} else {
			u.told(now, 1000)
		}
	}
}

// TestUnheardOfBursts: of nine requests at one instant two or three are one's own, and
// what is expected are the others; when they come no more that is forgotten.
func TestUnheardOfBursts(t *testing.T) {
	for lag, least := range map[time.Duration]float64{time.Microsecond: 6500, 2 * time.Millisecond: 6000, 20 * time.Millisecond: 4000} {
		bursts := map[time.Duration][]int{}
		turn := 0
		for at := range 60 {
			var by []int
			for range 9 {
				by = append(by, turn%4)
				turn++
			}
			bursts[time.Duration(at)*time.Second] = by
		}
		var u unheard
		require.Zero(t, u.expected())
		heardLater(&u, lag, bursts)
		require.Greater(t, u.expected(), least, lag)
		require.Less(t, u.expected(), 7000., lag)

		now := time.Unix(2000, 0)
		for range 300 {
			now = now.Add(time.Second)
			u.decided(now)
		}
		require.Less(t, u.expected(), 100., "alone since, %v", lag)
	}
}

// TestUnheardOfSteadyLoad: of requests that come one by one as many are told before a
// decision as after it, on average: twenty within the window here.
func TestUnheardOfSteadyLoad(t *testing.T) {
	sum, n := 0., 0
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		steady := map[time.Duration][]int{}
		for at := 0.; at < 4; at += random.ExpFloat64() / 500 {
			steady[time.Duration(at*1e9)] = []int{random.IntN(4)}
		}
		var u unheard
		heardLater(&u, 2*time.Millisecond, steady)
		sum += u.expected()
		n++
	}
	require.Less(t, sum/float64(n), 2000., "of all three others")
}

func TestUnheardBegins(t *testing.T) {
	var u unheard
	now := time.Unix(1000, 0)
	u.decided(now)
	u.told(now, 1000)
	require.Equal(t, 100., u.expected(), "one decision says little")
	u.told(now.Add(-time.Hour), 1000) // a clock that goes back stands still
	require.Equal(t, 200., u.expected())
	u.decided(now.Add(time.Hour))
	require.Less(t, u.expected(), 200.)
	u.decided(now.Add(time.Hour))
	u.told(now.Add(2*time.Hour), 1<<30)
	require.InDelta(t, 195, u.expected(), 10, "what is told an hour later has nothing to do with it")
}

// TestUnheardOfNobody: of replicas that are all gone nothing is expected, though there is
// nobody left to hear it from.
func TestUnheardOfNobody(t *testing.T) {
	h := newHand()
	loads := h.inFlight(t, InFlightOptions{})
	p, err := NewPeers(PeersOptions{InFlight: loads, Replica: 1})
	require.NoError(t, err)
	for w, name := range []string{"a", "b"} {
		loads.Add(WorkerID(w))
		p.Add(WorkerID(w), name)
	}
	told := func(id uint64) {
		require.NoError(t, p.Heard(&PeerNote{Replica: 2, Request: id, Observation: Observation{Worker: 1, PromptTokens: 1000}}))
	}
	for id := range uint64(50) {
		_, err := loads.Begin(0, Sent{PromptTokens: 1000})
		require.NoError(t, err)
		told(id)
		h.advance(time.Second)
	}
	h.advance(replicaGone - time.Second - 1)
	require.Greater(t, load(t, loads, 1).Unheard.Value, 900.)
	h.advance(1)
	require.Equal(t, Known(0), load(t, loads, 1).Unheard)
	told(50)
	require.Greater(t, load(t, loads, 1).Unheard.Value, 900., "it is back")
	require.Equal(t, Known(0), load(t, loads, 0).Unheard)
}

// TestPeersShareWorkers: three replicas that number the workers differently agree on
// who has which first, also when one is there no more, and each expects at the others'
// what one of them sent at such moments, but for siblings.
func TestPeersShareWorkers(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	now := time.Unix(1000, 0)
	clock := func() time.Time { return now }
	type replica struct {
		loads *InFlight
		peers *Peers
	}
	var replicas []replica
	ids := []uint64{7, 3, 1 << 63}
	for r, id := range ids {
		loads, err := NewInFlight(InFlightOptions{Now: clock})
		require.NoError(t, err)
		spec, err := NewSpeculation(SpeculationOptions{Now: clock})
		require.NoError(t, err)
		p, err := NewPeers(PeersOptions{InFlight: loads, Speculation: spec, Replica: id})
		require.NoError(t, err)
		for i := range names {
			n := (i*3 + r) % len(names)
			loads.Add(WorkerID(n))
			p.Add(WorkerID(n), names[(n+r)%len(names)])
		}
		replicas = append(replicas, replica{loads, p})
	}
	number := func(r, name int) WorkerID { return WorkerID((name - r + len(names)) % len(names)) }
	at := func(r, name int) Gauge { return load(t, replicas[r].loads, number(r, name)).Unheard }
	require.False(t, at(0, 0).Known, "nobody told anything")

	request := uint64(0)
	burst := func(tokens int, sibling bool, from ...int) {
		var notes []PeerNote
		for _, r := range from {
			_, err := replicas[r].loads.Begin(number(r, 0), Sent{PromptTokens: tokens})
			require.NoError(t, err)
			request++
			note := PeerNote{Request: request, Replica: ids[r], Observation: Observation{PromptTokens: tokens}, Keys: []uint64{request}, BlockSize: 16}
			if sibling {
				note.Keys = []uint64{1 << 40}
				replicas[r].peers.o.Speculation.Sent(number(r, 1), note.Keys)
			}
			notes = append(notes, note)
		}
		now = now.Add(time.Millisecond)
		for i, r := range from {
			for _, other := range from {
				if note := notes[i]; other != r {
					note.Worker = number(other, 0)
					require.NoError(t, replicas[other].peers.Heard(&note))
				}
			}
		}
		now = now.Add(time.Second)
	}
	for range 100 {
		burst(1000, true, 0, 1, 2)
	}
	for r := range replicas {
		for name := range names {
			require.Equal(t, Known(0), at(r, name), "siblings are no surprise")
		}
	}
	for range 300 {
		burst(1000, false, 0, 1, 2)
	}
	for name := range names {
		var first []int
		for r := range replicas {
			if expected := at(r, name); expected == Known(0) {
				first = append(first, r)
			} else {
				require.InDelta(t, 1000, expected.Value, 40, "of one other")
			}
		}
		require.Equal(t, [][]int{{1}, {0}, {2}}[name%3], first, "%s: by number 3, 7 and the largest", names[name])
	}

	// A worker that goes moves the turns on. The last replica falls silent, and after
	// some minutes the two others take turns; alone, a replica expects nothing.
	for r := range replicas {
		replicas[r].peers.Remove(number(r, 0))
	}
	require.Equal(t, Known(0), at(1, 1), "now the first by name")
	for range 130 {
		burst(1000, false, 0, 1)
	}
	for name := range names[1:] {
		require.Equal(t, Known(0), at(1-name%2, name+1), names[name+1])
		require.InDelta(t, 1000, at(name%2, name+1).Value, 60, names[name+1])
	}

	// Who gives no number shares nothing, and is not shared with.
	mute, err := NewPeers(PeersOptions{InFlight: replicas[2].loads})
	require.NoError(t, err)
	mute.Add(0, "a")
	require.NoError(t, mute.Heard(&PeerNote{Request: 1, Replica: 5, Observation: Observation{Worker: 0, PromptTokens: 9}}))
	require.False(t, at(2, 0).Known)
	require.Zero(t, replicas[2].loads.unheard)
}

// TestKVAtlasUnheard: what another replica may be sending counts as waiting there, up
// to half of the objective, and where it is the same at all workers nothing.
func TestKVAtlasUnheard(t *testing.T) {
	k := plainAtlas(t, KVAtlasOptions{PrefillRate: 10000, Objective: 2 * time.Second})
	decide := func(ahead, unheard [3]float64) (Decision, []float64) {
		var cs []Candidate
		for i := range ahead {
			cs = append(cs, Candidate{ID: WorkerID(i), Name: fmt.Sprint(i), Load: Load{Requests: Known(1), PrefillTokens: Known(ahead[i]), Unheard: Known(unheard[i])}})
		}
		var d Decision
		require.NoError(t, k.Policy().Decide(&Request{Tokens: 1000, BlockSize: 16, Explain: true}, cs, &d))
		for _, term := range d.Terms {
			if term.Name == "ttft/unheard" {
				return d, term.Values
			}
		}
		t.Fatal("not explained")
		return d, nil
	}
	d, term := decide([3]float64{0, 2000, 4000}, [3]float64{5000, 0, 5000})
	require.Equal(t, WorkerID(1), d.Chosen.ID, "the first by what is known is another's")
	require.Equal(t, []float64{0.5, 0, 0.5}, term)
	d, term = decide([3]float64{0, 8000, 9000}, [3]float64{5000, 0, 5000})
	require.Equal(t, WorkerID(0), d.Chosen.ID, "one's own is busier than that")
	require.Equal(t, []float64{0.5, 0, 0.5}, term)
	_, term = decide([3]float64{}, [3]float64{1e6, 0, 12000})
	require.Equal(t, []float64{1, 0, 1}, term, "half of the objective")
	_, term = decide([3]float64{}, [3]float64{5000, 5000, 5000})
	require.Equal(t, []float64{0, 0, 0}, term, "none is one's own")
	// It makes late what would be in time: 1.4*1.2 s + 0.1 s, and 0.5 s.
	d, _ = decide([3]float64{12000, 12000, 30000}, [3]float64{5000, 5000, 0})
	require.Equal(t, "late everywhere: behind the longest queue", d.Reason)
	require.Equal(t, WorkerID(2), d.Chosen.ID)
	d, _ = decide([3]float64{12000, 12000, 30000}, [3]float64{})
	require.Empty(t, d.Reason)
}

// TestPeersReplicasAreBounded: numbers that no one has twice, as of a caller that draws
// one a note, do not grow what is kept; the requests count all the same.
func TestPeersReplicasAreBounded(t *testing.T) {
	loads, err := NewInFlight(InFlightOptions{})
	require.NoError(t, err)
	loads.Add(1)
	p, err := NewPeers(PeersOptions{InFlight: loads, Replica: 1})
	require.NoError(t, err)
	p.Add(1, "a")
	for id := range uint64(1000) {
		require.NoError(t, p.Heard(&PeerNote{Request: id, Replica: id + 2, Observation: Observation{Worker: 1, PromptTokens: 9}}))
	}
	require.NoError(t, p.Heard(&PeerNote{Request: 5000, Replica: 1, Observation: Observation{Worker: 1, PromptTokens: 9}}), "one's own, from a bus")
	require.ErrorIs(t, p.Heard(nil), ErrNil)
	require.Len(t, p.replicas, mostReplicas)
	require.Equal(t, Known(1000), load(t, loads, 1).Requests)
}
