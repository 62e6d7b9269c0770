package radix

import (
	"math/bits"
	"slices"
	"sync/atomic"
)

// zeroKey stands for the key 0, which marks unused positions.
const zeroKey = 0x243f6a8885a308d3

func normal(key uint64) uint64 {
	if key == 0 {
		return zeroKey
	}
	return key
}

const batchKeys = 32

// Store records that a holder announced a copy of each of keys. It returns
// [ErrUnknownWorker] or [ErrHolder] and then changes nothing.
func (x *Index) Store(h Holder, keys []uint64) error { return x.StoreAfter(h, 0, keys) }

// StoreAfter is [Index.Store] with the key of the block before the first of
// keys, 0 for none or unknown. It only says where keys are best put: look-ups
// are faster where a chain lies in one piece. The parent need not be held.
func (x *Index) StoreAfter(h Holder, parent uint64, keys []uint64) error {
	if !x.made() {
		return ErrIndex
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	k, err := x.check(h)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		return nil
	}
	b := &x.batches[0] // what run begins with
	b.n = 0
	if len(keys) <= askFirst {
		x.ask(keys, b)
	}
	x.upkeep(len(keys))
	x.makeRoom(len(keys))
	o := k.holder(h.Medium, h.Group)
	if o == nil {
		o = x.newHolder(k, h.Medium, h.Group)
	}
	k.stats.Stored += uint64(len(keys))
	prev := o.last
	if parent != 0 {
		if prev == 0 || x.key(prev) != normal(parent) || !x.alive(prev) {
			prev = x.find(normal(parent))
		}
	}
	s := storing{x: x, k: k, h: o, prev: prev}
	s.run(keys)
	o.last = s.prev
	return nil
}

// upkeep does a share of the work that was put off.
func (x *Index) upkeep(keys int) {
	if len(x.sweep.now) > 0 || len(x.sweep.dead) > 0 {
		x.sweepStep(8 + keys/8)
	}
	x.packStep(2 + keys/4)
	// Not with every write: it costs readers the cache lines of their epochs.
	if x.since += reclaimWrite + keys; x.since >= reclaimKeys {
		x.reclaim()
	}
}

// reclaimKeys is after how many keys writers look for what can be reused; a
// write counts as reclaimWrite more.
const (
	reclaimKeys  = 1024
	reclaimWrite = 16
)

// key returns the key at a position, 0 if there is none.
func (x *Index) key(pos uint32) uint64 { return x.arena.slab(pos).keys[pos%slabKeys] }

// find returns the position of a key, 0 if it has none. Only writers call it.
func (x *Index) find(key uint64) uint32 {
	h := x.table.hash(key)
	p := x.table.part(h)
	s, way, pat := p.segment.Load(), p.meta.way(h), pattern(h)
	at := home(h)
	for range buckets { // all may be full
		b := &s[at]
		for m := b.matches(pat); m != 0; m &= m - 1 {
			i := found(bits.TrailingZeros64(m))
			if b.ways[i] != way { // of another key: its line need not be read
				continue
			}
			line := b.slot(i) & lineMask
			for j, have := range x.arena.line(line) {
				if have == key {
					return line*lineKeys + uint32(j)
				}
			}
		}
		if !b.passed(h) {
			return 0
		}
		way |= away
		at = (at + 1) & (buckets - 1)
	}
	return 0
}

// askFirst is how many keys a Store has at most that asks for their buckets before it
// does anything else. An engine that decodes announces blocks one by one, and there is
// no batch before theirs.
const askFirst = 4

// storing is one Store under way.
type storing struct {
	x    *Index
	k    *worker
	h    *holder
	prev uint32 // position of the block before, 0 = not known
	mine bool   // prev was set by this operation
	page pageMask
	cur  uint32 // next position of the room that was taken
	end  uint32 // its end, in the same page; cur == end: none
}

// at notes that blocks lie at pos and the run-1 positions behind it, in one page.
func (s *storing) at(pos uint32, run int) {
	base := pos &^ (pageKeys - 1)
	m := ^uint64(0) >> (64 - run) << (pos % pageKeys)
	if base != s.page.pos || s.page.mask&m != 0 {
		s.flush()
		s.page.pos = base
	}
	s.page.mask |= m
	s.prev, s.mine = pos+uint32(run)-1, true
}

func (s *storing) flush() {
	if s.page.mask != 0 {
		s.x.hold(s.k, s.h, s.page.pos, s.page.mask)
		s.page.mask = 0
	}
}

func (s *storing) run(keys []uint64) {
	x := s.x
	b, next := &x.batches[0], &x.batches[1]
	for len(keys) > 0 {
		if n := s.along(keys); n > 0 {
			keys, b.n = keys[n:], 0
			continue
		}
		if b.n == 0 {
			x.ask(keys, b)
		}
		n := b.n
		x.ask(keys[n:], next)
		x.lookUp(keys, b)
		for i := 0; i < n; {
			if pos := b.found[i]; pos != 0 {
				x.arena.lead(s.prev, pos)
				s.at(pos, 1)
				i++
				continue
			}
			j := i + 1
			for j < n && b.found[j] == 0 {
				j++
			}
			s.place(keys[i:j], b, i, len(keys)-j)
			i = j
		}
		keys = keys[n:]
		b, next = next, b
	}
	s.flush()
	s.giveBack()
}

// batch is what was found out about some keys.
type batch struct {
	n      int // keys
	hashes [batchKeys]uint64
	found  [batchKeys]uint32
	homes  [batchKeys]*bucket
	metas  [batchKeys]*meta
}

// ask begins a batch of the first of keys, up to one that occurs twice: it asks for
// the cache lines of all of them. They come while the batch before is acted on.
func (x *Index) ask(keys []uint64, b *batch) {
	d := x.table.dir.Load()
	var seen [16]uint64
	b.n = 0
	for i, key := range keys[:min(len(keys), batchKeys)] {
		h := x.table.hash(normal(key))
		if w, bit := &seen[h>>54&15], uint64(1)<<(h>>48&63); *w&bit == 0 {
			*w |= bit
		} else if slices.Contains(b.hashes[:i], h) {
			break
		}
		p := &d.parts[h>>d.shift]
		b.hashes[i], b.metas[i], b.homes[i] = h, p.meta, &p.segment.Load()[home(h)]
		b.n++
	}
	x.touched = prefetch(b.homes[:b.n])
}

// lookUp finds the positions of a batch's keys.
func (x *Index) lookUp(keys []uint64, b *batch) {
	for i, key := range keys[:b.n] {
		h := b.hashes[i]
		if b.metas[i].live == splitNow { // since it was asked for
			p := x.table.part(h)
			b.metas[i], b.homes[i] = p.meta, &p.segment.Load()[home(h)]
		}
		home := b.homes[i]
		b.found[i] = 0
		if home.matches(pattern(h)) != 0 || home.passed(h) {
			b.found[i] = x.find(normal(key))
		}
	}
}

// along takes the keys that lie behind the block before, as they do when a
// chain is announced that is known already.
func (s *storing) along(keys []uint64) (n int) {
	for n < len(keys) {
		run := s.x.behind(s.prev, keys[n:])
		if run == 0 {
			break
		}
		s.at(s.prev+1, run)
		n += run
	}
	return n
}

// behind returns how many of keys lie behind a position, in one page; 0 if that is not
// known. The key 0 is looked up instead.
func (x *Index) behind(pos uint32, keys []uint64) int {
	if pos++; pos == 1 || pos%slabKeys == 0 {
		return 0
	}
	sl, off := x.arena.slab(pos), pos%pageKeys
	// Lines that nobody holds are not in the table; what they say is stale.
	held := x.union(x.arena.page(pos))
	live := wholeLines(held) >> off
	there := sl.keys[pos%slabKeys:][:min(bits.TrailingZeros64(^live), len(keys))]
	n := equalRun(there, keys)
	// Of positions that nobody holds some are unused, which the key 0 is equal to.
	for b := live &^ (held >> off) & (1<<n - 1); b != 0; b &= b - 1 {
		if i := bits.TrailingZeros64(b); there[i] == 0 {
			return i
		}
	}
	return n
}

// before is behind for keys that lie one in front of the other.
func (x *Index) before(pos uint32, keys []uint64) (n int) {
	if pos%slabKeys == 0 {
		return 0
	}
	pos--
	page, off := x.arena.pageOf(pos), int(pos%pageKeys)
	live := wholeLines(x.union(x.arena.page(pos)))
	for n <= off && n < len(keys) && page[off-n] == keys[n] && keys[n] != 0 && live>>(off-n)&1 != 0 {
		n++
	}
	return n
}

// union returns which positions of a page are held by anybody.
func (x *Index) union(pg *page) (all uint64) {
	switch ref := pg.ref.Load(); refKind(ref) {
	case refOne:
		all = pg.mask.Load()
	case refList:
		words := x.recs.record(refValue(ref))
		for i := 2; i < len(words); i += 3 {
			all |= words[i]
		}
	}
	return all
}

// wholeLines sets all bits of the bytes (lines) that have a bit set.
func wholeLines(mask uint64) uint64 {
	const high = 0x8080808080808080
	any := (mask&^high + (high - 0x0101010101010101)) | mask
	return (any & high >> 7) * 0xff
}

// alive tells whether anybody holds a position of a position's line.
func (x *Index) alive(pos uint32) bool {
	return x.union(x.arena.page(pos))>>(pos%pageKeys&^(lineKeys-1))&0xff != 0
}

// place gives new keys their positions. They are those from number first of a
// batch on; more is how many keys follow them in the call, new or not.
func (s *storing) place(keys []uint64, b *batch, first, more int) {
	for len(keys) > 0 {
		if s.cur == s.end && !s.room(len(keys), more) {
			s.x.lost += uint64(len(keys))
			s.prev = 0
			return
		}
		pos := s.cur
		n := min(int(s.end-pos), len(keys))
		s.cur += uint32(n)
		s.x.arena.page(pos).unseal()
		line := s.x.arena.slab(pos).keys[pos%slabKeys:]
		i := 0
		for ; i < n && (pos+uint32(i))%lineKeys != 0; i++ { // a reader may be in this line
			atomic.StoreUint64(&line[i], normal(keys[i]))
		}
		if i < n {
			for ; i < n; i++ {
				line[i] = normal(keys[i])
			}
			for ; (pos+uint32(i))%lineKeys != 0; i++ {
				line[i] = 0
			}
		}
		from := 0
		for i := range n {
			if !s.x.enterAt(b, first+i, (pos+uint32(i))/lineKeys) {
				atomic.StoreUint64(&line[i], 0)
				s.x.lost++
				if i > from {
					s.at(pos+uint32(from), i-from)
				}
				from = i + 1
			}
		}
		if n > from {
			s.at(pos+uint32(from), n-from)
		}
		keys, first = keys[n:], first+n
	}
}

// room takes positions for n keys, and for more that may follow, all in one
// page: behind the block before if that is possible.
func (s *storing) room(n, more int) bool {
	a := &s.x.arena
	total := n + more
	want := uint32(0)
	if next := s.prev + 1; s.prev != 0 && (s.mine || s.x.alive(s.prev)) {
		sl := a.slab(s.prev)
		switch {
		case next%lineKeys != 0:
			end := next
			for sl.keys[end%slabKeys] == 0 {
				if end++; end%lineKeys == 0 {
					break
				}
			}
			if end > next {
				s.cur, s.end = next, end
				return true
			}
		case next%pageKeys != 0:
			used := sl.state[next/pageKeys%slabPages].used >> (next / lineKeys % pageLines)
			if lines := min(bits.TrailingZeros8(used), pageLines-int(next/lineKeys%pageLines), ceilDiv(total, lineKeys)); lines > 0 {
				a.take(next, lines)
				s.cur, s.end = next, next+uint32(lines)*lineKeys
				return true
			}
		case next%slabKeys != 0:
			want = next / pageKeys
		}
	}
	lines := min(ceilDiv(total, lineKeys), pageLines)
	var pos uint32
	if lines < pageLines && (want == 0 || !a.isFree(want)) {
		if p := s.h.open; p != 0 {
			if st := a.state(p * pageKeys); st.used != 0 && !st.moved {
				if at := lines8(st.used, lines); at >= 0 {
					pos = p*pageKeys + uint32(at)*lineKeys
					a.take(pos, lines)
				}
			}
		}
		if pos == 0 {
			pos, lines = a.pooledLines(lines)
		}
		if pos == 0 {
			if p := a.freePage(0); p != 0 {
				s.h.open = p
				pos, lines = p*pageKeys, min(ceilDiv(total, lineKeys), pageLines)
				a.take(pos, lines)
			}
		}
	} else if p := a.freePage(want); p != 0 {
		pos = p * pageKeys
		a.take(pos, lines)
	} else {
		pos, lines = a.pooledLines(lines)
	}
	if pos == 0 {
		return false
	}
	a.lead(s.prev, pos)
	s.cur, s.end = pos, pos+uint32(lines)*lineKeys
	return true
}

// giveBack returns lines that were taken and not used.
func (s *storing) giveBack() {
	for line := (s.cur + lineKeys - 1) / lineKeys; line < s.end/lineKeys; line++ {
		s.x.arena.untake(line)
	}
	s.cur, s.end = 0, 0
}

// Remove records that a holder gave up a copy of each of keys. Keys that it does
// not hold are counted in [WorkerStats.Unmatched]. A removal with [NoGroup]
// takes copies that were stored without a group, no others. It returns
// [ErrUnknownWorker] or [ErrHolder] and then changes nothing.
func (x *Index) Remove(h Holder, keys []uint64) error {
	if !x.made() {
		return ErrIndex
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	k, err := x.check(h)
	if err != nil {
		return err
	}
	k.stats.Removed += uint64(len(keys))
	o := k.holder(h.Medium, h.Group)
	if o == nil {
		k.stats.Unmatched += uint64(len(keys))
		return nil
	}
	x.upkeep(len(keys))
	var (
		b    = &x.batches[0]
		page pageMask
		last = o.removed
	)
	take := func(pos uint32, run int) {
		base, mask := pos&^(pageKeys-1), ^uint64(0)>>(64-run)<<(pos%pageKeys)
		if base != page.pos || page.mask&mask != 0 {
			if page.mask != 0 {
				x.unhold(k, o, page.pos, page.mask)
			}
			page = pageMask{pos: base}
		}
		page.mask |= mask
	}
	for i := 0; i < len(keys); {
		// Engines free the deepest block first, so the next keys lie before the
		// last one; others go along the chain.
		if n := x.before(last, keys[i:]); n > 0 {
			last -= uint32(n)
			take(last, n)
			i += n
			continue
		}
		if n := x.behind(last, keys[i:]); n > 0 {
			take(last+1, n)
			last += uint32(n)
			i += n
			continue
		}
		x.ask(keys[i:], b)
		n := b.n
		x.lookUp(keys[i:], b)
		for j := 0; j < n; j++ {
			// What was found may have been buried by a removal of this batch.
			pos := b.found[j]
			if pos == 0 || !x.alive(pos) {
				k.stats.Unmatched++
				continue
			}
			last = pos
			take(pos, 1)
			if j == 0 && (x.before(last, keys[i+1:]) > 0 || x.behind(last, keys[i+1:]) > 0) {
				n = 1 // they lie side by side
			}
		}
		i += n
	}
	if page.mask != 0 {
		x.unhold(k, o, page.pos, page.mask)
	}
	o.removed = last
	return nil
}
