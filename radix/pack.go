package radix

import (
	"math/bits"
	"sync/atomic"
)

// Keys that nobody holds keep their positions until their whole line is dead.
// Engines free the deepest blocks first, which leaves few; where blocks are freed
// at random, pages are moved together so that at most about a fifth is waste.
//
// A page is moved in this order, of which a reader may see any part:
//
//  1. the keys that are held get further positions, in the table too, with the
//     same holders: both places are true
//  2. the count of moves is raised: whoever finds nothing looks again if it was
//     during the search; and the page becomes refMoved: whoever comes to it by
//     an old position looks the key up again
//  3. the old positions leave the table; the page is reused after its readers
//
// A reader that read the page's holders before step 2 has an answer that was true
// during its call.
type packer struct {
	next     uint32 // page to look at
	cur, end uint32 // positions that take what is moved, in one page
	eager    bool   // tests: move whatever there is
	from     []entry
	masks    []uint64
}

const packFrom = 1 << 10 // lines in use below which nothing is moved

// packStep looks at up to n pages.
func (x *Index) packStep(n int) {
	a, p := &x.arena, &x.pack
	if len(x.sweep.now) > 0 || len(x.sweep.dead) > 0 { // its pass must see every page
		return
	}
	room := a.lines * lineKeys
	if room == 0 || !p.eager && (a.lines < packFrom || (room-x.live)*10 <= room*2) {
		return
	}
	for ; n > 0; n-- {
		if p.next++; p.next >= uint32(a.count)*slabPages {
			p.next = 1
		}
		pos := p.next * pageKeys
		if st := a.state(pos); st.used == 0 || st.moved || p.cur != p.end && pos == p.cur&^(pageKeys-1) {
			continue
		}
		held := x.union(a.page(pos))
		sparse := bits.OnesCount64(held)*5 < bits.OnesCount64(wholeLines(held))*4
		if held != 0 && (sparse || p.eager) && !x.movePage(pos, held) {
			return
		}
	}
}

// movePage moves a page's held keys. It fails when there is no free page.
func (x *Index) movePage(pos uint32, held uint64) bool {
	keys := x.arena.pageOf(pos)
	for rest := held; rest != 0; rest &= rest - 1 {
		h := x.table.hash(keys[bits.TrailingZeros64(rest)])
		if m := x.table.part(h).meta; m.depth == maxDepth && m.live >= splitAt {
			return true // it might not be entered again: the page stays
		}
	}
	if !x.packRoom(bits.OnesCount64(held)) {
		return false
	}
	old, st, p := x.arena.page(pos), x.arena.state(pos), &x.pack
	from := append(x.pack.from[:0], x.recs.entries(old)...)
	x.pack.from = from
	to := append(p.masks[:0], make([]uint64, len(from))...)
	p.masks = to
	base := p.cur &^ (pageKeys - 1)
	x.arena.page(base).unseal()
	place := x.arena.pageOf(base)
	first := p.cur
	for rest := held; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		at := p.cur % pageKeys
		atomic.StoreUint64(&place[at], keys[i])
		for j := range from {
			if from[j].mask>>i&1 == 0 {
				continue
			}
			to[j] |= 1 << at
			if st.copies > 0 {
				x.moveCopies(from[j], pos+uint32(i), p.cur)
			}
		}
		p.cur++
	}
	// Held before they can be found: a reader may meet either place first.
	x.give(base, from, to)
	for at := first; at < p.cur; at++ {
		x.enter(x.table.hash(x.key(at)), at/lineKeys)
		x.live++
	}

	record := recordOf(old)
	x.moves.Add(1)
	old.become(refMoved, 0)
	if record != 0 {
		x.retire(retiredRecord, record)
	}
	st.moved, st.copies = true, 0
	x.live -= bits.OnesCount64(held)
	x.bury(pos, held, 0)
	return true
}

// give makes the holders of entries hold masks of another page.
func (x *Index) give(base uint32, from []entry, to []uint64) {
	pg := x.arena.page(base)
	record, entries := recordOf(pg), x.recs.entries(pg)
	for j, e := range from {
		for b := e.bits; b != 0; b &= b - 1 {
			hid := uint32(e.word)*64 + uint32(bits.TrailingZeros64(b))
			own, _ := masks(entries, hid)
			entries = withMask(entries, hid, own|to[j])
		}
	}
	x.recs.scratch = entries
	x.setEntries(pg, record, entries)
}

// packRoom makes room for n keys side by side in the packer's page, or takes
// another one.
func (x *Index) packRoom(n int) bool {
	a, p := &x.arena, &x.pack
	for p.cur != p.end && x.key(p.cur) != 0 { // a Store went on behind what was moved
		p.cur++
	}
	if p.cur%lineKeys != 0 && !x.alive(p.cur) { // what was moved to this line is gone
		p.cur += lineKeys - p.cur%lineKeys
	}
	if int(p.end-p.cur) >= n {
		return true
	}
	for line := (p.cur + lineKeys - 1) / lineKeys; line < p.end/lineKeys; line++ {
		a.untake(line)
	}
	p.cur, p.end = 0, 0
	page := a.freePage(0)
	if page == 0 {
		return false
	}
	p.cur, p.end = page*pageKeys, (page+1)*pageKeys
	a.take(p.cur, pageLines)
	clear(a.pageOf(p.cur)[:])
	return true
}

// moveCopies gives the further copies of a block's holders its new position.
func (x *Index) moveCopies(e entry, pos, to uint32) {
	for b := e.bits; b != 0; b &= b - 1 {
		hid := uint32(e.word)*64 + uint32(bits.TrailingZeros64(b))
		if n := x.copies.drop(copyKey(hid, pos)); n > 0 {
			x.copies.put(copyKey(hid, to), n)
			x.arena.state(to).copies++
		}
	}
}
