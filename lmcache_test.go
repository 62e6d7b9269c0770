package kvatlas_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
	"github.com/kvatlas/kvatlas/scoring"
)

// chunkEvents is a line of testdata/lmcache/kv-events.
type chunkEvents struct {
	Connector string   `json:"connector"`
	Algorithm string   `json:"algorithm"`
	Chunk     int      `json:"chunk_size"`
	From      int      `json:"stored_from"`
	To        int      `json:"stored_to"`
	Tokens    []uint32 `json:"tokens"`
	Payload   []byte   `json:"payload_b64"`
	Refused   string   `json:"refused"`
}

func (l *chunkEvents) worker() kvatlas.Worker {
	return kvatlas.Worker{
		Name: "w", Release: "0.32.0", BlockSize: 16, Seed: blockhash.SeedText("0"),
		LMCache: &kvatlas.LMCache{Release: "0.5.6", Multiprocess: l.Connector == "LMCacheMPConnector", Hash: l.Algorithm, ChunkTokens: l.Chunk},
	}
}

func chunkLines(t *testing.T) (all []chunkEvents) {
	text := golden.Read(t, "lmcache/kv-events/kv-events-0.5.6-vllm-0.32.0.jsonl")
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
		var l chunkEvents
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		if l.Refused == "" {
			all = append(all, l)
		}
	}
	return all
}

// fleetAt makes an Atlas with a clock of the test's.
func fleetAt(t *testing.T, now *time.Time, workers ...kvatlas.Worker) *kvatlas.Atlas {
	a, err := kvatlas.New(kvatlas.Options{InFlight: scoring.InFlightOptions{Now: func() time.Time { return *now }}})
	require.NoError(t, err)
	for _, w := range workers {
		require.NoError(t, a.AddWorker(w))
	}
	return a
}

func matchOf(t *testing.T, a *kvatlas.Atlas, tokens []uint32) kvatlas.WorkerMatch {
	var m kvatlas.Match
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens}}, &m))
	return m.Workers[0]
}

// TestLMCacheInVLLMsStream: what LMCache itself announced is known by its hashes, and
// by content where they are Python's; never as blocks of the device.
func TestLMCacheInVLLMsStream(t *testing.T) {
	now := time.Unix(1000, 0)
	lines := chunkLines(t)
	require.Len(t, lines, 8)
	for _, l := range lines {
		a := fleetAt(t, &now, l.worker())
		require.NoError(t, a.Apply("w", l.Payload))
		stats, index, err := a.Stats("w")
		require.NoError(t, err)
		require.Empty(t, stats.Contradiction)
		require.Empty(t, stats.ChunkContradiction, l.Algorithm)
		require.Empty(t, index.Held, "no chunk is a block")
		m := matchOf(t, a, l.Tokens)
		require.Zero(t, m.Usable)
		require.Zero(t, m.Combined)
		if l.Connector == "LMCacheMPConnector" {
			// Chunks 1 to 3 were stored, of which 1 was removed: nothing from the start.
			require.Equal(t, uint64(2), stats.Chunks)
			require.Zero(t, m.External)
			continue
		}
		whole := len(l.Tokens) / l.Chunk * l.Chunk
		require.Equal(t, uint64(whole/l.Chunk), stats.Chunks)
		require.Equal(t, whole, m.External, l.Algorithm)
		require.True(t, m.ExternalUpperBound)
		require.Equal(t, whole-1, matchOf(t, a, l.Tokens[:whole]).External, "the last token is computed")
		require.Equal(t, l.Chunk, matchOf(t, a, l.Tokens[:2*l.Chunk-1]).External)
		require.Zero(t, matchOf(t, a, l.Tokens[1:]).External)
		require.Zero(t, matchOf(t, a, l.Tokens[:l.Chunk-1]).External)
	}
}

// TestLMCacheSignedHashes: half of Python's own hashes, LMCache's default, are negative, as
// vLLM's never are. That says nothing of vLLM, whether LMCache is declared or not, and whatever
// it calls its medium.
func TestLMCacheSignedHashes(t *testing.T) {
	real := worker("w")
	p := blockhash.Prompt{Tokens: tokens(9)}
	for _, l := range chunkLines(t) {
		if l.Algorithm != "builtin" {
			continue
		}
		for _, medium := range []string{"cpu", "CPU", "STORAGE"} {
			var batch []any
			require.NoError(t, msgpack.Unmarshal(l.Payload, &batch))
			for _, e := range batch[1].([]any) {
				for key, v := range e.(map[string]any) {
					if key == "medium" {
						e.(map[string]any)[key] = medium
					} else if hashes, ok := v.([]any); ok && key == "block_hashes" {
						hashes[0] = -int64(hashes[0].(uint64))
					} else if parent, ok := v.(uint64); ok && key == "parent_block_hash" {
						e.(map[string]any)[key] = -int64(parent)
					}
				}
			}
			signed, err := msgpack.Marshal(batch)
			require.NoError(t, err)
			require.NotEqual(t, l.Payload, signed)
			undeclared, auto := l.worker(), kvatlas.Worker{Name: "w", Auto: true}
			undeclared.LMCache = nil
			for i, w := range []kvatlas.Worker{l.worker(), undeclared, auto} {
				a := newAtlas(t, w)
				require.NoError(t, a.Apply("w", signed))
				stats, _, err := a.Stats("w")
				require.NoError(t, err)
				require.Empty(t, stats.Contradiction)
				if i == 0 && medium != "STORAGE" {
					require.Equal(t, len(l.Tokens)/l.Chunk*l.Chunk, matchOf(t, a, l.Tokens).External)
				}
				if i == 2 { // what decides comes afterwards
					require.NoError(t, a.Apply("w", announced(t, real, p)))
					require.NoError(t, a.Apply("w", signed))
					require.Equal(t, 8, matchOf(t, a, p.Tokens).Usable)
				}
			}
		}
	}
}

// TestLMCacheUndeclared: without a description chunks match nothing.
func TestLMCacheUndeclared(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, l := range chunkLines(t) {
		w := l.worker()
		w.LMCache = nil
		a := fleetAt(t, &now, w)
		require.NoError(t, a.Apply("w", l.Payload))
		m := matchOf(t, a, l.Tokens)
		require.Zero(t, m.Usable+m.External+m.Combined)
		stats, _, err := a.Stats("w")
		require.NoError(t, err)
		require.Empty(t, stats.Contradiction)
	}
}

// chunkBatch makes events as LMCache 0.5.6 does, hashed with sha256_cbor.
type chunkBatch struct {
	h      *blockhash.Hasher
	medium string
}

func newChunkBatch(t testing.TB, chunk int, medium string, server bool) *chunkBatch {
	engine, algorithm := "lmcache", blockhash.SHA256CBOR
	if server {
		engine, algorithm = "lmcache-server", blockhash.BLAKE3
	}
	scheme, err := blockhash.SchemeFor(engine, "0.5.6")
	require.NoError(t, err)
	h, err := blockhash.New(blockhash.Options{Scheme: scheme, Algorithm: algorithm, BlockSize: chunk, PartialChunk: !server, Seed: blockhash.SeedText("0")})
	require.NoError(t, err)
	return &chunkBatch{h, medium}
}

func (b *chunkBatch) keys(tokens []uint32) []uint64 {
	keys, _ := b.h.AppendKeys(nil, &blockhash.Prompt{Tokens: tokens})
	return keys
}

func (b *chunkBatch) stored(tokens []uint32, from, to int) *kvevents.Batch {
	keys, size := b.keys(tokens), b.h.BlockSize()
	batch := &kvevents.Batch{}
	for i := from; i < to; i++ {
		e := kvevents.Event{
			Kind: kvevents.BlockStored, Hashes: keys[i : i+1], Tokens: tokens[i*size : min((i+1)*size, len(tokens))],
			TokenForm: kvevents.TokensPlain, Medium: []byte(b.medium),
		}
		e.BlockSize = len(e.Tokens)
		if i > 0 {
			e.HasParent, e.Parent = true, keys[i-1]
		}
		batch.Events = append(batch.Events, e)
	}
	return batch
}

func (b *chunkBatch) removed(tokens []uint32, i int) *kvevents.Batch {
	return &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.BlockRemoved, Hashes: b.keys(tokens)[i : i+1], Medium: []byte(b.medium)}}}
}

func promptOf(seed uint64, n int) []uint32 {
	rng := rand.New(rand.NewPCG(seed, 7))
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = rng.Uint32N(150_000)
	}
	return tokens
}

func chunkWorker(o kvatlas.LMCache) kvatlas.Worker {
	o.Release, o.ChunkTokens = "0.5.6", 64
	if !o.Multiprocess && o.Hash == "" {
		o.Hash = "sha256_cbor"
	}
	return kvatlas.Worker{Name: "w", Release: "0.32.0", BlockSize: 16, Seed: blockhash.SeedText("0"), LMCache: &o}
}

// TestLMCacheAddsToTheLocalHit: the connector is asked for more than what the device
// holds.
func TestLMCacheAddsToTheLocalHit(t *testing.T) {
	now := time.Unix(1000, 0)
	tokens := promptOf(1, 400)
	a := fleetAt(t, &now, chunkWorker(kvatlas.LMCache{}))
	b := newChunkBatch(t, 64, "cpu", false)
	require.NoError(t, a.ApplyBatch("w", b.stored(tokens, 0, 3)))
	vllm, err := blockhash.SchemeFor("vllm", "0.32.0")
	require.NoError(t, err)
	h, err := blockhash.New(blockhash.Options{Scheme: vllm, BlockSize: 16, Seed: blockhash.SeedText("0")})
	require.NoError(t, err)
	keys, err := h.AppendKeys(nil, &blockhash.Prompt{Tokens: tokens})
	require.NoError(t, err)
	for blocks, want := range map[int]int{0: 192, 5: 192 - 80, 12: 0, 20: 0} {
		require.NoError(t, a.ApplyBatch("w", &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.BlockStored, BlockSize: 16, Hashes: keys[:blocks]}}}))
		m := matchOf(t, a, tokens)
		require.Equal(t, 16*blocks, m.Usable)
		require.Equal(t, want, m.External, blocks)
		require.NoError(t, a.ApplyBatch("w", &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.BlockRemoved, Hashes: keys[:blocks]}}}))
	}
	// Salt is in vLLM's hash, not in LMCache's; images are not known there.
	var m kvatlas.Match
	req := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens, CacheSalt: "s"}}
	require.NoError(t, a.Match(&req, &m))
	require.Equal(t, 192, m.Workers[0].External)
	req.Prompt.Items = []blockhash.Item{{Identifier: "x", Offset: 300, Length: 10}}
	require.NoError(t, a.Match(&req, &m))
	require.Zero(t, m.Workers[0].External)
	var c kvatlas.Choice
	require.NoError(t, a.Route(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens}}, &c))
	require.Equal(t, int32(192), c.Candidates[0].Match.Usable)
	require.Equal(t, int32(0), c.Candidates[0].Match.Blocks[scoring.GPU])
	require.Equal(t, int32(12), c.Candidates[0].Match.Blocks[scoring.CPU])
}

func TestLMCacheDecays(t *testing.T) {
	now := time.Unix(1000, 0)
	tokens, other := promptOf(1, 300), promptOf(2, 300)
	b := newChunkBatch(t, 64, "cpu", false)
	external := func(a *kvatlas.Atlas) int { return matchOf(t, a, tokens).External }
	t.Run("by time", func(t *testing.T) {
		a := fleetAt(t, &now, chunkWorker(kvatlas.LMCache{}))
		require.NoError(t, a.ApplyBatch("w", b.stored(tokens, 0, 4)))
		now = now.Add(kvatlas.DefaultDecay - 1)
		require.Equal(t, 256, external(a))
		require.NoError(t, a.ApplyBatch("w", b.stored(tokens, 0, 2))) // again: they count anew
		now = now.Add(1)
		require.Equal(t, 128, external(a))
		now = now.Add(kvatlas.DefaultDecay)
		require.Zero(t, external(a), "no event came")
		stats, _, err := a.Stats("w")
		require.NoError(t, err)
		require.Zero(t, stats.Chunks)
		require.Equal(t, uint64(4), stats.Decayed)
	})
	t.Run("by number", func(t *testing.T) {
		a := fleetAt(t, &now, chunkWorker(kvatlas.LMCache{MaxChunks: 6, Decay: -1}))
		require.NoError(t, a.ApplyBatch("w", b.stored(tokens, 0, 4)))
		require.NoError(t, a.ApplyBatch("w", b.stored(tokens, 0, 1)))
		require.NoError(t, a.ApplyBatch("w", b.stored(other, 0, 4))) // takes the places of chunks 1 and 2
		now = now.Add(1000 * time.Hour)
		require.Equal(t, 64, external(a))
		stats, _, err := a.Stats("w")
		require.NoError(t, err)
		require.Equal(t, uint64(6), stats.Chunks)
		require.Equal(t, uint64(2), stats.Decayed)
	})
	t.Run("not of a server", func(t *testing.T) {
		s := newChunkBatch(t, 64, "CPU", true)
		w := chunkWorker(kvatlas.LMCache{Multiprocess: true})
		a := fleetAt(t, &now, w)
		require.NoError(t, a.ApplyBatch("w", s.stored(tokens, 0, 4)))
		now = now.Add(1000 * time.Hour)
		require.Equal(t, 256, external(a))
		require.True(t, matchOf(t, a, tokens).ExternalUpperBound, "salts are not told apart")
		require.NoError(t, a.ApplyBatch("w", s.stored(tokens, 1, 2))) // a set: once is all
		require.NoError(t, a.ApplyBatch("w", s.removed(tokens, 1)))
		require.Equal(t, 64, external(a))
		require.True(t, a.RemoveWorker("w"))
		w.PlainOnly = true
		require.NoError(t, a.AddWorker(w))
		require.Zero(t, external(a), "nothing is left")
		require.NoError(t, a.ApplyBatch("w", s.stored(tokens, 0, 4)))
		require.False(t, matchOf(t, a, tokens).ExternalUpperBound)
		sink, err := a.Sink("w")
		require.NoError(t, err)
		sink.Lost(kvevents.Loss{Removals: true})
		require.True(t, matchOf(t, a, tokens).ExternalUpperBound, "removals may have been lost")
	})
}

func TestLMCacheClears(t *testing.T) {
	now := time.Unix(1000, 0)
	tokens := promptOf(1, 300)
	b := newChunkBatch(t, 64, "cpu", false)
	cleared := &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.AllBlocksCleared}}}
	for what, c := range map[string]struct {
		policy radix.ClearPolicy
		do     func(*kvatlas.Atlas) error
		left   int
	}{
		"the engine's clear":              {radix.ClearAuto, func(a *kvatlas.Atlas) error { return a.ApplyBatch("w", cleared) }, 0},
		"the engine's clear, device only": {radix.ClearDevice, func(a *kvatlas.Atlas) error { return a.ApplyBatch("w", cleared) }, 256},
		"the operator's":                  {radix.ClearDevice, func(a *kvatlas.Atlas) error { return a.Clear("w") }, 0},
		"the operator's, of the host":     {radix.ClearAuto, func(a *kvatlas.Atlas) error { return a.Clear("w", "cpu") }, 0},
		"the operator's, of the device":   {radix.ClearAuto, func(a *kvatlas.Atlas) error { return a.Clear("w", "GPU") }, 256},
		"a restart":                       {radix.ClearDevice, func(a *kvatlas.Atlas) error { return a.Reset("w") }, 0},
	} {
		for _, hash := range []string{"sha256_cbor", "builtin"} { // builtin: by content
			w := chunkWorker(kvatlas.LMCache{Hash: hash})
			w.Cache.Clear = c.policy
			a := fleetAt(t, &now, w)
			require.NoError(t, a.ApplyBatch("w", b.stored(tokens, 0, 4)))
			require.Equal(t, 256, matchOf(t, a, tokens).External, what)
			require.NoError(t, c.do(a))
			require.Equal(t, c.left, matchOf(t, a, tokens).External, what)
			require.NoError(t, a.ApplyBatch("w", b.stored(tokens, 0, 4)))
			require.Equal(t, 256, matchOf(t, a, tokens).External, "and on it goes")
		}
	}
}

// TestLMCacheContradiction: what the events say against the description is told, and
// no chunk counts then.
func TestLMCacheContradiction(t *testing.T) {
	now := time.Unix(1000, 0)
	tokens := promptOf(1, 300)
	for what, c := range map[string]struct {
		o     kvatlas.LMCache
		chunk int
		want  string
	}{
		"size":      {kvatlas.LMCache{}, 32, "chunks of 32 tokens, described are 64"},
		"algorithm": {kvatlas.LMCache{Hash: "sha256"}, 64, "another algorithm, seed or release"},
	} {
		a := fleetAt(t, &now, chunkWorker(c.o))
		require.NoError(t, a.ApplyBatch("w", newChunkBatch(t, c.chunk, "cpu", false).stored(tokens, 0, 4)))
		stats, _, err := a.Stats("w")
		require.NoError(t, err)
		require.Contains(t, stats.ChunkContradiction, c.want, what)
		require.Zero(t, stats.Chunks)
		m := matchOf(t, a, tokens)
		require.Zero(t, m.External)
		require.Empty(t, m.Unknown, "vLLM's own blocks are what they were described as")
	}
}

func TestLMCachePartialChunk(t *testing.T) {
	now := time.Unix(1000, 0)
	tokens := promptOf(1, 150)
	b := newChunkBatch(t, 64, "cpu", false)
	a := fleetAt(t, &now, chunkWorker(kvatlas.LMCache{PartialChunks: true}))
	require.NoError(t, a.ApplyBatch("w", b.stored(tokens, 0, 3)))
	require.Equal(t, 149, matchOf(t, a, tokens).External)
	require.Equal(t, 128, matchOf(t, a, append(slices.Clone(tokens), 1)).External)
	require.Equal(t, 128, matchOf(t, a, tokens[:140]).External)
}

// TestLMCacheAppended: in process a chunk that is appended to a prefix stored before
// has the parent 0: by hash it counts, by content its place is not known.
func TestLMCacheAppended(t *testing.T) {
	now := time.Unix(1000, 0)
	tokens := promptOf(1, 300)
	b := newChunkBatch(t, 64, "cpu", false)
	for hash, want := range map[string]int{"sha256_cbor": 256, "builtin": 128} {
		a := fleetAt(t, &now, chunkWorker(kvatlas.LMCache{Hash: hash}))
		require.NoError(t, a.ApplyBatch("w", b.stored(tokens, 0, 2)))
		appended := b.stored(tokens, 2, 4)
		appended.Events[0].Parent = 0
		require.NoError(t, a.ApplyBatch("w", appended))
		require.Equal(t, want, matchOf(t, a, tokens).External, hash)
		stats, _, err := a.Stats("w")
		require.NoError(t, err)
		require.Equal(t, hash == "builtin", stats.Unplaced > 0)
	}
}

func TestLMCacheRefuses(t *testing.T) {
	now := time.Unix(1000, 0)
	a := fleetAt(t, &now)
	for what, change := range map[string]func(*kvatlas.Worker){
		"engine":     func(w *kvatlas.Worker) { w.Engine, w.Release = "sglang", "0.5.23" },
		"connector":  func(w *kvatlas.Worker) { w.Cache.Connector = radix.Offloading },
		"chunk":      func(w *kvatlas.Worker) { w.LMCache.ChunkTokens = -1 },
		"number":     func(w *kvatlas.Worker) { w.LMCache.MaxChunks = -1 },
		"no release": func(w *kvatlas.Worker) { w.LMCache.Release = "" },
		"in between": func(w *kvatlas.Worker) { w.LMCache.Release = "0.4.0" },
		"hash":       func(w *kvatlas.Worker) { w.LMCache.Hash = "md5" },
		"blake3":     func(w *kvatlas.Worker) { w.LMCache.Hash = "blake3" },
	} {
		w := chunkWorker(kvatlas.LMCache{})
		change(&w)
		require.Error(t, a.AddWorker(w), what)
		require.Empty(t, a.Snapshot().Workers)
	}
	w := chunkWorker(kvatlas.LMCache{})
	require.NoError(t, a.AddWorker(w))
	require.NoError(t, a.AddWorker(w), "the same again")
	w.LMCache = &kvatlas.LMCache{Release: "0.5.6"}
	require.ErrorIs(t, a.AddWorker(w), kvatlas.ErrWorkerExists)
}

// TestLMCacheAgainstReference compares with a list of what was announced, on random
// events, time and prompts.
func TestLMCacheAgainstReference(t *testing.T) {
	b := newChunkBatch(t, 64, "cpu", false)
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 3))
		now := time.Unix(1000, 0)
		const decay, most = time.Minute, 12
		a := fleetAt(t, &now, chunkWorker(kvatlas.LMCache{Decay: decay, MaxChunks: most}))
		type entry struct {
			key uint64
			at  time.Time
		}
		var held []entry
		forget := func() {
			held = slices.DeleteFunc(held, func(e entry) bool { return !e.at.After(now.Add(-decay)) })
			held = held[max(len(held)-most, 0):]
		}
		prompts := make([][]uint32, 6)
		for i := range prompts {
			prompts[i] = promptOf(seed*10+uint64(i), 64*(2+i)+i)
			if i > 2 {
				copy(prompts[i], prompts[i-1][:64*i/2])
			}
		}
		for range 300 {
			tokens := prompts[rng.IntN(len(prompts))]
			switch rng.IntN(4) {
			case 0:
				now = now.Add(time.Duration(rng.Int64N(int64(decay / 4))))
			case 1, 2:
				from := rng.IntN(len(tokens) / 64)
				to := from + 1 + rng.IntN(len(tokens)/64-from)
				require.NoError(t, a.ApplyBatch("w", b.stored(tokens, from, to)))
				for _, key := range b.keys(tokens)[from:to] {
					held = slices.DeleteFunc(held, func(e entry) bool { return e.key == key })
					held = append(held, entry{key, now})
					forget()
				}
			}
			forget()
			want := 0
			for _, key := range b.keys(tokens)[:len(tokens)/64] {
				if !slices.ContainsFunc(held, func(e entry) bool { return e.key == key }) {
					break
				}
				want += 64
			}
			if want == len(tokens) {
				want--
			}
			require.Equal(t, want, matchOf(t, a, tokens).External)
		}
	}
}

func TestLMCacheConcurrentSafe(t *testing.T) {
	a, err := kvatlas.New(kvatlas.Options{})
	require.NoError(t, err)
	b := newChunkBatch(t, 64, "cpu", false)
	tokens := promptOf(1, 600)
	w := chunkWorker(kvatlas.LMCache{Decay: time.Microsecond})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 100 {
				_ = a.AddWorker(w)
				_ = a.ApplyBatch("w", b.stored(tokens, 0, 9))
				_ = a.RemoveWorker("w")
			}
		})
		wg.Go(func() {
			var m kvatlas.Match
			for range 200 {
				if err := a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens}}, &m); err != nil {
					t.Error(err)
				}
				a.Snapshot()
			}
		})
	}
	wg.Wait()
}

func TestLMCacheMatchDoesNotAllocate(t *testing.T) {
	now := time.Unix(1000, 0)
	tokens := promptOf(1, 600)
	b := newChunkBatch(t, 64, "cpu", false)
	for _, hash := range []string{"sha256_cbor", "builtin"} {
		a := fleetAt(t, &now, chunkWorker(kvatlas.LMCache{Hash: hash}))
		require.NoError(t, a.ApplyBatch("w", b.stored(tokens, 0, 9)))
		var m kvatlas.Match
		req := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens}}
		require.NoError(t, a.Match(&req, &m))
		require.Equal(t, 576, m.Workers[0].External)
		if !raceEnabled {
			require.Zero(t, testing.AllocsPerRun(100, func() { _ = a.Match(&req, &m) }), hash)
		}
	}
}

// TestLMCacheWhenTheWorkerMoves: chunks stay what they were, and as old, when the worker's
// blocks turn out not to be hashed as described and are entered anew by content.
func TestLMCacheWhenTheWorkerMoves(t *testing.T) {
	now := time.Unix(1000, 0)
	w := worker("w")
	w.Seed, w.LMCache = blockhash.SeedText("not this one"), &kvatlas.LMCache{Release: "0.5.6", ChunkTokens: 16}
	a := fleetAt(t, &now, w)
	ids := tokens(33)
	chunks := kvevents.Event{Kind: kvevents.BlockStored, Hashes: []uint64{1, 2}, Tokens: ids[:32], BlockSize: 16, Medium: []byte("CPU")}
	require.NoError(t, a.Apply("w", payload(t, w.Release, chunks)))
	now = now.Add(kvatlas.DefaultDecay - 1)
	for range 3 {
		require.NoError(t, a.Apply("w", announced(t, worker(""), blockhash.Prompt{Tokens: ids[:9]})))
	}
	m := matchOf(t, a, ids)
	require.Equal(t, kvatlas.ByContent, m.Mode)
	require.Equal(t, 8, m.Usable)
	require.Equal(t, 24, m.External)
	now = now.Add(1)
	require.Zero(t, matchOf(t, a, ids).External)
}
