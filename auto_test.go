package kvatlas_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// announced is what an engine sends when it stores the whole blocks of a prompt.
func announced(t testing.TB, w kvatlas.Worker, p blockhash.Prompt) []byte {
	t.Helper()
	keys := keysOf(t, w, p)
	e := kvevents.Event{Kind: kvevents.BlockStored, Hashes: keys, Tokens: p.Tokens[:len(keys)*w.BlockSize], BlockSize: w.BlockSize,
		Medium: []byte("GPU"), HasGroup: true, SpecKind: []byte("full_attention"), ExtraKeys: make([][]kvevents.ExtraKey, len(keys))}
	if p.CacheSalt != "" {
		e.ExtraKeys[0] = []kvevents.ExtraKey{{Kind: kvevents.ExtraText, Text: []byte(p.CacheSalt)}}
	}
	for i := range p.Items {
		it := &p.Items[i]
		for j := range keys {
			if at := j * w.BlockSize; it.Offset < at+w.BlockSize && at < it.Offset+it.Length {
				e.ExtraKeys[j] = append(e.ExtraKeys[j], kvevents.ExtraKey{Kind: kvevents.ExtraItem, Text: []byte(it.Identifier), Offset: int64(it.Offset - at)})
			}
		}
	}
	return payload(t, w.Release, e)
}

func matchOn(t testing.TB, a *kvatlas.Atlas, name string, p blockhash.Prompt) kvatlas.WorkerMatch {
	t.Helper()
	var m kvatlas.Match
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: p, Workers: []string{name}}, &m))
	return m.Workers[0]
}

func profileOf(t testing.TB, a *kvatlas.Atlas, name string) kvatlas.Profile {
	t.Helper()
	p, err := a.Profile(name)
	require.NoError(t, err)
	return p
}

// TestOpenFeatures: releases that hash plain prompts alike stay open, and what they
// hash in different ways is unknown, until a block tells. No block is lost with it.
func TestOpenFeatures(t *testing.T) {
	plain := blockhash.Prompt{Tokens: tokens(17)}
	salted := blockhash.Prompt{Tokens: tokens(17), CacheSalt: "tenant"}
	image := blockhash.Prompt{Tokens: tokens(33)[16:], Items: []blockhash.Item{{Identifier: "ab", Offset: 1, Length: 3}}}
	for _, release := range []string{"0.24.0", "0.30.0", "0.32.0", "0.33.0"} {
		engine := worker("engine")
		engine.Release = release
		a := newAtlas(t, kvatlas.Worker{Name: "a", Auto: true})
		require.NotEmpty(t, matchOn(t, a, "a", plain).Unknown)
		require.False(t, profileOf(t, a, "a").Known)
		require.NotEmpty(t, profileOf(t, a, "a").Reason)

		require.NoError(t, a.Apply("a", announced(t, engine, plain)))
		require.Equal(t, 16, matchOn(t, a, "a", plain).Usable)
		p := profileOf(t, a, "a")
		require.True(t, p.Known)
		require.Equal(t, unit, p.BlockSize)
		require.Equal(t, blockhash.SeedText("0"), p.Seed)
		require.NotZero(t, p.Open&blockhash.FeatureSalt)
		require.Contains(t, p.Releases, "vllm from 0.24.0")
		require.Contains(t, matchOn(t, a, "a", salted).Unknown, "hash such prompts in different ways")
		require.NotEmpty(t, matchOn(t, a, "a", image).Unknown)

		told := salted
		if strings.HasSuffix(release, "0.0") { // an item tells as well
			told = image
		}
		require.NoError(t, a.Apply("a", announced(t, engine, told)))
		require.Equal(t, 16, matchOn(t, a, "a", plain).Usable, "kept")
		require.Equal(t, 16, matchOn(t, a, "a", told).Usable)
		require.Empty(t, matchOn(t, a, "a", salted).Unknown)
		require.Empty(t, matchOn(t, a, "a", image).Unknown)
		p = profileOf(t, a, "a")
		require.Zero(t, p.Open&(blockhash.FeatureSalt|blockhash.FeatureItems))
		scheme, err := blockhash.SchemeFor("vllm", release)
		require.NoError(t, err)
		_, alike := blockhash.Differ(blockhash.Options{Scheme: p.Scheme}, blockhash.Options{Scheme: scheme})
		require.True(t, alike)
	}
}

// replayTape applies the messages of a tape and checks that all predictions that are
// made are right.
func replayTape(t *testing.T, a *kvatlas.Atlas, name string, tp tape) (known int) {
	t.Helper()
	for i := range tp.steps {
		switch step := &tp.steps[i]; {
		case step.payload != nil:
			require.NoError(t, a.Apply(name, step.payload))
		case step.clear:
			require.NoError(t, a.Clear(name))
		default:
			if m := matchOn(t, a, name, *step.prompt); m.Unknown == "" {
				known++
				require.Equal(t, step.reported, m.Usable, "step %d", i)
			}
		}
	}
	return known
}

// TestUpgrade: an engine that comes back as another release, or another engine, is
// found again when nothing was given; one that was described is told.
func TestUpgrade(t *testing.T) {
	tapes := []tape{
		vllmTape(t, "vllm/server/0.20.2/truth-main.jsonl"),
		vllmTape(t, "vllm/server/0.32.0/truth-main.jsonl"),
		sglangTape(t, "sglang/truth/0.5.23-unified-page16.jsonl"),
		vllmTape(t, "vllm/server/0.20.2/truth-evict.jsonl"), // a random root
		vllmTape(t, "vllm/server/0.29.0/truth-main.jsonl"),
		sglangTape(t, "sglang/truth/0.5.9-page16.jsonl"),
	}
	modes := []kvatlas.Mode{kvatlas.ByHash, kvatlas.ByHash, kvatlas.ByHash, kvatlas.ByContent, kvatlas.ByHash, kvatlas.ByHash}
	a := newAtlas(t, kvatlas.Worker{Name: "a", Auto: true}, kvatlas.Worker{Name: "b", Auto: true})
	sink, err := a.Sink("a")
	require.NoError(t, err)
	for i, tp := range tapes {
		prompts := 0
		for _, s := range tp.steps {
			if s.prompt != nil {
				prompts++
			}
		}
		require.Greater(t, replayTape(t, a, "a", tp), prompts*9/10, i)
		require.Equal(t, modes[i], profileOf(t, a, "a").Mode, i)
		sink.Clear(kvevents.ClearRestart)
		require.False(t, profileOf(t, a, "a").Known)
		require.Empty(t, profileOf(t, a, "a").Releases)

		// The other one's restart is not seen: what it was is not taken for what it is.
		if other := i%2 == 0; other {
			require.Positive(t, replayTape(t, a, "b", tp))
		}
	}

	described := tapes[0].worker
	described.Name = "a"
	a = newAtlas(t, described)
	sink, err = a.Sink("a")
	require.NoError(t, err)
	require.Positive(t, replayTape(t, a, "a", tapes[0]))
	sink.Clear(kvevents.ClearRestart)
	stats, _, err := a.Stats("a")
	require.NoError(t, err)
	require.Empty(t, stats.Contradiction)
	for _, s := range tapes[1].steps {
		if s.payload != nil {
			require.NoError(t, a.Apply("a", s.payload))
		}
	}
	stats, _, err = a.Stats("a")
	require.NoError(t, err)
	require.Contains(t, stats.Contradiction, "not vllm 0.20.2")
	require.Equal(t, stats.Contradiction, matchOn(t, a, "a", blockhash.Prompt{Tokens: tokens(9)}).Unknown)
}

// TestOtherSeedUnseen: an engine that comes back with another root, as the same release
// and unseen, is found by the first block of it; what the old one held is forgotten.
func TestOtherSeedUnseen(t *testing.T) {
	engine := worker("engine")
	a := newAtlas(t, kvatlas.Worker{Name: "a", Auto: true})
	before, after := blockhash.Prompt{Tokens: tokens(17)}, blockhash.Prompt{Tokens: tokens(40)[20:]}
	require.NoError(t, a.Apply("a", announced(t, engine, before)))
	require.Equal(t, 16, matchOn(t, a, "a", before).Usable)
	engine.Seed = blockhash.Seed{}
	for range 64 { // blocks pass between two that are checked
		require.NoError(t, a.Apply("a", announced(t, engine, after)))
	}
	require.Equal(t, blockhash.Seed{}, profileOf(t, a, "a").Seed)
	require.Equal(t, 20, len(after.Tokens))
	require.Equal(t, 16, matchOn(t, a, "a", after).Usable)
	require.Zero(t, matchOn(t, a, "a", before).Usable)
}

// TestGiven: what is given of an automatic worker is not searched for, and is said when
// the events contradict it.
func TestGiven(t *testing.T) {
	real := worker("engine")
	p := blockhash.Prompt{Tokens: tokens(17)}
	for what, c := range map[string]struct {
		given     kvatlas.Worker
		against   string
		byContent bool
	}{
		"nothing":         {kvatlas.Worker{}, "", false},
		"everything":      {real, "", false},
		"release":         {kvatlas.Worker{Release: "0.32.0"}, "", false},
		"engine":          {kvatlas.Worker{Engine: "vLLM"}, "", false},
		"size":            {kvatlas.Worker{BlockSize: unit}, "", false},
		"another release": {kvatlas.Worker{Release: "0.20.2"}, "not vllm 0.20.2", false},
		"another engine":  {kvatlas.Worker{Engine: "sglang"}, "no known release", false},
		"another size":    {kvatlas.Worker{BlockSize: 2 * unit}, "blocks of 8 tokens", false},
		"another seed":    {kvatlas.Worker{Seed: blockhash.SeedText("7")}, `not with sha256, PYTHONHASHSEED="7"`, true},
		"another hash":    {kvatlas.Worker{Algorithm: blockhash.XXHash}, "not with xxhash", true},
	} {
		w := c.given
		w.Name, w.Auto = "a", true
		var log bytes.Buffer
		a, err := kvatlas.New(kvatlas.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		require.NoError(t, a.AddWorker(w), what)
		for range 3 {
			require.NoError(t, a.Apply("a", announced(t, real, p)))
		}
		m := matchOn(t, a, "a", p)
		stats, _, err := a.Stats("a")
		require.NoError(t, err)
		require.Equal(t, c.byContent, m.Mode == kvatlas.ByContent, what)
		if c.against == "" || c.byContent {
			require.Equal(t, 16, m.Usable, what)
			require.Empty(t, m.Unknown, what)
			require.Contains(t, stats.Contradiction, c.against, what)
		} else {
			require.Contains(t, m.Unknown, c.against, what)
			require.Equal(t, m.Unknown, stats.Contradiction, what)
			require.Zero(t, stats.Held, what)
		}
		warned := strings.Count(log.String(), "contradict its description")
		require.Equal(t, c.against != "", warned == 1, "%s: said %d times:\n%s", what, warned, log.String())
	}
	for what, w := range map[string]kvatlas.Worker{
		"unknown release":           {Release: "latest"},
		"too old":                   {Release: "0.3.0"},
		"groups without release":    {Cache: radix.ProfileOptions{Groups: []radix.Group{{}, {Kind: radix.SlidingWindow, Window: 64}}}},
		"window without size":       {Release: "0.32.0", Cache: radix.ProfileOptions{Groups: []radix.Group{{Kind: radix.SlidingWindow, Window: 64}}}},
		"connector without release": {BlockSize: 16, Cache: radix.ProfileOptions{Connector: radix.Offloading}},
		"from documents":            {Engine: "dynamo"},
		"dynamo format of vllm":     {Engine: "vllm", DynamoEvents: true},
		"negative size":             {BlockSize: -16},
		"odd unit":                  {BlockSize: 16, Cache: radix.ProfileOptions{HashUnit: 5}},
		"LMCache":                   {LMCache: &kvatlas.LMCache{Release: "0.5.6"}},
	} {
		w.Name, w.Auto = "a", true
		require.Error(t, newAtlas(t).AddWorker(w), what)
	}
}

// TestGroupsNotDescribed: several cache groups, or one of another kind, decide hits by
// rules that the description does not have.
func TestGroupsNotDescribed(t *testing.T) {
	for what, spoil := range map[string]func(*kvevents.Event){
		"a second group": func(e *kvevents.Event) { e.Group = 1 },
		"a window":       func(e *kvevents.Event) { e.SpecKind, e.SlidingWindow = []byte("sliding_window"), 64 },
		"some new kind":  func(e *kvevents.Event) { e.SpecKind = []byte("holographic") },
	} {
		for _, auto := range []bool{true, false} {
			w := worker("a")
			if auto {
				w = kvatlas.Worker{Name: "a", Auto: true}
			}
			a := newAtlas(t, w)
			p := blockhash.Prompt{Tokens: tokens(17)}
			require.NoError(t, a.Apply("a", announced(t, worker(""), p)))
			require.Equal(t, 16, matchOn(t, a, "a", p).Usable)
			var b kvevents.Batch
			require.NoError(t, new(kvevents.Decoder).Decode(announced(t, worker(""), p), &b))
			spoil(&b.Events[0])
			require.NoError(t, a.ApplyBatch("a", &b))
			for range 70 { // no later block takes it back
				require.NoError(t, a.Apply("a", announced(t, worker(""), p)))
			}
			m := matchOn(t, a, "a", p)
			require.Contains(t, m.Unknown, "give Cache.Groups", what)
			require.Zero(t, m.Usable)
			require.NoError(t, a.Reset("a"))
			require.NoError(t, a.Apply("a", announced(t, worker(""), p)))
			require.Equal(t, 16, matchOn(t, a, "a", p).Usable, "another engine")
		}
	}
}

// TestWaitingIsBounded: batches that wait are kept up to a bound, and what is forgotten
// of them never makes a match too high.
func TestWaitingIsBounded(t *testing.T) {
	engine := kvatlas.Worker{Release: "0.32.0", BlockSize: 64, Seed: blockhash.SeedText("0")}
	rng := rand.New(rand.NewPCG(4, 4))
	prompts := make([]blockhash.Prompt, 12)
	truth := newAtlas(t, func() kvatlas.Worker { w := engine; w.Name = "a"; return w }())
	a := newAtlas(t, kvatlas.Worker{Name: "a", Auto: true})
	both := func(events ...kvevents.Event) {
		p := payload(t, engine.Release, events...)
		require.NoError(t, truth.Apply("a", p))
		require.NoError(t, a.Apply("a", p))
	}
	for i := range prompts {
		for range 64 * 1000 {
			prompts[i].Tokens = append(prompts[i].Tokens, rng.Uint32N(100000))
		}
	}
	held := make([]map[int]bool, len(prompts))
	keys := make([][]uint64, len(prompts))
	for i := range prompts {
		keys[i], held[i] = keysOf(t, engine, prompts[i]), map[int]bool{}
	}
	// Blocks without what tells the engine: all are said to have a parent.
	const batches = 12000
	for range batches {
		i := rng.IntN(len(prompts))
		at := rng.IntN(len(keys[i]))
		if held[i][at] && rng.IntN(2) == 0 {
			both(removed(keys[i][at]))
			delete(held[i], at)
			continue
		}
		if held[i][at] {
			continue
		}
		n := 1 + rng.IntN(8)
		e := kvevents.Event{Kind: kvevents.BlockStored, BlockSize: 64, HasParent: true, Parent: 1, Medium: []byte("GPU")}
		for j := at; j < min(at+n, len(keys[i])) && !held[i][j]; j++ {
			e.Hashes, held[i][j] = append(e.Hashes, keys[i][j]), true
			e.Tokens = append(e.Tokens, prompts[i].Tokens[j*64:(j+1)*64]...)
		}
		both(e)
	}
	stats, _, err := a.Stats("a")
	require.NoError(t, err)
	require.Positive(t, stats.Held)
	require.Positive(t, stats.Forgotten)
	require.Less(t, stats.Held, uint64(batches))
	require.Zero(t, stats.Batches)
	t.Logf("%d held, %d forgotten", stats.Held, stats.Forgotten)

	short := blockhash.Prompt{Tokens: tokens(65)}
	for _, atlas := range []*kvatlas.Atlas{truth, a} {
		require.NoError(t, atlas.Apply("a", announced(t, engine, short)))
	}
	require.Equal(t, 64, matchOn(t, a, "a", short).Usable)
	stats, _, err = a.Stats("a")
	require.NoError(t, err)
	require.Zero(t, stats.Held)
	require.Positive(t, stats.Batches)
	_, x, err := a.Stats("a")
	require.NoError(t, err)
	_, all, err := truth.Stats("a")
	require.NoError(t, err)
	require.Less(t, x.Held[0].Blocks, all.Held[0].Blocks)
	for i := range prompts {
		require.LessOrEqual(t, matchOn(t, a, "a", prompts[i]).Combined, matchOn(t, truth, "a", prompts[i]).Combined)
	}
}

// TestContentWhenTheHashIsNotAsDescribed: predictions of a worker whose seed is not as
// described are those of one that is, once the blocks have told.
func TestContentWhenTheHashIsNotAsDescribed(t *testing.T) {
	for _, name := range golden.Files(t, "vllm/truth/*/u16*.jsonl") {
		tp, tr := traceTape(t, name)
		scheme, err := blockhash.SchemeFor("vllm", tr.Version)
		require.NoError(t, err)
		if !scheme.EventExtraKeys() || tr.Seed == nil || strings.Contains(name, "report") {
			continue
		}
		wrong := tp.worker
		wrong.Name, wrong.Seed = "automatic", blockhash.SeedText("not this one")
		known, unknown, a := beside(t, name, tape{worker: tp.worker, steps: tp.steps[:1]}, wrong)
		require.Zero(t, unknown)
		var m kvatlas.Match
		equal, settled := 0, false
		for i := range tp.steps[1:] {
			step := &tp.steps[1+i]
			if step.payload != nil {
				require.NoError(t, a.Apply("described", step.payload))
				require.NoError(t, a.Apply("automatic", step.payload))
				continue
			}
			require.NoError(t, a.Match(&kvatlas.Request{Prompt: *step.prompt}, &m))
			mode, _ := a.Mode("automatic")
			if settled = settled || mode == kvatlas.ByContent; settled && m.Workers[1].Unknown == "" && m.Workers[0].Unknown == "" && step.prompt.LoRA == nil {
				require.Equal(t, m.Workers[0].Usable, m.Workers[1].Usable, "%s, step %d", name, i)
				equal++
			}
			require.LessOrEqual(t, m.Workers[1].Usable, m.Workers[0].Usable, "%s, step %d", name, i)
		}
		require.True(t, settled, name)
		require.Positive(t, equal+known, name)
		stats, _, err := a.Stats("automatic")
		require.NoError(t, err)
		require.Contains(t, stats.Contradiction, "matched by content", name)
	}
}

// TestFoundWhileMatching: workers are found out, lost and found again while others
// match; no answer counts a block that was never announced.
func TestFoundWhileMatching(t *testing.T) {
	var engines []kvatlas.Worker
	for _, release := range []string{"0.24.0", "0.30.0", "0.32.0"} {
		for _, seed := range []blockhash.Seed{blockhash.SeedText("0"), blockhash.SeedText("unknown")} {
			w := worker("")
			w.Release, w.Seed = release, seed
			engines = append(engines, w)
		}
	}
	a := newAtlas(t)
	for i := range 4 {
		require.NoError(t, a.AddWorker(kvatlas.Worker{Name: fmt.Sprint(i), Auto: true}))
	}
	p, never := blockhash.Prompt{Tokens: tokens(33)}, blockhash.Prompt{Tokens: tokens(99)[50:]}
	salted := blockhash.Prompt{Tokens: tokens(33), CacheSalt: "s"}
	payloads := map[int][2][]byte{}
	for i, e := range engines {
		payloads[i] = [2][]byte{announced(t, e, p), announced(t, e, salted)}
	}
	var apply, match sync.WaitGroup
	done := make(chan struct{})
	for i := range 4 {
		apply.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 5))
			name := fmt.Sprint(i)
			for range 300 {
				e := rng.IntN(len(engines))
				for range 1 + rng.IntN(3) {
					if err := a.Apply(name, payloads[e][rng.IntN(2)]); err != nil {
						t.Error(err)
					}
				}
				if rng.IntN(3) > 0 {
					_ = a.Reset(name)
				}
				if rng.IntN(20) == 0 && i == 3 {
					a.RemoveWorker(name)
					if err := a.AddWorker(kvatlas.Worker{Name: name, Auto: true}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for range 2 {
		match.Go(func() {
			var c kvatlas.Choice
			for {
				select {
				case <-done:
					return
				default:
				}
				for _, p := range []blockhash.Prompt{p, salted, never} {
					if err := a.Route(&kvatlas.Request{Prompt: p}, &c); err != nil {
						t.Error(err)
					}
					for _, w := range c.Match.Workers {
						if w.Usable > 32 || len(p.Tokens) == len(never.Tokens) && w.Usable > 0 || w.Unknown != "" && w.Usable > 0 {
							t.Errorf("%+v", w)
						}
					}
				}
				a.Snapshot()
				_, _ = a.Profile("1")
			}
		})
	}
	apply.Wait()
	close(done)
	match.Wait()
	for i := range 4 {
		a.RemoveWorker(fmt.Sprint(i))
	}
	require.Zero(t, a.Snapshot().Index.Memberships)
}

// TestHistoryIsNotNow: what was held once, while nobody knew what the engine is, is never
// seen when its batches are applied at last.
func TestHistoryIsNotNow(t *testing.T) {
	engine := worker("")
	gone, tells := blockhash.Prompt{Tokens: tokens(2001)}, blockhash.Prompt{Tokens: tokens(3000)[2500:]}
	keys := keysOf(t, engine, gone)
	e := stored(keys, gone.Tokens[:2000])
	e.HasParent, e.Parent = true, 1
	once, removal, settles := payload(t, engine.Release, e), payload(t, engine.Release, removed(keys...)), announced(t, engine, tells)
	a := newAtlas(t, kvatlas.Worker{Name: "a", Auto: true})
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		var m kvatlas.Match
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := a.Match(&kvatlas.Request{Prompt: gone}, &m); err != nil || m.Workers[0].Usable > 0 {
				t.Errorf("%v, %+v", err, m.Workers[0])
				return
			}
		}
	})
	for range 100 {
		for _, p := range [][]byte{once, removal, settles} {
			require.NoError(t, a.Apply("a", p))
		}
		require.Positive(t, matchOn(t, a, "a", tells).Usable)
		require.NoError(t, a.Reset("a"))
	}
	close(done)
	looking.Wait()
}

// TestOldRandomRoot: before 0.17 events do not tell salted blocks from plain ones, so a
// random root leaves nothing known, unless the worker is declared to get plain prompts
// only.
func TestOldRandomRoot(t *testing.T) {
	engine := worker("")
	engine.Release, engine.Seed = "0.13.0", blockhash.SeedRoot(make([]byte, 32))
	a := newAtlas(t, kvatlas.Worker{Name: "any", Auto: true}, kvatlas.Worker{Name: "plain", Auto: true, PlainOnly: true})
	p := blockhash.Prompt{Tokens: tokens(17)}
	for _, name := range []string{"any", "plain"} {
		for range 3 {
			require.NoError(t, a.Apply(name, announced(t, engine, p)))
		}
	}
	require.Contains(t, matchOn(t, a, "any", p).Unknown, "PlainOnly")
	m := matchOn(t, a, "plain", p)
	require.Equal(t, 16, m.Usable)
	require.Equal(t, kvatlas.ByContent, m.Mode)
	p.CacheSalt = "s"
	require.NotEmpty(t, matchOn(t, a, "plain", p).Unknown)
}

// TestClearedIsNotHistory: what was cleared or lost while it was not known what the engine
// is, or while it was taken for another one, does not come back with the history.
func TestClearedIsNotHistory(t *testing.T) {
	engine := worker("")
	gone, tells := blockhash.Prompt{Tokens: tokens(17)}, blockhash.Prompt{Tokens: tokens(40)[20:]}
	e := stored(keysOf(t, engine, gone), gone.Tokens[:16])
	e.HasParent, e.Parent = true, 1
	wrong := worker("a")
	wrong.Seed = blockhash.SeedText("not this one")
	for what, c := range map[string]struct {
		worker kvatlas.Worker
		gone   []byte
		mode   kvatlas.Mode
	}{
		"waiting":   {kvatlas.Worker{Name: "a", Auto: true}, payload(t, engine.Release, e), kvatlas.ByHash},
		"described": {wrong, announced(t, engine, gone), kvatlas.ByContent},
	} {
		for how, empty := range map[string]func(*kvatlas.Atlas){
			"not":    func(*kvatlas.Atlas) {},
			"clear":  func(a *kvatlas.Atlas) { require.NoError(t, a.Clear("a")) },
			"device": func(a *kvatlas.Atlas) { require.NoError(t, a.Clear("a", "GPU")) },
			"reset":  func(a *kvatlas.Atlas) { require.NoError(t, a.Reset("a")) },
			"loss": func(a *kvatlas.Atlas) {
				sink, err := a.Sink("a")
				require.NoError(t, err)
				sink.Clear(kvevents.ClearLoss)
			},
		} {
			a := newAtlas(t, c.worker)
			require.NoError(t, a.Apply("a", c.gone))
			empty(a)
			for range 3 {
				require.NoError(t, a.Apply("a", announced(t, engine, tells)))
			}
			m := matchOn(t, a, "a", gone)
			require.Equal(t, c.mode, m.Mode, what)
			require.Empty(t, m.Unknown, what)
			want := 0
			if how == "not" {
				want = 16
			}
			require.Equal(t, want, m.Usable, "%s, %s", what, how)
			require.Positive(t, matchOn(t, a, "a", tells).Usable)
		}
	}
}

// TestAnotherEngineUnseen: an engine of another form that took the place of one known by
// content does not hold what that announced.
func TestAnotherEngineUnseen(t *testing.T) {
	gone, tells := blockhash.Prompt{Tokens: tokens(17)}, blockhash.Prompt{Tokens: tokens(40)[20:]}
	before, after := worker(""), worker("")
	before.Release = "0.20.2"
	before.Seed, after.Seed = blockhash.SeedText("one"), blockhash.SeedText("another")
	a := newAtlas(t, kvatlas.Worker{Name: "a", Auto: true})
	require.NoError(t, a.Apply("a", announced(t, before, gone)))
	require.Equal(t, 16, matchOn(t, a, "a", gone).Usable)
	require.NoError(t, a.Apply("a", announced(t, after, tells)))
	require.Equal(t, kvatlas.ByContent, profileOf(t, a, "a").Mode)
	require.Equal(t, 16, matchOn(t, a, "a", tells).Usable)
	require.Zero(t, matchOn(t, a, "a", gone).Usable)
}
