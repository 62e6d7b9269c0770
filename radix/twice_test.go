package radix

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKeysTwiceInOneStore announces keys again in one and the same call, near and far, while
// the table splits under it: a key that a batch has just placed is found by the
// next, which asked for its bucket before.
func TestKeysTwiceInOneStore(t *testing.T) {
	total := 40_000
	if raceEnabled { // one goroutine
		total = 8000
	}
	for name, weak := range map[string]uint64{
		"hashes":           ^uint64(0),
		"few hashes":       0xff000003f00000ff,
		"few for a bucket": 0xffff0f0fffffffff,
	} {
		t.Run(name, func(t *testing.T) {
			x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A")
			x.table.weak = weak
			h := Holder{Worker: w[0]}
			r := rand.New(rand.NewPCG(21, 22))
			count := map[uint64]int{}
			var all []uint64
			for len(all) < total {
				var keys []uint64
				for len(keys) < 2000 {
					some := make([]uint64, 1+r.IntN(batchKeys+8))
					for i := range some {
						some[i] = r.Uint64()
					}
					at := len(keys)
					keys = append(keys, some...)
					switch r.IntN(3) {
					case 0: // side by side, in the other order
						slices.Reverse(some)
						keys = append(keys, some...)
					case 1: // from anywhere
						for range r.IntN(batchKeys) {
							keys = append(keys, keys[max(0, at-r.IntN(2*batchKeys)):][r.IntN(len(some))])
						}
					}
				}
				for _, key := range keys {
					count[key]++
				}
				all = append(all, keys...)
				require.NoError(t, x.Store(h, keys))
			}
			require.Zero(t, x.Stats().Lost)
			require.Equal(t, len(count), x.live)
			for key, n := range count {
				require.Equal(t, []Holding{{h, n}}, slices.Collect(x.Holders(key)))
			}
			checkTable(t, x)
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			require.NoError(t, x.Remove(h, all))
			s := x.Stats()
			require.Zero(t, s.Unmatched)
			require.Zero(t, s.Blocks)
			require.Zero(t, s.Copies)
			checkTable(t, x)
		})
	}
}
