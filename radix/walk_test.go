package radix

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBoundsUnderWrites: one writer changes what several workers hold of shared
// chains, with copies, holes, clears and churn that reuses memory; readers match
// meanwhile. Each answer must lie within what was held throughout the call and
// what was held at some instant of it.
func TestBoundsUnderWrites(t *testing.T) {
	for _, eager := range []bool{false, true} { // pages moved all the time
		t.Run(fmt.Sprint("eager=", eager), func(t *testing.T) { testBounds(t, eager) })
	}
}

func testBounds(t *testing.T, eager bool) {
	const workers, depth = 4, 300
	x, err := New(Options{})
	require.NoError(t, err)
	x.pack.eager = eager
	x.table.weak = 0xff000003ffffffff // few buckets: long probes, many splits
	p, err := NewProfile(ProfileOptions{HashUnit: 16})
	require.NoError(t, err)
	ids := make([]WorkerID, workers)
	for i := range ids {
		ids[i], err = x.AddWorker(fmt.Sprint(i), p)
		require.NoError(t, err)
	}
	keys := seqKeys(depth)
	// Prefix lengths by worker: at(v) for version v; the writer announces a
	// change before it begins and after it is done.
	type bounds struct{ low, high [workers]int }
	var now atomic.Pointer[bounds]
	var version atomic.Uint64
	now.Store(&bounds{})
	var stop atomic.Bool
	var checked, moved atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var r Result
			for !stop.Load() {
				before, b := version.Load(), now.Load()
				prefixes, err := x.Prefixes(&Query{Keys: keys}, &r)
				if err != nil {
					t.Error(err)
					return
				}
				if version.Load() != before {
					moved.Add(1)
					continue
				}
				checked.Add(1)
				var got [workers]int
				for _, p := range prefixes {
					got[p.Worker] = int(p.Blocks)
				}
				for i := range got {
					if got[i] < b.low[i] || got[i] > b.high[i] {
						t.Errorf("worker %d: %d blocks, held between %d and %d", i, got[i], b.low[i], b.high[i])
						stop.Store(true)
					}
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(11, 5))
	held := [workers][]int{}
	for i := range held {
		held[i] = make([]int, depth)
	}
	prefix := func(i int) int {
		for n, c := range held[i] {
			if c == 0 {
				return n
			}
		}
		return depth
	}
	junk := 0
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) && !stop.Load(); {
		i := r.IntN(workers)
		h := Holder{Worker: ids[i]}
		from := r.IntN(depth)
		if r.IntN(3) > 0 {
			from = prefix(i) * r.IntN(2)
		}
		to := min(depth, from+1+r.IntN(100))
		from = min(from, to)
		old := prefix(i)
		var apply func()
		switch n := r.IntN(20); {
		case n == 0:
			clear(held[i])
			apply = func() { require.NoError(t, x.Clear(ids[i])) }
		case n < 12:
			for j := from; j < to; j++ {
				held[i][j]++
			}
			apply = func() { require.NoError(t, x.Store(h, keys[from:to])) }
		default:
			for j := from; j < to; j++ {
				held[i][j] = max(0, held[i][j]-1)
			}
			apply = func() {
				back := make([]uint64, 0, to-from)
				for j := to - 1; j >= from; j-- {
					back = append(back, keys[j])
				}
				require.NoError(t, x.Remove(h, back))
			}
		}
		b := *now.Load()
		b.low[i], b.high[i] = min(old, prefix(i)), max(old, prefix(i))
		version.Add(1)
		now.Store(&b)
		version.Add(1)
		apply()
		done := b
		done.low[i], done.high[i] = prefix(i), prefix(i)
		version.Add(1)
		now.Store(&done)
		version.Add(1)
		// Churn that takes and gives back lines, splits segments and moves pages
		// between holders, without touching what is asked for.
		j := Holder{Worker: ids[r.IntN(workers)]}
		other := make([]uint64, 40+r.IntN(100))
		for k := range other {
			junk++
			other[k] = uint64(junk)*0xbf58476d1ce4e5b9 | 1<<63
		}
		require.NoError(t, x.Store(j, other))
		if r.IntN(10) > 0 {
			require.NoError(t, x.Remove(j, other))
		}
	}
	stop.Store(true)
	wg.Wait()
	require.Greater(t, checked.Load(), int64(100))
	t.Logf("%d answers checked, %d calls saw a change", checked.Load(), moved.Load())
}

// TestHints stores two chains whose pages alternate: where one leaves a page it
// goes on elsewhere than behind it, and leaves word.
func TestHints(t *testing.T) {
	x, err := New(Options{})
	require.NoError(t, err)
	var chains [2][]uint64
	var holders [2]Holder
	r := rand.New(rand.NewPCG(1, 2))
	for i := range chains {
		w, err := x.AddWorker(fmt.Sprint(i), nil)
		require.NoError(t, err)
		holders[i] = Holder{Worker: w}
	}
	for range 6 {
		for i := range chains {
			parent := uint64(0)
			if n := len(chains[i]); n > 0 {
				parent = chains[i][n-1]
			}
			page := make([]uint64, pageKeys)
			for j := range page {
				page[j] = r.Uint64()
			}
			require.NoError(t, x.StoreAfter(holders[i], parent, page))
			chains[i] = append(chains[i], page...)
		}
	}
	for i, keys := range chains {
		hinted := 0
		for at := pageKeys; at < len(keys); at += pageKeys {
			if last, first := x.find(keys[at-1]), x.find(keys[at]); first != last+1 {
				require.Equal(t, first, x.arena.after(last))
				hinted++
			}
		}
		require.NotZero(t, hinted)
		var res Result
		found, err := x.Prefixes(&Query{Keys: keys}, &res)
		require.NoError(t, err)
		require.Equal(t, []Prefix{{holders[i].Worker, int32(len(keys))}}, found)
	}
}

// TestRecall asks several indexes with one Result, whose positions are out of date
// or another index's, and for keys that share a slot of what it recalls.
func TestRecall(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	indexes := make([]*Index, 3)
	holders := make([][]Holder, len(indexes))
	for n := range indexes {
		x, err := New(Options{})
		require.NoError(t, err)
		indexes[n] = x
		for i := range 3 {
			w, err := x.AddWorker(fmt.Sprint(i), nil)
			require.NoError(t, err)
			holders[n] = append(holders[n], Holder{Worker: w})
		}
	}
	chains := make([][]uint64, 60)
	for i := range chains {
		chains[i] = make([]uint64, 1+r.IntN(3*pageKeys))
		for j := range chains[i] {
			chains[i][j] = uint64(7)<<32 | uint64(i*1000+j+1)<<12 | uint64(r.IntN(2)) // two slots
		}
		if i%2 > 0 { // parts from another one
			n := min(len(chains[i]), len(chains[i-1])) / 2
			copy(chains[i][:n], chains[i-1])
		}
	}
	var old Result
	found, recalled := 0, 0
	for range 1000 {
		n := r.IntN(len(indexes))
		x, h, keys := indexes[n], holders[n][r.IntN(3)], chains[r.IntN(len(chains))]
		switch x.pack.eager = true; r.IntN(4) {
		case 0:
			require.NoError(t, x.Store(h, keys))
		case 1:
			require.NoError(t, x.Remove(h, keys[r.IntN(len(keys)):]))
		}
		for _, key := range keys {
			if x.recall(&old.walk, key) != 0 {
				recalled++
			}
		}
		var fresh Result
		want, err := x.Prefixes(&Query{Keys: keys}, &fresh)
		require.NoError(t, err)
		require.Empty(t, fresh.walk.recent)
		have, err := x.Prefixes(&Query{Keys: keys}, &old)
		require.NoError(t, err)
		require.ElementsMatch(t, want, have)
		require.Equal(t, fresh.Keys, old.Keys)
		found += len(want)
	}
	require.NotZero(t, found)
	require.NotZero(t, recalled)
}
