package radix

import (
	"math/bits"
	"sync/atomic"
)

// walk is a reader's way along a prompt. It is part of a Result, so that its
// memory is reused.
type walk struct {
	keys   []uint64
	source Source
	buffer []uint64 // holds keys where they come from a source

	alive []uint64   // holders of plain workers whose prefix goes on
	next  []uint64   // of these, those that hold the stretch at hand
	track []uint64   // holders of joint workers that are still looked at
	ids   []WorkerID // by holder number
	ends  []Prefix   // where plain workers' prefixes ended, if not at the start

	rows   [][]uint64 // presence by joint worker and holder
	rowOf  []int32    // holder number -> its row
	joints []joint
	left   int       // joint workers still looked at
	one    [3]uint64 // the entry of a page with one holder
	looked int       // keys looked at
	cell   uint32    // reader cell that was free last time
	reused bool      // not the first call
	recent []uint64  // the upper half of a key, and its position
	parted int       // the key at which the last prompt left its first stretch
}

// joint is a worker that needs presence rows of several holders.
type joint struct {
	*workerView
	worker  int // index in the view
	base    int // of its rows
	grain   int // units after which it shows whether the prefix goes on; 0 = never
	checked int
	alive   bool
}

// need makes key i available.
func (w *walk) need(i int) bool {
	if i < len(w.keys) {
		return true
	}
	if w.source == nil {
		return false
	}
	key, ok := w.source.Next()
	if !ok {
		w.source = nil
		return false
	}
	if len(w.keys) > 0 && len(w.buffer) == 0 {
		w.buffer = append(w.buffer, w.keys...)
	}
	w.buffer = append(w.buffer, key)
	w.keys = w.buffer
	return true
}

// look reads a page's entries, three words each. A page that was moved has none.
func (x *Index) look(pg *page, one *[3]uint64) (words []uint64, moved bool) {
	for {
		ref := pg.ref.Load()
		switch refKind(ref) {
		case refOne:
			mask := pg.mask.Load()
			if pg.ref.Load() != ref {
				continue // the mask may be another holder's
			}
			hid := refValue(ref)
			one[0], one[1], one[2] = uint64(hid/64), 1<<(hid%64), mask
			return one[:], false
		case refList:
			return x.recs.record(refValue(ref)), false
		}
		return nil, refKind(ref) == refMoved
	}
}

// probe returns the position of a key, 0 if it has none. Where pages were moved
// meanwhile it may have passed the new position before it was entered, and the
// old one after it was gone, or met only the old one: it looks again.
func (x *Index) probe(key uint64) uint32 {
	h := x.table.hash(key)
	for {
		moves := x.moves.Load()
		if pos := x.probeOnce(key, h); pos != 0 || x.moves.Load() == moves {
			return pos
		}
	}
}

func (x *Index) probeOnce(key, h uint64) uint32 {
	s := x.table.dir.Load().segmentOf(h)
	pat, at := pattern(h), home(h)
	for range buckets { // all may be full
		var b bucket // words are read one by one: a slot is true by itself
		for i := range b.slots {
			b.slots[i] = atomic.LoadUint64(&s[at].slots[i])
		}
		for m := b.matches(pat); m != 0; m &= m - 1 {
			line := b.slot(found(bits.TrailingZeros64(m))) & lineMask
			if line == 0 {
				continue
			}
			keys := x.arena.line(line)
			for j := range keys {
				if atomic.LoadUint64(&keys[j]) != key {
					continue
				}
				pos := line*lineKeys + uint32(j)
				if refKind(x.arena.page(pos).ref.Load()) != refMoved {
					return pos
				}
			}
		}
		if !s[at].passed(h) {
			return 0
		}
		at = (at + 1) & (buckets - 1)
	}
	return 0
}

// recallSlots is how many keys a Result recalls at most, in 8 KiB.
const recallSlots = 1 << 10

// recall returns where a key lay when this Result last looked for it, 0 if it does
// not recall. It saves the table's cache miss where prompts part at the same keys
// again, as those of a conversation do. The answer may be out of date, or of
// another index; there is such a position, no more.
func (x *Index) recall(w *walk, key uint64) uint32 {
	if len(w.recent) == 0 {
		return 0
	}
	e := w.recent[key%recallSlots]
	if pos := uint32(e); uint32(key>>32) == uint32(e>>32) && x.arena.slab(pos) != nil {
		return pos
	}
	return 0
}

func (w *walk) remember(key uint64, pos uint32) {
	if pos == 0 || !w.reused { // a Result for one call gains nothing
		return
	}
	if len(w.recent) == 0 {
		w.recent = make([]uint64, recallSlots)
	}
	w.recent[key%recallSlots] = key>>32<<32 | uint64(pos)
}

// equalRunGo returns how many leading keys of a and b are equal; b is as long as a.
// Comparing arrays uses the runtime's vector code.
func equalRunGo(a, b []uint64) (n int) {
	b = b[:len(a)]
	if len(a) == pageKeys && *(*[pageKeys]uint64)(a) == *(*[pageKeys]uint64)(b) {
		return pageKeys
	}
	for len(a)-n >= 16 && *(*[16]uint64)(a[n:]) == *(*[16]uint64)(b[n:]) {
		n += 16
	}
	for len(a)-n >= 4 && *(*[4]uint64)(a[n:]) == *(*[4]uint64)(b[n:]) {
		n += 4
	}
	for n < len(a) && a[n] == b[n] {
		n++
	}
	return n
}

// walk follows the prompt from its first key, stretch by stretch: keys that lie
// side by side and are held by somebody who is asked for.
func (x *Index) walk(w *walk) {
	var pos uint32 // where key i may lie; 0 = not known
	i, sure, any := 0, false, w.anyAlive()
	recalled := -1 // the key that was last recalled
	x.askAhead(w)
	for (any || w.left > 0) && w.need(i) {
		if pos == 0 {
			key := normal(w.keys[i])
			if w.parted == 0 {
				w.parted = i
			}
			if recalled < i {
				pos, sure, recalled = x.recall(w, key), false, i
			}
			if pos == 0 {
				pos, sure = x.probe(key), true
				w.remember(key, pos)
			}
		}
		w.looked = max(w.looked, i+1)
		if pos == 0 { // nobody holds it
			w.endAll(i)
			i, any = i+1, false
			w.check(i)
			continue
		}
		if !sure && recalled < i { // the first page of a stretch is seldom whole
			if to, n := x.stride(w, pos, i); n > i {
				pos, i = to, n
				w.looked = max(w.looked, i)
				continue
			}
		}
		s, off := x.arena.slab(pos), pos%pageKeys
		pg := &s.pages[pos/pageKeys%slabPages]
		words, moved := x.look(pg, &w.one)
		if moved { // since the probe: the key lies elsewhere by now
			pos = 0
			continue
		}
		var asked, all uint64
		for j := 0; j+2 < len(words); j += 3 {
			all |= words[j+2]
			if k := words[j]; k < uint64(len(w.alive)) && words[j+1]&(w.alive[k]|w.track[k]) != 0 {
				asked |= words[j+2]
			}
		}
		at := pos % slabKeys
		run := bits.TrailingZeros64(^(asked >> off))
		whole := run == pageKeys && len(w.keys)-i >= pageKeys && x.sealed(pg, (*[pageKeys]uint64)(w.keys[i:]))
		if !sure && !whole && (all>>off&1 == 0 || s.keys[at] != normal(w.keys[i])) {
			pos = 0
			continue
		}
		if run == 0 {
			w.endAll(i)
			i, any = i+1, false
			w.check(i)
			pos, sure = x.arena.after(pos), false
			continue
		}
		// Positions that are held are published: their keys do not change while
		// this reader is inside.
		n := 1
		if whole {
			n = pageKeys
		} else if w.source == nil {
			run = min(run, len(w.keys)-i)
			// The first is known to be equal, but for the key 0.
			n = max(1, equalRun(s.keys[at:at+uint32(run)], w.keys[i:]))
		} else {
			for n < run && w.need(i+n) && s.keys[at+uint32(n)] == normal(w.keys[i+n]) {
				n++
			}
		}
		any = w.advance(words, i, n, off)
		i += n
		w.looked = max(w.looked, i)
		w.check(i)
		if n < run {
			pos = 0
		} else {
			pos, sure = x.arena.after(pos+uint32(n)-1), false
		}
	}
	w.endAll(i)
}

// askAhead asks for what a look-up of the key at which the last prompt left its first
// stretch will read: prompts of one system part where that ends.
func (x *Index) askAhead(w *walk) {
	if w.parted > 0 && w.parted < len(w.keys) {
		key := normal(w.keys[w.parted])
		if pos := x.recall(w, key); pos != 0 {
			s := x.arena.slab(pos)
			askPage(&s.pages[pos/pageKeys%slabPages])
			askKeys(&s.keys[pos%slabKeys], 2)
		} else {
			h := x.table.hash(key)
			askKeys(&x.table.dir.Load().segmentOf(h)[home(h)].slots[0], 1)
		}
	}
	w.parted = 0
}

// strideMost is how many pages stride looks ahead.
const strideMost = 32

// stride goes along whole pages that all plain workers that are left hold, all in
// one word of holders, which is what most of a long prompt is. It returns where
// and with which key the general way goes on.
func (x *Index) stride(w *walk, pos uint32, i int) (uint32, int) {
	if pos%pageKeys != 0 || w.left > 0 || len(w.keys)-i < pageKeys {
		return pos, i
	}
	word, set := -1, uint64(0)
	for k, alive := range w.alive {
		if alive != 0 {
			if set != 0 {
				return pos, i
			}
			word, set = k, alive
		}
	}
	for pos%pageKeys == 0 {
		// Which pages are held as a whole is seen first, since their records lie side by
		// side, while a position that came from each page before would make a chain of
		// cache misses. Then the keys of the page at which that ends are asked for, which
		// come while digests are compared.
		s, first := x.arena.slab(pos), int(pos%slabKeys/pageKeys)
		pages := s.pages[first:min(first+(len(w.keys)-i)/pageKeys, first+strideMost, slabPages)]
		n, next := 0, uint32(0)
		for n < len(pages) && next == 0 && x.whole(&pages[n], uint64(word), set) {
			next = pages[n].next.Load()
			n++
		}
		if end := first + n; next == 0 && end < slabPages {
			askKeys(&s.keys[end*pageKeys], pageLines)
		}
		same := x.same(pages[:n], w.keys[i:], s.keys[first*pageKeys:])
		i += same * pageKeys
		pos += uint32(same) * pageKeys
		switch {
		case same < n:
			return pos, i
		case next != 0:
			pos = next
		case n > 0 && pos%slabKeys == 0:
			return 0, i
		case n < strideMost:
			return pos, i
		}
	}
	return pos, i
}

// whole tells whether each of a set of holders holds all of a page.
func (x *Index) whole(pg *page, word, set uint64) bool {
	switch ref := pg.ref.Load(); refKind(ref) {
	case refOne:
		hid := refValue(ref)
		return uint64(hid/64) == word && 1<<(hid%64) == set && pg.mask.Load() == ^uint64(0) && pg.ref.Load() == ref
	case refList:
		words := x.recs.record(refValue(ref))
		for j := 0; j+2 < len(words); j += 3 {
			if words[j] == word && words[j+1]&set == set {
				return words[j+2] == ^uint64(0)
			}
		}
	}
	return false
}

func (w *walk) anyAlive() bool {
	for _, b := range w.alive {
		if b != 0 {
			return true
		}
	}
	return false
}

// endAll ends the prefixes of all plain workers that are left.
func (w *walk) endAll(blocks int) {
	for k := range w.alive {
		if w.alive[k] != 0 {
			w.end(k, w.alive[k], blocks)
			w.alive[k] = 0
		}
	}
}

func (w *walk) end(word int, set uint64, blocks int) {
	if blocks == 0 {
		return
	}
	ends, ids := w.ends, (*[64]WorkerID)(w.ids[word*64:])
	for ; set != 0; set &= set - 1 {
		ends = append(ends, Prefix{ids[bits.TrailingZeros64(set)&63], int32(blocks)})
	}
	w.ends = ends
}

// advance takes note of who holds the n keys from key i on, which lie at offset
// off of a page. It reports whether a plain worker is left.
func (w *walk) advance(words []uint64, i, n int, off uint32) (any bool) {
	for j := 0; j+2 < len(words); j += 3 {
		k, set, mask := words[j], words[j+1], words[j+2]>>off
		if k >= uint64(len(w.alive)) {
			continue
		}
		if a := set & w.alive[k]; a != 0 {
			if own := bits.TrailingZeros64(^mask); own >= n {
				w.next[k] |= a
				any = true
			} else {
				w.end(int(k), a, i+own)
				w.alive[k] &^= a
			}
		}
		if t := set & w.track[k]; t != 0 {
			m := mask & (^uint64(0) >> (64 - n))
			for ; t != 0; t &= t - 1 {
				row := &w.rows[w.rowOf[k*64+uint64(bits.TrailingZeros64(t))]]
				for len(*row)*64 < i+n {
					*row = append(*row, 0)
				}
				(*row)[i>>6] |= m << (i & 63)
				if spill := m >> (64 - i&63); spill != 0 {
					(*row)[i>>6+1] |= spill
				}
			}
		}
	}
	for k := range w.alive {
		if gone := w.alive[k] &^ w.next[k]; gone != 0 {
			w.end(k, gone, i)
		}
		w.alive[k], w.next[k] = w.next[k], 0
	}
	return any
}

// check drops joint workers of which the keys up to i show that nothing further
// can matter.
func (w *walk) check(i int) {
	if w.left == 0 {
		return
	}
	for k := range w.joints {
		c := &w.joints[k]
		for c.alive && c.grain > 0 && c.checked+c.grain <= i {
			if w.unbroken(c, c.checked, c.checked+c.grain) {
				c.checked += c.grain
				continue
			}
			if i < c.profile.reach(c.checked+c.grain) {
				break
			}
			c.alive = false
			w.left--
			for _, h := range c.holders {
				w.track[h.hid/64] &^= 1 << (h.hid % 64)
			}
		}
	}
}

// unbroken tells whether each block of the main layout between two units is held
// by each of its groups, on whatever medium: while it is, a prefix or a load may
// go on.
func (w *walk) unbroken(c *joint, from, to int) bool {
	l := &c.profile.layouts[0]
	for u := from + l.step; u <= to; u += l.step {
		for _, g := range l.groups {
			held := false
			for i, h := range c.holders {
				if h.Group != g && h.Group != NoGroup && !c.profile.anyGroup {
					continue
				}
				grain := c.profile.granule(h.Medium)
				if held = row(w.rows[c.base+i]).has((u-1)/grain*grain + grain - 1); held {
					break
				}
			}
			if !held {
				return false
			}
		}
	}
	return true
}
