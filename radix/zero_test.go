package radix

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestZeroIsNoUnusedPosition: where a line has room, the key 0, which marks it, is not
// taken for a block that lies there.
func TestZeroIsNoUnusedPosition(t *testing.T) {
	prefix := func(x *Index, keys ...uint64) []Prefix {
		found, err := x.Prefixes(&Query{Keys: keys}, new(Result))
		require.NoError(t, err)
		return found
	}
	x, ids := simpleIndex(t, ProfileOptions{HashUnit: 16}, "a", "b")
	a, b := Holder{Worker: ids[0]}, Holder{Worker: ids[1]}
	require.NoError(t, x.Store(a, []uint64{1}))
	require.NoError(t, x.Store(a, []uint64{0}))
	require.NoError(t, x.StoreAfter(b, 1, []uint64{2})) // takes room
	require.Equal(t, []Prefix{{ids[0], 1}}, prefix(x, 1, 2), "a did not store 2")
	require.Equal(t, []Prefix{{ids[0], 2}}, prefix(x, 1, 0))

	for _, parent := range []uint64{1, 9} { // room behind what was removed last, or in front of it
		x, ids := simpleIndex(t, ProfileOptions{HashUnit: 16}, "a")
		a := Holder{Worker: ids[0]}
		require.NoError(t, x.Store(a, []uint64{0, 1}))
		require.NoError(t, x.StoreAfter(a, parent, []uint64{2}))
		require.NoError(t, x.Remove(a, []uint64{2}))
		require.NoError(t, x.Remove(a, []uint64{0}))
		require.Empty(t, prefix(x, 0), "parent %d: 0 was removed", parent)
	}
}
