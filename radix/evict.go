package radix

import "math/bits"

// The byte limit bounds slabs: when the last page of the last allowed slab is
// taken, pages are emptied, some ahead of the need. What is forgotten can only
// make answers smaller. Victims are pages, in the order of their positions (a
// clock hand), of which every holder's worker holds at least half as many blocks
// as the largest does: a small worker does not lose to a large one, and equal
// ones lose together what they share.
type evictor struct {
	next uint32 // page
}

// Some pages are kept free at the limit, for what is stored while a reader that is in a
// look-up, perhaps without a processor, holds up the reuse of others: one in
// evictShare, and evictAhead at least. evictLook is how many are looked at at most.
const (
	evictAhead = 32
	evictShare = 128
	evictLook  = 4096
)

// makeRoom empties pages while the index is at its limit and has few free ones.
func (x *Index) makeRoom(keys int) {
	a := &x.arena
	if a.count < a.limit || a.count == 0 {
		return
	}
	need := max(evictAhead, a.limit*slabPages/evictShare) + ceilDiv(keys, pageKeys)
	if a.spare < need {
		x.reclaim()
	}
	waiting := x.retired.lines / pageLines // on their way to be free
	if a.spare+waiting >= need {
		return
	}
	share := (x.largest() + 1) / 2
	for looked := 0; share > 0 && a.spare+waiting < need && looked < evictLook; looked++ {
		if x.evict.next++; x.evict.next >= uint32(a.count)*slabPages {
			x.evict.next = 1
		}
		if x.evictPage(x.evict.next*pageKeys, share) {
			waiting++
		}
	}
}

// largest returns how many blocks the worker holds that holds the most.
func (x *Index) largest() (most int64) {
	for _, k := range x.workers {
		if k != nil {
			most = max(most, k.blocks())
		}
	}
	return most
}

func (k *worker) blocks() (n int64) {
	for _, h := range k.holders {
		n += h.blocks.Load()
	}
	return n
}

// evictPage makes all its holders forget a page, if each is of a worker that
// holds at least share blocks.
func (x *Index) evictPage(pos uint32, share int64) bool {
	type victim struct {
		k    *worker
		h    *holder
		mask uint64
	}
	var victims []victim
	ids := x.view.Load().ids
	for _, e := range x.recs.entries(x.arena.page(pos)) {
		for b := e.bits; b != 0; b &= b - 1 {
			hid := uint32(e.word)*64 + uint32(bits.TrailingZeros64(b))
			k := x.worker(ids[hid])
			if k == nil || k.blocks() < share {
				return false
			}
			h := k.holderOf(hid)
			if h == nil {
				return false
			}
			victims = append(victims, victim{k, h, e.mask})
		}
	}
	for _, v := range victims {
		x.forget(v.k, v.h, pos, v.mask)
	}
	return len(victims) > 0
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
