package kvatlas_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/kveventstest"
)

// TestTrialT158Unheard: a worker of which no event came is said to be unheard, whether it has
// no replay or none that answers; one whose replay is empty is empty, until it serves a request
// and still announces nothing.
func TestTrialT158Unheard(t *testing.T) {
	mute, err := kveventstest.Start(kveventstest.Options{})
	require.NoError(t, err)
	defer mute.Close()
	empty, err := kveventstest.Start(kveventstest.Options{Replay: true})
	require.NoError(t, err)
	defer empty.Close()
	a := newAtlas(t, worker("mute"), worker("empty"))
	s, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: a.Handler()})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Add(kvevents.Target{Worker: "mute", Endpoint: mute.Endpoint()}))
	require.NoError(t, s.Add(kvevents.Target{Worker: "empty", Endpoint: empty.Endpoint(), ReplayEndpoint: empty.ReplayEndpoint()}))

	req := &kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(64)}}
	unheard := func() (out [2]bool) {
		var m kvatlas.Match
		require.NoError(t, a.Match(req, &m))
		for i := range m.Workers {
			out[i] = m.Workers[i].Unheard
		}
		return out
	}
	serve := func(name string) {
		var c kvatlas.Choice
		require.NoError(t, a.Route(&kvatlas.Request{Prompt: req.Prompt, Workers: []string{name}}, &c))
		trip, err := a.Begin(req, &c)
		require.NoError(t, err)
		trip.Finish(0)
	}
	require.Eventually(t, func() bool { return unheard() == [2]bool{true, false} }, 10*time.Second, time.Millisecond)
	serve("mute")
	require.Equal(t, [2]bool{true, false}, unheard())
	serve("empty")
	require.Equal(t, [2]bool{true, true}, unheard())
	require.Eventually(t, func() bool { // what is published before a subscription arrives is lost
		mute.Publish(kvevents.Event{Kind: kvevents.AllBlocksCleared})
		empty.Publish(kvevents.Event{Kind: kvevents.AllBlocksCleared})
		return unheard() == [2]bool{false, false}
	}, 10*time.Second, 20*time.Millisecond)
	serve("empty")
	require.Equal(t, [2]bool{false, false}, unheard())
	require.True(t, s.Remove("empty"))
	require.Equal(t, [2]bool{false, true}, unheard(), "nobody listens")
}

// TestUnknownTypeIsABound: after an event of unknown type, which may have been a removal, matches
// are upper bounds until the worker's blocks are forgotten.
func TestUnknownTypeIsABound(t *testing.T) {
	a := newAtlas(t, worker("w"))
	p := blockhash.Prompt{Tokens: tokens(9)}
	stored := announced(t, worker("w"), p)
	unknown := &kvevents.Batch{UnknownTypes: 1, Events: []kvevents.Event{{Type: []byte("BlockPinned")}}}
	require.NoError(t, a.ApplyBatch("w", unknown), "nothing was held")
	require.NoError(t, a.Apply("w", stored))
	require.False(t, matchOf(t, a, p.Tokens).UpperBound)
	require.NoError(t, a.ApplyBatch("w", unknown))
	require.Equal(t, 8, matchOf(t, a, p.Tokens).Usable)
	require.True(t, matchOf(t, a, p.Tokens).UpperBound)
	require.NoError(t, a.Clear("w"))
	require.NoError(t, a.Apply("w", stored))
	require.False(t, matchOf(t, a, p.Tokens).UpperBound)
}
