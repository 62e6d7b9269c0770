package radix

import (
	"math/bits"
	"sync/atomic"
)

// Keys lie at 32-bit positions, eight to a line (a cache line, the unit of
// reuse), eight lines to a page (the unit of holding), 1,024 pages to a slab.
// Slabs hold no pointers and are neither moved nor freed. A chain's keys lie
// side by side wherever they could be placed so; nothing but speed depends on
// it. Page 0 is never used, so that position 0 and line 0 mean none.
const (
	lineKeys  = 8
	pageKeys  = 64
	pageLines = 8
	slabPages = 1024
	slabKeys  = slabPages * pageKeys
	maxSlabs  = 1 << (lineBits + 3) / slabKeys
)

// page is what readers see of a page: which of its positions are held by whom.
//
// ref says how to read it; every store of another meaning raises its version:
//   - refEmpty: nobody holds anything here
//   - refOne: holder (value) holds the positions of mask, which may change while
//     ref stays as it is
//   - refList: value names a record of entries, immutable while it can be reached
//   - refMoved: the keys have been given other positions
type page struct {
	ref    atomic.Uint64
	mask   atomic.Uint64
	next   atomic.Uint32 // where the chain went on that ends the page; only a hint
	digest atomic.Uint64 // of the keys, 0 = none
}

const (
	refEmpty = iota
	refOne
	refList
	refMoved
)

func refKind(ref uint64) uint64  { return ref & 3 }
func refValue(ref uint64) uint32 { return uint32(ref >> 32) }

// become stores a new meaning of a page. Only the writer calls it.
func (p *page) become(kind uint64, value uint32) {
	version := uint32(p.ref.Load())>>2 + 1
	p.ref.Store(uint64(value)<<32 | uint64(version<<2) | kind)
}

// pageState is what only the writer sees.
type pageState struct {
	used   uint8 // lines that hold keys, or did and wait for their readers
	pooled bool  // in arena.partial
	moved  bool  // refMoved: not to be used until all of it is free
	copies uint16
}

type slab struct {
	keys  [slabKeys]uint64
	pages [slabPages]page
	state [slabPages]pageState
	free  [slabPages / 64]uint64 // pages without a line in use
	spare int                    // how many of them
}

// arena is the memory of keys; fields but slabs are the writer's.
type arena struct {
	slabs   [maxSlabs]atomic.Pointer[slab]
	_       apart
	memory  reserve[slab]
	count   int      // slabs
	cursor  uint32   // page at which the search for free pages goes on
	partial []uint32 // pages with lines to spare
	limit   int      // slabs allowed
	spare   int      // pages without a line in use
	lines   int      // lines in use
}

func (a *arena) slab(pos uint32) *slab       { return a.slabs[pos/slabKeys].Load() }
func (a *arena) page(pos uint32) *page       { return &a.slab(pos).pages[pos/pageKeys%slabPages] }
func (a *arena) state(pos uint32) *pageState { return &a.slab(pos).state[pos/pageKeys%slabPages] }

// pageOf returns the keys of the page that a position lies in.
func (a *arena) pageOf(pos uint32) *[pageKeys]uint64 {
	return (*[pageKeys]uint64)(a.slab(pos).keys[pos%slabKeys&^(pageKeys-1):])
}

// line returns the keys of the line that a position lies in.
func (a *arena) line(line uint32) *[lineKeys]uint64 {
	s := a.slabs[line/(slabKeys/lineKeys)].Load()
	at := line % (slabKeys / lineKeys) * lineKeys
	return (*[lineKeys]uint64)(s.keys[at : at+lineKeys])
}

// after returns where a chain most likely goes on that has a position: where
// word was left, else behind it; 0 = not known.
func (a *arena) after(last uint32) uint32 {
	if last%pageKeys != pageKeys-1 {
		return last + 1
	}
	return a.page(last).after(last)
}

// after is that of the arena for the last position of a page.
func (p *page) after(last uint32) uint32 {
	if next := p.next.Load(); next != 0 {
		return next
	}
	if last%slabKeys == slabKeys-1 {
		return 0
	}
	return last + 1
}

// lead leaves word where the chain went on that has a position, if that is the last of a page.
func (a *arena) lead(last, to uint32) {
	if last%pageKeys != pageKeys-1 {
		return
	}
	if to == last+1 && to%slabKeys != 0 {
		to = 0
	}
	if next := &a.page(last).next; next.Load() != to {
		next.Store(to)
	}
}

// grow adds a slab.
func (a *arena) grow() bool {
	if a.count == a.limit {
		return false
	}
	s := a.memory.next()
	s.spare = slabPages
	for i := range s.free {
		s.free[i] = ^uint64(0)
	}
	if a.count == 0 {
		s.free[0]--
		s.spare--
	}
	a.spare += s.spare
	a.slabs[a.count].Store(s)
	a.cursor = uint32(a.count) * slabPages
	a.count++
	return true
}

// freePage takes a page none of whose lines are in use: want if that is one,
// else one beside the last taken. It returns 0 if there is none.
func (a *arena) freePage(want uint32) uint32 {
	if s := int(want / slabPages); want != 0 && s < a.count {
		if b := a.slabs[s].Load(); b.free[want%slabPages/64]>>(want%64)&1 != 0 {
			return a.takePage(want)
		}
	}
	if a.spare == 0 && !a.grow() {
		return 0
	}
	for { // ends, since there is one
		n := a.cursor / slabPages
		s := a.slabs[n].Load()
		if s.spare > 0 {
			for i := a.cursor % slabPages / 64; int(i) < len(s.free); i++ {
				w := s.free[i]
				if i == a.cursor%slabPages/64 {
					w &= ^uint64(0) << (a.cursor % 64)
				}
				if w != 0 {
					return a.takePage(n*slabPages + i*64 + uint32(bits.TrailingZeros64(w)))
				}
			}
		}
		a.cursor = (n + 1) % uint32(a.count) * slabPages
	}
}

func (a *arena) takePage(p uint32) uint32 {
	s := a.slabs[p/slabPages].Load()
	s.free[p%slabPages/64] &^= 1 << (p % 64)
	s.spare--
	a.spare--
	a.cursor = p
	return p
}

// take marks count lines from a position's line on as in use; all are free and
// in one page, which was taken if it was free.
func (a *arena) take(pos uint32, count int) {
	st := a.state(pos)
	st.used |= uint8((1<<count - 1) << (pos / lineKeys % pageLines))
	a.lines += count
}

// freeLine gives back a line that no reader can reach.
func (a *arena) freeLine(line uint32) {
	pos := line * lineKeys
	s, p := a.slab(pos), pos/pageKeys
	st := &s.state[p%slabPages]
	st.used &^= 1 << (line % pageLines)
	a.lines--
	switch {
	case st.used == 0:
		st.moved = false
		s.free[p%slabPages/64] |= 1 << (p % 64)
		s.spare++
		a.spare++
	case !st.pooled && !st.moved:
		st.pooled = true
		a.partial = append(a.partial, p)
	}
}

// untake gives back a line that was taken and never written.
func (a *arena) untake(line uint32) {
	s, p := a.slab(line*lineKeys), line/pageLines
	st := &s.state[p%slabPages]
	st.used &^= 1 << (line % pageLines)
	a.lines--
	if st.used == 0 {
		s.free[p%slabPages/64] |= 1 << (p % 64)
		s.spare++
		a.spare++
	}
}

func (a *arena) isFree(p uint32) bool {
	n := int(p / slabPages)
	return n < a.count && a.slabs[n].Load().free[p%slabPages/64]>>(p%64)&1 != 0
}

// lines8 returns where count free lines lie side by side in used, -1 if nowhere.
func lines8(used uint8, count int) int {
	free := uint32(^used)
	run := free
	for i := 1; i < count; i++ {
		run &= free >> i
	}
	if run == 0 {
		return -1
	}
	return bits.TrailingZeros32(run)
}

// pooledLines finds up to count lines side by side in a page that has some to
// spare, and takes them. It returns the first position and how many there are.
func (a *arena) pooledLines(count int) (pos uint32, got int) {
	for tries := 0; len(a.partial) > 0 && tries < 4; tries++ {
		p := a.partial[len(a.partial)-1]
		st := a.state(p * pageKeys)
		if st.used == 0 || st.used == 0xff || st.moved { // free as a whole by now, or full
			st.pooled = false
			a.partial = a.partial[:len(a.partial)-1]
			continue
		}
		for got = min(count, pageLines-1); ; got-- {
			if at := lines8(st.used, got); at >= 0 {
				pos = p*pageKeys + uint32(at)*lineKeys
				a.take(pos, got)
				return pos, got
			}
		}
	}
	return 0, 0
}
