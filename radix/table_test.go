package radix

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTableInvariants stores and removes keys whose hashes share tags, buckets
// and segments, so that lines have several equal slots, through many splits. The
// table then has one entry a key, which says of its hash what it should.
func TestTableInvariants(t *testing.T) {
	for name, c := range map[string]struct {
		weak, low uint64 // which bits of hashes count, and of keys' lowest byte
		keys      int
	}{
		"hashes":               {^uint64(0), 0xff, 60_000},
		"one tag":              {^uint64(0), 0, 60_000},
		"two tags":             {^uint64(0), 1, 60_000},
		"one tag, few buckets": {0xffff0003ffffffff, 0, 12_000},
		"few buckets":          {0xffff0007ffffffff, 0xff, 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := New(Options{})
			require.NoError(t, err)
			x.table.weak = c.weak
			w, err := x.AddWorker("w", nil)
			require.NoError(t, err)
			r := rand.New(rand.NewPCG(uint64(c.keys), c.low))
			held := map[uint64]bool{}
			var keys []uint64
			for len(keys) < c.keys {
				some := make([]uint64, 1+r.IntN(40))
				for i := range some {
					some[i] = r.Uint64()&^0xff | r.Uint64()&c.low | 1<<60
				}
				keys = append(keys, some...)
				require.NoError(t, x.Store(Holder{Worker: w}, some))
				for _, k := range some {
					held[k] = true
				}
				for r.IntN(3) == 0 { // some go, from anywhere
					at := r.IntN(len(keys))
					gone := keys[at:min(len(keys), at+1+r.IntN(20))]
					require.NoError(t, x.Remove(Holder{Worker: w}, gone))
					for _, k := range gone {
						delete(held, k)
					}
				}
			}
			require.Zero(t, x.lost)
			require.Equal(t, len(held), x.live)
			checkTable(t, x)
			for _, k := range keys {
				pos := x.find(k)
				require.Equal(t, held[k], pos != 0 && x.union(x.arena.page(pos))>>(pos%pageKeys)&1 != 0)
				if pos != 0 {
					require.Equal(t, pos, x.probe(k), "readers and the writer agree")
				}
			}
			require.NoError(t, x.Remove(Holder{Worker: w}, keys))
			checkTable(t, x)
			require.Zero(t, x.live)
		})
	}
}

// checkTable compares the table's entries with the keys of the lines that are held.
func checkTable(t *testing.T, x *Index) {
	t.Helper()
	type entry struct {
		segment *segment
		slot    uint32
		way     uint8 // without away
	}
	want, have := map[entry]int{}, map[entry]int{}
	for p := uint32(1); p < uint32(x.arena.count)*slabPages; p++ {
		live := wholeLines(x.union(x.arena.page(p * pageKeys)))
		for i := range uint32(pageKeys) {
			if key := x.key(p*pageKeys + i); live>>i&1 != 0 && key != 0 {
				h := x.table.hash(key)
				part := x.table.part(h)
				want[entry{part.segment.Load(), slotOf(h, (p*pageKeys+i)/lineKeys), part.meta.way(h)}]++
			}
		}
	}
	seen := map[*segment]bool{}
	for i := range x.table.dir.Load().parts {
		p := &x.table.dir.Load().parts[i]
		s := p.segment.Load()
		if seen[s] {
			continue
		}
		seen[s] = true
		entries, passed := 0, 0
		for b := range s {
			for j, way := range s[b].ways {
				v := s[b].slot(j)
				require.Equal(t, v != 0, way&taken != 0, "a slot is taken or empty")
				if v != 0 {
					have[entry{s, v, way &^ away}]++
					entries++
				}
				passed += int(way & away)
			}
		}
		require.Equal(t, p.meta.live, entries)
		if passed == 0 {
			for b := range s {
				require.Zero(t, s[b].overflow.Load())
			}
		}
	}
	require.Equal(t, want, have)
}

// TestSegmentForgetsLines fills lines key by key and takes whole lines out of a segment.
// Their keys have equal slots and ways, but other buckets and filters: an entry is taken
// for that of another key of its line, which must then find the one that is left.
func TestSegmentForgetsLines(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	var s segment
	m := newMeta(0)
	var lines [24][]uint64
	forget := func(i int) {
		for _, h := range lines[i] {
			require.True(t, s.remove(h, uint32(i+1), m.way(h)), "what stays in the table leads to the line's next keys")
		}
		lines[i] = nil
	}
	for range 20_000 {
		i := r.IntN(len(lines))
		if len(lines[i]) == lineKeys || r.IntN(10) == 0 {
			forget(i)
			continue
		}
		h := r.Uint64N(4)<<32 | r.Uint64N(16)<<40
		lines[i] = append(lines[i], h)
		s.insert(h, uint32(i+1), m.way(h))
	}
	for i := range lines {
		forget(i)
	}
	for i := range s {
		require.Zero(t, s[i].ways)
		require.Zero(t, s[i].slots)
		require.Zero(t, s[i].overflow.Load())
	}
}
