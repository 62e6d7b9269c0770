package radix

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDigest(t *testing.T) {
	one, err := New(Options{})
	require.NoError(t, err)
	two, err := New(Options{})
	require.NoError(t, err)
	for i := range one.seed {
		require.NotZero(t, one.seed[i])
		require.NotEqual(t, one.seed[i], two.seed[i], "nobody knows an index's digests")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var keys, seed [pageKeys]uint64
		for i := range keys {
			keys[i], seed[i] = r.Uint64(), r.Uint64()
			switch r.IntN(8) { // carries and what they drop
			case 0:
				keys[i] = ^uint64(0)
			case 1:
				seed[i] = ^uint64(0)
			case 2:
				keys[i] = 0
			}
		}
		if hasDigest {
			require.Equal(t, digestGo(&keys, &seed), digest(&keys, &seed))
		}
		other := keys
		other[r.IntN(pageKeys)] ^= 1 << r.IntN(64)
		require.NotEqual(t, digestGo(&keys, &seed), digestGo(&other, &seed))
	}
}

// checkDigests compares pages' digests with their keys. It returns how many are
// held as a whole, and of these how many have one.
func checkDigests(t *testing.T, x *Index) (whole, sealed int) {
	t.Helper()
	for p := uint32(1); p < uint32(x.arena.count)*slabPages; p++ {
		pg := x.arena.page(p * pageKeys)
		sum := pg.digest.Load()
		if sum != 0 {
			require.Equal(t, digestGo(x.arena.pageOf(p*pageKeys), &x.seed), sum)
		}
		for _, e := range x.recs.entries(pg) {
			if e.mask == ^uint64(0) {
				whole++
				if sum != 0 {
					sealed++
				}
				break
			}
		}
	}
	return whole, sealed
}

// TestDigestsAreOfTheirPages: whatever becomes of a page, its digest is that of its
// keys or there is none.
func TestDigestsAreOfTheirPages(t *testing.T) {
	for _, moved := range []bool{false, true} {
		t.Run(fmt.Sprint("moved=", moved), func(t *testing.T) {
			r := rand.New(rand.NewPCG(5, 6))
			x, err := New(Options{})
			require.NoError(t, err)
			x.pack.eager = moved
			var holders []Holder
			for i := range 4 {
				w, err := x.AddWorker(fmt.Sprint(i), nil)
				require.NoError(t, err)
				holders = append(holders, Holder{Worker: w})
			}
			chains := make([][]uint64, 40)
			for i := range chains {
				chains[i] = randomKeys(uint64(i), 1+r.IntN(6*pageKeys))
			}
			wholes, steps := 0, 4000
			if raceEnabled { // one goroutine
				steps = 400
			}
			for step := range steps {
				h, i := holders[r.IntN(len(holders))], r.IntN(len(chains))
				keys := chains[i]
				from := r.IntN(len(keys))
				switch r.IntN(7) {
				case 0, 1:
					require.NoError(t, x.Store(h, keys))
				case 2: // grows by one key at a time
					for n := range min(len(keys), 2*pageKeys) {
						require.NoError(t, x.StoreAfter(h, keys[max(n-1, 0)], keys[n:n+1]))
					}
				case 3:
					require.NoError(t, x.Remove(h, keys))
				case 4:
					require.NoError(t, x.Remove(h, keys[from:]))
				case 5:
					require.NoError(t, x.Remove(h, keys[from:min(from+3, len(keys))]))
				case 6: // its room is taken by others
					for _, h := range holders {
						require.NoError(t, x.Remove(h, keys))
					}
					chains[i] = randomKeys(uint64(1000+step), 1+r.IntN(6*pageKeys))
				}
				if step%50 == 0 {
					x.Tidy()
					whole, sealed := checkDigests(t, x)
					wholes += whole
					switch {
					case !hasDigest:
						require.Zero(t, sealed)
					case !moved:
						require.Equal(t, whole, sealed)
					}
				}
			}
			require.NotZero(t, wholes)
		})
	}
}

// TestAKeyOfAWholePageDiffers asks for prompts of which one key is another.
func TestAKeyOfAWholePageDiffers(t *testing.T) {
	x, ids := simpleIndex(t, ProfileOptions{HashUnit: 16}, "a", "b")
	keys := randomKeys(9, 5*pageKeys+7)
	keys[100] = 0
	for _, id := range ids {
		require.NoError(t, x.Store(Holder{Worker: id}, keys))
	}
	var res Result
	for _, source := range []bool{false, true} {
		for at := range len(keys) + 1 {
			asked := append([]uint64(nil), keys...)
			if at < len(keys) {
				asked[at]++
			}
			q := &Query{Keys: asked}
			if source {
				q = &Query{Source: &sliceSource{keys: asked}}
			}
			found, err := x.Prefixes(q, &res)
			require.NoError(t, err)
			if at == 0 {
				require.Empty(t, found)
				continue
			}
			require.ElementsMatch(t, []Prefix{{ids[0], int32(at)}, {ids[1], int32(at)}}, found)
		}
	}
}

func BenchmarkSamePage(b *testing.B) {
	var seed [pageKeys]uint64
	for i := range seed {
		seed[i] = rand.Uint64()
	}
	page := [pageKeys]uint64(randomKeys(1, pageKeys))
	far := make([]uint64, 1<<20) // 8 MiB
	for i := range far {
		far[i] = page[i%pageKeys]
	}
	b.Run("digest", func(b *testing.B) {
		for range b.N {
			digest(&page, &seed)
		}
	})
	b.Run("compare", func(b *testing.B) {
		at, equal := 0, 0
		for range b.N {
			if *(*[pageKeys]uint64)(far[at:]) == page {
				equal++
			}
			at = (at + pageKeys) % len(far)
		}
	})
}
