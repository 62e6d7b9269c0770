package radix

import "math/bits"

// The byte limit bounds slabs: when the last page of the last allowed slab is
// taken, pages are emptied, some ahead of the need. What is forgotten can only
// make answers smaller. Victims are pages of the worker that holds the most
// blocks, in the order of their positions (a clock hand), so that a small worker
// does not lose to a large one.
type evictor struct {
	next uint32 // page
}

// evictAhead is how many pages are kept free at the limit, and how many are
// looked at for each that is needed.
const (
	evictAhead = 32
	evictLook  = 4096
)

// makeRoom empties pages while the index is at its limit and has few free ones.
func (x *Index) makeRoom(keys int) {
	a := &x.arena
	if a.count < a.limit || a.count == 0 {
		return
	}
	need := evictAhead + ceilDiv(keys, pageKeys)
	if a.spare < need {
		x.reclaim()
	}
	waiting := (len(x.retired.queue) - x.retired.head) / pageLines // on their way to be free
	if a.spare+waiting >= need {
		return
	}
	v := x.largest()
	for looked := 0; v != nil && a.spare+waiting < need && looked < evictLook; looked++ {
		if x.evict.next++; x.evict.next >= uint32(a.count)*slabPages {
			x.evict.next = 1
		}
		if x.evictPage(x.evict.next*pageKeys, v) {
			waiting++
		}
	}
}

// largest returns the worker that holds the most blocks.
func (x *Index) largest() *worker {
	var best *worker
	most := int64(0)
	for _, k := range x.workers {
		if k == nil {
			continue
		}
		if n := k.blocks(); n > most {
			best, most = k, n
		}
	}
	return best
}

func (k *worker) blocks() (n int64) {
	for _, h := range k.holders {
		n += h.blocks.Load()
	}
	return n
}

// evictPage makes a worker forget a page, if it is the page's only one.
func (x *Index) evictPage(pos uint32, k *worker) bool {
	pg := x.arena.page(pos)
	entries := append([]entry(nil), x.recs.entries(pg)...)
	gone := false
	for _, e := range entries {
		for b := e.bits; b != 0; b &= b - 1 {
			if k.holderOf(uint32(e.word)*64+uint32(bits.TrailingZeros64(b))) == nil {
				return false
			}
		}
	}
	for _, e := range entries {
		for b := e.bits; b != 0; b &= b - 1 {
			h := k.holderOf(uint32(e.word)*64 + uint32(bits.TrailingZeros64(b)))
			x.forget(k, h, pos, e.mask)
			gone = true
		}
	}
	return gone
}

func (k *worker) holderOf(hid uint32) *holder {
	for _, h := range k.holders {
		if h.hid == hid {
			return h
		}
	}
	return nil
}

// forget makes a holder lose positions of a page with all their copies.
func (x *Index) forget(k *worker, h *holder, pos uint32, mask uint64) {
	st := x.arena.state(pos)
	for b := mask; b != 0 && st.copies > 0; b &= b - 1 {
		if n := x.copies.drop(copyKey(h.hid, pos+uint32(bits.TrailingZeros64(b)))); n > 0 {
			st.copies--
			h.copies -= uint64(n)
			k.stats.Copies -= uint64(n)
		}
	}
	n := uint64(bits.OnesCount64(mask))
	k.stats.Evicted += n
	x.evicted += n
	x.unhold(k, h, pos, mask)
}
