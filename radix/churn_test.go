package radix

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRandomEvictionKeepsMemory evicts blocks in random order at constant
// occupancy: lines that are partly dead are moved together, so that memory stays
// within half as much again of what an ordered eviction takes.
func TestRandomEvictionKeepsMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine, and minutes long under the race detector")
	}
	const held, rounds = 60_000, 600_000
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A", "B")
	r := rand.New(rand.NewPCG(1, 2))
	type block struct {
		h   Holder
		key uint64
	}
	var all []block
	next := uint64(0)
	churn := func(random bool, rounds int) (positions, bytes int) {
		for n := 0; n < rounds; {
			keys := make([]uint64, 1+r.IntN(60))
			h := Holder{Worker: w[r.IntN(2)]}
			for i := range keys {
				next++
				keys[i] = next * 0xbf58476d1ce4e5b9
				all = append(all, block{h, keys[i]})
			}
			require.NoError(t, x.Store(h, keys))
			n += len(keys)
			for len(all) > held {
				i := 0
				if random {
					i = r.IntN(len(all))
				}
				require.NoError(t, x.Remove(all[i].h, []uint64{all[i].key}))
				if random {
					all[i] = all[len(all)-1]
					all = all[:len(all)-1]
				} else {
					all = all[1:]
				}
			}
		}
		require.Equal(t, len(all), x.Stats().Blocks)
		return x.arena.lines * lineKeys, x.Stats().Bytes
	}
	ordered, _ := churn(false, rounds/4)
	random, early := churn(true, rounds/2)
	again, late := churn(true, rounds)
	t.Logf("positions for %d blocks: %d in order, %d at random, %d later; %d bytes, then %d", held, ordered, random, again, early, late)
	require.Less(t, random, ordered*3/2)
	require.Less(t, again, ordered*3/2)
	require.LessOrEqual(t, late, early*6/5)
	s := x.Stats()
	require.Zero(t, s.Unmatched)
	require.Zero(t, s.Lost)
}
