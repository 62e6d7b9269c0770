package kvatlas_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/scoring"
)

// TestPeers: two replicas that number the workers differently tell each other what
// they send, as JSON; the second decides as if it had sent it.
func TestPeers(t *testing.T) {
	now := time.Unix(100, 0)
	clock := func() time.Time { return now }
	var second *kvatlas.Atlas
	var notes []scoring.PeerEvent
	replica := func(tell func(kvatlas.PeerNote), names ...string) *kvatlas.Atlas {
		a, err := kvatlas.New(kvatlas.Options{Speculate: true, Tell: tell, InFlight: scoring.InFlightOptions{Now: clock}})
		require.NoError(t, err)
		for _, name := range names {
			require.NoError(t, a.AddWorker(kvatlas.Worker{Name: name, Release: "0.32.0", BlockSize: unit, Algorithm: blockhash.SHA256}))
		}
		return a
	}
	first := replica(func(n kvatlas.PeerNote) {
		notes = append(notes, n.Event)
		b, err := json.Marshal(n)
		require.NoError(t, err)
		var heard kvatlas.PeerNote
		require.NoError(t, json.Unmarshal(b, &heard))
		require.NoError(t, second.Heard(heard))
		require.NoError(t, second.Heard(heard), "twice counts once")
	}, "a", "b", "c")
	second = replica(nil, "c", "b", "a")

	p := blockhash.Prompt{Tokens: tokens(4001)}
	req := &kvatlas.Request{Prompt: p}
	var c, other kvatlas.Choice
	require.NoError(t, first.Route(req, &c))
	chosen := c.Worker
	trip, err := first.Begin(req, &c)
	require.NoError(t, err)
	require.Equal(t, 1., requests(t, second, p)[chosen])
	require.NoError(t, second.Route(req, &other))
	require.Equal(t, chosen, other.Worker, "its blocks are known to be on their way")
	require.Equal(t, int32(1000), other.Decision.Chosen.Match.Speculative)
	require.Equal(t, scoring.Known(1), other.Decision.Chosen.Load.Peers)
	require.Equal(t, scoring.Known(4001), other.Decision.Chosen.Load.PrefillTokens)

	now = now.Add(time.Second)
	trip.FirstToken()
	trip.FirstToken() // tells once
	require.NoError(t, second.Route(req, &other))
	require.Equal(t, scoring.Known(0), other.Decision.Chosen.Load.PrefillTokens)
	trip.Finish(0)
	trip.Fail() // has ended
	require.Zero(t, requests(t, second, p)[chosen])

	// A retry moves there too, and a failure takes the blocks away.
	require.NoError(t, first.Route(req, &c))
	trip, err = first.Begin(req, &c)
	require.NoError(t, err)
	retry := map[string]string{"a": "b", "b": "c", "c": "a"}[c.Worker]
	now = now.Add(time.Second)
	trip.FirstToken()
	require.NoError(t, trip.Served(retry))
	require.Equal(t, 1., requests(t, second, p)[retry])
	now = now.Add(time.Second)
	trip.FirstToken() // of the other worker
	trip.Fail()
	require.Zero(t, requests(t, second, p)[retry])
	require.Equal(t, []scoring.PeerEvent{scoring.PeerSent, scoring.PeerFirstToken, scoring.PeerFinished,
		scoring.PeerSent, scoring.PeerFirstToken, scoring.PeerFailed, scoring.PeerSent, scoring.PeerFirstToken, scoring.PeerFailed}, notes)

	require.ErrorIs(t, second.Heard(kvatlas.PeerNote{Worker: "nobody"}), kvatlas.ErrUnknownWorker)
	require.ErrorIs(t, second.Heard(kvatlas.PeerNote{Worker: "a", PeerNote: scoring.PeerNote{Event: 4}}), scoring.ErrPeerEvent)

	// What was sent to a worker that is removed ends with it, though its end is not heard.
	require.NoError(t, first.Route(req, &c))
	trip, err = first.Begin(req, &c)
	require.NoError(t, err)
	require.Equal(t, 1, second.Snapshot().InFlight.Requests)
	require.True(t, second.RemoveWorker(c.Worker))
	require.Zero(t, second.Snapshot().InFlight.Requests)
}

// TestPeersExpect: prompts come to two replicas at the same instant, before one has heard
// of the other's. After some of them each has workers of its own that it uses first.
func TestPeersExpect(t *testing.T) {
	now := time.Unix(100, 0)
	type replica struct {
		*kvatlas.Atlas
		told []kvatlas.PeerNote
	}
	var replicas [2]replica
	for i, names := range [][]string{{"a", "b", "c", "d"}, {"d", "c", "b", "a"}} {
		r := &replicas[i]
		var err error
		r.Atlas, err = kvatlas.New(kvatlas.Options{Speculate: true, Tell: func(n kvatlas.PeerNote) { r.told = append(r.told, n) },
			InFlight: scoring.InFlightOptions{Now: func() time.Time { return now }}})
		require.NoError(t, err)
		for _, name := range names {
			require.NoError(t, r.AddWorker(kvatlas.Worker{Name: name, Release: "0.32.0", BlockSize: unit, Algorithm: blockhash.SHA256}))
		}
	}
	expected := func(r *replica) map[string]float64 {
		var c kvatlas.Choice
		require.NoError(t, r.Route(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(2000)}}, &c))
		m := map[string]float64{}
		for _, c := range c.Candidates {
			if c.Load.Unheard.Known {
				m[c.Name] = c.Load.Unheard.Value
			}
		}
		return m
	}
	require.Empty(t, expected(&replicas[0]), "nobody has told anything")
	prompt := tokens(4001)
	for n := range 300 {
		var trips [2]kvatlas.Trip
		for i := range replicas {
			prompt[0], prompt[1] = uint32(n), uint32(i)
			req := &kvatlas.Request{Prompt: blockhash.Prompt{Tokens: prompt}}
			var c kvatlas.Choice
			require.NoError(t, replicas[i].Route(req, &c))
			var err error
			trips[i], err = replicas[i].Begin(req, &c)
			require.NoError(t, err)
		}
		for _, step := range []func(*kvatlas.Trip){(*kvatlas.Trip).FirstToken, func(t *kvatlas.Trip) { t.Finish(0) }, nil} {
			now = now.Add(2 * time.Millisecond)
			for i := range replicas {
				for _, note := range replicas[i].told {
					require.NoError(t, replicas[1-i].Heard(note))
				}
				replicas[i].told = nil
			}
			if now = now.Add(200 * time.Millisecond); step != nil {
				step(&trips[0])
				step(&trips[1])
			}
		}
	}
	one, other := expected(&replicas[0]), expected(&replicas[1])
	require.Len(t, one, 4)
	for name, tokens := range one {
		require.InDelta(t, 4000, tokens+other[name], 200, name)
		require.Zero(t, min(tokens, other[name]), "%s is first one's own or the other's", name)
		require.Equal(t, name == "a" || name == "c", tokens == one["a"], "they take turns")
	}
	require.True(t, replicas[0].RemoveWorker("a"))
	require.Equal(t, one["a"], expected(&replicas[0])["b"], "b is now the first")
}
