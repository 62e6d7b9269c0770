package kvatlas_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/trtllm"
	"github.com/kvatlas/kvatlas/radix"
)

// Engines known from documents, from their events to a match.

// block is a stored block as TensorRT-LLM's serializer has it.
func trtBlock(hash string, level int, ids ...uint32) string {
	var all []string
	for _, id := range ids {
		all = append(all, fmt.Sprintf(`{"type":"unique_token","token_id":%d,"token_extra_id":0}`, id))
	}
	return fmt.Sprintf(`{"type":"stored_block","block_hash":%s,"tokens":[%s],"cache_level":%d,"priority":35,"mm_keys":[],"cache_salt":null}`,
		hash, strings.Join(all, ","), level)
}

func trtStored(parent string, blocks ...string) string {
	return `{"type":"stored","parent_hash":` + parent + `,"blocks":[` + strings.Join(blocks, ",") + `]}`
}

// trtEngine answers at /kv_cache_events what was emitted since the last request.
type trtEngine struct {
	next   int
	events []string
}

func (e *trtEngine) emit(data ...string) {
	for _, d := range data {
		e.events = append(e.events, fmt.Sprintf(`{"event_id":%d,"data":%s,"window_size":4096}`, e.next, d))
		e.next++
	}
}

func (e *trtEngine) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Write([]byte("[" + strings.Join(e.events, ",") + "]"))
	e.events = nil
}

func follow(t testing.TB, a *kvatlas.Atlas, e http.Handler) func() {
	t.Helper()
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	p, err := trtllm.NewPoller(trtllm.PollerOptions{URL: srv.URL, Worker: "trt", Handler: a.Handler(), Decoder: trtllm.Options{BlockSize: unit}})
	require.NoError(t, err)
	return func() {
		_, err := p.Poll(t.Context())
		require.NoError(t, err)
	}
}

func trtWorker() kvatlas.Worker {
	return kvatlas.Worker{Name: "trt", Engine: "trtllm", Release: "1.2.0", BlockSize: unit, PlainOnly: true}
}

func TestTensorRT(t *testing.T) {
	a := newAtlas(t, trtWorker())
	e := &trtEngine{}
	poll := follow(t, a, e)
	p := blockhash.Prompt{Tokens: tokens(14)}
	ids := p.Tokens
	match := func() kvatlas.WorkerMatch {
		var m kvatlas.Match
		require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
		require.True(t, m.Workers[0].UpperBound)
		return m.Workers[0]
	}
	e.emit(`{"type":"created","num_blocks_per_cache_level":[100,10]}`,
		trtStored("null", trtBlock("11", 0, ids[:4]...), trtBlock("12", 0, ids[4:8]...), trtBlock("13", 0, ids[8:12]...), trtBlock("14", 0, ids[12:14]...)))
	poll()
	require.Equal(t, 12, match().Usable)

	// The whole of a prompt is held, and its last token is computed all the same.
	p.Tokens = ids[:12]
	require.Equal(t, 8, match().Usable)
	p.Tokens = ids

	// A partial block is removed, and announced again as a whole one under another
	// hash, after a block that had no room in the event before.
	e.emit(`{"type":"removed","block_hashes":[14]}`)
	poll()
	require.Equal(t, 12, match().Usable)

	// To the host, and back.
	e.emit(`{"type":"updated","block_hash":13,"cache_level":{"type":"event_diff","new_value":1,"old_value":0},"priority":null}`)
	poll()
	require.Equal(t, 8, match().Usable)
	require.Equal(t, 3, match().Combined)
	require.Equal(t, int32(0), match().Blocks[radix.CPU], "not from the start")
	e.emit(`{"type":"updated","block_hash":13,"cache_level":{"type":"event_diff","new_value":0,"old_value":1},"priority":null}`)
	poll()
	require.Equal(t, 12, match().Usable)

	// Announced twice, removed once, wherever it is.
	e.emit(trtStored("12", trtBlock("13", 0, ids[8:12]...)),
		`{"type":"updated","block_hash":13,"cache_level":{"type":"event_diff","new_value":1,"old_value":0},"priority":null}`,
		`{"type":"removed","block_hashes":[13]}`)
	poll()
	require.Equal(t, 8, match().Usable)
	require.Equal(t, 2, match().Combined)

	e.emit(`{"type":"removed","block_hashes":[11]}`)
	poll()
	require.Zero(t, match().Usable)
	e.emit(trtStored("null", trtBlock("11", 0, ids[:4]...))) // re-announced: its child is still there
	poll()
	require.Equal(t, 8, match().Usable)

	stats, _, err := a.Stats("trt")
	require.NoError(t, err)
	require.True(t, stats.FromDocuments)
	require.Zero(t, stats.Losses)
	require.Empty(t, stats.Contradiction)

	// A block whose parent comes later, and a gap.
	e.emit(trtStored("21", trtBlock("22", 0, 7, 7, 7, 7)), trtStored("null", trtBlock("21", 0, 6, 6, 6, 6)))
	poll()
	p.Tokens = []uint32{6, 6, 6, 6, 7, 7, 7, 7, 8}
	require.Equal(t, 8, match().Usable)
	e.next += 3
	e.emit(trtStored("null", trtBlock("21", 0, 6, 6, 6, 6)))
	poll()
	require.Equal(t, 4, match().Usable)
	stats, _, err = a.Stats("trt")
	require.NoError(t, err)
	require.EqualValues(t, 3, stats.LostBatches)
}

// TestTensorRTWrongBlockSize: trial T114. Never a silent 0.
func TestTensorRTWrongBlockSize(t *testing.T) {
	w := trtWorker()
	a := newAtlas(t, w)
	e := &trtEngine{}
	poll := follow(t, a, e)
	ids := tokens(17)
	e.emit(trtStored("null", trtBlock("1", 0, ids[:8]...), trtBlock("2", 0, ids[8:16]...)))
	poll()
	var m kvatlas.Match
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: ids}}, &m))
	require.Equal(t, "the engine announces blocks of 8 tokens, described are 4", m.Workers[0].Unknown)
}

// TestTensorRTAdapters: no event tells an adapter's blocks from plain ones.
func TestTensorRTAdapters(t *testing.T) {
	w := trtWorker()
	w.PlainOnly = false
	a := newAtlas(t, w)
	var m kvatlas.Match
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(9)}}, &m))
	require.ErrorContains(t, fmt.Errorf("%s", m.Workers[0].Unknown), "declare the worker PlainOnly")
	require.Zero(t, m.Workers[0].Usable)

	a = newAtlas(t, trtWorker())
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(9), CacheSalt: "s"}}, &m))
	require.Contains(t, m.Workers[0].Unknown, "salt")
}

// TestTensorRTStreamed: the streamed form, as tests/unittest/kv_cache_manager_v2_tests/
// test_streaming_kv_events.py has it: maps, signed hashes, medium GPU.
func TestTensorRTStreamed(t *testing.T) {
	a := newAtlas(t, trtWorker())
	form, err := kvevents.FormFor("vllm", "0.24.0") // the same maps
	require.NoError(t, err)
	first, second := uint64(0x8000000000000001), uint64(2)
	ids := []uint32{1, 2, 3, 4, 5, 6, 7, 8}
	apply := func(e kvevents.Event) {
		require.NoError(t, a.Apply("trt", kvevents.AppendBatch(nil, &kvevents.Batch{Events: []kvevents.Event{e}, HasRank: true}, form)))
	}
	apply(kvevents.Event{Kind: kvevents.BlockStored, Hashes: []uint64{first, second}, Tokens: ids, BlockSize: 4, Medium: []byte("GPU")})
	p := blockhash.Prompt{Tokens: append(slices.Clone(ids), 9)}
	require.Equal(t, map[string]int{"trt": 8}, usable(t, a, p))
	apply(kvevents.Event{Kind: kvevents.BlockRemoved, Hashes: []uint64{second}, Medium: []byte("GPU")})
	require.Equal(t, map[string]int{"trt": 4}, usable(t, a, p))
}

// TestTensorRTNeverOvercounts: random caches of a tree, as the documents describe
// them, behind the poller; the match is what a walk of the tree gives.
func TestTensorRTNeverOvercounts(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 5))
		a := newAtlas(t, trtWorker())
		e := &trtEngine{}
		poll := follow(t, a, e)
		e.emit(`{"type":"created","num_blocks_per_cache_level":[100,10]}`)
		type node struct {
			hash  string
			level int
			ids   []uint32
		}
		sorted := func(held map[string]*node) (all []*node) {
			for _, hash := range slices.Sorted(maps.Keys(held)) {
				all = append(all, held[hash])
			}
			return all
		}
		held := map[string]*node{} // by hash, which stands for the whole prefix
		ids := func(b int) []uint32 { return []uint32{uint32(b), 1, 2, 3} }
		name := func(path []int) string {
			b, _ := json.Marshal(path)
			return fmt.Sprintf("%q", b)
		}
		for range 80 {
			path := []int{}
			for range 1 + r.IntN(4) {
				path = append(path, r.IntN(2))
			}
			switch r.IntN(4) {
			case 0, 1: // a request stores what is missing of its path
				parent := "null"
				from := 0
				for ; from < len(path) && held[name(path[:from+1])] != nil; from++ {
					parent = name(path[:from+1])
				}
				var blocks []string
				for i := from; i < len(path); i++ {
					n := &node{hash: name(path[:i+1]), ids: ids(path[i])}
					held[n.hash] = n
					blocks = append(blocks, trtBlock(n.hash, 0, n.ids...))
				}
				if len(blocks) > 0 {
					if r.IntN(2) == 0 {
						blocks = append(blocks, trtBlock(name(append(path, 9)), 0, 9, 9))
						path = append(path, 9)
						e.emit(trtStored(parent, blocks...), `{"type":"removed","block_hashes":[`+name(path)+`]}`)
					} else {
						e.emit(trtStored(parent, blocks...))
					}
				}
			case 2: // evict a leaf
				for _, n := range sorted(held) {
					leaf := !slices.ContainsFunc(sorted(held), func(o *node) bool {
						return strings.HasPrefix(o.hash, strings.TrimSuffix(n.hash, `]"`)+",")
					})
					if leaf && r.IntN(2) == 0 {
						delete(held, n.hash)
						e.emit(`{"type":"removed","block_hashes":[` + n.hash + `]}`)
						break
					}
				}
			case 3: // move one
				for _, n := range sorted(held) {
					if r.IntN(2) == 0 {
						continue
					}
					e.emit(fmt.Sprintf(`{"type":"updated","block_hash":%s,"cache_level":{"old_value":%d,"new_value":%d}}`, n.hash, n.level, 1-n.level))
					n.level = 1 - n.level
					break
				}
			}
			poll()
			for range 5 {
				var p blockhash.Prompt
				var path []int
				gpu, any, stop := 0, 0, false
				for range 1 + r.IntN(4) {
					path = append(path, r.IntN(2))
					p.Tokens = append(p.Tokens, ids(path[len(path)-1])...)
					n := held[name(path)]
					if n == nil {
						break
					}
					any++
					stop = stop || n.level > 0
					if !stop {
						gpu++
					}
				}
				p.Tokens = append(p.Tokens, 77)
				var m kvatlas.Match
				require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
				require.Equal(t, gpu*unit, m.Workers[0].Usable, "seed %d", seed)
				require.Equal(t, any, m.Workers[0].Combined, "seed %d", seed)
			}
		}
		stats, _, err := a.Stats("trt")
		require.NoError(t, err)
		require.Zero(t, stats.Losses)
	}
}

func TestDocumentedWorkersRefused(t *testing.T) {
	for name, w := range map[string]kvatlas.Worker{
		"seed of vLLM":      {Engine: "vllm", Release: "0.32.0", XXH3Seed: 1},
		"EAGLE":             {Engine: "tensorrt-llm", Release: "1.2.0", Cache: radix.ProfileOptions{Eagle: true}},
		"groups":            {Engine: "dynamo", Release: "1.0.0", Cache: radix.ProfileOptions{Groups: []radix.Group{{}}}},
		"algorithm":         {Engine: "mooncake", Release: "0.3.0", Algorithm: blockhash.XXHash},
		"root":              {Engine: "dynamo", Release: "1.0.0", Seed: blockhash.SeedText("0")},
		"connector":         {Engine: "mooncake", Release: "0.3.0", Cache: radix.ProfileOptions{Connector: radix.Offloading}},
		"DynamoEvents":      {Engine: "dynamo", Release: "1.0.0", DynamoEvents: true},
		"an unknown engine": {Engine: "mooncakes", Release: "1.0.0"},
	} {
		w.Name, w.BlockSize = "w", 16
		require.ErrorIs(t, newAtlas(t).AddWorker(w), kvatlas.ErrUnsupported, name)
	}
	err := newAtlas(t).AddWorker(kvatlas.Worker{Name: "w", BlockSize: 16})
	require.ErrorContains(t, err, "set Auto")
	err = newAtlas(t).AddWorker(kvatlas.Worker{Name: "w", Engine: "dynamo", BlockSize: 16})
	require.ErrorIs(t, err, blockhash.ErrScheme)
	require.NotContains(t, err.Error(), "Auto", "which it could not have")
	a := newAtlas(t, trtWorker())
	w, ok := a.Worker("trt")
	require.True(t, ok)
	require.Equal(t, "tensorrt-llm", w.Engine)
	_, ok = a.Worker("nobody")
	require.False(t, ok)
}

// TestTensorRTWindows: a model that mixes full attention with a window of 8. Each
// window's events are a cache group; what the window needs counts only where it is.
func TestTensorRTWindows(t *testing.T) {
	w := trtWorker()
	w.Cache.Groups = []radix.Group{{}, {Kind: radix.SlidingWindow, Window: 8}}
	a := newAtlas(t, w)
	e := &trtEngine{}
	srv := httptest.NewServer(e)
	defer srv.Close()
	p, err := trtllm.NewPoller(trtllm.PollerOptions{
		URL: srv.URL, Worker: "trt", Handler: a.Handler(), Decoder: trtllm.Options{BlockSize: unit, Windows: []int{4096, 8}},
	})
	require.NoError(t, err)
	ids := tokens(17)
	emit := func(window int, data string) {
		e.events = append(e.events, fmt.Sprintf(`{"event_id":%d,"data":%s,"window_size":%d}`, e.next, data, window))
		e.next++
	}
	match := func() int {
		_, err := p.Poll(t.Context())
		require.NoError(t, err)
		var m kvatlas.Match
		require.NoError(t, a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: ids}}, &m))
		require.Empty(t, m.Workers[0].Unknown)
		require.True(t, m.Workers[0].UpperBound)
		return m.Workers[0].Usable
	}
	all := trtStored("null", trtBlock("1", 0, ids[:4]...), trtBlock("2", 0, ids[4:8]...), trtBlock("3", 0, ids[8:12]...), trtBlock("4", 0, ids[12:16]...))
	emit(4096, all)
	require.Zero(t, match(), "nothing of the window")
	emit(8, all)
	require.Equal(t, 16, match())
	emit(8, `{"type":"removed","block_hashes":[1,2]}`) // out of the window
	require.Equal(t, 16, match())
	emit(8, `{"type":"removed","block_hashes":[4]}`)
	require.Zero(t, match(), "the window before the third block is not whole")
	emit(8, trtStored("1", trtBlock("2", 0, ids[4:8]...)))
	require.Equal(t, 12, match())
	emit(4096, `{"type":"removed","block_hashes":[3]}`)
	emit(8, trtStored("null", trtBlock("1", 0, ids[:4]...)))
	require.Equal(t, 8, match())
	emit(64, all) // of a window that was not named
	require.Equal(t, 8, match())
	require.EqualValues(t, 1, p.Status().Decoder.OtherWindows)
}
