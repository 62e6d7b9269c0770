package radix

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func simpleIndex(t testing.TB, o ProfileOptions, names ...string) (*Index, []WorkerID) {
	x, err := New(Options{})
	require.NoError(t, err)
	p, err := NewProfile(o)
	require.NoError(t, err)
	var ids []WorkerID
	for _, n := range names {
		id, err := x.AddWorker(n, p)
		require.NoError(t, err)
		ids = append(ids, id)
	}
	return x, ids
}

func seqKeys(n int) []uint64 {
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = uint64(i+1) * 0x9e3779b97f4a7c15
	}
	return keys
}

// TestHolesEndThePrefix: trials T111, T96, T94.
func TestHolesEndThePrefix(t *testing.T) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A", "B")
	keys := seqKeys(4)
	a, b := Holder{Worker: w[0]}, Holder{Worker: w[1]}
	require.NoError(t, x.Store(a, keys[:1]))
	require.NoError(t, x.Store(b, keys[1:2]))
	require.NoError(t, x.Store(a, keys[2:3]))
	require.NoError(t, x.Store(b, keys[2:3]))
	var r Result
	require.NoError(t, x.Match(&Query{Keys: keys, Tokens: 65}, &r))
	require.Equal(t, 1, r.Workers[0].Combined)
	require.Equal(t, 0, r.Workers[1].Combined)
	require.Equal(t, 16, r.Workers[0].Usable)
	require.NoError(t, x.Store(a, keys[1:2])) // the orphan behind counts again
	require.NoError(t, x.Match(&Query{Keys: keys, Tokens: 65}, &r))
	require.Equal(t, 3, r.Workers[0].Combined)
	require.Equal(t, 48, r.Workers[0].Prefix)
}

// TestLastToken: the engine recomputes the last token, trial T53.
func TestLastToken(t *testing.T) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 784}, "A")
	keys := seqKeys(2)
	require.NoError(t, x.Store(Holder{Worker: w[0]}, keys))
	var r Result
	for _, c := range []struct{ tokens, keys, usable int }{
		{240, 0, 0}, {784, 1, 0}, {785, 1, 784}, {1568, 2, 784}, {1569, 2, 1568}, {9000, 2, 1568},
	} {
		require.NoError(t, x.Match(&Query{Keys: keys[:c.keys], Tokens: c.tokens}, &r))
		require.Equal(t, c.usable, r.Workers[0].Usable, "%d tokens", c.tokens)
	}
}

// TestEagleDrop: trial T104.
func TestEagleDrop(t *testing.T) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 2144, Eagle: true}, "A")
	keys := seqKeys(9)
	require.NoError(t, x.Store(Holder{Worker: w[0]}, keys))
	var r Result
	for tokens, want := range map[int]int{3784: 0, 7542: 4288, 11292: 8576, 15019: 12864, 18770: 15008} {
		require.NoError(t, x.Match(&Query{Keys: keys[:tokens/2144], Tokens: tokens}, &r))
		require.Equal(t, want, r.Workers[0].Usable, "%d tokens", tokens)
	}
}

// TestCopies: trial T90.
func TestCopies(t *testing.T) {
	for _, policy := range []CopyPolicy{Count, Set} {
		x, w := simpleIndex(t, ProfileOptions{HashUnit: 16, Copies: policy}, "A")
		keys, h := seqKeys(1), Holder{Worker: w[0]}
		var r Result
		held := func() int {
			require.NoError(t, x.Match(&Query{Keys: keys}, &r))
			return r.Workers[0].Combined
		}
		require.NoError(t, x.Store(h, keys))
		require.NoError(t, x.Store(h, keys))
		require.NoError(t, x.Remove(h, keys))
		require.Equal(t, map[CopyPolicy]int{Count: 1, Set: 0}[policy], held())
		require.NoError(t, x.Remove(h, keys))
		require.Equal(t, 0, held())
		require.NoError(t, x.Store(h, keys))
		require.Equal(t, 1, held())
		s, err := x.WorkerStats(w[0])
		require.NoError(t, err)
		require.EqualValues(t, map[CopyPolicy]int{Count: 0, Set: 1}[policy], s.Unmatched)
	}
}

// TestGroupsAreApart: trial T61.
func TestGroupsAreApart(t *testing.T) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16, Groups: []Group{{}, {Kind: SlidingWindow, Window: 17}}}, "A")
	keys := seqKeys(1)
	g := func(group int16) Holder { return Holder{Worker: w[0], Group: group} }
	require.NoError(t, x.Store(g(0), keys))
	require.NoError(t, x.Store(g(1), keys))
	var r Result
	usable := func() int {
		require.NoError(t, x.Match(&Query{Keys: keys, Tokens: 40}, &r))
		return r.Workers[0].Usable
	}
	require.Equal(t, 16, usable())
	require.NoError(t, x.Remove(g(NoGroup), keys)) // nothing was stored without a group
	require.Equal(t, 16, usable())
	require.NoError(t, x.Remove(g(1), keys))
	require.Equal(t, 0, usable())
	require.Equal(t, 16, r.Workers[0].Prefix) // T64: both numbers are there
	s, err := x.WorkerStats(w[0])
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Unmatched)
}

// TestTiers: trials T100, T102, T113.
func TestMediaAreApart(t *testing.T) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A")
	require.Equal(t, GPU, x.Medium("gpu"))
	require.Equal(t, GPU, x.Medium(""))
	require.Equal(t, CPU, x.Medium("Cpu"))
	disk := x.Medium("Disk")
	require.Equal(t, disk, x.Medium("DISK"))
	require.Equal(t, "DISK", x.MediumName(disk))
	require.Equal(t, DefaultUnknownWeight, x.Weight(disk))
	keys := seqKeys(2)
	on := func(m Medium) Holder { return Holder{Worker: w[0], Medium: m} }
	require.NoError(t, x.Store(on(GPU), keys[:1]))
	require.NoError(t, x.Store(on(CPU), keys))
	require.NoError(t, x.Store(on(disk), keys))
	var r Result
	require.NoError(t, x.Match(&Query{Keys: keys, Tokens: 40}, &r))
	m := &r.Workers[0]
	require.Equal(t, []int32{1, 2, 0, 2}, m.Blocks)
	require.InDelta(t, 1.8, m.Score, 1e-9)
	require.NoError(t, x.Remove(on(CPU), keys))
	require.NoError(t, x.Match(&Query{Keys: keys, Tokens: 40}, &r))
	require.Equal(t, []int32{1, 0, 0, 2}, r.Workers[0].Blocks)
	require.InDelta(t, 1.3, r.Workers[0].Score, 1e-9)
	for i := range 3 * MaxMedia { // a vocabulary without end costs nothing
		x.Medium(string(rune('a'+i%26)) + string(rune('a'+i/26)))
	}
	require.Equal(t, "OTHER", x.MediumName(MaxMedia-1))
	require.Empty(t, x.MediumName(MaxMedia))
}

// TestClears: trials T85, T87, T89.
func TestClears(t *testing.T) {
	for _, c := range []struct {
		connector Connector
		policy    ClearPolicy
		behind    bool
		gpu, cpu  int32
	}{
		{NoConnector, ClearAuto, false, 0, 0},
		{Offloading, ClearAuto, false, 0, 0},
		{Offloading, ClearDevice, false, 0, 2},
		{SimpleOffload, ClearAuto, false, 0, 2},
		{SimpleOffload, ClearAuto, true, 2, 0},
		{SimpleOffload, ClearAll, true, 0, 0},
	} {
		x, w := simpleIndex(t, ProfileOptions{HashUnit: 16, Connector: c.connector, Clear: c.policy}, "A", "B")
		keys := seqKeys(2)
		for _, id := range w {
			for _, m := range []Medium{GPU, CPU} {
				require.NoError(t, x.Store(Holder{Worker: id, Medium: m}, keys))
			}
		}
		require.NoError(t, x.EngineClear(w[0], c.behind))
		var r Result
		require.NoError(t, x.Match(&Query{Keys: keys}, &r))
		require.Equal(t, []int32{c.gpu, c.cpu, 0}, r.Workers[0].Blocks, "%+v", c)
		require.Equal(t, []int32{2, 2, 0}, r.Workers[1].Blocks, "%+v", c)
		require.NoError(t, x.Clear(w[1], CPU))
		require.NoError(t, x.Clear(w[1], CPU))
		require.NoError(t, x.Match(&Query{Keys: keys}, &r))
		require.Equal(t, []int32{2, 0, 0}, r.Workers[1].Blocks)
	}
}

func TestLazySource(t *testing.T) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A", "B")
	keys := seqKeys(50)
	require.NoError(t, x.Store(Holder{Worker: w[0]}, keys[:20]))
	require.NoError(t, x.Store(Holder{Worker: w[1]}, keys[:7]))
	var r Result
	s := &sliceSource{keys: keys}
	require.NoError(t, x.Match(&Query{Source: s, Tokens: 1000}, &r))
	require.Equal(t, 21, s.used)
	require.Equal(t, 320, r.Workers[0].Usable)
	s = &sliceSource{keys: keys}
	require.NoError(t, x.Match(&Query{Source: s, Tokens: 1000, Workers: w[1:]}, &r))
	require.Equal(t, 8, s.used)
	s = &sliceSource{keys: []uint64{5, 6, 7}}
	require.NoError(t, x.Match(&Query{Source: s, Tokens: 1000}, &r))
	require.Equal(t, 1, s.used, "an unknown first block costs one key")
}

func TestWorkers(t *testing.T) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A", "B")
	again, err := x.AddWorker("A", nil)
	require.NoError(t, err)
	require.Equal(t, w[0], again)
	require.NoError(t, x.Store(Holder{Worker: w[0]}, seqKeys(3)))
	require.True(t, x.RemoveWorker(w[0]))
	require.False(t, x.RemoveWorker(w[0]))
	require.ErrorIs(t, x.Store(Holder{Worker: w[0]}, seqKeys(1)), ErrUnknownWorker)
	require.ErrorIs(t, x.Remove(Holder{Worker: w[0]}, nil), ErrUnknownWorker)
	require.ErrorIs(t, x.Clear(w[0]), ErrUnknownWorker)
	require.ErrorIs(t, x.EngineClear(w[0], false), ErrUnknownWorker)
	require.ErrorIs(t, x.Store(Holder{Worker: w[1], Medium: 9}, nil), ErrHolder)
	require.ErrorIs(t, x.Store(Holder{Worker: w[1], Group: -2}, nil), ErrHolder)
	require.ErrorIs(t, x.Store(Holder{Worker: w[1], Group: MaxGroup + 1}, nil), ErrHolder)
	c, err := x.AddWorker("C", nil) // takes the freed slot, under another ID
	require.NoError(t, err)
	require.NotEqual(t, w[0], c)
	var names []string
	for _, name := range x.Workers() {
		names = append(names, name)
	}
	require.ElementsMatch(t, []string{"B", "C"}, names)
	var r Result
	require.NoError(t, x.Match(&Query{Keys: seqKeys(3), Workers: []WorkerID{w[0], w[1], c}}, &r))
	require.Equal(t, []bool{false, true, true}, []bool{r.Workers[0].Known, r.Workers[1].Known, r.Workers[2].Known})
	require.Zero(t, r.Workers[2].Combined)
	require.Error(t, x.Match(&Query{Tokens: -1}, &r))
	require.Empty(t, r.Workers)
	require.NoError(t, x.Match(&Query{Keys: seqKeys(3), Unit: 32}, &r))
	require.True(t, r.Workers[1].Mismatch || r.Workers[0].Mismatch)
}

func TestProfileErrors(t *testing.T) {
	for _, o := range []ProfileOptions{
		{HashUnit: -1},
		{Release: "latest"},
		{Groups: []Group{{}}},
		{HashUnit: 16, Groups: []Group{{BlockSize: 24}}},
		{HashUnit: 16, Groups: []Group{{Kind: SlidingWindow}}},
		{HashUnit: 16, Groups: []Group{{Kind: ChunkedLocal}}},
		{HashUnit: 16, Groups: []Group{{Kind: 9}}},
		{HashUnit: 16, SchedulerBlock: 24},
		{HashUnit: 16, Lookahead: -1},
		{HashUnit: 16, Copies: 2},
		{HashUnit: 16, Connector: 9},
		{HashUnit: 16, ChunkBlocks: -1},
		{HashUnit: 16, Clear: 9},
		{HashUnit: 16, PartialHits: 9},
		{HashUnit: 16, Groups: make([]Group, MaxGroup+2)},
		{HashUnit: 16, Release: "0.13.0", Groups: []Group{{Kind: Mamba}, {Kind: SlidingWindow, Window: 9}}},
		{HashUnit: 16, Eagle: true, Groups: []Group{{}, {Kind: ChunkedLocal, Chunk: 64}}},
		{HashUnit: 1, Groups: []Group{{BlockSize: 1 << 29}, {BlockSize: 1<<29 - 1}}},
	} {
		_, err := NewProfile(o)
		require.ErrorIs(t, err, ErrProfile, "%+v", o)
		require.Contains(t, err.Error(), "radix: ")
	}
	_, err := New(Options{Weights: map[string]float64{"cpu": 1.5}})
	require.ErrorIs(t, err, ErrOptions)
	_, err = New(Options{UnknownWeight: -1})
	require.ErrorIs(t, err, ErrOptions)
	require.True(t, errors.Is(err, ErrOptions))
}

func TestMatchDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16, Connector: Offloading,
		Groups: []Group{{}, {Kind: SlidingWindow, Window: 100}}}, "A", "B", "C")
	keys := seqKeys(300)
	for i, id := range w {
		for g := range int16(2) {
			require.NoError(t, x.Store(Holder{Worker: id, Group: g}, keys[:100*i+50]))
			require.NoError(t, x.Store(Holder{Worker: id, Group: g, Medium: CPU}, keys[:100*i+90]))
		}
	}
	var r Result
	q := Query{Keys: keys, Tokens: 16*300 + 1}
	require.NoError(t, x.Match(&q, &r))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = x.Match(&q, &r) }))
	s := &sliceSource{keys: keys}
	lazy := Query{Source: s, Tokens: q.Tokens}
	require.Zero(t, testing.AllocsPerRun(100, func() { s.used = 0; _ = x.Match(&lazy, &r) }))
	h := Holder{Worker: w[0]}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_ = x.Store(h, keys[:64])
		_ = x.Remove(h, keys[:64])
	}))
	require.Zero(t, testing.AllocsPerRun(100, func() { x.Medium("Storage"); x.Medium("GPU") }))
}

// TestLoadBehindHole: the connector takes whole blocks of each group, so that one of a
// group with longer blocks counts though it ends behind the hole that ends the load, also
// where the prompt's keys do not lie side by side.
func TestLoadBehindHole(t *testing.T) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 1, Connector: Offloading, Groups: []Group{{BlockSize: 1}, {BlockSize: 4}, {BlockSize: 1}}}, "A", "B")
	keys := seqKeys(9)
	other := append(append([]uint64{}, keys[:3]...), randomKeys(5, 6)...)
	require.NoError(t, x.Store(Holder{w[1], GPU, 0}, other))
	require.NoError(t, x.Store(Holder{w[1], GPU, 0}, keys))
	require.NoError(t, x.Store(Holder{w[0], CPU, 0}, keys[:4]))
	require.NoError(t, x.Store(Holder{w[0], CPU, 1}, keys[3:4]))
	require.NoError(t, x.Store(Holder{w[0], CPU, 2}, keys[:2])) // the hole
	var r Result
	require.NoError(t, x.Match(&Query{Keys: keys, Tokens: 9}, &r))
	require.Equal(t, 2, r.Workers[0].External)
}
