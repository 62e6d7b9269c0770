package radix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// stripes stores a chain page by page for a worker, with pages of other chains in between, so
// that it goes on behind a page, elsewhere or in another slab. It begins some pages
// before a slab's end.
func stripes(t *testing.T, r *rand.Rand, before, pages int) (x *Index, ids []WorkerID, keys []uint64) {
	x, ids = simpleIndex(t, ProfileOptions{HashUnit: 16}, "others", "a")
	h := Holder{Worker: ids[1]}
	require.NoError(t, x.Store(Holder{Worker: ids[0]}, randomKeys(r.Uint64(), (slabPages-1-before)*pageKeys)))
	keys = randomKeys(r.Uint64(), pages*pageKeys)
	parent := uint64(0)
	for at := 0; at < len(keys); {
		n := (1 + r.IntN(40)) * pageKeys
		if r.IntN(4) == 0 || before == pages {
			n = len(keys)
		}
		some := keys[at:min(at+n, len(keys))]
		require.NoError(t, x.StoreAfter(h, parent, some))
		if at += len(some); at < len(keys) {
			parent = some[len(some)-1]
			require.NoError(t, x.StoreAfter(Holder{Worker: ids[r.IntN(2)]}, parent, randomKeys(r.Uint64(), (1+r.IntN(3))*pageKeys)))
		}
	}
	for at := 0; at < len(keys); at += pageKeys { // such as the packer makes
		if r.IntN(20) == 0 {
			x.arena.page(x.find(keys[at])).digest.Store(0)
		}
	}
	return x, ids, keys
}

// TestStride: a stride goes along all whole pages that are the prompt's, whatever their
// number, where they lie and whether they have digests.
func TestStride(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	most := strideMost
	rounds := 40
	if raceEnabled { // one goroutine
		rounds = 10
	}
	for round := range rounds {
		pages := []int{1, 2, most - 1, most, most + 1, 2 * most, 2*most + 1, 3 * most}[r.IntN(8)]
		before := []int{1, pages, pages + 1, most, 1 + r.IntN(100)}[r.IntN(5)] // pages of the slab
		x, ids, keys := stripes(t, r, before, pages)
		first := x.find(keys[0])
		require.EqualValues(t, before, (slabKeys-first)/pageKeys)
		h, held := Holder{Worker: ids[1]}, uint64(1)<<x.workers[ids[1]].holders[0].hid
		var old Result
		for n := range 60 {
			say := fmt.Sprintf("round %d, %d pages, %d before the end of a slab, prompt %d", round, pages, before, n)
			prompt, common := slices.Clone(keys), len(keys)
			switch n % 4 {
			case 0:
				prompt = append(prompt, randomKeys(r.Uint64(), r.IntN(2*pageKeys))...)
			case 1:
				common = r.IntN(len(keys) + 1)
				prompt = prompt[:common]
			case 2:
				common = r.IntN(pages+1) * pageKeys
				prompt = prompt[:common]
			case 3:
				common = min(r.IntN(pages+1)*pageKeys+r.IntN(2)*(pageKeys-1), len(keys)-1)
				prompt[common] ^= 1 << r.IntN(64)
			}
			hole := 1 + r.IntN(8*len(keys))
			if hole < len(keys) {
				require.NoError(t, x.Remove(h, keys[hole:hole+1]))
				common = min(common, hole)
			}
			pos, i := x.stride(&walk{keys: prompt, alive: []uint64{held}}, first, 0)
			require.Equal(t, common/pageKeys*pageKeys, i, say)
			if i > 0 {
				require.Equal(t, x.arena.after(x.find(keys[i-1])), pos, say)
			}
			found, err := x.Prefixes(&Query{Keys: prompt, Workers: ids[1:]}, &old)
			require.NoError(t, err)
			if common > 0 {
				require.Equal(t, []Prefix{{ids[1], int32(common)}}, found, say)
			} else {
				require.Empty(t, found, say)
			}
			require.Equal(t, min(common+1, len(prompt)), old.Keys, say)
			if hole < len(keys) {
				require.NoError(t, x.StoreAfter(h, keys[hole-1], keys[hole:hole+1]))
			}
		}
	}
}

// TestWholePagesOfDifferentWorkers mixes workers whose blocks count in one holder with
// those of several, more than a word of either, in whole pages that they share.
func TestWholePagesOfDifferentWorkers(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 11))
	plain, err := NewProfile(ProfileOptions{HashUnit: 1})
	require.NoError(t, err)
	hybrid, err := NewProfile(ProfileOptions{HashUnit: 1, Groups: []Group{{}, {Kind: SlidingWindow, Window: 9}}})
	require.NoError(t, err)
	for _, c := range []struct{ count, hybrids int }{{3, 1}, {70, 24}, {4, 0}, {70, 0}} {
		count := c.count
		x, err := New(Options{})
		require.NoError(t, err)
		keys := randomKeys(3, 9*pageKeys)
		var ids []WorkerID
		held := map[WorkerID]int{}
		for i := range count {
			p := plain
			if i%3 == 0 && i/3 < c.hybrids {
				p = hybrid
			}
			id, err := x.AddWorker(fmt.Sprint(i), p)
			require.NoError(t, err)
			ids = append(ids, id)
			held[id] = r.IntN(len(keys) + 1)
			if r.IntN(2) == 0 {
				held[id] = held[id] / pageKeys * pageKeys
			}
			require.NoError(t, x.Store(Holder{Worker: id}, keys[:held[id]]))
			if p == hybrid {
				require.NoError(t, x.Store(Holder{Worker: id, Group: 1}, keys[:held[id]]))
			} else if c.hybrids > 0 && r.IntN(10) == 0 { // its further medium makes it joint
				require.NoError(t, x.Store(Holder{Worker: id, Medium: CPU}, keys[:held[id]]))
			}
		}
		var res Result
		for n := range 200 {
			prompt := keys[:r.IntN(len(keys)+1)]
			asked := slices.Clone(ids)
			r.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
			q := &Query{Keys: prompt, Workers: asked[:1+n%count], Tokens: len(prompt) + 1}
			require.NoError(t, x.Match(q, &res))
			for i, m := range res.Workers {
				want := min(held[asked[i]], len(prompt))
				require.Equal(t, want, m.Combined, "%d workers asked for", len(q.Workers))
				require.Equal(t, want, m.Usable)
			}
		}
	}
}

// TestWholePageOfOneWorker: a page that one worker holds all of is not held by those that
// are asked for with it, nor by who has the same bit of another word of holders.
func TestWholePageOfOneWorker(t *testing.T) {
	keys := randomKeys(4, 4*pageKeys)
	for _, far := range []int{1, 64} {
		x, err := New(Options{})
		require.NoError(t, err)
		var ids []WorkerID
		for i := range 65 {
			id, err := x.AddWorker(fmt.Sprint(i), nil)
			require.NoError(t, err)
			ids = append(ids, id)
			n := pageKeys
			switch i {
			case 0:
				n = 2 * pageKeys
			case far:
				n = 3 * pageKeys
			}
			require.NoError(t, x.Store(Holder{Worker: id}, keys[:n]))
		}
		require.EqualValues(t, far, x.workers[far].holders[0].hid-x.workers[0].holders[0].hid)
		short, long := Prefix{ids[0], 2 * pageKeys}, Prefix{ids[far], 3 * pageKeys}
		for _, want := range [][]Prefix{{short}, {long}, {short, long}} {
			q := &Query{Keys: keys}
			for _, p := range want {
				q.Workers = append(q.Workers, p.Worker)
			}
			found, err := x.Prefixes(q, new(Result))
			require.NoError(t, err)
			require.ElementsMatch(t, want, found)
		}
	}
}

// TestDigestOfZero: a page without a digest is not taken for keys whose digest is 0.
func TestDigestOfZero(t *testing.T) {
	x, ids := simpleIndex(t, ProfileOptions{HashUnit: 16}, "a")
	x.seed = [pageKeys]uint64{} // keys whose lower halves are 0 have it
	keys := randomKeys(5, 2*pageKeys)
	for _, at := range []int{0, pageKeys} {
		keys[at] = keys[at] >> 32 << 32
	}
	require.NoError(t, x.Store(Holder{Worker: ids[0]}, keys))
	for _, at := range []int{0, pageKeys} {
		x.arena.page(x.find(keys[at])).digest.Store(0)
		prompt := slices.Clone(keys)
		for i := range pageKeys {
			prompt[at+i] = keys[at+i] >> 32 << 32
		}
		require.Zero(t, digestGo((*[pageKeys]uint64)(prompt[at:]), &x.seed))
		found, err := x.Prefixes(&Query{Keys: prompt}, new(Result))
		require.NoError(t, err)
		require.Equal(t, []Prefix{{ids[0], int32(at + 1)}}, found)
	}
}

// TestMaskIsOfItsHolder: while a page passes from one holder to another and back, neither
// is seen with the mask of the other.
func TestMaskIsOfItsHolder(t *testing.T) {
	x, err := New(Options{})
	require.NoError(t, err)
	pg, masks := new(page), [2]uint64{1, ^uint64(0)}
	var wrong atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		var one [3]uint64
		for !stop.Load() {
			if x.whole(pg, 0, 1) {
				wrong.Add(1)
			}
			if words, _ := x.look(pg, &one); len(words) > 0 && words[2] != masks[words[1]>>1] {
				wrong.Add(1)
			}
		}
	})
	flips := 2_000_000
	if raceEnabled {
		flips = 200_000
	}
	for n := range flips {
		hid := n % 2
		x.setEntries(pg, 0, []entry{{bits: 1 << hid, mask: masks[hid]}})
	}
	stop.Store(true)
	wg.Wait()
	require.Zero(t, wrong.Load())
}

// TestWholePagesOutlastTheirReaders: of pages that a reader saw to be whole it finds keys
// and digests as they were, whatever is removed and stored before it compares them.
func TestWholePagesOutlastTheirReaders(t *testing.T) {
	x, ids := simpleIndex(t, ProfileOptions{HashUnit: 16}, "a", "b")
	x.arena.limit = 1
	a, b := Holder{Worker: ids[0]}, Holder{Worker: ids[1]}
	const count = 10
	keys := randomKeys(1, count*pageKeys)
	require.NoError(t, x.Store(a, keys))
	first := x.find(keys[0])
	s := x.arena.slab(first)
	pages, there := s.pages[first/pageKeys:][:count], s.keys[first:]
	churn := func() {
		for seed := range uint64(3) {
			junk := randomKeys(seed+2, (slabPages-1)*pageKeys)
			require.NoError(t, x.Store(b, junk))
			require.NoError(t, x.Remove(b, junk))
			x.Tidy()
		}
	}
	cell := x.epochs.enter(new(uint32))
	h := x.workers[ids[0]].holders[0].hid
	for i := range pages {
		require.True(t, x.whole(&pages[i], uint64(h/64), 1<<(h%64)))
	}
	require.NoError(t, x.Remove(a, keys))
	churn()
	require.Equal(t, count, x.same(pages, keys, there))
	x.epochs.leave(cell)
	churn()
	require.Zero(t, x.same(pages, keys, there), "they were to be used again")
}
