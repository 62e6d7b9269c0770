package radix

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFullTable stores more keys than a table has slots for that cannot be split. What
// finds none is lost, and counted; whatever is removed and moved meanwhile, nothing is
// held that was not stored, and look-ups end.
func TestFullTable(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine, and minutes long under the race detector")
	}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x, ids := simpleIndex(t, ProfileOptions{HashUnit: 16}, "a", "b")
			x.table.weak = 0x00000fffffffffff // one segment
			x.pack.eager = seed%2 == 0
			r := rand.New(rand.NewPCG(seed, 7))
			pool := randomKeys(seed, 5000)
			stored := map[Holder]map[uint64]int{}
			for _, id := range ids {
				stored[Holder{Worker: id}] = map[uint64]int{}
			}
			var res Result
			for step := range 1500 {
				h := Holder{Worker: ids[r.IntN(2)]}
				at := r.IntN(len(pool))
				some := pool[at:min(len(pool), at+1+r.IntN(150))]
				if r.IntN(5) < 3 {
					require.NoError(t, x.Store(h, some))
					for _, key := range some {
						stored[h][key]++
					}
				} else {
					require.NoError(t, x.Remove(h, some))
					for _, key := range some {
						stored[h][key] = max(0, stored[h][key]-1)
					}
				}
				found, err := x.Prefixes(&Query{Keys: some}, &res)
				require.NoError(t, err)
				for _, p := range found {
					for _, key := range some[:p.Blocks] {
						require.Positive(t, stored[Holder{Worker: p.Worker}][key])
					}
				}
				if step%100 > 0 {
					continue
				}
				for _, k := range x.workers {
					for _, h := range k.holders {
						blocks := 0
						x.each(h, func(key uint64, copies uint32) bool {
							blocks++
							require.LessOrEqual(t, int(copies), stored[h.Holder][key])
							return true
						})
						require.EqualValues(t, h.blocks.Load(), blocks)
					}
				}
				checkDigests(t, x)
			}
			checkTable(t, x)
			require.Positive(t, x.lost)
		})
	}
}
