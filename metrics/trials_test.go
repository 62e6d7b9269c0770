package metrics_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/kveventstest"
	"github.com/kvatlas/kvatlas/metrics"
	"github.com/kvatlas/kvatlas/scoring"
)

// TestSeriesAreBounded: trial T150. There are as many series after a million
// blocks of a hundred adapters, published under a thousand topics and matched
// with as many salts, as after ten.
func TestSeriesAreBounded(t *testing.T) {
	f := newFleet(t, "", "a")
	e := engine(t, kveventstest.Options{})
	f.subscribe(kvevents.SubscriberOptions{}, kvevents.Target{Worker: "a", Endpoint: e.Endpoint()})
	subscribed(t, e)
	c := collector(t, metrics.Options{}, f)
	n := uint64(0)
	publish := func(blocks int) {
		s := stored(n*1000+1, blocks)
		s.HasLoRAID, s.LoRAID, s.LoRAName = true, int64(n%100), fmt.Appendf(nil, "adapter-%d", n%100)
		s.SessionID = fmt.Appendf(nil, "session-%d", n)
		require.NoError(t, e.SendRaw(fmt.Appendf(nil, "topic-%d", n%1000), binary.BigEndian.AppendUint64(nil, n), payload(t, s)))
		n++
		f.applied("a", n)
		req := kvatlas.Request{Prompt: blockhash.Prompt{
			Tokens: make([]uint32, 64), CacheSalt: fmt.Sprintf("salt-%d", n), LoRA: &blockhash.LoRA{Name: fmt.Sprintf("adapter-%d", n%100), ID: int64(n % 100)},
		}, Session: fmt.Sprintf("session-%d", n)}
		var choice kvatlas.Choice
		require.NoError(t, f.Atlas.Route(&req, &choice))
		require.NoError(t, f.Atlas.Reported("a", 0, 0))
	}
	publish(10)
	before := count(t, c)
	require.NotZero(t, before)
	for range 1000 {
		publish(1000)
	}
	v, _ := value(t, c, "kvatlas_index_blocks", "medium", "GPU")
	require.Equal(t, 1_000_010.0, v)
	require.Equal(t, before, count(t, c))
	text := string(exposition(t, c))
	for _, what := range []string{"topic", "adapter", "salt", "session"} {
		require.NotContains(t, text, what+"-")
	}
}

// TestEventsAndBlocks: trial T154. An event that stores three blocks whose parent
// nobody knows is one event and three blocks.
func TestEventsAndBlocks(t *testing.T) {
	f := newFleet(t, "", "hash")
	f.worker(kvatlas.Worker{Name: "content", Release: "0.20.2"}) // its seed is random
	orphan := stored(7, 3)
	orphan.HasParent, orphan.Parent = true, 6
	c := collector(t, metrics.Options{}, f)
	for _, w := range []string{"hash", "content"} {
		require.NoError(t, f.Atlas.Apply(w, payload(t, orphan)))
		v, ok := value(t, c, "kvatlas_events_total", "worker", w, "kind", "stored")
		require.True(t, ok)
		require.Equal(t, 1.0, v, w)
	}
	v, _ := value(t, c, "kvatlas_blocks_total", "worker", "hash", "operation", "stored")
	require.Equal(t, 3.0, v)

	v, _ = value(t, c, "kvatlas_orphan_blocks", "worker", "content")
	require.Equal(t, 3.0, v)
	v, _ = value(t, c, "kvatlas_orphan_blocks", "worker", "hash")
	require.Zero(t, v)

	bare := stored(100, 3) // no tokens: no key can be made
	bare.Tokens = nil
	require.NoError(t, f.Atlas.Apply("content", payload(t, bare)))
	v, _ = value(t, c, "kvatlas_unplaced_blocks_total", "worker", "content")
	require.Equal(t, 3.0, v)
	v, _ = value(t, c, "kvatlas_events_total", "worker", "content", "kind", "stored")
	require.Equal(t, 2.0, v)
}

// TestContradiction: a worker whose events are not those of its description, which
// peers call a parity mismatch, shows.
func TestContradiction(t *testing.T) {
	f := newFleet(t, "", "a", "b")
	c := collector(t, metrics.Options{}, f)
	e := stored(1, 2)
	e.BlockSize, e.Tokens = 2*blockSize, make([]uint32, 4*blockSize)
	require.NoError(t, f.Atlas.Apply("a", payload(t, e)))
	v, ok := value(t, c, "kvatlas_worker_contradicted", "worker", "a")
	require.True(t, ok)
	require.Equal(t, 1.0, v)
	v, _ = value(t, c, "kvatlas_worker_contradicted", "worker", "b")
	require.Zero(t, v)
}

// TestUnheard: a worker of which nothing came is told from one whose cache is empty, and an
// event of a type that is not known is a doubt until the engine clears.
func TestUnheard(t *testing.T) {
	f := newFleet(t, "", "mute", "empty", "odd")
	mute, empty, odd := engine(t, kveventstest.Options{}), engine(t, kveventstest.Options{Replay: true}), engine(t, kveventstest.Options{})
	f.subscribe(kvevents.SubscriberOptions{}, kvevents.Target{Worker: "mute", Endpoint: mute.Endpoint()},
		kvevents.Target{Worker: "empty", Endpoint: empty.Endpoint(), ReplayEndpoint: empty.ReplayEndpoint()}, kvevents.Target{Worker: "odd", Endpoint: odd.Endpoint()})
	c := collector(t, metrics.Options{}, f)
	subscribed(t, odd)
	odd.Publish(kvevents.Event{Kind: kvevents.AllBlocksCleared})
	becomes := func(want float64, name string, labels ...string) {
		t.Helper()
		require.Eventually(t, func() bool { v, ok := value(t, c, name, labels...); return ok && v == want }, 20*time.Second, time.Millisecond, "%s %v", name, labels)
	}
	becomes(1, "kvatlas_worker_unheard", "worker", "mute")
	becomes(0, "kvatlas_worker_unheard", "worker", "empty")
	becomes(0, "kvatlas_worker_unheard", "worker", "odd")
	becomes(0, "kvatlas_stream_doubt", "worker", "odd", "doubt", "unread")
	require.NoError(t, odd.SendRaw(nil, []byte{7: 1}, []byte{0x92, 0xcb, 0x40, 0x59, 0, 0, 0, 0, 0, 0, 0x91, 0x91, 0xa1, 'x'})) // [100.0, [["x"]]]
	becomes(1, "kvatlas_stream_doubt", "worker", "odd", "doubt", "unread")
	require.NoError(t, odd.SendRaw(nil, []byte{7: 2}, payload(t, kvevents.Event{Kind: kvevents.AllBlocksCleared})))
	becomes(0, "kvatlas_stream_doubt", "worker", "odd", "doubt", "unread")
}

// TestRestored: blocks taken from another router's snapshot show.
func TestRestored(t *testing.T) {
	e := engine(t, kveventstest.Options{Replay: true})
	target := kvevents.Target{Worker: "a", Endpoint: e.Endpoint(), ReplayEndpoint: e.ReplayEndpoint()}
	first, second := newFleet(t, "", "a"), newFleet(t, "", "a")
	first.subscribe(kvevents.SubscriberOptions{}, target)
	subscribed(t, e)
	e.Publish(stored(1, 3))
	first.applied("a", 1)
	var snapshot bytes.Buffer
	require.NoError(t, first.Atlas.WriteSnapshot(&snapshot))
	left, err := second.Atlas.ReadSnapshot(&snapshot)
	require.NoError(t, err)
	require.Empty(t, left)
	c := collector(t, metrics.Options{}, second)
	v, ok := value(t, c, "kvatlas_restored_blocks_total", "worker", "a")
	require.True(t, ok)
	require.Zero(t, v, "it waits for its stream")
	second.subscribe(kvevents.SubscriberOptions{Resume: second.Atlas.Resume}, target)
	require.Eventually(t, func() bool {
		v, ok := value(t, c, "kvatlas_restored_blocks_total", "worker", "a")
		return ok && v == 3
	}, 20*time.Second, time.Millisecond)
}

// TestAutomaticWorkerWaits: batches that wait for an automatic worker's engine to be
// found, and those given up meanwhile, show.
func TestAutomaticWorkerWaits(t *testing.T) {
	f := newFleet(t, "", "described")
	f.worker(kvatlas.Worker{Name: "auto", Auto: true})
	c := collector(t, metrics.Options{}, f)
	continued := stored(7, 3000) // tells nothing: what is before it is not known
	continued.HasParent, continued.Parent = true, 6
	message := payload(t, continued)
	require.NoError(t, f.Atlas.Apply("auto", message))
	require.NoError(t, f.Atlas.Apply("described", message))
	held := func(worker string) float64 {
		v, ok := value(t, c, "kvatlas_held_batches", "worker", worker)
		require.True(t, ok)
		return v
	}
	require.Equal(t, 1.0, held("auto"))
	require.Zero(t, held("described"))
	const more = 40
	for range more {
		require.NoError(t, f.Atlas.Apply("auto", message))
	}
	forgotten, ok := value(t, c, "kvatlas_forgotten_batches_total", "worker", "auto")
	require.True(t, ok)
	require.Positive(t, forgotten)
	require.Equal(t, 1.0+more, held("auto")+forgotten)
}

// TestShadowDecisions: a policy that decides without effect is compared with the one that
// has it.
func TestShadowDecisions(t *testing.T) {
	f := newFleet(t, "")
	same, err := scoring.Preset("roundrobin", nil)
	require.NoError(t, err)
	other, err := scoring.New(scoring.Options{Scorers: []scoring.WeightedScorer{{
		Scorer: scoring.NewScorer("first", func(_ *scoring.Request, c *scoring.Candidate) float64 { return -float64(c.ID) }), Weight: 1,
	}}})
	require.NoError(t, err)
	f.Atlas, err = kvatlas.New(kvatlas.Options{Policy: same, Shadow: other})
	require.NoError(t, err)
	f.worker(kvatlas.Worker{Name: "a"})
	f.worker(kvatlas.Worker{Name: "b"})
	c := collector(t, metrics.Options{}, f)
	var choice kvatlas.Choice
	for range 6 { // in turns, so that every other one is the first worker's
		require.NoError(t, f.Atlas.Route(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: []uint32{1, 2, 3}}}, &choice))
	}
	for result, want := range map[string]float64{"agreed": 3, "other": 3, "failed": 0} {
		v, ok := value(t, c, "kvatlas_shadow_decisions_total", "result", result)
		require.True(t, ok)
		require.Equal(t, want, v, result)
	}
}

// TestShadowTokens: how many more cached tokens a policy in the shadow would have
// found, or fewer.
func TestShadowTokens(t *testing.T) {
	usable := func(sign float64) *scoring.Policy {
		p, err := scoring.New(scoring.Options{Scorers: []scoring.WeightedScorer{{Weight: 1, Scorer: scoring.NewScorer("usable",
			func(_ *scoring.Request, c *scoring.Candidate) float64 { return sign * float64(c.Match.Usable) })}}})
		require.NoError(t, err)
		return p
	}
	prompt := blockhash.Prompt{Tokens: make([]uint32, 3*blockSize+1)}
	scheme, err := blockhash.SchemeFor("vllm", "0.33.0")
	require.NoError(t, err)
	h, err := blockhash.New(blockhash.Options{Scheme: scheme, BlockSize: blockSize, Seed: blockhash.SeedText("0")})
	require.NoError(t, err)
	held := stored(0, 3)
	held.Hashes, err = h.AppendKeys(nil, &prompt)
	require.NoError(t, err)
	for sign, want := range map[float64]float64{1: -2 * 3 * blockSize, -1: 2 * 3 * blockSize} {
		a, err := kvatlas.New(kvatlas.Options{Policy: usable(sign), Shadow: usable(-sign)})
		require.NoError(t, err)
		for _, name := range []string{"a", "b"} {
			require.NoError(t, a.AddWorker(kvatlas.Worker{Name: name, Release: "0.33.0", BlockSize: blockSize, Seed: blockhash.SeedText("0")}))
		}
		require.NoError(t, a.Apply("a", payload(t, held)))
		c, err := metrics.New(metrics.Options{}, metrics.Instance{Atlas: a})
		require.NoError(t, err)
		var choice kvatlas.Choice
		for range 2 {
			require.NoError(t, a.Route(&kvatlas.Request{Prompt: prompt}, &choice))
		}
		v, ok := value(t, c, "kvatlas_shadow_cached_tokens")
		require.True(t, ok)
		require.Equal(t, want, v)
	}
}

// TestSilentPublisher: trials T122 and T158. A worker that never publishes is
// told apart from one that does, scores nothing, and is no longer silent with its
// first batch.
func TestSilentPublisher(t *testing.T) {
	f := newFleet(t, "", "loud", "mute")
	loud, mute := engine(t, kveventstest.Options{}), engine(t, kveventstest.Options{})
	f.subscribe(kvevents.SubscriberOptions{SilentAfter: 300 * time.Millisecond},
		kvevents.Target{Worker: "loud", Endpoint: loud.Endpoint()}, kvevents.Target{Worker: "mute", Endpoint: mute.Endpoint()})
	subscribed(t, loud)
	subscribed(t, mute)
	c := collector(t, metrics.Options{}, f)
	n := uint64(0)
	require.Eventually(t, func() bool {
		n++
		loud.Publish(stored(n, 1)) // requests go on
		f.applied("loud", n)
		v, ok := value(t, c, "kvatlas_stream_silent", "worker", "mute")
		return ok && v == 1
	}, 10*time.Second, 20*time.Millisecond)
	v, _ := value(t, c, "kvatlas_stream_silent", "worker", "loud")
	require.Zero(t, v)
	v, _ = value(t, c, "kvatlas_stream_state", "worker", "mute", "state", "cold")
	require.Equal(t, 1.0, v)
	_, ok := value(t, c, "kvatlas_stream_last_message_timestamp_seconds", "worker", "mute")
	require.False(t, ok, "never heard of")
	v, ok = value(t, c, "kvatlas_stream_last_message_timestamp_seconds", "worker", "loud")
	require.True(t, ok)
	require.InDelta(t, float64(time.Now().UnixMilli())/1e3, v, 60)

	var m kvatlas.Match
	require.NoError(t, f.Atlas.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: make([]uint32, 64)}, Workers: []string{"mute"}}, &m))
	require.Zero(t, m.Workers[0].Usable)

	mute.Publish(stored(1, 1))
	f.applied("mute", 1)
	v, _ = value(t, c, "kvatlas_stream_silent", "worker", "mute")
	require.Zero(t, v)
}
