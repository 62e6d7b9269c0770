package scoring

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSlotsAreAMap(t *testing.T) {
	var s slots[int]
	want := map[WorkerID]*int{}
	rng := rand.New(rand.NewPCG(1, 2))
	ids := []WorkerID{0, 1, 7, 63, 1000, maxDense - 1, maxDense, maxDense + 1, math.MaxUint32}
	for range 2000 {
		w := ids[rng.IntN(len(ids))]
		if want[w] == nil && rng.IntN(2) == 0 {
			want[w] = new(int)
			s.put(w, want[w])
		} else if rng.IntN(2) == 0 {
			delete(want, w)
			s.remove(w)
		}
		require.Equal(t, len(want), s.n)
		for _, w := range ids {
			require.Same(t, want[w], s.get(w))
		}
	}
	require.Nil(t, s.get(12345))
}
