package radix

import "math/bits"

// pageMask gathers positions of one page, so that a page is changed once.
type pageMask struct {
	pos  uint32 // of the page
	mask uint64
}

// setEntries makes a page held as entries say. old is the record it had, or 0.
func (x *Index) setEntries(pg *page, old uint32, entries []entry) {
	switch {
	case len(entries) == 0:
		pg.become(refEmpty, 0)
	case len(entries) == 1 && entries[0].bits&(entries[0].bits-1) == 0:
		e := entries[0]
		if refKind(pg.ref.Load()) == refOne {
			pg.become(refEmpty, 0) // so that no reader takes the mask for another's
		}
		pg.mask.Store(e.mask)
		pg.become(refOne, uint32(e.word)*64+uint32(bits.TrailingZeros64(e.bits)))
	default:
		ref := x.recs.put(entries)
		if ref == 0 { // no room: knowing less is allowed
			for i := range entries {
				x.lost += uint64(bits.OnesCount64(entries[i].bits) * bits.OnesCount64(entries[i].mask))
			}
			pg.become(refEmpty, 0)
			break
		}
		pg.become(refList, ref)
	}
	if old != 0 {
		x.retire(retiredRecord, old)
	}
}

func recordOf(pg *page) uint32 {
	if ref := pg.ref.Load(); refKind(ref) == refList {
		return refValue(ref)
	}
	return 0
}

// hold makes a holder hold positions of a page; those that it holds already
// become further copies. It returns the holder's mask before.
func (x *Index) hold(k *worker, h *holder, pos uint32, mask uint64) {
	pg := x.arena.page(pos)
	var own uint64
	switch ref := pg.ref.Load(); {
	case refKind(ref) == refOne && refValue(ref) == h.hid:
		own = pg.mask.Load()
		if own|mask != own {
			x.seal(pg, pos, own|mask)
			pg.mask.Store(own | mask)
			x.live += bits.OnesCount64(mask &^ own)
		}
	case refKind(ref) == refEmpty || refKind(ref) == refMoved:
		x.live += bits.OnesCount64(mask)
		x.seal(pg, pos, mask)
		pg.mask.Store(mask)
		pg.become(refOne, h.hid)
	default:
		old := recordOf(pg)
		entries := x.recs.entries(pg)
		var all uint64
		own, all = masks(entries, h.hid)
		x.live += bits.OnesCount64(mask &^ all)
		if own|mask != own {
			x.seal(pg, pos, own|mask)
			entries = withMask(entries, h.hid, own|mask)
			x.recs.scratch = entries
			x.setEntries(pg, old, entries)
		}
	}
	if fresh := bits.OnesCount64(mask &^ own); fresh > 0 {
		h.blocks.Store(h.blocks.Load() + int64(fresh))
	}
	again := mask & own
	if again == 0 {
		return
	}
	if k.profile.copies == Set {
		k.stats.Repeated += uint64(bits.OnesCount64(again))
		return
	}
	st := x.arena.state(pos)
	for b := again; b != 0; b &= b - 1 {
		if x.copies.add(copyKey(h.hid, pos+uint32(bits.TrailingZeros64(b)))) {
			st.copies++
		}
		h.copies++
		k.stats.Copies++
	}
}

// unhold takes a copy of each of the positions of a page from a holder, and
// buries the lines that nobody holds any more.
func (x *Index) unhold(k *worker, h *holder, pos uint32, mask uint64) {
	pg := x.arena.page(pos)
	var own, left uint64
	var entries []entry
	ref := pg.ref.Load()
	one := refKind(ref) == refOne && refValue(ref) == h.hid
	if one {
		own = pg.mask.Load()
	} else {
		entries = x.recs.entries(pg)
		own, _ = masks(entries, h.hid)
	}
	if missing := mask &^ own; missing != 0 {
		k.stats.Unmatched += uint64(bits.OnesCount64(missing))
		mask &= own
	}
	if st := x.arena.state(pos); st.copies > 0 {
		for b := mask; b != 0; b &= b - 1 {
			bit := b & -b
			had, last := x.copies.sub(copyKey(h.hid, pos+uint32(bits.TrailingZeros64(b))))
			if !had {
				continue
			}
			mask &^= bit
			h.copies--
			k.stats.Copies--
			if last {
				st.copies--
			}
		}
	}
	if mask == 0 {
		return
	}
	if one {
		left = own &^ mask
		pg.mask.Store(left)
	} else {
		old := recordOf(pg)
		entries = withMask(entries, h.hid, own&^mask)
		x.recs.scratch = entries
		x.setEntries(pg, old, entries)
		for i := range entries {
			left |= entries[i].mask
		}
	}
	h.blocks.Store(h.blocks.Load() - int64(bits.OnesCount64(mask)))
	x.live -= bits.OnesCount64(mask &^ left)
	x.bury(pos, mask, left)
}

// dropCopies forgets the further copies of a discarded holder in a page.
func (x *Index) dropCopies(hid, pos uint32, mask uint64) {
	st := x.arena.state(pos)
	for b := mask; b != 0 && st.copies > 0; b &= b - 1 {
		if x.copies.drop(copyKey(hid, pos+uint32(bits.TrailingZeros64(b)))) > 0 {
			st.copies--
		}
	}
}

// burial is what bury looks up of a page's keys.
type burial struct {
	hashes [pageKeys]uint64
	homes  [pageKeys]*bucket
}

// bury takes the keys of dead lines out of the table: lines with a position in
// touched of which nobody holds one (left). Their memory waits for readers.
func (x *Index) bury(pos uint32, touched, left uint64) {
	dead := wholeLines(touched) &^ wholeLines(left)
	if dead == 0 {
		return
	}
	keys := x.arena.pageOf(pos)
	d, n := x.table.dir.Load(), 0
	for b := dead; b != 0; b &= b - 1 {
		h := x.table.hash(keys[bits.TrailingZeros64(b)])
		x.burial.hashes[n], x.burial.homes[n] = h, &d.segmentOf(h)[home(h)]
		n++
	}
	x.touched = prefetch(x.burial.homes[:n])
	n = 0
	for b := dead; b != 0; b &= b - 1 {
		if i := bits.TrailingZeros64(b); keys[i] != 0 {
			x.leave(x.burial.hashes[n], (pos+uint32(i))/lineKeys)
		}
		n++
	}
	for b := dead & 0x0101010101010101; b != 0; b &= b - 1 {
		x.retire(retiredLine, (pos+uint32(bits.TrailingZeros64(b)))/lineKeys)
	}
}
