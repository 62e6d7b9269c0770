package radix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestChainsUnderWriters: several writers, a worker each, let the same chains of whole
// pages grow and shrink, key by key and by hundreds, so that pages are held as a
// whole by one worker, by several or by none and are used for other keys at once. Each
// reader's answer about a chain that a worker did not touch meanwhile must be exact, or
// at a byte limit not too high; in the end all is as the writers left it.
func TestChainsUnderWriters(t *testing.T) {
	for _, c := range []struct {
		name    string
		options Options
		eager   bool
		weak    uint64
	}{
		{"plain", Options{}, false, ^uint64(0)},
		{"moved", Options{}, true, ^uint64(0)},
		{"few buckets", Options{}, false, 0xff000f1fffffffff},
		{"limit", Options{MaxBytes: 1}, false, ^uint64(0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, err := New(c.options)
			require.NoError(t, err)
			x.pack.eager, x.table.weak = c.eager, c.weak
			limited := c.options.MaxBytes > 0
			if limited {
				x.arena.limit = 1
			}
			testChains(t, x, limited, rand.Uint64())
		})
	}
}

func testChains(t *testing.T, x *Index, limited bool, seed uint64) {
	const writers, chains, readers = 3, 12, 2
	t.Logf("seed %d", seed)
	var keys [chains][]uint64
	for i := range keys {
		keys[i] = randomKeys(seed+uint64(i), (i%6+1)*pageKeys+i*i%50)
	}
	for i := 1; i < chains; i += 3 { // prompts that part
		copy(keys[i], keys[i-1][:min(len(keys[i-1]), len(keys[i]))*2/3])
	}
	var number [chains][]int // of keys
	numbers := map[uint64]int{}
	for c := range keys {
		for _, key := range keys[c] {
			if _, ok := numbers[key]; !ok {
				numbers[key] = len(numbers)
			}
			number[c] = append(number[c], numbers[key])
		}
	}
	// What a worker holds of a chain lies between low and high: version, low, high. Odd
	// versions are under way.
	var held [writers][chains]atomic.Uint64
	state := func(v uint64) (low, high int) { return int(v >> 16 & 0xffff), int(v & 0xffff) }
	var ids [writers]WorkerID
	for i := range ids {
		id, err := x.AddWorker(fmt.Sprint(i), nil)
		require.NoError(t, err)
		ids[i] = id
	}
	var stop atomic.Bool
	var exact, changed, writes atomic.Int64
	var reading, writing sync.WaitGroup
	check := func(res *Result, c int, source bool) bool {
		var before [writers]uint64
		for i := range before {
			before[i] = held[i][c].Load()
		}
		q := &Query{Keys: keys[c]}
		if source {
			q.Keys, q.Source = keys[c][:len(keys[c])/2], &sliceSource{keys: keys[c][len(keys[c])/2:]}
		}
		found, err := x.Prefixes(q, res)
		if err != nil {
			t.Error(err)
			return false
		}
		for i, v := range before {
			if held[i][c].Load() != v {
				changed.Add(1)
				continue
			}
			got := 0
			if at := slices.IndexFunc(found, func(p Prefix) bool { return p.Worker == ids[i] }); at >= 0 {
				got = int(found[at].Blocks)
			}
			exact.Add(1)
			if low, high := state(v); got > high || got < low && !limited {
				t.Errorf("worker %d, chain %d: %d blocks, held between %d and %d", i, c, got, low, high)
				return false
			}
		}
		return true
	}
	for n := range readers {
		reading.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(100+n)))
			var res Result
			for !stop.Load() {
				if !check(&res, r.IntN(chains), r.IntN(8) == 0) {
					stop.Store(true)
				}
			}
		})
	}
	end := time.Now().Add(500 * time.Millisecond)
	for w := range writers {
		writing.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			h := Holder{Worker: ids[w]}
			// Chains that part share keys, so that a key has as many copies as chains.
			var have [chains]int
			counts := make([]int, len(numbers))
			prefix := func(c int) int {
				for n, i := range number[c] {
					if counts[i] == 0 {
						return n
					}
				}
				return len(keys[c])
			}
			// change applies a change of what the worker holds of some chains.
			change := func(note func(), apply func() error) {
				var old [chains]int
				for c := range chains {
					old[c] = prefix(c)
				}
				note()
				var touched [chains]bool
				for c := range chains {
					now := prefix(c)
					if touched[c] = now != old[c]; touched[c] {
						v := held[w][c].Load()>>32 + 1
						held[w][c].Store(v<<32 | uint64(min(old[c], now))<<16 | uint64(max(old[c], now)))
					}
				}
				if err := apply(); err != nil {
					t.Error(err)
				}
				for c := range chains {
					if touched[c] {
						v := held[w][c].Load()>>32 + 1
						held[w][c].Store(v<<32 | uint64(prefix(c))*(1<<16|1))
					}
				}
			}
			junk := seed + uint64(w)<<40
			for time.Now().Before(end) && !stop.Load() {
				writes.Add(1)
				c := r.IntN(chains)
				from, to := have[c], r.IntN(len(keys[c])+1)
				if r.IntN(4) == 0 {
					to = len(keys[c])
				}
				switch r.IntN(40) {
				case 0:
					if limited && r.IntN(20) > 0 { // or it would never be full
						continue
					}
					change(func() { clear(counts); clear(have[:]) }, func() error { return x.Clear(ids[w]) })
					continue
				case 1, 2, 3, 4: // room is taken and given back
					junk += 1000
					other := randomKeys(junk, 1+r.IntN(4*pageKeys))
					if limited {
						other = randomKeys(junk, 20*pageKeys)
					}
					if err := x.Store(h, other); err != nil {
						t.Error(err)
					}
					if limited { // it stays
						continue
					}
					if err := x.Remove(h, other); err != nil {
						t.Error(err)
					}
					continue
				case 5: // one by one
					to = max(0, min(len(keys[c]), from+r.IntN(20)-10))
				}
				have[c] = to
				if to > from {
					some := keys[c][from:to]
					change(func() {
						for _, i := range number[c][from:to] {
							counts[i]++
						}
					}, func() error {
						step := len(some)
						if to-from < 10 {
							step = 1
						}
						for at := 0; at < len(some); at += step {
							parent := uint64(0)
							if from+at > 0 && r.IntN(2) == 0 {
								parent = keys[c][from+at-1]
							}
							if err := x.StoreAfter(h, parent, some[at:at+step]); err != nil {
								return err
							}
						}
						return nil
					})
					continue
				}
				some := slices.Clone(keys[c][to:from])
				if r.IntN(2) == 0 {
					slices.Reverse(some)
				}
				change(func() {
					for _, i := range number[c][to:from] {
						counts[i]--
					}
				}, func() error { return x.Remove(h, some) })
			}
		})
	}
	writing.Wait()
	stop.Store(true)
	reading.Wait()
	require.Positive(t, exact.Load())
	t.Logf("%d writes, %d answers checked, %d saw a change; %d blocks evicted", writes.Load(), exact.Load(), changed.Load(), x.Stats().Evicted)
	var res Result
	for c := range keys {
		require.True(t, check(&res, c, false))
	}
	checkTable(t, x)
	checkDigests(t, x)
}
