package radix

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestByteLimit: trials T95, T115, T119, T103. A worker that fills the index loses its
// own blocks, and a small one keeps its own.
func TestByteLimit(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine, and minutes long under the race detector")
	}
	const limit = 4 << 20
	x, err := New(Options{MaxBytes: limit})
	require.NoError(t, err)
	p, err := NewProfile(ProfileOptions{HashUnit: 16})
	require.NoError(t, err)
	big, err := x.AddWorker("big", p)
	require.NoError(t, err)
	small, err := x.AddWorker("small", p)
	require.NoError(t, err)
	mine := randomKeys(1, 5000)
	require.NoError(t, x.Store(Holder{Worker: small}, mine[:2500]))
	require.NoError(t, x.Store(Holder{Worker: small, Medium: CPU}, mine[2500:]))
	var last []uint64
	for i := range 3000 {
		last = randomKeys(uint64(i+10), 300)
		require.NoError(t, x.Store(Holder{Worker: big}, last))
		require.NoError(t, x.Store(Holder{Worker: big}, last[:10])) // with copies
	}
	s := x.Stats()
	require.Less(t, s.Bytes, limit*5/4)
	require.Positive(t, s.Evicted)
	require.Zero(t, s.Lost)
	require.Greater(t, s.Blocks, 150_000)
	ws, err := x.WorkerStats(small)
	require.NoError(t, err)
	require.Equal(t, []Held{{GPU, 0, 2500}, {CPU, 0, 2500}}, ws.Held)
	require.Zero(t, ws.Evicted)
	var r Result
	require.NoError(t, x.Match(&Query{Keys: last}, &r))
	require.Equal(t, 300, r.Workers[0].Combined)
	bs, err := x.WorkerStats(big)
	require.NoError(t, err)
	require.Equal(t, s.Evicted, bs.Evicted)
	// What was forgotten is unknown when it is removed, and nothing else.
	for i := range 3000 {
		require.NoError(t, x.Remove(Holder{Worker: big}, randomKeys(uint64(i+10), 300)))
	}
	bs, err = x.WorkerStats(big)
	require.NoError(t, err)
	require.EqualValues(t, bs.Evicted, bs.Unmatched)
	_, err = New(Options{MaxBytes: -1})
	require.ErrorIs(t, err, ErrOptions)
	_, err = New(Options{ExpectedBlocks: -1})
	require.ErrorIs(t, err, ErrOptions)
}

// TestByteLimitSharedBlocks: workers that hold the same blocks forget the oldest
// together, and a small one keeps what it shares with them.
func TestByteLimitSharedBlocks(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine, and minutes long under the race detector")
	}
	x, err := New(Options{MaxBytes: 1})
	require.NoError(t, err)
	var w []WorkerID
	for _, name := range []string{"A", "B", "small"} {
		id, err := x.AddWorker(name, nil)
		require.NoError(t, err)
		w = append(w, id)
	}
	system := randomKeys(1, 2000)
	for _, id := range w {
		require.NoError(t, x.Store(Holder{Worker: id}, system))
	}
	var r Result
	for i := range 2000 {
		keys := randomKeys(uint64(i+2), 300)
		for _, id := range w[:2] {
			require.NoError(t, x.Store(Holder{Worker: id}, keys))
		}
		require.NoError(t, x.Match(&Query{Keys: keys}, &r))
		require.Equal(t, []int{300, 300, 0}, []int{r.Workers[0].Combined, r.Workers[1].Combined, r.Workers[2].Combined}, "prompt %d", i)
	}
	require.NoError(t, x.Match(&Query{Keys: system}, &r))
	require.Equal(t, 2000, r.Workers[2].Combined)
	s := x.Stats()
	require.Positive(t, s.Evicted)
	require.Zero(t, s.Lost)
}

// TestBytesOfABlock: trial T115. The package's documentation says about 20 bytes
// a block.
func TestBytesOfABlock(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine, and minutes long under the race detector")
	}
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A", "B", "C", "D", "E", "F", "G", "H", "I", "J")
	for i := range 10_000 {
		require.NoError(t, x.Store(Holder{Worker: w[i%10]}, randomKeys(uint64(i), 100)))
	}
	s := x.Stats()
	require.Equal(t, 1_000_000, s.Blocks)
	require.InEpsilon(t, 20, float64(s.Bytes)/float64(s.Blocks), 0.2)
}

// TestLimitsOfProfiles: trials T49, T55, T114.
func TestCheckBlockSize(t *testing.T) {
	p, err := NewProfile(ProfileOptions{HashUnit: 16, Groups: []Group{{BlockSize: 64}, {Kind: Mamba, BlockSize: 64}}})
	require.NoError(t, err)
	for size, ok := range map[int]bool{64: true, 16: true, 0: true, 32: false, 528: false} {
		err := p.CheckBlockSize(Holder{}, size)
		require.Equal(t, ok, err == nil, "%d: %v", size, err)
		require.NoError(t, p.CheckBlockSize(Holder{Group: 1}, size))
		require.NoError(t, p.CheckBlockSize(Holder{Medium: CPU}, size))
		require.NoError(t, p.CheckBlockSize(Holder{Group: 7}, size))
	}
}

// TestByteLimitBesideAReader: while a reader that is inside holds up reuse, what the
// pages kept free can take is not lost; what they cannot is counted, and what is
// stored afterwards is held.
func TestByteLimitBesideAReader(t *testing.T) {
	x, err := New(Options{MaxBytes: 20 << 20})
	require.NoError(t, err)
	w, err := x.AddWorker("w", nil)
	require.NoError(t, err)
	h, seed := Holder{Worker: w}, uint64(0)
	store := func(keys int) {
		for range keys / 256 {
			seed++
			require.NoError(t, x.Store(h, randomKeys(seed, 256)))
		}
	}
	for x.Stats().Evicted == 0 {
		store(1 << 16)
	}
	store(1 << 18)
	require.Zero(t, x.Stats().Lost)
	free := x.arena.limit * slabPages / evictShare * pageKeys
	require.Greater(t, free, 2*evictAhead*pageKeys)
	inside := &blockingSource{keys: randomKeys(seed, 256)[:2], act: func(at int) {
		if at == 0 {
			store(free * 3 / 4)
			require.Zero(t, x.Stats().Lost)
			store(4 * free)
			require.Positive(t, x.Stats().Lost)
		}
	}}
	var r Result
	require.NoError(t, x.Match(&Query{Source: inside}, &r))
	lost := x.Stats().Lost
	store(4 * free)
	require.Equal(t, lost, x.Stats().Lost)
	require.NoError(t, x.Match(&Query{Keys: randomKeys(seed, 256)}, &r))
	require.Equal(t, 256, r.Workers[0].Combined)
	if !raceEnabled {
		checkTable(t, x)
	}
}
