package radix

import (
	"math/bits"
	"sync/atomic"
)

// The table finds the line of eight keys in which a key lies. It is an
// extendible hash table: a directory of segments, each of which splits alone.
//
// A segment is 256 buckets of one cache line: 15 slots of 32 bits and a count of
// the entries that overflowed from the bucket to later ones. A slot is a tag of
// 7 bits of the key's hash and the number of a line; 0 is an empty slot, for no
// key lies in line 0. A tag that fits is settled by the keys of the line. Two
// keys of one line may have equal slots; either stands for both.
//
// Readers load words of a bucket atomically. A segment that was split is never
// written again, so that a reader in it finds all that was there when it began.

const (
	bucketBits  = 8
	buckets     = 1 << bucketBits
	bucketSlots = 15
	tagBits     = 7
	lineBits    = 32 - tagBits
	lineMask    = 1<<lineBits - 1
	splitAt     = buckets * bucketSlots * 4 / 5
	maxDepth    = 20
)

type bucket [8]uint64 // the low half of word 0 is the overflow count

type segment [buckets]bucket

// meta is what the writer knows of a segment.
type meta struct {
	live  int  // entries
	depth uint // bits of the directory that lead here
}

type directory struct {
	shift    uint // 64 - depth
	segments []atomic.Pointer[segment]
}

type table struct {
	dir   atomic.Pointer[directory]
	metas []*meta // by directory entry
	seed  uint64
	weak  uint64 // tests: a mask that makes hashes collide
}

func (t *table) init(seed uint64) {
	t.seed, t.weak = seed, ^uint64(0)
	d := &directory{shift: 64, segments: make([]atomic.Pointer[segment], 1)}
	d.segments[0].Store(new(segment))
	t.metas = []*meta{{}}
	t.dir.Store(d)
}

// hash spreads a key: the directory takes the highest bits, a bucket bits 32 to
// 39, the tag the lowest.
func (t *table) hash(key uint64) uint64 {
	hi, lo := bits.Mul64(key^t.seed, 0x9e3779b97f4a7c15)
	return (hi ^ lo) & t.weak
}

func home(h uint64) uint64                { return h >> 32 & (buckets - 1) }
func slotOf(h uint64, line uint32) uint32 { return uint32(h)<<lineBits | line }

// segmentOf returns the segment of a hash. A shift of 64 gives 0.
func (d *directory) segmentOf(h uint64) *segment { return d.segments[h>>d.shift].Load() }

// slot returns slot i (1..15) of a bucket.
func (b *bucket) slot(i int) uint32 { return uint32(b[i>>1] >> (i & 1 * 32)) }

func (b *bucket) overflow() uint32 { return uint32(b[0]) }

// set changes slot i, or with i = 0 the overflow count. Only the writer calls it.
func (b *bucket) set(i int, v uint32) {
	shift := i & 1 * 32
	w := b[i>>1]&^(0xffffffff<<shift) | uint64(v)<<shift
	atomic.StoreUint64(&b[i>>1], w)
}

const (
	lanes    = 1<<32 | 1 // the lowest bit of both slots of a word
	laneTags = (1<<tagBits - 1) * lanes
	laneHigh = 1 << 31 * lanes
)

// pattern puts a hash's tag where slots of a word have theirs.
func pattern(h uint64) uint64 { return h & (1<<tagBits - 1) * lanes << lineBits }

// match marks the slots of w with the tag of a pattern by their highest bits. An
// empty slot has tag 0. No subtraction borrows from the other slot.
func match(w, pattern uint64) uint64 {
	return (laneHigh - (w^pattern)>>lineBits&laneTags) & laneHigh
}

// free returns the first empty slot of a bucket, 0 if there is none.
func (b *bucket) free() int {
	if b[0]>>32 == 0 {
		return 1
	}
	for i := 1; i < len(b); i++ {
		if uint32(b[i]) == 0 {
			return 2 * i
		}
		if b[i]>>32 == 0 {
			return 2*i + 1
		}
	}
	return 0
}

// put is set in a segment that no reader knows yet.
func (b *bucket) put(i int, v uint32) { b[i>>1] |= uint64(v) << (i & 1 * 32) }

// fill is insert in a segment that no reader knows yet.
func (s *segment) fill(h uint64, line uint32) {
	for at := home(h); ; at = (at + 1) & (buckets - 1) {
		b := &s[at]
		if i := b.free(); i != 0 {
			b.put(i, slotOf(h, line))
			return
		}
		b[0]++ // the overflow count
	}
}

// matches returns which slots of a bucket have a tag: bit 31 or 63, shifted down
// by the number of the word.
func (b *bucket) matches(pat uint64) uint64 {
	return match(b[0], pat)&(1<<63) | match(b[1], pat)>>1 | match(b[2], pat)>>2 | match(b[3], pat)>>3 |
		match(b[4], pat)>>4 | match(b[5], pat)>>5 | match(b[6], pat)>>6 | match(b[7], pat)>>7
}

// lineAt returns the line of a slot that matches gave as a bit.
func (b *bucket) lineAt(bit int) uint32 {
	return uint32(b[(63-bit)&7]>>(bit&32)) & lineMask
}

// insert enters a key's line into a segment that has room.
func (s *segment) insert(h uint64, line uint32) {
	v := slotOf(h, line)
	for at := home(h); ; at = (at + 1) & (buckets - 1) {
		b := &s[at]
		if i := b.free(); i != 0 {
			b.set(i, v)
			return
		}
		b.set(0, b.overflow()+1)
	}
}

// holding returns the slot of a bucket that is v, 0 if none is.
func (b *bucket) holding(v uint32) int {
	for i := range b {
		w := b[i]
		if uint32(w>>32) == v {
			return 2*i + 1
		}
		if uint32(w) == v && i > 0 {
			return 2 * i
		}
	}
	return 0
}

// remove takes a key's line out.
func (s *segment) remove(h uint64, line uint32) bool {
	v := slotOf(h, line)
	start := home(h)
	at := start
	for range buckets {
		b := &s[at]
		if i := b.holding(v); i != 0 {
			b.set(i, 0)
			for p := start; p != at; p = (p + 1) & (buckets - 1) {
				s[p].set(0, s[p].overflow()-1)
			}
			return true
		}
		if b.overflow() == 0 {
			return false
		}
		at = (at + 1) & (buckets - 1)
	}
	return false
}

// enter puts a key's line into the table, splitting its segment as needed. It
// fails when that cannot be split any further and is full.
func (x *Index) enter(h uint64, line uint32) bool {
	t := &x.table
	d := t.dir.Load()
	m := t.metas[h>>d.shift]
	for m.live >= splitAt && x.split(d.segmentOf(h), m, h) {
		d = t.dir.Load()
		m = t.metas[h>>d.shift]
	}
	if m.live >= buckets*bucketSlots {
		return false
	}
	m.live++
	d.segmentOf(h).insert(h, line)
	return true
}

// leave takes a key's line out of the table.
func (x *Index) leave(h uint64, line uint32) {
	d := x.table.dir.Load()
	if d.segmentOf(h).remove(h, line) {
		x.table.metas[h>>d.shift].live--
	}
}

// split replaces a full segment by two. It fails at the greatest depth.
func (x *Index) split(s *segment, m *meta, h uint64) bool {
	if m.depth == maxDepth {
		return false
	}
	d := x.table.dir.Load()
	if m.depth == 64-d.shift {
		d = x.table.double()
	}
	to := halves{depth: m.depth, prefix: h >> (63 - m.depth) >> 1}
	for i := range to.half {
		to.half[i], to.metas[i] = new(segment), &meta{depth: m.depth + 1}
	}
	// The lines' keys are needed, which lie anywhere: ask for those of the next
	// bucket while at work on this one.
	var touch uint64
	for i := range s {
		if i+1 < buckets {
			b := &s[i+1]
			for j := 1; j <= bucketSlots; j++ {
				if v := b.slot(j); v != 0 {
					touch |= x.arena.line(v & lineMask)[0]
				}
			}
		}
		b := &s[i]
		for j := 1; j <= bucketSlots; j++ {
			if v := b.slot(j); v != 0 {
				x.move(&to, v)
			}
		}
	}
	x.touched = touch
	for _, e := range to.several {
		hashes := x.slotHashes(&to.keys, e.slot, to.depth, to.prefix)
		for _, kh := range hashes[:min(e.count, len(hashes))] {
			to.insert(kh, e.slot&lineMask)
		}
	}
	span := uint64(1) << (64 - d.shift - m.depth) // directory entries that lead to s
	for i := range span {
		at := to.prefix*span + i
		x.table.metas[at] = to.metas[i/(span/2)]
		d.segments[at].Store(to.half[i/(span/2)])
	}
	return true
}

// double makes the directory twice as long.
func (t *table) double() *directory {
	d := t.dir.Load()
	n := len(d.segments)
	longer := &directory{shift: d.shift - 1, segments: make([]atomic.Pointer[segment], 2*n)}
	metas := make([]*meta, 2*n)
	for i := range d.segments {
		for j := 2 * i; j < 2*i+2; j++ {
			longer.segments[j].Store(d.segments[i].Load())
			metas[j] = t.metas[i]
		}
	}
	t.metas = metas
	t.dir.Store(longer)
	return longer
}

// halves are the segments that a split makes.
type halves struct {
	half    [2]*segment
	metas   [2]*meta
	depth   uint
	prefix  uint64 // the bits that lead to the segment that is split
	several []sharedSlot
	keys    lineHashes
}

// sharedSlot is a slot value that can stand for several keys of its line. These
// have as many equal entries, or less while a Store is entering them, from the
// first to the last.
type sharedSlot struct {
	slot  uint32
	count int
}

func (to *halves) insert(h uint64, line uint32) {
	side := h >> (63 - to.depth) & 1
	to.half[side].fill(h, line)
	to.metas[side].live++
}

// move enters what an entry stands for.
func (x *Index) move(to *halves, v uint32) {
	switch hashes := x.slotHashes(&to.keys, v, to.depth, to.prefix); len(hashes) {
	case 0:
	case 1:
		to.insert(hashes[0], v&lineMask)
	default:
		for i := range to.several {
			if to.several[i].slot == v {
				to.several[i].count++
				return
			}
		}
		to.several = append(to.several, sharedSlot{v, 1})
	}
}

type lineHashes [lineKeys]uint64

// slotHashes returns the hashes of the keys that a slot can stand for in the
// segment of a prefix, in the order of their positions.
func (x *Index) slotHashes(buf *lineHashes, v uint32, depth uint, prefix uint64) []uint64 {
	line, n := v&lineMask, 0
	for _, key := range x.arena.line(line) {
		if key == 0 {
			continue
		}
		if h := x.table.hash(key); slotOf(h, line) == v && h>>(63-depth)>>1 == prefix {
			buf[n] = h
			n++
		}
	}
	return buf[:n]
}
