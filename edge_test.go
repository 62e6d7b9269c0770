package kvatlas_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
	"github.com/kvatlas/kvatlas/scoring"
)

// TestOneEngineCannot: a prompt that one engine of a mixed fleet cannot hash is
// unknown there and matched elsewhere; one that none can is an error.
func TestOneEngineCannot(t *testing.T) {
	a := newAtlas(t, worker("vllm"), kvatlas.Worker{Name: "sglang", Engine: "sglang", Release: "0.5.23", BlockSize: unit})
	image := blockhash.Prompt{Tokens: tokens(9), Items: []blockhash.Item{{Identifier: "x", Offset: 1, Length: 2}}}
	keys := keysOf(t, worker("vllm"), image)
	require.NoError(t, a.Apply("vllm", payload(t, "0.32.0", stored(keys, image.Tokens[:8]))))
	var c kvatlas.Choice
	require.NoError(t, a.Route(&kvatlas.Request{Prompt: image}, &c))
	require.Equal(t, 8, c.Match.Workers[c.Match.Find("vllm")].Usable)
	require.Contains(t, c.Match.Workers[c.Match.Find("sglang")].Unknown, "Items")

	var m kvatlas.Match
	require.Error(t, a.Match(&kvatlas.Request{Prompt: image, Workers: []string{"sglang"}}, &m))
	bad := blockhash.Prompt{Tokens: tokens(9), Items: []blockhash.Item{{Offset: -1}}}
	require.Error(t, a.Match(&kvatlas.Request{Prompt: bad}, &m))
}

// TestNothingGiven: nil arguments and an Atlas that New did not make are errors,
// not panics.
func TestNothingGiven(t *testing.T) {
	var zero kvatlas.Atlas
	a := newAtlas(t, worker("a"))
	var c kvatlas.Choice
	var m kvatlas.Match
	req := &kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(9)}}
	begin := func(a *kvatlas.Atlas, req *kvatlas.Request, c *kvatlas.Choice) error {
		_, err := a.Begin(req, c)
		return err
	}
	for name, got := range map[string]struct{ err, want error }{
		"match without result":   {a.Match(req, nil), kvatlas.ErrNil},
		"match without request":  {a.Match(nil, &m), kvatlas.ErrNil},
		"route without result":   {a.Route(req, nil), kvatlas.ErrNil},
		"route without request":  {a.Route(nil, &c), kvatlas.ErrNil},
		"begin without choice":   {begin(a, req, nil), kvatlas.ErrNil},
		"begin without request":  {begin(a, nil, &c), kvatlas.ErrNil},
		"no batch":               {a.ApplyBatch("a", nil), kvatlas.ErrNil},
		"nothing to decode into": {new(kvevents.Decoder).Decode(payload(t, "0.32.0"), nil), kvevents.ErrNoBatch},
		"zero Atlas, add":        {zero.AddWorker(worker("a")), kvatlas.ErrNoAtlas},
		"zero Atlas, match":      {zero.Match(req, &m), nil},
		"zero Atlas, route":      {zero.Route(req, &c), kvatlas.ErrNoWorkers},
		"zero Atlas, begin":      {begin(&zero, req, &c), kvatlas.ErrNoWorkers},
		"zero Atlas, apply":      {zero.Apply("a", payload(t, "0.32.0")), kvatlas.ErrUnknownWorker},
		"zero Atlas, reset":      {zero.Reset("a"), kvatlas.ErrUnknownWorker},
		"zero Atlas, load":       {zero.SetLoad("a", scoring.Load{}), kvatlas.ErrUnknownWorker},
	} {
		require.ErrorIs(t, got.err, got.want, name)
	}
	require.False(t, zero.RemoveWorker("a"))
	require.Empty(t, zero.Snapshot().Workers)
	_, ok := zero.Mode("a")
	require.False(t, ok)
	zero.Handler().Lost(kvevents.Loss{Worker: "a"})
	require.Equal(t, kvevents.AppendBatch(nil, &kvevents.Batch{}, kvevents.Form{}), kvevents.AppendBatch(nil, nil, kvevents.Form{}))
}

// TestRoutersAgree: routers that share nothing but the engines' metrics send the
// siblings of a new prompt to one worker, different prompts to different ones.
func TestRoutersAgree(t *testing.T) {
	var routers []*kvatlas.Atlas
	for i := range uint64(4) {
		a, err := kvatlas.New(kvatlas.Options{Speculate: true, KVAtlas: scoring.KVAtlasOptions{Random: scoring.Seeded(i), Explore: -1}})
		require.NoError(t, err)
		for _, name := range []string{"a", "b", "c", "d"} {
			require.NoError(t, a.AddWorker(kvatlas.Worker{Name: name, Release: "0.32.0", BlockSize: 16}))
			require.NoError(t, a.SetLoad(name, scoring.Load{Running: scoring.Known(3), Waiting: scoring.Known(0)}))
		}
		routers = append(routers, a)
	}
	chosen := map[string]int{}
	var c kvatlas.Choice
	for n := range 40 {
		prompt := append([]uint32{uint32(n)}, tokens(1000)...)
		first := ""
		for i, a := range routers {
			req := &kvatlas.Request{Prompt: blockhash.Prompt{Tokens: append(slices.Clone(prompt), uint32(i))}} // siblings
			require.NoError(t, a.Route(req, &c))
			if i == 0 {
				first = c.Worker
			}
			require.Equal(t, first, c.Worker, "prompt %d, router %d", n, i)
		}
		chosen[first]++
	}
	require.Len(t, chosen, 4, "%v", chosen)
}

// TestSpeculationByBlockSize: claims count in each worker's own blocks.
func TestSpeculationByBlockSize(t *testing.T) {
	policy, err := scoring.New(scoring.PrefixLoad())
	require.NoError(t, err)
	a, err := kvatlas.New(kvatlas.Options{Policy: policy, Speculate: true})
	require.NoError(t, err)
	require.NoError(t, a.AddWorker(kvatlas.Worker{Name: "small", Release: "0.32.0", BlockSize: 16}))
	var c kvatlas.Choice
	first := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(160)}}
	require.NoError(t, a.Route(&first, &c))
	_, err = a.Begin(&first, &c)
	require.NoError(t, err)
	require.NoError(t, a.AddWorker(kvatlas.Worker{Name: "large", Release: "0.32.0", BlockSize: 64}))
	require.NoError(t, a.Route(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(400)}}, &c))
	require.Equal(t, int32(160), c.Candidates[0].Match.Usable)
	require.Zero(t, c.Candidates[1].Match.Usable)
}

// TestRemovalEndsClaimsByContent, as it does by hash.
func TestRemovalEndsClaimsByContent(t *testing.T) {
	policy, err := scoring.New(scoring.PrefixLoad())
	require.NoError(t, err)
	a, err := kvatlas.New(kvatlas.Options{Policy: policy, Speculate: true})
	require.NoError(t, err)
	require.NoError(t, a.AddWorker(kvatlas.Worker{Name: "a", Release: "0.24.0", BlockSize: unit}))
	req := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(9)}}
	store := payload(t, "0.24.0", stored([]uint64{1, 2}, req.Prompt.Tokens[:8]))
	require.NoError(t, a.Apply("a", store))
	var c kvatlas.Choice
	require.NoError(t, a.Route(&req, &c))
	trip, err := a.Begin(&req, &c)
	require.NoError(t, err)
	trip.FirstToken()
	require.NoError(t, a.Apply("a", payload(t, "0.24.0", removed(1, 2))))
	require.NoError(t, a.Route(&req, &c))
	require.Zero(t, c.Candidates[0].Match.Usable)
}

// TestBeginNeedsAChoice: after a Route that failed there is none.
func TestBeginNeedsAChoice(t *testing.T) {
	a := newAtlas(t, worker("a"))
	req := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(9)}}
	var c kvatlas.Choice
	require.NoError(t, a.Route(&req, &c))
	require.Error(t, a.Route(&kvatlas.Request{Prompt: blockhash.Prompt{Items: []blockhash.Item{{Offset: -1}}}}, &c))
	_, err := a.Begin(&req, &c)
	require.ErrorIs(t, err, kvatlas.ErrNoWorkers)
}

// TestUnknownIsNotExact: where nothing was predicted, nothing was right.
func TestUnknownIsNotExact(t *testing.T) {
	a := newAtlas(t, kvatlas.Worker{Name: "a", Release: "0.13.0", BlockSize: unit})
	req := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(9)}}
	var c kvatlas.Choice
	require.NoError(t, a.Route(&req, &c))
	require.NotEmpty(t, c.Match.Workers[0].Unknown)
	trip, err := a.Begin(&req, &c)
	require.NoError(t, err)
	trip.Finish(0)
	require.NoError(t, a.Reported("a", 0, -1))
	require.Zero(t, a.Snapshot().Workers[0].Prediction)
}

func TestRefusedDescriptions(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*kvatlas.Worker)
		want   error
	}{
		"LMCache": {func(w *kvatlas.Worker) { w.Engine, w.Release = "lmcache", "0.5.6" }, kvatlas.ErrUnsupported},
		"Dynamo":  {func(w *kvatlas.Worker) { w.Engine, w.Release = "dynamo", "1.6.1" }, kvatlas.ErrUnsupported},
		"seed of SGLang": {func(w *kvatlas.Worker) {
			w.Engine, w.Release, w.Seed = "sglang", "0.5.20", blockhash.SeedText("0")
		}, kvatlas.ErrUnsupported},
		"chunks of LMCache's server": {func(w *kvatlas.Worker) {
			w.BlockSize, w.LMCache = 16, &kvatlas.LMCache{Release: "0.5.6", Multiprocess: true, ChunkTokens: 40}
		}, kvatlas.ErrOptions},
		"dynamo format, vLLM":  {func(w *kvatlas.Worker) { w.DynamoEvents = true }, kvatlas.ErrUnsupported},
		"capability":           {func(w *kvatlas.Worker) { w.Capability = math.NaN() }, kvatlas.ErrOptions},
		"infinite capability":  {func(w *kvatlas.Worker) { w.Capability = math.Inf(1) }, kvatlas.ErrOptions},
		"seed with a NUL":      {func(w *kvatlas.Worker) { w.Seed = blockhash.SeedText("0\x00") }, blockhash.ErrOptions},
		"seed, automatic":      {func(w *kvatlas.Worker) { w.Auto, w.Seed = true, blockhash.SeedText("\xff") }, blockhash.ErrOptions},
		"block of a half unit": {func(w *kvatlas.Worker) { w.BlockSize, w.Cache.HashUnit = 16, 7 }, kvatlas.ErrBlockSize},
	} {
		w := worker("w")
		c.change(&w)
		err := newAtlas(t).AddWorker(w)
		require.ErrorIs(t, err, c.want, what)
		require.ErrorContains(t, err, `"w"`)
	}
	_, err := kvatlas.New(kvatlas.Options{Seeds: []blockhash.Seed{blockhash.SeedText("7"), blockhash.SeedText("\x00")}})
	require.ErrorIs(t, err, kvatlas.ErrOptions)
	require.ErrorContains(t, err, "Seeds: ")
	_, err = kvatlas.New(kvatlas.Options{Policy: new(scoring.Policy)})
	require.ErrorIs(t, err, kvatlas.ErrOptions)
	require.ErrorContains(t, err, "Policy was not made")
	_, err = kvatlas.New(kvatlas.Options{Shadow: new(scoring.Policy)})
	require.ErrorIs(t, err, scoring.ErrOption)
	a := newAtlas(t, worker("a"))
	for _, v := range []float64{math.Inf(1), math.NaN(), -5} {
		require.ErrorIs(t, a.SetLoad("a", scoring.Load{Waiting: scoring.Known(v)}), kvatlas.ErrOptions)
	}
	err = a.SetLoad("a", scoring.Load{KVUsage: scoring.Known(37)})
	require.ErrorIs(t, err, kvatlas.ErrOptions)
	require.ErrorIs(t, err, scoring.ErrFigure)
	require.EqualError(t, err, `kvatlas: invalid options: scoring: KVUsage of worker "a" is 37; 0 to 1 is needed`)
	require.NoError(t, a.SetLoad("a", scoring.Load{KVUsage: scoring.Known(1), Queued: scoring.Known(-1)}), "of which Queued is not read")
}

// TestLongNamesAreCut: no error is as long as a name or release that somebody sent.
func TestLongNamesAreCut(t *testing.T) {
	long := strings.Repeat("n", 10_000)
	a := newAtlas(t, worker(long), worker("b"))
	add := func(change func(*kvatlas.Worker)) error {
		w := worker(long + "2")
		change(&w)
		return a.AddWorker(w)
	}
	_, vllm := kvatlas.VLLMWorker(long, []byte("{}"))
	_, sglang := kvatlas.SGLangWorker(long, []byte("{}"))
	_, begin := a.Begin(&kvatlas.Request{}, &kvatlas.Choice{})
	for what, err := range map[string]error{
		"exists":     a.AddWorker(kvatlas.Worker{Name: long, Release: "0.31.0", BlockSize: 32}),
		"NUL":        add(func(w *kvatlas.Worker) { w.Name = "\x00" + long }),
		"rank":       add(func(w *kvatlas.Worker) { w.Rank = -1 }),
		"release":    add(func(w *kvatlas.Worker) { w.Release = long }),
		"releases":   add(func(w *kvatlas.Worker) { w.Cache.Release = long }),
		"engine":     add(func(w *kvatlas.Worker) { w.Engine = long }),
		"auto":       add(func(w *kvatlas.Worker) { *w = kvatlas.Worker{Name: long + "2", Auto: true, Release: long} }),
		"capability": add(func(w *kvatlas.Worker) { w.Capability = -1 }),
		"source":     add(func(w *kvatlas.Worker) { w.Replica = long }),
		"load":       a.SetLoad(long, scoring.Load{RTT: scoring.Known(-1)}),
		"unknown":    a.SetLoad(long+"3", scoring.Load{}),
		"payload":    a.Apply(long, []byte{1}),
		"version":    vllm,
		"info":       sglang,
		"choice":     begin,
	} {
		require.Error(t, err, what)
		require.Less(t, len(err.Error()), 500, what)
	}
}

// TestAdapterWithoutPath: from 0.31 on a prompt with an adapter hashes to something
// else without its path, which would be a silent miss.
func TestAdapterWithoutPath(t *testing.T) {
	old := worker("old")
	old.Release = "0.30.0"
	a := newAtlas(t, worker("new"), old)
	p := blockhash.Prompt{Tokens: tokens(9), LoRA: &blockhash.LoRA{Name: "a"}}
	var m kvatlas.Match
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
	require.Contains(t, m.Workers[0].Unknown, "LoRA.Path")
	require.Empty(t, m.Workers[1].Unknown)
	p.LoRA.Path = "adapters/a"
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
	require.Empty(t, m.Workers[0].Unknown)
}

// TestAssumed: a release newer than all says so.
func TestAssumed(t *testing.T) {
	w := worker("a")
	w.Release = "9.9.9"
	a := newAtlas(t, worker("b"), w)
	s := a.Snapshot()
	require.False(t, s.Workers[0].Events.Assumed)
	require.True(t, s.Workers[1].Events.Assumed)
	five := kvatlas.Worker{Name: "c", Engine: "sglang", Release: "v0.5.6", BlockSize: unit}
	require.NoError(t, a.AddWorker(five))
	stats, _, err := a.Stats("c")
	require.NoError(t, err)
	require.Contains(t, stats.Limitation, "0.5.6")
}

// TestResetForgetsContradictions, by content too, where nothing else would.
func TestResetForgetsContradictions(t *testing.T) {
	a := newAtlas(t, kvatlas.Worker{Name: "a", Release: "0.24.0", BlockSize: unit})
	odd := stored([]uint64{1}, tokens(8))
	odd.BlockSize = 8
	require.NoError(t, a.Apply("a", payload(t, "0.24.0", odd)))
	req := &kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(9)}}
	var m kvatlas.Match
	require.NoError(t, a.Match(req, &m))
	require.Contains(t, m.Workers[0].Unknown, "8 tokens")
	require.NoError(t, a.Reset("a"))
	require.NoError(t, a.Match(req, &m))
	require.Empty(t, m.Workers[0].Unknown)
}

// TestOddExtraKey: a kind of extra key that is not known does not panic.
func TestOddExtraKey(t *testing.T) {
	a := newAtlas(t, kvatlas.Worker{Name: "a", Release: "0.24.0", BlockSize: unit})
	e := stored([]uint64{1, 2}, tokens(8))
	e.ExtraKeys = [][]kvevents.ExtraKey{{{Kind: 200}}, nil}
	require.NoError(t, a.ApplyBatch("a", &kvevents.Batch{Events: []kvevents.Event{e}}))
	require.Zero(t, usable(t, a, blockhash.Prompt{Tokens: tokens(9)})["a"])
}

// TestTokensOfBlocks: an event's hashes count with as many tokens as its blocks have, with
// more (masked groups), and without any; with fewer it contradicts itself and is left
// out, alone.
func TestTokensOfBlocks(t *testing.T) {
	p := blockhash.Prompt{Tokens: tokens(33)}
	keys := keysOf(t, worker(""), p)
	for what, c := range map[string]struct {
		first   kvevents.Event
		usable  int
		unknown uint64
	}{
		"as many":          {stored(keys[:2], p.Tokens[:8]), 16, 0},
		"more":             {stored(keys[:2], p.Tokens[:12]), 16, 0},
		"none":             {stored(keys[:2], nil), 16, 0},
		"opaque":           {kvevents.Event{Kind: kvevents.BlockStored, Hashes: keys[:2], BlockSize: unit, TokenForm: kvevents.TokensOpaque}, 16, 0},
		"fewer":            {stored(keys[:2], p.Tokens[:7]), 0, 1},
		"one":              {stored(keys[:2], p.Tokens[:1]), 0, 1},
		"half":             {stored(keys[:2], p.Tokens[:4]), 0, 1},
		"fewer, elsewhere": {kvevents.Event{Kind: kvevents.BlockStored, Hashes: keys[:2], Tokens: p.Tokens[:7], BlockSize: unit, Medium: []byte("CPU")}, 0, 0},
		"huge blocks":      {kvevents.Event{Kind: kvevents.BlockStored, Hashes: keys[:2], Tokens: p.Tokens[:8], BlockSize: math.MaxInt32}, 0, 1},
	} {
		a := newAtlas(t, worker("w"))
		rest := stored(keys[2:4], p.Tokens[8:16])
		rest.HasParent, rest.Parent = true, keys[1]
		require.NoError(t, a.ApplyBatch("w", &kvevents.Batch{Events: []kvevents.Event{c.first, rest}}))
		require.Equal(t, c.usable, usable(t, a, p)["w"], what)
		stats, x, err := a.Stats("w")
		require.NoError(t, err)
		require.Equal(t, c.unknown, stats.Malformed, what)
		require.Equal(t, 4-2*c.unknown, x.Stored, what)
	}
}

// TestEmptyOrphans: events without hashes cost nothing that stays.
func TestEmptyOrphans(t *testing.T) {
	x, err := radix.New(radix.Options{})
	require.NoError(t, err)
	w, err := x.AddWorker("w", nil)
	require.NoError(t, err)
	c, err := radix.NewContentMap(x, w, radix.ContentMapOptions{Limit: 10})
	require.NoError(t, err)
	place := func(dst []uint64, parent uint64) []uint64 { return append(dst, parent+1) }
	h := radix.Holder{Worker: w}
	for i := range uint64(1000) {
		require.NoError(t, c.Defer(h, 1_000_000+i, nil, place))
	}
	require.Zero(t, c.Stats().Waiting)

	// A chain that waits, released from its far end.
	for i := uint64(9); i > 0; i-- {
		require.NoError(t, c.Defer(h, i, []uint64{i + 1}, place))
	}
	require.Equal(t, 9, c.Stats().Waiting)
	require.NoError(t, c.Store(h, []uint64{1}, []uint64{100}))
	require.Zero(t, c.Stats().Waiting)
	key, ok := c.Parent(10)
	require.True(t, ok)
	require.Equal(t, uint64(109), key)

	require.NoError(t, c.Defer(h, 77, []uint64{78}, place))
	require.NoError(t, c.Clear())
	require.Zero(t, c.Stats().Waiting, "cleared while it waited")
}

// TestNoSuchGroup: an event of a group that cannot be is not counted for another.
func TestNoSuchGroup(t *testing.T) {
	for _, group := range []int32{-1, radix.MaxGroup + 1, math.MaxInt32} {
		a := newAtlas(t, worker("w"))
		prompt := blockhash.Prompt{Tokens: tokens(9)}
		e := stored(keysOf(t, worker("w"), prompt), prompt.Tokens[:8])
		e.HasGroup, e.Group = true, group
		require.NoError(t, a.ApplyBatch("w", &kvevents.Batch{Events: []kvevents.Event{e}}))
		var m kvatlas.Match
		require.NoError(t, a.Match(&kvatlas.Request{Prompt: prompt}, &m))
		require.Zero(t, m.Workers[0].Usable)
		stats, _, err := a.Stats("w")
		require.NoError(t, err)
		require.EqualValues(t, 1, stats.Malformed)
	}
}

// TestDescriptionsAreNotShared: what a caller does to a description after AddWorker, or to
// one from Worker, changes nothing.
func TestDescriptionsAreNotShared(t *testing.T) {
	describe := func() kvatlas.Worker {
		w := worker("w")
		w.Labels = []scoring.Label{{Key: "zone", Value: "a"}}
		w.Cache.Groups = []radix.Group{{Kind: radix.FullAttention}, {Kind: radix.SlidingWindow, Window: 64}}
		w.LMCache = &kvatlas.LMCache{Release: "0.5.6"}
		return w
	}
	given := describe()
	a := newAtlas(t, given)
	want, _ := a.Worker("w")
	got, _ := a.Worker("w")
	for _, w := range []*kvatlas.Worker{&given, &got} {
		w.Labels[0].Value, w.Cache.Groups[1].Window, w.LMCache.ChunkTokens = "b", 1, 1
	}
	again, _ := a.Worker("w")
	require.Equal(t, want, again)
	require.NoError(t, a.AddWorker(describe()), "the same description")
}

// TestBlockSizeOfMatches: a match says in what its blocks are counted.
func TestBlockSizeOfMatches(t *testing.T) {
	large := worker("large")
	large.BlockSize = 2 * unit
	a := newAtlas(t, worker("small"), large, kvatlas.Worker{Name: "unknown", Auto: true})
	var m kvatlas.Match
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(9)}}, &m))
	for i, want := range []int{unit, 2 * unit, 0} {
		require.Equal(t, want, m.BlockSize(i), m.Workers[i].Name)
	}
}

// TestAdapterWithoutName: by content, blocks of an adapter whose events have its number
// alone (vLLM to 0.18) are not those of the base model.
func TestAdapterWithoutName(t *testing.T) {
	for _, release := range []string{"0.10.2", "0.13.0", "0.18.1"} {
		a := newAtlas(t, kvatlas.Worker{Name: "a", Release: release, BlockSize: unit, PlainOnly: true})
		mode, _ := a.Mode("a")
		require.Equal(t, kvatlas.ByContent, mode)
		p := blockhash.Prompt{Tokens: tokens(9)}
		e := stored([]uint64{1, 2}, p.Tokens[:8])
		e.HasLoRAID, e.LoRAID = true, 1
		require.NoError(t, a.Apply("a", payload(t, release, e)))
		require.Zero(t, usable(t, a, p)["a"], release)
		e.HasLoRAID, e.Hashes = false, []uint64{3, 4}
		require.NoError(t, a.Apply("a", payload(t, release, e)))
		require.Equal(t, 8, usable(t, a, p)["a"], release)
	}
}

// TestOddBatches: batches that no decoder makes change nothing.
func TestOddBatches(t *testing.T) {
	p := blockhash.Prompt{Tokens: tokens(9)}
	for _, w := range []kvatlas.Worker{worker("a"), {Name: "a", Auto: true}, {Name: "a", Release: "0.32.0", BlockSize: unit}} {
		a := newAtlas(t, w)
		require.NoError(t, a.Apply("a", announced(t, worker(""), p)))
		sink, err := a.Sink("a")
		require.NoError(t, err)
		sink.Apply(0, nil)
		a.Handler().Apply(kvevents.Source{Worker: "a"}, 0, nil)
		require.ErrorIs(t, a.ApplyBatch("a", nil), kvatlas.ErrNil)
		for _, e := range []kvevents.Event{
			{Kind: 200, Hashes: []uint64{1}},
			{Kind: kvevents.BlockStored, Hashes: []uint64{1}, BlockSize: -unit, Tokens: tokens(unit)},
			{Kind: kvevents.BlockStored, Hashes: []uint64{1, 2}, BlockSize: math.MaxInt, Tokens: tokens(2 * unit)},
			{Kind: kvevents.BlockStored, Hashes: []uint64{1}, BlockSize: unit, Tokens: tokens(unit), TokenForm: 9},
			{Kind: kvevents.BlockStored, BlockSize: unit, Tokens: tokens(unit), ExtraKeys: [][]kvevents.ExtraKey{{{Kind: 9}}}},
		} {
			require.NoError(t, a.ApplyBatch("a", &kvevents.Batch{Events: []kvevents.Event{e}}))
			require.LessOrEqual(t, usable(t, a, p)["a"], 8)
		}
	}
}

// TestPairsLeaveTheLastTokenOut: under EAGLE SGLang's n tokens are n-1 pairs, and it looks
// up those of all tokens but the last.
func TestPairsLeaveTheLastTokenOut(t *testing.T) {
	scheme, err := blockhash.SchemeFor("sglang", "0.5.20")
	require.NoError(t, err)
	h, err := blockhash.New(blockhash.Options{Scheme: scheme, BlockSize: unit, EAGLE: true})
	require.NoError(t, err)
	a := newAtlas(t, kvatlas.Worker{Name: "a", Engine: "sglang", Release: "0.5.20", BlockSize: unit, Cache: radix.ProfileOptions{Eagle: true}})
	keys, err := h.AppendKeys(nil, &blockhash.Prompt{Tokens: tokens(3*unit + 1)})
	require.NoError(t, err)
	require.Len(t, keys, 3)
	require.NoError(t, a.ApplyBatch("a", &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.BlockStored, Hashes: keys, BlockSize: unit}}}))
	for n := range 4 * unit {
		want := min(max(n-2, 0)/unit, 3) * unit
		require.Equal(t, want, usable(t, a, blockhash.Prompt{Tokens: tokens(n)})["a"], "%d tokens", n)
	}
}

// TestNamespacesAreNoContradiction: in "format": "dynamo" events do not tell the namespace
// that is hashed: hashes that are not those of the tokens alone prove nothing there.
func TestNamespacesAreNoContradiction(t *testing.T) {
	form, err := kvevents.FormFor("sglang", "0.5.23")
	require.NoError(t, err)
	for _, dynamo := range []bool{true, false} {
		w := kvatlas.Worker{Name: "a", Engine: "sglang", Release: "0.5.23", BlockSize: unit, DynamoEvents: dynamo}
		a := newAtlas(t, w)
		for i := range 5 {
			e := stored([]uint64{uint64(i) + 1}, tokens(unit))
			e.Medium = []byte("GPU")
			require.NoError(t, a.Apply("a", kvevents.AppendBatch(nil, &kvevents.Batch{Events: []kvevents.Event{e}, HasRank: true}, form)))
		}
		stats, _, err := a.Stats("a")
		require.NoError(t, err)
		require.Equal(t, dynamo, stats.Contradiction == "", stats.Contradiction)
	}
}

// TestIndexBytes: at the limit a worker's oldest blocks are forgotten and counted, a
// small worker's are not.
func TestIndexBytes(t *testing.T) {
	const limit = 2 << 20
	a, err := kvatlas.New(kvatlas.Options{IndexBytes: limit})
	require.NoError(t, err)
	require.NoError(t, a.AddWorker(worker("big")))
	require.NoError(t, a.AddWorker(worker("small")))
	next := uint64(1)
	announce := func(name string, n int) {
		keys := make([]uint64, n)
		for i := range keys {
			keys[i] = next * 0x9e3779b97f4a7c15
			next++
		}
		e := stored(keys, nil)
		e.Medium = []byte("CPU")
		require.NoError(t, a.Apply(name, payload(t, "0.32.0", e)))
	}
	announce("small", 1000)
	for range 300 {
		announce("big", 1000)
	}
	s := a.Snapshot().Index
	require.Positive(t, s.Evicted)
	require.Less(t, s.Bytes, limit*5/4)
	_, x, err := a.Stats("small")
	require.NoError(t, err)
	require.Equal(t, 1000, x.Held[0].Blocks)

	_, err = kvatlas.New(kvatlas.Options{IndexBytes: -1})
	require.ErrorIs(t, err, radix.ErrOptions)
}

// TestNamedTwice: a worker that a request names twice has one entry.
func TestNamedTwice(t *testing.T) {
	a := newAtlas(t, worker("a"), worker("b"))
	var m kvatlas.Match
	for range 2 {
		require.NoError(t, a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(9)}, Workers: []string{"b", "a", "b", "?", "a"}}, &m))
		require.Len(t, m.Workers, 2)
		require.Equal(t, "b", m.Workers[0].Name)
		require.Equal(t, "a", m.Workers[1].Name)
	}
}
