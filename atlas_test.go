package kvatlas_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
	"github.com/kvatlas/kvatlas/scoring"
)

const unit = 4

func newAtlas(t testing.TB, workers ...kvatlas.Worker) *kvatlas.Atlas {
	t.Helper()
	a, err := kvatlas.New(kvatlas.Options{})
	require.NoError(t, err)
	for _, w := range workers {
		require.NoError(t, a.AddWorker(w))
	}
	return a
}

func worker(name string) kvatlas.Worker {
	return kvatlas.Worker{Name: name, Release: "0.32.0", BlockSize: unit, Seed: blockhash.SeedText("0")}
}

// keysOf are the engine's hashes of a prompt.
func keysOf(t testing.TB, w kvatlas.Worker, p blockhash.Prompt) []uint64 {
	t.Helper()
	scheme, err := blockhash.SchemeFor("vllm", w.Release)
	require.NoError(t, err)
	h, err := blockhash.New(blockhash.Options{Scheme: scheme, Algorithm: w.Algorithm, BlockSize: w.BlockSize, Seed: w.Seed})
	require.NoError(t, err)
	keys, err := h.AppendKeys(nil, &p)
	require.NoError(t, err)
	return keys
}

func payload(t testing.TB, release string, events ...kvevents.Event) []byte {
	t.Helper()
	form, err := kvevents.FormFor("vllm", release)
	require.NoError(t, err)
	return kvevents.AppendBatch(nil, &kvevents.Batch{Events: events, HasRank: true}, form)
}

func stored(keys []uint64, tokens []uint32) kvevents.Event {
	return kvevents.Event{Kind: kvevents.BlockStored, Hashes: keys, Tokens: tokens, BlockSize: unit}
}

func removed(keys ...uint64) kvevents.Event {
	return kvevents.Event{Kind: kvevents.BlockRemoved, Hashes: keys}
}

func tokens(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(1000 + i)
	}
	return ids
}

// usable are the predicted tokens by worker.
func usable(t testing.TB, a *kvatlas.Atlas, p blockhash.Prompt, names ...string) map[string]int {
	t.Helper()
	var m kvatlas.Match
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: p, Workers: names}, &m))
	got := map[string]int{}
	for _, w := range m.Workers {
		got[w.Name] = w.Usable
	}
	return got
}

func TestWorkersComeAndGo(t *testing.T) {
	a := newAtlas(t, worker("a"), worker("b"))
	p := blockhash.Prompt{Tokens: tokens(10)}
	keys := keysOf(t, worker("a"), p)
	require.NoError(t, a.Apply("b", payload(t, "0.32.0", stored(keys, p.Tokens[:8]))))
	require.Equal(t, map[string]int{"a": 0, "b": 8}, usable(t, a, p))
	require.Equal(t, map[string]int{"b": 8}, usable(t, a, p, "b", "nobody"))

	require.NoError(t, a.AddWorker(worker("b")), "the same description again")
	require.Equal(t, 8, usable(t, a, p)["b"])
	other := worker("b")
	other.Release = "0.30.0"
	require.ErrorIs(t, a.AddWorker(other), kvatlas.ErrWorkerExists)

	require.True(t, a.RemoveWorker("b"))
	require.False(t, a.RemoveWorker("b"))
	require.ErrorIs(t, a.Apply("b", payload(t, "0.32.0")), kvatlas.ErrUnknownWorker)
	require.Equal(t, map[string]int{"a": 0}, usable(t, a, p))
	require.NoError(t, a.AddWorker(other), "under another description")
	require.Equal(t, map[string]int{"a": 0, "b": 0}, usable(t, a, p), "no ghost")
}

func TestRefusedWorkers(t *testing.T) {
	a := newAtlas(t)
	for name, w := range map[string]struct {
		worker kvatlas.Worker
		want   error
	}{
		"no name":                  {kvatlas.Worker{Release: "0.32.0", BlockSize: 16}, kvatlas.ErrWorkerName},
		"one of ours":              {kvatlas.Worker{Name: "\x00adapters of w", Release: "0.32.0", BlockSize: 16}, kvatlas.ErrWorkerName},
		"no block size":            {kvatlas.Worker{Name: "w", Release: "0.32.0"}, kvatlas.ErrBlockSize},
		"negative size":            {kvatlas.Worker{Name: "w", Release: "0.32.0", BlockSize: -16}, kvatlas.ErrBlockSize},
		"no release":               {kvatlas.Worker{Name: "w", BlockSize: 16}, blockhash.ErrScheme},
		"too old":                  {kvatlas.Worker{Name: "w", Release: "0.9.2", BlockSize: 16}, blockhash.ErrScheme},
		"another engine's release": {kvatlas.Worker{Name: "w", Engine: "sglang", Release: "0.32.0", BlockSize: 16}, blockhash.ErrScheme},
		"negative rank":            {kvatlas.Worker{Name: "w", Release: "0.32.0", BlockSize: 16, Rank: -1}, kvatlas.ErrOptions},
		"two releases": {kvatlas.Worker{Name: "w", Release: "0.32.0", BlockSize: 16,
			Cache: radix.ProfileOptions{Release: "0.20.2"}}, kvatlas.ErrOptions},
		"no engine": {kvatlas.Worker{Name: "w", Engine: "llamafile", Release: "1.0", BlockSize: 16}, kvatlas.ErrUnsupported},
		"xxhash before it was there": {kvatlas.Worker{Name: "w", Release: "0.11.2", BlockSize: 16, Algorithm: blockhash.XXHash,
			Seed: blockhash.SeedText("0")}, blockhash.ErrAlgorithm},
		"short root": {kvatlas.Worker{Name: "w", Release: "0.32.0", BlockSize: 16, Seed: blockhash.SeedRoot([]byte{1})}, blockhash.ErrRoot},
		"odd group": {kvatlas.Worker{Name: "w", Release: "0.32.0", BlockSize: 16,
			Cache: radix.ProfileOptions{Groups: []radix.Group{{BlockSize: 24}}}}, radix.ErrProfile},
	} {
		require.ErrorIs(t, a.AddWorker(w.worker), w.want, name)
	}
	_, err := kvatlas.New(kvatlas.Options{Weights: map[string]float64{"CPU": -1}})
	require.ErrorIs(t, err, radix.ErrOptions)
	_, err = kvatlas.New(kvatlas.Options{MemoBytes: -1})
	require.ErrorIs(t, err, kvatlas.ErrOptions)
}

func TestBadPayloadChangesNothing(t *testing.T) {
	a := newAtlas(t, worker("a"))
	p := blockhash.Prompt{Tokens: tokens(9)}
	whole := payload(t, "0.32.0", stored(keysOf(t, worker("a"), p), p.Tokens[:8]))
	for cut := range whole {
		require.Error(t, a.Apply("a", whole[:cut]))
	}
	require.Zero(t, usable(t, a, p)["a"])
	stats, _, err := a.Stats("a")
	require.NoError(t, err)
	require.Equal(t, uint64(len(whole)), stats.Undecodable)
	require.Zero(t, stats.Batches)
}

func TestBadPrompt(t *testing.T) {
	a := newAtlas(t, worker("a"))
	var m kvatlas.Match
	err := a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(9), Items: []blockhash.Item{{Offset: 4, Length: 2}, {Offset: 1, Length: 2}}}}, &m)
	require.Error(t, err)
	require.Empty(t, m.Workers)
	var c kvatlas.Choice
	require.ErrorIs(t, newAtlas(t).Route(&kvatlas.Request{}, &c), kvatlas.ErrNoWorkers)
}

// TestByContent: a root that nobody can know; hashes are whatever the engine says.
func TestByContent(t *testing.T) {
	w := kvatlas.Worker{Name: "a", Release: "0.32.0", BlockSize: unit, Algorithm: blockhash.XXHash}
	a := newAtlas(t, w)
	mode, ok := a.Mode("a")
	require.True(t, ok)
	require.Equal(t, kvatlas.ByContent, mode)

	p := blockhash.Prompt{Tokens: tokens(17)}
	apply := func(events ...kvevents.Event) { require.NoError(t, a.Apply("a", payload(t, w.Release, events...))) }
	parent := func(e kvevents.Event, hash uint64) kvevents.Event { e.Parent, e.HasParent = hash, true; return e }

	// Blocks 2 and 3 come before the ones they follow: they wait.
	apply(parent(stored([]uint64{13, 14}, p.Tokens[8:16]), 12))
	require.Zero(t, usable(t, a, p)["a"])
	apply(stored([]uint64{11, 12}, p.Tokens[:8]))
	require.Equal(t, 16, usable(t, a, p)["a"])

	salted := p
	salted.CacheSalt = "tenant"
	require.Zero(t, usable(t, a, salted)["a"], "another tenant's prompt")

	apply(removed(13))
	require.Equal(t, 8, usable(t, a, p)["a"], "block 3 is behind a hole")
	apply(parent(stored([]uint64{13}, p.Tokens[8:12]), 12))
	require.Equal(t, 16, usable(t, a, p)["a"], "and counts again when the hole is filled")

	apply(kvevents.Event{Kind: kvevents.AllBlocksCleared})
	require.Zero(t, usable(t, a, p)["a"])
	apply(parent(stored([]uint64{15}, p.Tokens[:4]), 999), stored([]uint64{16, 17}, p.Tokens[:12]))
	require.Zero(t, usable(t, a, p)["a"], "an unknown parent, and an event whose hashes have no place")
	stats, _, err := a.Stats("a")
	require.NoError(t, err)
	require.Equal(t, uint64(2), stats.Unplaced)
}

// TestOldReleaseByContent: where events do not tell salted blocks from plain ones,
// nothing is known until the worker is declared to get plain prompts only.
func TestOldReleaseByContent(t *testing.T) {
	w := kvatlas.Worker{Name: "a", Release: "0.13.0", BlockSize: unit}
	p := blockhash.Prompt{Tokens: tokens(9)}
	for _, plainOnly := range []bool{false, true} {
		w.PlainOnly = plainOnly
		a := newAtlas(t, w)
		require.NoError(t, a.Apply("a", payload(t, w.Release, stored([]uint64{1, 2}, p.Tokens[:8]))))
		var m kvatlas.Match
		require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
		if plainOnly {
			require.Equal(t, 8, m.Workers[0].Usable)
			require.Empty(t, m.Workers[0].Unknown)
		} else {
			require.Zero(t, m.Workers[0].Usable)
			require.Contains(t, m.Workers[0].Unknown, "PlainOnly")
		}
		salted := p
		salted.CacheSalt = "s"
		require.NoError(t, a.Match(&kvatlas.Request{Prompt: salted}, &m))
		require.Zero(t, m.Workers[0].Usable)
		require.NotEmpty(t, m.Workers[0].Unknown)
	}
}

// TestSink: what a stream forgets is forgotten, what it loses is counted.
func TestSink(t *testing.T) {
	byContent := kvatlas.Worker{Name: "b", Release: "0.32.0", BlockSize: unit, Algorithm: blockhash.XXHash}
	a := newAtlas(t, worker("a"), byContent)
	p := blockhash.Prompt{Tokens: tokens(9)}
	for name, hashes := range map[string][]uint64{"a": keysOf(t, worker("a"), p), "b": {1, 2}} {
		s, err := a.Sink(name)
		require.NoError(t, err)
		for _, cause := range []kvevents.ClearCause{kvevents.ClearLoss, kvevents.ClearRestart} {
			s.Apply(0, &kvevents.Batch{Events: []kvevents.Event{stored(hashes, p.Tokens[:8])}})
			require.Equal(t, 8, usable(t, a, p)[name])
			s.Lost(kvevents.Loss{From: 3, To: 5})
			s.Clear(cause)
			require.Zero(t, usable(t, a, p)[name])
		}
		stats, _, err := a.Stats(name)
		require.NoError(t, err)
		require.Equal(t, uint64(2), stats.Losses)
		require.Equal(t, uint64(6), stats.LostBatches)

		a.RemoveWorker(name)
		s.Apply(1, &kvevents.Batch{Events: []kvevents.Event{stored(hashes, p.Tokens[:8])}})
		s.Clear(kvevents.ClearRestart)
		require.NotContains(t, usable(t, a, p), name, "a removed worker's stream leaves no ghost")
	}
	_, err := a.Sink("a")
	require.ErrorIs(t, err, kvatlas.ErrUnknownWorker)
}

// TestLostRemovals: what may be too much is said to be an upper bound, until it is
// forgotten, by the stream or with the engine's own clear of its only pool.
func TestLostRemovals(t *testing.T) {
	p := blockhash.Prompt{Tokens: tokens(9)}
	for what, forget := range map[string]func(s kvevents.Sink){
		"clear":   func(s kvevents.Sink) { s.Clear(kvevents.ClearResync) },
		"restart": func(s kvevents.Sink) { s.Clear(kvevents.ClearRestart) },
		"engine's": func(s kvevents.Sink) {
			s.Apply(9, &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.AllBlocksCleared}}})
		},
		"not quite": nil,
	} {
		byContent := kvatlas.Worker{Name: "b", Release: "0.32.0", BlockSize: unit, Algorithm: blockhash.XXHash}
		a := newAtlas(t, worker("a"), byContent)
		for i, hashes := range [][]uint64{keysOf(t, worker("a"), p), {1, 2}} {
			s, err := a.Sink([]string{"a", "b"}[i])
			require.NoError(t, err)
			bound := func() bool {
				var m kvatlas.Match
				require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
				require.Equal(t, 8, m.Workers[i].Usable, what)
				return m.Workers[i].UpperBound
			}
			store := func() { s.Apply(0, &kvevents.Batch{Events: []kvevents.Event{stored(hashes, p.Tokens[:8])}}) }
			store()
			s.Lost(kvevents.Loss{From: 3, To: 5})
			require.False(t, bound(), "nothing but stores may be missing")
			s.Lost(kvevents.Loss{From: 7, To: 8, Removals: true})
			require.True(t, bound())
			if forget == nil {
				cpu := stored([]uint64{7}, nil)
				cpu.Medium = []byte("CPU")
				s.Apply(9, &kvevents.Batch{Events: []kvevents.Event{cpu}})
				require.NoError(t, a.Clear([]string{"a", "b"}[i], "GPU"))
				store()
				require.True(t, bound(), "the host's blocks are as they were")
				continue
			}
			forget(s)
			store()
			require.False(t, bound(), what)
		}
	}
}

// TestLostRemovalsOfHost: what is loaded from host memory is a bound too, also after a
// clear that leaves it there.
func TestLostRemovalsOfHost(t *testing.T) {
	w, p := worker("a"), blockhash.Prompt{Tokens: tokens(9)}
	w.Cache.Connector, w.Cache.Clear = radix.Offloading, radix.ClearDevice
	a := newAtlas(t, w)
	s, err := a.Sink("a")
	require.NoError(t, err)
	e := stored(keysOf(t, w, p), p.Tokens[:8])
	e.Medium = []byte("CPU")
	s.Apply(0, &kvevents.Batch{Events: []kvevents.Event{e}})
	m := matchOn(t, a, "a", p)
	require.Equal(t, []any{8, false}, []any{m.External, m.ExternalUpperBound})
	s.Lost(kvevents.Loss{From: 1, To: 1, Removals: true})
	require.True(t, matchOn(t, a, "a", p).ExternalUpperBound)
	s.Apply(2, &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.AllBlocksCleared}}})
	m = matchOn(t, a, "a", p)
	require.Equal(t, []any{8, true}, []any{m.External, m.ExternalUpperBound})
	s.Clear(kvevents.ClearDecay)
	s.Apply(3, &kvevents.Batch{Events: []kvevents.Event{e}})
	require.False(t, matchOn(t, a, "a", p).ExternalUpperBound)
}

// TestHandler: one engine of two ranks is two workers.
func TestHandler(t *testing.T) {
	var ranks []kvatlas.Worker
	for rank := range int32(2) {
		w := worker(fmt.Sprint("engine/", rank))
		w.Replica, w.Rank = "engine", rank
		ranks = append(ranks, w)
	}
	a := newAtlas(t, ranks...)
	again := worker("other name")
	again.Replica, again.Rank = "engine", 1
	require.ErrorIs(t, a.AddWorker(again), kvatlas.ErrWorkerExists)

	p := blockhash.Prompt{Tokens: tokens(9)}
	h := a.Handler()
	b := &kvevents.Batch{Events: []kvevents.Event{stored(keysOf(t, ranks[0], p), p.Tokens[:8])}}
	h.Apply(kvevents.Source{Worker: "engine", Rank: 1}, 0, b)
	h.Apply(kvevents.Source{Worker: "engine", Rank: 2}, 0, b)
	h.Apply(kvevents.Source{Worker: "nobody"}, 0, b)
	require.Equal(t, map[string]int{"engine/0": 0, "engine/1": 8}, usable(t, a, p))
	h.Lost(kvevents.Loss{Worker: "engine", Rank: 1, From: 1, To: 1})
	h.Clear(kvevents.Source{Worker: "engine", Rank: 1}, kvevents.ClearLoss)
	require.Equal(t, map[string]int{"engine/0": 0, "engine/1": 0}, usable(t, a, p))
}

// counts is an observer.
type counts [kvatlas.NumStages]atomic.Int64

func (c *counts) Observe(s kvatlas.Stage, d time.Duration) {
	if d >= 0 {
		c[s].Add(1)
	}
}

func TestSnapshot(t *testing.T) {
	var seen counts
	a, err := kvatlas.New(kvatlas.Options{MemoBytes: 1 << 20, Observer: &seen})
	require.NoError(t, err)
	require.NoError(t, a.AddWorker(worker("a")))
	require.NoError(t, a.AddWorker(kvatlas.Worker{Name: "b", Release: "0.32.0", BlockSize: unit, Algorithm: blockhash.XXHash}))
	p := blockhash.Prompt{Tokens: tokens(9)}
	keys := keysOf(t, worker("a"), p)
	require.NoError(t, a.Apply("a", payload(t, "0.32.0", stored(keys, p.Tokens[:8]), removed(keys[1]))))
	require.NoError(t, a.Apply("b", payload(t, "0.32.0", stored([]uint64{1, 2}, p.Tokens[:8]))))
	var c kvatlas.Choice
	require.NoError(t, a.Route(&kvatlas.Request{Prompt: p}, &c))
	require.NoError(t, a.Reported("a", 4, 4))
	require.NoError(t, a.Reported("a", 8, 4))
	require.NoError(t, a.Reported("a", 0, 8))
	require.ErrorIs(t, a.Reported("nobody", 0, 0), kvatlas.ErrUnknownWorker)

	s := a.Snapshot()
	require.Equal(t, uint64(1), s.Matches)
	require.Len(t, s.Workers, 2)
	require.Equal(t, kvatlas.Prediction{Exact: 1, Over: 1, Under: 1, OverTokens: 4, UnderTokens: 8}, s.Workers[0].Prediction)
	require.Equal(t, uint64(2), s.Workers[0].Events.Events)
	require.Equal(t, []string{"GPU"}, s.Workers[0].Media)
	require.Equal(t, 1, s.Workers[0].Index.Held[0].Blocks)
	require.Equal(t, 3, s.Index.Memberships)
	require.Equal(t, 3, s.Index.Blocks)
	require.InEpsilon(t, float64(s.Index.Bytes), s.Workers[0].Bytes[0]+s.Workers[1].Bytes[0], 1e-9, "each index is divided among its own workers")
	require.Equal(t, int64(1<<20), s.Memo.MaxBytes)
	for stage, want := range []int64{1, 1, 1, 2} {
		require.Equal(t, want, seen[stage].Load(), kvatlas.Stage(stage))
	}
}

// TestContradiction: a worker that is not as described is not matched by its
// description: by content if only its hashes are others, else not at all.
func TestContradiction(t *testing.T) {
	real := kvatlas.Worker{Release: "0.32.0", BlockSize: 16, Seed: blockhash.SeedText("0")}
	p := blockhash.Prompt{Tokens: tokens(161)}
	events := func(w kvatlas.Worker) []byte {
		e := stored(keysOf(t, w, p), p.Tokens[:160])
		e.BlockSize = w.BlockSize
		e.ExtraKeys = make([][]kvevents.ExtraKey, len(e.Hashes))
		return payload(t, w.Release, e)
	}
	for what, c := range map[string]struct {
		describe  func(*kvatlas.Worker)
		want      string
		byContent bool
	}{
		"as described":    {func(*kvatlas.Worker) {}, "", false},
		"another size":    {func(w *kvatlas.Worker) { w.BlockSize = 32 }, "16 tokens", false},
		"another seed":    {func(w *kvatlas.Worker) { w.Seed = blockhash.SeedText("00") }, "PYTHONHASHSEED", true},
		"another hash":    {func(w *kvatlas.Worker) { w.Algorithm = blockhash.SHA256CBOR }, "not with sha256_cbor", true},
		"another release": {func(w *kvatlas.Worker) { w.Release = "0.30.0" }, "", false}, // plain blocks hash alike
		"another form":    {func(w *kvatlas.Worker) { w.Release = "0.23.0" }, "not vllm 0.23.0", false},
		"another engine":  {func(w *kvatlas.Worker) { w.Engine, w.Release, w.Seed = "sglang", "0.5.23", blockhash.Seed{} }, "no known release", false},
	} {
		w := real
		w.Name = "w"
		c.describe(&w)
		a := newAtlas(t, w)
		for range 5 {
			require.NoError(t, a.Apply("w", events(real)))
		}
		var m kvatlas.Match
		require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
		stats, _, err := a.Stats("w")
		require.NoError(t, err)
		if c.want == "" || c.byContent {
			require.Equal(t, 160, m.Workers[0].Usable, what)
			require.Empty(t, m.Workers[0].Unknown, what)
			require.Contains(t, stats.Contradiction, c.want, what)
			require.Equal(t, c.byContent, m.Workers[0].Mode == kvatlas.ByContent, what)
			continue
		}
		require.Equal(t, m.Workers[0].Unknown, stats.Contradiction)
		require.Contains(t, m.Workers[0].Unknown, c.want, what)
		require.Zero(t, m.Workers[0].Usable, what)
		require.Zero(t, m.Workers[0].Combined, what)
	}
}

// TestNodes: SGLang before 0.4.8, whose events are nodes of a tree.
func TestNodes(t *testing.T) {
	w := kvatlas.Worker{Name: "a", Engine: "sglang", Release: "0.4.7", BlockSize: 1, PlainOnly: true}
	a := newAtlas(t, w)
	const root = 5740354900026072187
	node := func(hash, parent uint64, ids ...uint32) kvevents.Event {
		return kvevents.Event{Kind: kvevents.BlockStored, Hashes: []uint64{hash}, Tokens: ids, BlockSize: len(ids), Parent: parent, HasParent: true}
	}
	apply := func(events ...kvevents.Event) { require.NoError(t, a.Apply("a", payload(t, "0.20.2", events...))) }
	held := func(ids ...uint32) int {
		var m kvatlas.Match
		require.NoError(t, a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: append(ids, 0)}}, &m))
		return m.Workers[0].Usable
	}
	apply(node(1, root, 10, 11, 12), node(2, 1, 20, 21))
	require.Equal(t, 5, held(10, 11, 12, 20, 21))
	require.Zero(t, held(20, 21))

	// A split: the child keeps its place.
	apply(removed(1), node(3, root, 10), node(4, 3, 11, 12))
	require.Equal(t, 5, held(10, 11, 12, 20, 21))
	apply(node(5, 3, 30))
	require.Equal(t, 2, held(10, 30))

	// Equal tokens elsewhere share the hash: when one of the two goes, nothing
	// tells which.
	apply(node(6, root, 40), node(5, 6, 30))
	require.Equal(t, 2, held(40, 30))
	apply(node(7, 5, 50))
	require.Equal(t, 2, held(40, 30, 50), "a child of either matches nothing")
	apply(removed(5))
	require.Equal(t, 1, held(10, 30))
	require.Equal(t, 1, held(40, 30))

	apply(removed(99))
	apply(kvevents.Event{Kind: kvevents.AllBlocksCleared})
	require.Zero(t, held(10, 11))
	require.ErrorIs(t, a.AddWorker(kvatlas.Worker{Name: "b", Engine: "sglang", Release: "0.4.7", BlockSize: 1,
		Cache: radix.ProfileOptions{Eagle: true}}), kvatlas.ErrUnsupported)
	require.ErrorIs(t, a.AddWorker(kvatlas.Worker{Name: "b", Engine: "sglang", Release: "0.5.22", BlockSize: 1,
		Cache: radix.ProfileOptions{Groups: []radix.Group{{}}}}), kvatlas.ErrUnsupported)
}

func TestMedia(t *testing.T) {
	a := newAtlas(t, worker("a"))
	p := blockhash.Prompt{Tokens: tokens(17)}
	keys := keysOf(t, worker("a"), p)
	onCPU := stored(keys[2:], nil)
	onCPU.Medium, onCPU.BlockSize = []byte("CPU"), 0
	require.NoError(t, a.Apply("a", payload(t, "0.32.0", stored(keys[:2], p.Tokens[:8]), onCPU)))
	var m kvatlas.Match
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
	w := m.Workers[0]
	require.Equal(t, 8, w.Usable)
	require.Equal(t, 4, w.Combined)
	require.InDelta(t, 2*1+2*0.8, w.Score, 1e-9)
	require.NoError(t, a.Clear("a", "gpu"))
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
	require.Zero(t, m.Workers[0].Usable)
}

// TestClearOfNoMedium: a name that nothing has is a mistake, and said; it clears
// nothing, nor is it a medium from then on.
func TestClearOfNoMedium(t *testing.T) {
	a, err := kvatlas.New(kvatlas.Options{Weights: map[string]float64{"disk": 0.4}})
	require.NoError(t, err)
	require.NoError(t, a.AddWorker(worker("a")))
	p := blockhash.Prompt{Tokens: tokens(9)}
	keys := keysOf(t, worker("a"), p)
	onTape := stored(keys, nil)
	onTape.Medium, onTape.BlockSize = []byte("TAPE"), 0
	require.NoError(t, a.Apply("a", payload(t, "0.32.0", stored(keys, p.Tokens[:8]))))
	for range 2 {
		require.ErrorIs(t, a.Clear("a", "tape"), kvatlas.ErrMedium)
		require.ErrorIs(t, a.Clear("a", "GPU", "GPUU"), kvatlas.ErrMedium)
	}
	require.NoError(t, a.Clear("a", "Disk"), "which the options name")
	require.NoError(t, a.Clear("a", "cpu"))
	require.Equal(t, 8, usable(t, a, p)["a"])
	require.NoError(t, a.Apply("a", payload(t, "0.32.0", onTape)))
	require.NoError(t, a.Clear("a", "tape", "disk"))
	require.Equal(t, 8, usable(t, a, p)["a"])
	_, held, err := a.Stats("a")
	require.NoError(t, err)
	require.Len(t, held.Held, 1)
	require.NoError(t, a.Clear("a", ""))
	require.Zero(t, usable(t, a, p)["a"])
	require.ErrorIs(t, a.Clear("b", "tape"), kvatlas.ErrUnknownWorker)
}

func TestRouteWeighsLoad(t *testing.T) {
	policy, err := scoring.Preset("llm-d", scoring.Seeded(1))
	require.NoError(t, err)
	a, err := kvatlas.New(kvatlas.Options{Policy: policy})
	require.NoError(t, err)
	require.NoError(t, a.AddWorker(worker("a")))
	require.NoError(t, a.AddWorker(worker("b")))
	var c kvatlas.Choice
	p := blockhash.Prompt{Tokens: tokens(33)}
	for _, idle := range []string{"a", "b", "a"} {
		for _, name := range []string{"a", "b"} {
			busy := 50.
			if name == idle {
				busy = 0
			}
			require.NoError(t, a.SetLoad(name, scoring.Load{Running: scoring.Known(busy), Waiting: scoring.Known(busy)}))
		}
		require.NoError(t, a.Route(&kvatlas.Request{Prompt: p, Explain: true}, &c))
		require.Equal(t, idle, c.Worker)
		require.NotEmpty(t, c.Decision.String())
	}
	require.ErrorIs(t, a.SetLoad("nobody", scoring.Load{}), kvatlas.ErrUnknownWorker)
}

func requests(t *testing.T, a *kvatlas.Atlas, p blockhash.Prompt) map[string]float64 {
	t.Helper()
	var c kvatlas.Choice
	require.NoError(t, a.Route(&kvatlas.Request{Prompt: p}, &c))
	got := map[string]float64{}
	for _, cand := range c.Candidates {
		require.True(t, cand.Load.Requests.Known)
		got[cand.Name] = cand.Load.Requests.Value
	}
	return got
}

func TestTrip(t *testing.T) {
	now := time.Unix(100, 0)
	a, err := kvatlas.New(kvatlas.Options{InFlight: scoring.InFlightOptions{Now: func() time.Time { return now }}})
	require.NoError(t, err)
	require.NoError(t, a.AddWorker(worker("a")))
	require.NoError(t, a.AddWorker(worker("b")))
	p := blockhash.Prompt{Tokens: tokens(33)}
	req := &kvatlas.Request{Prompt: p}
	var c kvatlas.Choice
	_, err = a.Begin(req, &c)
	require.ErrorIs(t, err, kvatlas.ErrNoWorkers, "nothing was chosen")

	require.NoError(t, a.Route(req, &c))
	first := c.Worker
	trip, err := a.Begin(req, &c)
	require.NoError(t, err)
	require.Equal(t, 1., requests(t, a, p)[first])
	now = now.Add(time.Second)
	trip.FirstToken()
	trip.Output(3)
	trip.Finish(0)
	trip.Finish(0)
	trip.Fail()
	require.Zero(t, requests(t, a, p)[first], "ended once")
	require.Equal(t, uint64(1), a.Snapshot().Workers[map[string]int{"a": 0, "b": 1}[first]].Prediction.Exact)

	require.NoError(t, a.Route(req, &c))
	trip, err = a.Begin(req, &c)
	require.NoError(t, err)
	other := map[string]string{"a": "b", "b": "a"}[c.Worker]
	require.ErrorIs(t, trip.Served("nobody"), kvatlas.ErrUnknownWorker)
	require.NoError(t, trip.Served(other))
	require.Equal(t, map[string]float64{c.Worker: 0, other: 1}, requests(t, a, p))
	trip.Fail()
	require.Equal(t, map[string]float64{"a": 0, "b": 0}, requests(t, a, p))

	require.NoError(t, a.Route(req, &c))
	a.RemoveWorker(c.Worker)
	_, err = a.Begin(req, &c)
	require.ErrorIs(t, err, scoring.ErrUnknownWorker)
	var none kvatlas.Trip
	none.FirstToken()
	none.Finish(1)
	none.Fail()
	require.NoError(t, none.Served("a"))
}

// TestTripOfRemovedWorker: what was sent to a worker that is gone says nothing of another
// one that has its name, moves there when that serves it, and leaves nothing behind.
func TestTripOfRemovedWorker(t *testing.T) {
	now := time.Unix(100, 0)
	a, err := kvatlas.New(kvatlas.Options{InFlight: scoring.InFlightOptions{Now: func() time.Time { return now }}})
	require.NoError(t, err)
	p := blockhash.Prompt{Tokens: tokens(33)}
	req := &kvatlas.Request{Prompt: p}
	begin := func() kvatlas.Trip {
		require.NoError(t, a.AddWorker(worker("a")))
		var c kvatlas.Choice
		require.NoError(t, a.Route(req, &c))
		trip, err := a.Begin(req, &c)
		require.NoError(t, err)
		now = now.Add(time.Second)
		trip.FirstToken()
		require.True(t, a.RemoveWorker("a"))
		return trip
	}
	trip := begin()
	require.ErrorIs(t, trip.Served("a"), kvatlas.ErrUnknownWorker)
	require.NoError(t, a.AddWorker(worker("a")))
	require.NoError(t, trip.Served("a"))
	require.Equal(t, 1., requests(t, a, p)["a"])
	require.NoError(t, trip.Served("a"))
	trip.Fail()
	require.Zero(t, requests(t, a, p)["a"])

	require.True(t, a.RemoveWorker("a"))
	trip = begin()
	require.NoError(t, a.AddWorker(worker("a")))
	sink, err := a.Sink("a")
	require.NoError(t, err)
	sink.(kvevents.Emptier).Empty()
	trip.Finish(16)
	require.Zero(t, a.Snapshot().Workers[0].Prediction, "is of the one before")
	var m kvatlas.Match
	require.NoError(t, a.Match(req, &m))
	require.False(t, m.Workers[0].Unheard, "it served nothing yet")

	learned := func() int64 {
		return reflect.ValueOf(a).Elem().FieldByName("learner").Elem().FieldByName("workers").FieldByName("n").Int()
	}
	require.Zero(t, learned())
	require.True(t, a.RemoveWorker("a"))
	for range 5 {
		trip := begin()
		trip.Finish(0)
	}
	require.Zero(t, learned())
	require.NoError(t, a.AddWorker(worker("a")))
	var c kvatlas.Choice
	require.NoError(t, a.Route(req, &c))
	trip, err = a.Begin(req, &c)
	require.NoError(t, err)
	now = now.Add(time.Second)
	trip.FirstToken()
	trip.Finish(0)
	require.Equal(t, int64(1), learned())
}

// TestSpeculation: siblings of a burst go together before the engine has
// announced anything, by hash and by content; a claim ends with its failure, with
// a clear, and when an event confirms it.
func TestSpeculation(t *testing.T) {
	for _, algorithm := range []blockhash.Algorithm{blockhash.SHA256, blockhash.XXHash} {
		policy, err := scoring.New(scoring.PrefixLoad())
		require.NoError(t, err)
		a, err := kvatlas.New(kvatlas.Options{Policy: policy, Speculate: true})
		require.NoError(t, err)
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, a.AddWorker(kvatlas.Worker{Name: name, Release: "0.32.0", BlockSize: unit, Algorithm: algorithm}))
		}
		req := &kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(33)}}
		var c kvatlas.Choice
		route := func() (worker string, speculative int32) {
			require.NoError(t, a.Route(req, &c))
			return c.Worker, c.Decision.Chosen.Match.Speculative
		}
		first, n := route()
		require.Zero(t, n)
		trip, err := a.Begin(req, &c)
		require.NoError(t, err)
		second, n := route()
		require.Equal(t, first, second)
		require.Equal(t, int32(8), n)
		require.Zero(t, c.Match.Workers[c.Match.Find(first)].Usable, "the index knows what was announced only")

		trip.Fail()
		_, n = route()
		require.Zero(t, n)
		trip, err = a.Begin(req, &c)
		require.NoError(t, err)
		require.NoError(t, a.Clear(c.Worker))
		_, n = route()
		require.Zero(t, n)

		trip, err = a.Begin(req, &c)
		require.NoError(t, err)
		hashes := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
		if algorithm == blockhash.SHA256 {
			hashes = keysOf(t, kvatlas.Worker{Release: "0.32.0", BlockSize: unit}, req.Prompt)
		}
		require.NoError(t, a.Apply(c.Worker, payload(t, "0.32.0", stored(hashes, req.Prompt.Tokens[:32]))))
		confirmed, n := route()
		require.Zero(t, n)
		require.Equal(t, c.Worker, confirmed)
		require.Equal(t, 32, c.Match.Workers[c.Match.Find(confirmed)].Usable)
		trip.Finish(0)
	}
}

// TestRandomStreams compares with a map of counts on random stores, removals and clears.
func TestRandomStreams(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		memo := int64(seed%2) << 20 // hashing with and without a memory
		names := []string{"a", "b", "c"}
		var workers []kvatlas.Worker
		for _, n := range names {
			workers = append(workers, worker(n))
		}
		a, err := kvatlas.New(kvatlas.Options{MemoBytes: memo})
		require.NoError(t, err)
		for _, w := range workers {
			require.NoError(t, a.AddWorker(w))
		}
		var prompts []blockhash.Prompt
		var keys [][]uint64
		for range 8 {
			p := blockhash.Prompt{Tokens: tokens(rnd.IntN(60) + 1)}
			if rnd.IntN(2) == 0 {
				p.Tokens[rnd.IntN(len(p.Tokens))]++
			}
			prompts, keys = append(prompts, p), append(keys, keysOf(t, workers[0], p))
		}
		held := map[string]map[uint64]int{"a": {}, "b": {}, "c": {}}
		for range 300 {
			name, i := names[rnd.IntN(3)], rnd.IntN(len(prompts))
			from := rnd.IntN(len(keys[i]) + 1)
			to := from + rnd.IntN(len(keys[i])-from+1)
			switch rnd.IntN(20) {
			case 0:
				require.NoError(t, a.Apply(name, payload(t, "0.32.0", kvevents.Event{Kind: kvevents.AllBlocksCleared})))
				clear(held[name])
			case 1, 2, 3, 4, 5, 6, 7:
				require.NoError(t, a.Apply(name, payload(t, "0.32.0", removed(keys[i][from:to]...))))
				for _, k := range keys[i][from:to] {
					held[name][k] = max(held[name][k]-1, 0)
				}
			default:
				require.NoError(t, a.Apply(name, payload(t, "0.32.0", stored(keys[i][from:to], prompts[i].Tokens[from*unit:to*unit]))))
				for _, k := range keys[i][from:to] {
					held[name][k]++
				}
			}
			q := rnd.IntN(len(prompts))
			got := usable(t, a, prompts[q])
			for _, name := range names {
				n := 0
				for n < len(keys[q]) && held[name][keys[q][n]] > 0 {
					n++
				}
				want := min(n, (len(prompts[q].Tokens)-1)/unit) * unit
				require.Equal(t, want, got[name], "seed %d, worker %s", seed, name)
			}
		}
	}
}

// TestConcurrent applies, matches, adds and removes at once, for the race detector. Every
// answer must be one that some instant of the call allowed: the worker that is
// never removed holds all or nothing of the prompt.
func TestConcurrent(t *testing.T) {
	a := newAtlas(t, worker("stays"))
	p := blockhash.Prompt{Tokens: tokens(33)}
	keys := keysOf(t, worker("stays"), p)
	store := payload(t, "0.32.0", stored(keys, p.Tokens[:32]))
	reset := payload(t, "0.32.0", kvevents.Event{Kind: kvevents.AllBlocksCleared})
	const rounds = 300
	var wg sync.WaitGroup
	wg.Go(func() {
		for range rounds {
			require.NoError(t, a.Apply("stays", store))
			require.NoError(t, a.Apply("stays", reset))
		}
	})
	for i := range 2 {
		name := fmt.Sprint("comes", i)
		wg.Go(func() {
			for range rounds {
				require.NoError(t, a.AddWorker(worker(name)))
				_ = a.Apply(name, store)
				a.RemoveWorker(name)
			}
		})
		wg.Go(func() {
			var c kvatlas.Choice
			for range rounds {
				require.NoError(t, a.Route(&kvatlas.Request{Prompt: p}, &c))
				i := slices.IndexFunc(c.Match.Workers, func(w kvatlas.WorkerMatch) bool { return w.Name == "stays" })
				require.GreaterOrEqual(t, i, 0)
				require.Contains(t, []int{0, 32}, c.Match.Workers[i].Usable)
			}
		})
	}
	wg.Wait()
	require.Equal(t, map[string]int{"stays": 0}, usable(t, a, p))
}

// TestShadow: the shadow sees what the policy sees, and decides nothing.
func TestShadow(t *testing.T) {
	lowest := func(value func(*scoring.Candidate) float64) *scoring.Policy {
		p, err := scoring.New(scoring.Options{Scorers: []scoring.WeightedScorer{{Weight: 1, Scorer: scoring.NewScorer("test",
			func(_ *scoring.Request, c *scoring.Candidate) float64 { return value(c) })}}})
		require.NoError(t, err)
		return p
	}
	var chosen, shadow string
	var gained int
	a, err := kvatlas.New(kvatlas.Options{
		Policy: lowest(func(c *scoring.Candidate) float64 { return -float64(c.Match.Usable) }),
		Shadow: lowest(func(c *scoring.Candidate) float64 { return float64(c.Match.Usable) }),
		ShadowReport: func(r scoring.ShadowReport) {
			require.NoError(t, r.Err)
			chosen, shadow, gained = r.Chosen.Name, r.Shadow.Name, r.CachedTokens
		},
	})
	require.NoError(t, err)
	require.NoError(t, a.AddWorker(worker("a")))
	require.NoError(t, a.AddWorker(worker("b")))
	p := blockhash.Prompt{Tokens: tokens(161)}
	require.NoError(t, a.Apply("b", payload(t, "0.32.0", stored(keysOf(t, worker("b"), p), p.Tokens[:160]))))
	var c kvatlas.Choice
	for range 3 {
		require.NoError(t, a.Route(&kvatlas.Request{Prompt: p}, &c))
		require.Equal(t, "a", c.Worker)
	}
	require.Equal(t, []any{"a", "b", 160}, []any{chosen, shadow, gained})
	require.Equal(t, scoring.ShadowStats{Decisions: 3, CachedTokens: 480}, a.Snapshot().Shadow)

	_, err = kvatlas.New(kvatlas.Options{ShadowReport: func(scoring.ShadowReport) {}})
	require.ErrorIs(t, err, kvatlas.ErrOptions)
}

func TestNoAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	byContent := worker("d")
	byContent.Algorithm, byContent.Seed = blockhash.XXHash, blockhash.Seed{}
	a := newAtlas(t, worker("a"), worker("b"), worker("c"), byContent)
	observed, err := kvatlas.New(kvatlas.Options{Observer: new(counts)})
	require.NoError(t, err)
	require.NoError(t, observed.AddWorker(worker("a")))
	other, err := scoring.Preset("prefix-load", scoring.Seeded(1))
	require.NoError(t, err)
	shadowed, err := kvatlas.New(kvatlas.Options{Shadow: other, ShadowReport: func(scoring.ShadowReport) {}})
	require.NoError(t, err)
	require.NoError(t, shadowed.AddWorker(worker("a")))
	p := blockhash.Prompt{Tokens: tokens(1601)}
	store := payload(t, "0.32.0", stored(keysOf(t, worker("a"), p), p.Tokens[:1600]))
	drop := payload(t, "0.32.0", removed(keysOf(t, worker("a"), p)...))
	for _, name := range []string{"a", "d"} {
		require.NoError(t, a.Apply(name, store))
		require.NoError(t, a.Apply(name, store))
	}
	require.NoError(t, observed.Apply("a", store))
	var m kvatlas.Match
	var c, oc, sc kvatlas.Choice
	req := &kvatlas.Request{Prompt: p}
	for name, f := range map[string]func(){
		"Match":                  func() { _ = a.Match(req, &m) },
		"Route":                  func() { _ = a.Route(req, &c) },
		"Route with an observer": func() { _ = observed.Route(req, &oc) },
		"Route with a shadow":    func() { _ = shadowed.Route(req, &sc) },
		"Apply":                  func() { _ = a.Apply("a", store); _ = a.Apply("a", drop) },
	} {
		f()
		require.Zero(t, testing.AllocsPerRun(200, f), name)
	}
	require.Equal(t, 1600, c.Match.Workers[0].Usable)
	require.Equal(t, 1600, c.Match.Workers[3].Usable)
	require.Equal(t, 1600, oc.Match.Workers[0].Usable)
}
