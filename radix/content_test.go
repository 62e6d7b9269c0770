package radix

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func contentIndex(t *testing.T, limit int) (*Index, *ContentMap, Holder) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A")
	c, err := NewContentMap(x, w[0], ContentMapOptions{Limit: limit})
	require.NoError(t, err)
	return x, c, Holder{Worker: w[0]}
}

func matched(t *testing.T, x *Index, keys ...uint64) int {
	var r Result
	require.NoError(t, x.Match(&Query{Keys: keys}, &r))
	return r.Workers[0].Combined
}

func TestContentFollowsEngineHashes(t *testing.T) {
	x, c, h := contentIndex(t, 0)
	require.NoError(t, c.Store(h, []uint64{11, 12, 13}, []uint64{1, 2, 3}))
	require.NoError(t, c.Store(h, []uint64{12}, []uint64{2})) // a further copy
	require.Equal(t, 3, matched(t, x, 1, 2, 3))
	require.Equal(t, 0, matched(t, x, 11, 12))
	require.NoError(t, c.Remove(h, []uint64{12}))
	require.Equal(t, 3, matched(t, x, 1, 2, 3))
	require.NoError(t, c.Remove(h, []uint64{12}))
	require.Equal(t, 1, matched(t, x, 1, 2, 3))
	key, ok := c.Parent(12) // known as a parent although it is gone
	require.True(t, ok)
	require.EqualValues(t, 2, key)
	require.NoError(t, c.Store(h, []uint64{12}, nil)) // announced again by hash alone
	require.Equal(t, 3, matched(t, x, 1, 2, 3))
	require.NoError(t, c.Remove(h, []uint64{99}))
	require.EqualValues(t, 1, c.Stats().Unmatched)
	require.NoError(t, c.EngineClear(false))
	require.Equal(t, 0, matched(t, x, 1, 2, 3))
	require.NoError(t, c.Reset())
	_, ok = c.Parent(12)
	require.False(t, ok)
	require.Error(t, c.Store(h, []uint64{1}, []uint64{1, 2}))
	require.ErrorIs(t, c.Store(Holder{Worker: 7}, []uint64{1}, []uint64{1}), ErrUnknownWorker)
	_, err := NewContentMap(x, 99, ContentMapOptions{})
	require.ErrorIs(t, err, ErrUnknownWorker)
	_, err = NewContentMap(x, h.Worker, ContentMapOptions{Limit: -1})
	require.ErrorIs(t, err, ErrOptions)
}

// TestContentKeepsASet: where repeated announcements are no copies, one removal takes
// the block away.
func TestContentKeepsASet(t *testing.T) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16, Copies: Set}, "A")
	c, err := NewContentMap(x, w[0], ContentMapOptions{})
	require.NoError(t, err)
	h := Holder{Worker: w[0]}
	for range 3 {
		require.NoError(t, c.Store(h, []uint64{11}, []uint64{1}))
	}
	require.Equal(t, 1, matched(t, x, 1))
	require.NoError(t, c.Remove(h, []uint64{11}))
	require.Equal(t, 0, matched(t, x, 1))
}

func TestContentRemoveAnywhere(t *testing.T) {
	x, c, gpu := contentIndex(t, 0)
	cpu := Holder{Worker: gpu.Worker, Medium: CPU}
	other := Holder{Worker: gpu.Worker, Group: 1}
	require.NoError(t, c.Store(gpu, []uint64{11}, []uint64{1}))
	require.NoError(t, c.Store(cpu, []uint64{11, 12}, []uint64{1, 2}))
	require.NoError(t, c.RemoveAnywhere(gpu.Group, []uint64{11}))
	require.Equal(t, 0, matched(t, x, 1, 2))
	require.Zero(t, c.Stats().Unmatched)
	require.NoError(t, c.RemoveAnywhere(gpu.Group, []uint64{11}))
	require.NoError(t, c.RemoveAnywhere(other.Group, []uint64{12}))
	require.EqualValues(t, 2, c.Stats().Unmatched)
	require.NoError(t, c.Store(gpu, []uint64{11}, nil))
	require.Equal(t, 2, matched(t, x, 1, 2), "the block on the other medium stayed")
}

// next is the content key of a block after parent with content n.
func next(parent, n uint64) uint64 { return parent*1000 + n }

func place(ns ...uint64) PlaceFunc {
	return func(dst []uint64, parent uint64) []uint64 {
		for _, n := range ns {
			parent = next(parent, n)
			dst = append(dst, parent)
		}
		return dst
	}
}

// TestContentAttachesOrphans: trial T96 by content.
func TestContentAttachesOrphans(t *testing.T) {
	x, c, h := contentIndex(t, 4)
	require.NoError(t, c.Defer(h, 11, []uint64{13}, place(3)))
	require.NoError(t, c.Defer(h, 13, []uint64{14, 15}, place(4, 5)))
	require.NoError(t, c.Remove(h, []uint64{15})) // gone before it could be placed
	require.Equal(t, 3, c.Stats().Waiting)
	require.NoError(t, c.Defer(h, 77, []uint64{78, 79}, place(1, 2))) // one too many
	require.EqualValues(t, 2, c.Stats().Dropped)
	require.NoError(t, c.Store(h, []uint64{11}, []uint64{1}))
	b3 := next(1, 3)
	b4 := next(b3, 4)
	b5 := next(b4, 5)
	require.Equal(t, 3, matched(t, x, 1, b3, b4, b5))
	require.Zero(t, c.Stats().Waiting)
	require.NoError(t, c.Store(h, []uint64{15}, nil))
	require.Equal(t, 4, matched(t, x, 1, b3, b4, b5))
	require.NoError(t, c.Defer(h, 11, []uint64{16}, place(6))) // parent known by now
	require.Equal(t, 2, matched(t, x, 1, next(1, 6)))
}

func TestContentCollisions(t *testing.T) {
	x, c, h := contentIndex(t, 0)
	// Two hashes of one content: held only while both are.
	require.NoError(t, c.Store(h, []uint64{11}, []uint64{1}))
	require.NoError(t, c.Store(h, []uint64{21}, []uint64{1}))
	require.Equal(t, 1, matched(t, x, 1))
	require.NoError(t, c.Remove(h, []uint64{11}))
	require.Equal(t, 0, matched(t, x, 1))
	require.NoError(t, c.Store(h, []uint64{11}, []uint64{1}))
	require.Equal(t, 1, matched(t, x, 1))
	// Two contents of one hash: not held until all copies are gone.
	require.NoError(t, c.Store(h, []uint64{31}, []uint64{2}))
	require.NoError(t, c.Store(h, []uint64{31}, []uint64{3}))
	require.Equal(t, 0, matched(t, x, 2))
	require.Equal(t, 0, matched(t, x, 3))
	_, ok := c.Parent(31)
	require.False(t, ok)
	require.NoError(t, c.Remove(h, []uint64{31}))
	require.Equal(t, 0, matched(t, x, 3))
	require.NoError(t, c.Remove(h, []uint64{31}))
	require.NoError(t, c.Store(h, []uint64{31}, []uint64{3}))
	require.Equal(t, 1, matched(t, x, 3))
	s := c.Stats()
	require.EqualValues(t, 1, s.Aliases)
	require.EqualValues(t, 1, s.Torn)
}

// TestContentRandom holds a random stream against the rule itself: a content
// key is held where every hash seen under it is, and none of these is torn.
func TestContentRandom(t *testing.T) {
	seeds := uint64(200)
	if raceEnabled {
		seeds = 40
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 4))
		x, c, h := contentIndex(t, 0)
		count := map[uint64]int{}
		content := map[uint64]map[uint64]bool{} // hash -> its contents since it was last gone
		hashes := map[uint64]map[uint64]bool{}  // content -> hashes
		for range 300 {
			e := 1 + r.Uint64N(12)
			if r.IntN(5) > 1 {
				key := 100 + e/2*2
				if r.IntN(30) == 0 {
					key++
				}
				if len(content[e]) > 1 && count[e] > 0 {
					// torn: a further content changes nothing
				} else if content[e] == nil {
					content[e] = map[uint64]bool{}
				}
				if len(content[e]) <= 1 {
					if len(content[e]) == 0 {
						if hashes[key] == nil {
							hashes[key] = map[uint64]bool{}
						}
						hashes[key][e] = true
					}
					content[e][key] = true
				}
				require.NoError(t, c.Store(h, []uint64{e}, []uint64{key}))
				count[e]++
			} else {
				require.NoError(t, c.Remove(h, []uint64{e}))
				if count[e] = max(0, count[e]-1); count[e] == 0 && len(content[e]) > 1 {
					for key, hs := range hashes {
						if hs[e] && len(hs) == 1 {
							delete(hashes, key)
							delete(content, e)
						} else if hs[e] {
							content[e] = map[uint64]bool{key: true}
						}
					}
				}
			}
			for key, hs := range hashes {
				held := true
				for e := range hs {
					held = held && count[e] > 0 && len(content[e]) == 1
				}
				want := 0
				if held {
					want = 1
				}
				require.Equal(t, want, matched(t, x, key), "seed %d key %d", seed, key)
			}
		}
	}
}

func TestContentSweep(t *testing.T) {
	_, c, h := contentIndex(t, 100)
	for i := range uint64(1000) {
		require.NoError(t, c.Store(h, []uint64{1000 + i}, []uint64{5000 + i}))
		if i >= 50 {
			require.NoError(t, c.Remove(h, []uint64{1000 + i - 50}))
		}
	}
	require.LessOrEqual(t, c.Stats().Known, 101)
	_, ok := c.Parent(1999)
	require.True(t, ok)
}
