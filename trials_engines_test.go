package kvatlas_test

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// sglangWorker is a worker of SGLang with pages of so many tokens.
func sglangWorker(release string, page int) kvatlas.Worker {
	return kvatlas.Worker{Name: "a", Engine: "sglang", Release: release, BlockSize: page}
}

// sglangKeys are the event values of a prompt's pages.
func sglangKeys(t testing.TB, release string, page int, tokens []uint32) []uint64 {
	scheme, err := blockhash.SchemeFor("sglang", release)
	require.NoError(t, err)
	h, err := blockhash.New(blockhash.Options{Scheme: scheme, BlockSize: page})
	require.NoError(t, err)
	keys, err := h.AppendKeys(nil, &blockhash.Prompt{Tokens: tokens})
	require.NoError(t, err)
	return keys
}

// sglangBatch encodes events as a release of SGLang does.
func sglangBatch(t testing.TB, release string, events ...kvevents.Event) []byte {
	form, err := kvevents.FormFor("sglang", release)
	require.NoError(t, err)
	return kvevents.AppendBatch(nil, &kvevents.Batch{Events: events, HasRank: true}, form)
}

// pages are the events of pages from one to another, each after the one before.
func pages(keys []uint64, page int, tokens []uint32, from, to int) (all []kvevents.Event) {
	for i := from; i < to; i++ {
		e := kvevents.Event{Kind: kvevents.BlockStored, Hashes: keys[i : i+1], Tokens: tokens[i*page : (i+1)*page], BlockSize: page}
		if i > 0 {
			e.HasParent, e.Parent = true, keys[i-1]
		}
		all = append(all, e)
	}
	return all
}

// TestTrialT155NativePages: pages of one token, branches included, match to the token
// in an index of the engine's own pages.
func TestTrialT155NativePages(t *testing.T) {
	const release = "0.5.23"
	a := newAtlas(t, sglangWorker(release, 1))
	prompt := tokens(64)
	branch := append(append([]uint32{}, prompt[:40]...), 7, 7, 7, 7)
	events := pages(sglangKeys(t, release, 1, prompt), 1, prompt, 0, 64)
	events = append(events, pages(sglangKeys(t, release, 1, branch), 1, branch, 40, 44)...)
	require.NoError(t, a.Apply("a", sglangBatch(t, release, events...)))
	for _, c := range []struct {
		prompt         []uint32
		prefix, usable int
	}{{prompt, 64, 63}, {append(prompt[:64:64], 1), 64, 64}, {branch, 44, 43}, {append(branch[:44:44], 1, 2), 44, 44}, {prompt[:10], 10, 9}} {
		var m kvatlas.Match
		require.NoError(t, a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: c.prompt}}, &m))
		require.Equal(t, c.prefix, m.Workers[0].Prefix)
		require.Equal(t, c.usable, m.Workers[0].Usable)
		require.Empty(t, m.Workers[0].Unknown)
	}
}

// TestTrialT94SplitRemoves: SGLang 0.5.6 removes what it splits and announces only what
// is new: the index follows the wire, and the worker's state names the defect.
func TestTrialT94SplitRemoves(t *testing.T) {
	const release, page = "0.5.6", 4
	a := newAtlas(t, sglangWorker(release, page))
	prompt := tokens(3*page + 1)
	keys := sglangKeys(t, release, page, prompt)
	apply := func(events ...kvevents.Event) { require.NoError(t, a.Apply("a", sglangBatch(t, release, events...))) }
	matched := func() int { return usable(t, a, blockhash.Prompt{Tokens: prompt})["a"] / page }
	apply(pages(keys, page, prompt, 0, 2)...)
	require.Equal(t, 2, matched())
	apply(removed(keys[:2]...))
	apply(pages(keys, page, prompt, 2, 3)...)
	require.Zero(t, matched(), "its parent is gone")
	apply(pages(keys, page, prompt, 0, 2)...)
	require.Equal(t, 3, matched(), "without being announced again")
	stats, _, err := a.Stats("a")
	require.NoError(t, err)
	require.Contains(t, stats.Limitation, "0.5.6")
}

// TestTrialT50SizeOfTheMainGroup: configured are 16, the events of the only group say
// 528: the worker is not scored, with the reason.
func TestTrialT50SizeOfTheMainGroup(t *testing.T) {
	a := newAtlas(t, worker("a"))
	e := stored([]uint64{1}, tokens(528))
	e.BlockSize, e.HasGroup = 528, true
	require.NoError(t, a.Apply("a", payload(t, "0.32.0", e)))
	var m kvatlas.Match
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(600)}}, &m))
	require.Contains(t, m.Workers[0].Unknown, "528")
	require.Zero(t, m.Workers[0].Usable+m.Workers[0].Combined)
}

// TestTrialT51NoDefaultBlockSize: a worker without a size is refused, and so are two
// sizes that disagree; none is taken for another.
func TestTrialT51NoDefaultBlockSize(t *testing.T) {
	a := newAtlas(t)
	for what, change := range map[string]func(*kvatlas.Worker){
		"none":         func(w *kvatlas.Worker) { w.BlockSize = 0 },
		"negative":     func(w *kvatlas.Worker) { w.BlockSize = -16 },
		"two of them":  func(w *kvatlas.Worker) { w.BlockSize, w.Cache.HashUnit = 16, 64 },
		"no multiple":  func(w *kvatlas.Worker) { w.BlockSize, w.Cache.HashUnit = 40, 16 },
		"two releases": func(w *kvatlas.Worker) { w.Cache.Release = "0.31.0" },
	} {
		w := worker("a")
		change(&w)
		require.Error(t, a.AddWorker(w), what)
	}
	require.Empty(t, a.Snapshot().Workers)
}

// TestTrialT55MixedSizes: blocks of 64 tokens and one of 16 between them, of one
// full-attention group: all are reachable by their own hashes.
func TestTrialT55MixedSizes(t *testing.T) {
	w := worker("a")
	w.BlockSize, w.Cache = 64, radix.ProfileOptions{HashUnit: 16, Groups: []radix.Group{{BlockSize: 64}}}
	a := newAtlas(t, w)
	prompt := tokens(64 + 16 + 64)
	unit := w
	unit.BlockSize = 16
	keys := keysOf(t, unit, blockhash.Prompt{Tokens: prompt})
	block := func(end, size int) kvevents.Event {
		e := stored(keys[end/16-1:end/16], prompt[end-size:end])
		if e.BlockSize = size; end > size {
			e.HasParent, e.Parent = true, keys[(end-size)/16-1]
		}
		return e
	}
	require.NoError(t, a.Apply("a", payload(t, "0.32.0", block(64, 64), block(80, 16), block(144, 64))))
	stats, x, err := a.Stats("a")
	require.NoError(t, err)
	require.Empty(t, stats.Contradiction)
	require.Equal(t, []radix.Held{{Medium: radix.GPU, Group: x.Held[0].Group, Blocks: 3}}, x.Held)
	require.Equal(t, 64, usable(t, a, blockhash.Prompt{Tokens: prompt[:100]})["a"])
	require.NoError(t, a.Apply("a", payload(t, "0.32.0", removed(keys[4], keys[8]))))
	_, x, err = a.Stats("a")
	require.NoError(t, err)
	require.Zero(t, x.Unmatched)
}

// TestTrialT98OffloadEvents: events of a CPU tier without tokens, size and parent: eight
// hashes, six of them different.
func TestTrialT98OffloadEvents(t *testing.T) {
	raw, err := hex.DecodeString("93cb3ff40000000000009197ab426c6f636b53746f7265649864ccc8cd9c40ceb2d05e00cf8000000000000000cfffffffffffffffffffd38000000000000000c09000c0a343505500")
	require.NoError(t, err)
	w := worker("a")
	w.Cache.Connector = radix.Offloading
	a := newAtlas(t, w)
	require.NoError(t, a.Apply("a", raw))
	_, x, err := a.Stats("a")
	require.NoError(t, err)
	require.Len(t, x.Held, 1)
	require.Equal(t, radix.CPU, x.Held[0].Medium)
	require.Equal(t, 6, x.Held[0].Blocks)
}

// TestTrialT103NothingIsEvictedUnasked: 150 blocks on two tiers: no capacity is taken from
// the size of the device's pool.
func TestTrialT103NothingIsEvictedUnasked(t *testing.T) {
	a := newAtlas(t, worker("a"))
	keys := make([]uint64, 150)
	for i := range keys {
		keys[i] = uint64(i + 1)
	}
	cpu := stored(keys[100:], nil)
	cpu.Medium = []byte("CPU")
	require.NoError(t, a.Apply("a", payload(t, "0.32.0", stored(keys[:100], nil), cpu)))
	_, x, err := a.Stats("a")
	require.NoError(t, err)
	require.Len(t, x.Held, 2)
	require.Equal(t, []int{100, 50}, []int{x.Held[0].Blocks, x.Held[1].Blocks})
	require.Zero(t, x.Evicted)
	require.Zero(t, a.Snapshot().Index.Evicted)
}
