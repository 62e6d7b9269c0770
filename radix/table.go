package radix

import (
	"math/bits"
	"sync/atomic"
)

// The table finds the line of eight keys in which a key lies. It is an
// extendible hash table: a directory of segments, each of which splits alone.
//
// A segment is 512 buckets of half a cache line: 7 slots of 32 bits and a count
// of the entries that overflowed from the bucket to later ones. A slot is a tag of
// 8 bits of the key's hash and the number of a line; 0 is an empty slot, for no
// key lies in line 0. A tag that fits is settled by the keys of the line. Two
// keys of one line may have equal slots; either stands for both.
//
// Readers load words of a bucket atomically. A segment that was split is never
// written again, so that a reader in it finds all that was there when it began.

const (
	bucketBits  = 9
	buckets     = 1 << bucketBits
	bucketSlots = 7
	tagBits     = 8
	lineBits    = 32 - tagBits
	lineMask    = 1<<lineBits - 1
	splitAt     = buckets * bucketSlots * 4 / 5
	maxDepth    = 20
	mixer       = 0x9e3779b97f4a7c15
)

type bucket [4]uint64 // the low half of word 0 is the overflow count

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
	dir      atomic.Pointer[directory]
	metas    []*meta // by directory entry
	old      []oldSegment
	segments int    // made and not dropped
	safe     uint64 // epoch before which nobody reads
	seed     uint64
	weak     uint64 // tests: a mask that makes hashes collide
}

// init makes a table with segments for a number of keys, at least one.
func (t *table) init(seed uint64, keys int) {
	t.seed, t.weak = seed, ^uint64(0)
	depth := uint(0)
	for depth < maxDepth && keys>>depth > splitAt {
		depth++
	}
	d := &directory{shift: 64 - depth, segments: make([]atomic.Pointer[segment], 1<<depth)}
	t.metas = make([]*meta, 1<<depth)
	t.segments = 1 << depth
	for i := range d.segments {
		d.segments[i].Store(new(segment))
		t.metas[i] = &meta{depth: depth}
	}
	t.dir.Store(d)
}

// hash spreads a key: the directory takes the highest bits, a bucket bits 32 to
// 40. The tag is the key's own lowest byte, so that keys can be told apart
// without hashing them when a segment splits; keys are hashes already.
func (t *table) hash(key uint64) uint64 {
	hi, lo := bits.Mul64(key^t.seed, mixer)
	return ((hi^lo)&^0xff | key&0xff) & t.weak
}

func home(h uint64) uint64                { return h >> 32 & (buckets - 1) }
func slotOf(h uint64, line uint32) uint32 { return uint32(h)<<lineBits | line }

// segmentOf returns the segment of a hash. A shift of 64 gives 0.
func (d *directory) segmentOf(h uint64) *segment { return d.segments[h>>d.shift].Load() }

// slot returns slot i (1..7) of a bucket.
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

// free returns an empty slot of a bucket, 0 if there is none.
func (b *bucket) free() int {
	for m := b.matches(0); m != 0; m &= m - 1 {
		bit := bits.TrailingZeros64(m)
		if i := (63-bit)&3*2 + bit>>5; b.slot(i) == 0 {
			return i
		}
	}
	return 0
}

// matches returns which slots of a bucket have a tag: bit 31 or 63, shifted down
// by the number of the word.
func (b *bucket) matches(pat uint64) uint64 {
	return match(b[0], pat)&(1<<63) | match(b[1], pat)>>1 | match(b[2], pat)>>2 | match(b[3], pat)>>3
}

// lineAt returns the line of a slot that matches gave as a bit.
func (b *bucket) lineAt(bit int) uint32 {
	return uint32(b[(63-bit)&3]>>(bit&32)) & lineMask
}

// insert enters a key's line into a segment that has room. slot is one of the
// home bucket that was empty a short while ago, or 0.
func (s *segment) insert(h uint64, line uint32, slot int) {
	v := slotOf(h, line)
	if b := &s[home(h)]; slot != 0 && b.slot(slot) == 0 {
		b.set(slot, v)
		return
	}
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
func (x *Index) enter(h uint64, line uint32, slot int) bool {
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
	d.segmentOf(h).insert(h, line, slot)
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
		to.half[i], to.metas[i] = x.table.newSegment(), &meta{depth: m.depth + 1}
	}
	// The lines' keys are needed, which lie anywhere: ask for those of a few
	// buckets at once, so that the cache misses overlap.
	const stretch = 8
	var slots [stretch * bucketSlots]uint32
	for i := 0; i < buckets; i += stretch {
		n := 0
		for j := range stretch {
			b := &s[i+j]
			for k, w := range b {
				if v := uint32(w); v != 0 && k > 0 {
					slots[n] = v
					n++
				}
				if v := uint32(w >> 32); v != 0 {
					slots[n] = v
					n++
				}
			}
		}
		var touch uint64
		for _, v := range slots[:n] {
			touch |= x.arena.line(v & lineMask)[0]
		}
		x.touched = touch
		for _, v := range slots[:n] {
			x.move(&to, v)
		}
	}
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
	x.table.old = append(x.table.old, oldSegment{s, x.epochs.now.Load()})
	return true
}

// oldSegment is one that was split and may still have readers.
type oldSegment struct {
	*segment
	epoch uint64
}

// newSegment takes an old segment that has no readers any more, or makes one.
func (t *table) newSegment() *segment {
	if n := len(t.old); n > 0 && t.old[0].epoch < t.safe {
		s := t.old[0].segment
		t.old = t.old[:copy(t.old, t.old[1:])]
		*s = segment{}
		return s
	}
	t.segments++
	return new(segment)
}

// settle notes that nobody reads what was old before an epoch, and drops what is
// not going to be needed.
func (t *table) settle(oldest uint64) {
	t.safe = oldest
	if n := len(t.old); n > 8 && t.old[n-1].epoch < oldest {
		t.segments -= n - 8
		t.old = t.old[:copy(t.old, t.old[n-8:])]
	}
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
	half    [2]*segment // not yet known to any reader
	metas   [2]*meta
	filled  [2][buckets]uint8 // slots used, which are the first ones
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
	to.metas[side].live++
	for at := home(h); ; at = (at + 1) & (buckets - 1) {
		b := &to.half[side][at]
		if n := &to.filled[side][at]; *n < bucketSlots {
			*n++
			b[*n>>1] |= uint64(slotOf(h, line)) << (*n & 1 * 32)
			return
		}
		b[0]++ // the overflow count
	}
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
	tag, weak := uint8(v>>lineBits), uint8(x.table.weak)
	for _, key := range x.arena.line(line) {
		if uint8(key)&weak != tag || key == 0 {
			continue
		}
		if h := x.table.hash(key); h>>(63-depth)>>1 == prefix {
			buf[n] = h
			n++
		}
	}
	return buf[:n]
}
