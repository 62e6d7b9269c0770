package radix

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
)

// The table finds the line of eight keys in which a key lies. It is an
// extendible hash table: a directory of segments, each of which splits alone.
//
// A segment is 256 buckets of a cache line: 12 slots of 32 bits, and how many entries
// overflowed from the bucket to later ones, with a filter of which. A slot is a tag of 8 bits
// of the key's hash and the number of a line; 0 is an empty slot, for no key lies
// in line 0. A tag that fits is settled by the keys of the line. Two keys of one
// line may have equal slots; either stands for both.
//
// Beside each slot the writer keeps the bits of the hash that the next splits go
// by, so that a split needs the keys only of entries that are not in their own
// bucket, and of all of them once in six splits.
//
// Readers load words of a bucket atomically. A segment that was split is never
// written again, so that a reader in it finds all that was there when it began.

const (
	bucketBits  = 8
	buckets     = 1 << bucketBits
	bucketSlots = 12
	tagBits     = 8
	lineBits    = 32 - tagBits
	lineMask    = 1<<lineBits - 1
	splitAt     = buckets * bucketSlots * 17 / 20
	splitNow    = 1 << 30
	maxDepth    = 20
	mixer       = 0x9e3779b97f4a7c15
)

type bucket struct {
	slots    [bucketSlots / 2]uint64
	ways     [bucketSlots]uint8 // the writer's
	overflow atomic.Uint32
}

// A way is what the writer knows of an entry without its key: that there is one,
// wayBits of its hash from bit base of its segment on, and whether another bucket
// is its own. It is a byte, so that eight are looked at at a time.
const (
	wayBits = 6
	taken   = 1 << 7
	away    = 1
)

type segment [buckets]bucket

// meta is what the writer knows of a segment.
type meta struct {
	live  int  // entries; splitNow once it was split
	depth uint // bits of the directory that lead here
	base  uint // the first bit that ways hold
}

func newMeta(depth uint) *meta {
	const early = 5 // keys are read while the table is small, then every sixth time
	m := &meta{depth: depth}
	if depth >= early {
		m.base = early + (depth-early)/wayBits*wayBits
	}
	return m
}

// way returns the way of a hash.
func (m *meta) way(h uint64) uint8 {
	return uint8(h>>(64-wayBits-m.base)&(1<<wayBits-1)<<1) | taken
}

// side returns which half an entry goes to when its segment splits.
func (m *meta) side(way uint8) uint64 { return uint64(way) >> (wayBits - (m.depth - m.base)) & 1 }

type directory struct {
	shift uint // 64 - depth
	parts []part
}

type part struct {
	segment atomic.Pointer[segment]
	meta    *meta // the writer's
}

type table struct {
	dir    atomic.Pointer[directory]
	seed   uint64
	weak   uint64 // tests: a mask that makes hashes collide
	_      apart
	memory reserve[segment]
	old    []oldSegment
	free   []*segment // old ones that nobody reads any more
}

// init makes a table with segments for a number of keys, at least one.
func (t *table) init(seed uint64, keys int) {
	t.seed, t.weak = seed, ^uint64(0)
	depth := uint(0)
	for depth < maxDepth && keys>>depth > splitAt {
		depth++
	}
	d := &directory{shift: 64 - depth, parts: make([]part, 1<<depth)}
	for i := range d.parts {
		d.parts[i].segment.Store(t.newSegment())
		d.parts[i].meta = newMeta(depth)
	}
	t.dir.Store(d)
}

// hash spreads a key: the directory takes the highest bits, a bucket bits 32 to
// 39. The tag is the key's own lowest byte, so that keys can be told apart
// without hashing them when a segment splits; keys are hashes already.
func (t *table) hash(key uint64) uint64 {
	hi, lo := bits.Mul64(key^t.seed, mixer)
	return ((hi^lo)&^0xff | key&0xff) & t.weak
}

func home(h uint64) uint64                { return h >> 32 & (buckets - 1) }
func slotOf(h uint64, line uint32) uint32 { return uint32(h)<<lineBits | line }

// segmentOf returns the segment of a hash. A shift of 64 gives 0.
func (t *table) part(h uint64) *part {
	d := t.dir.Load()
	return &d.parts[h>>d.shift]
}

func (d *directory) segmentOf(h uint64) *segment { return d.parts[h>>d.shift].segment.Load() }

func (b *bucket) slot(i int) uint32 { return uint32(b.slots[i>>1] >> (i & 1 * 32)) }

// set changes a slot. Only the writer calls it.
func (b *bucket) set(i int, v uint32, way uint8) {
	shift := i & 1 * 32
	b.ways[i] = way
	atomic.StoreUint64(&b.slots[i>>1], b.slots[i>>1]&^(0xffffffff<<shift)|uint64(v)<<shift)
}

const (
	eachTag  = 0x0101010101010101
	slotTags = (1<<tagBits - 1) << lineBits * (1<<32 | 1) // of the two slots of a word
)

// pattern puts a hash's tag into eight bytes.
func pattern(h uint64) uint64 { return h & (1<<tagBits - 1) * eachTag }

// equalBytes marks the bytes of v that are equal to those of pattern, exactly.
func equalBytes(v, pattern uint64) uint64 {
	const low = 0x7f * eachTag
	v ^= pattern
	return ^((v&low + low) | v | low)
}

// matches returns which slots of a bucket have a tag, each as a bit that found
// takes: the tags of words 0 to 3 are looked at in eight bytes, then those of 4 and 5.
func (b *bucket) matches(pat uint64) uint64 {
	s := &b.slots
	first := s[0]&slotTags | s[1]&slotTags>>8 | s[2]&slotTags>>16 | s[3]&slotTags>>24
	second := s[4]&slotTags | s[5]&slotTags>>8
	return equalBytes(first, pat) | equalBytes(second, pat)&0x8080000080800000>>1
}

// found returns the slot that matches gave as a bit.
func found(bit int) int {
	word := 3 - bit>>3&3 + (bit&1^1)*4
	return 2*word + bit>>5
}

// The overflow of a bucket is a count in the lower 16 bits, and a filter of 16 bits
// of the hashes that were counted since it was 0.
const overflowCount = 1<<16 - 1

func overflowBit(h uint64) uint32 { return 1 << 16 << (h >> 40 & 15) }

// passed tells whether an entry of a hash may lie in a later bucket.
func (b *bucket) passed(h uint64) bool { return b.overflow.Load()&overflowBit(h) != 0 }

func (b *bucket) pass(h uint64) { b.overflow.Store(b.overflow.Load() + 1 | overflowBit(h)) }

func (b *bucket) unpass() {
	v := b.overflow.Load() - 1
	if v&overflowCount == 0 {
		v = 0
	}
	b.overflow.Store(v)
}

// free returns an empty slot of a bucket, -1 if there is none.
func (b *bucket) free() int {
	if m := ^binary.LittleEndian.Uint64(b.ways[:]) & (taken * eachTag); m != 0 {
		return bits.TrailingZeros64(m) / 8
	}
	if m := ^binary.LittleEndian.Uint32(b.ways[8:]) & (taken * eachTag & 0xffffffff); m != 0 {
		return 8 + bits.TrailingZeros32(m)/8
	}
	return -1
}

// insert enters a key's line into a segment that has room.
func (s *segment) insert(h uint64, line uint32, way uint8) {
	v := slotOf(h, line)
	for at := home(h); ; at = (at + 1) & (buckets - 1) {
		b := &s[at]
		if i := b.free(); i >= 0 {
			b.set(i, v, way)
			return
		}
		b.pass(h)
		way |= away
	}
}

// holding returns the slot of a bucket that is v with a way, -1 if none is.
func (b *bucket) holding(v uint32, way uint8) int {
	for m := b.matches(pattern(uint64(v >> lineBits))); m != 0; m &= m - 1 {
		if i := found(bits.TrailingZeros64(m)); b.slot(i) == v && b.ways[i] == way {
			return i
		}
	}
	return -1
}

// remove takes a key's line out. It goes by the counts of buckets, not by their filters:
// where it takes an entry that another key of the line made, equal to its own, what that
// key is left with may lie behind buckets whose filters do not know it. The counts are
// those of either; and all keys of a line leave, one after the other.
func (s *segment) remove(h uint64, line uint32, way uint8) bool {
	v := slotOf(h, line)
	start := home(h)
	at := start
	for range buckets {
		b := &s[at]
		if i := b.holding(v, way); i >= 0 {
			b.set(i, 0, 0)
			for p := start; p != at; p = (p + 1) & (buckets - 1) {
				s[p].unpass()
			}
			return true
		}
		if b.overflow.Load()&overflowCount == 0 {
			return false
		}
		at = (at + 1) & (buckets - 1)
		way |= away
	}
	return false
}

// enter puts a key's line into the table, splitting its segment as needed. It
// fails when that cannot be split any further and is full.
func (x *Index) enter(h uint64, line uint32) bool {
	p := x.table.part(h)
	for p.meta.live >= splitAt && x.split(p.segment.Load(), p.meta, h) {
		p = x.table.part(h)
	}
	if p.meta.live >= buckets*bucketSlots {
		return false
	}
	p.meta.live++
	p.segment.Load().insert(h, line, p.meta.way(h))
	return true
}

// enterAt is enter for a key of a batch that has no position.
func (x *Index) enterAt(b *batch, i int, line uint32) bool {
	h, m := b.hashes[i], b.metas[i]
	if m.live < splitAt { // and its home is not that of a segment that was split
		if slot := b.homes[i].free(); slot >= 0 {
			m.live++
			b.homes[i].set(slot, slotOf(h, line), m.way(h))
			return true
		}
	}
	return x.enter(h, line)
}

// leave takes a key's line out of the table.
func (x *Index) leave(h uint64, line uint32) {
	if p := x.table.part(h); p.segment.Load().remove(h, line, p.meta.way(h)) {
		p.meta.live--
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
	to := halves{from: m, prefix: h >> (63 - m.depth) >> 1}
	for i := range to.half {
		to.half[i], to.metas[i] = x.table.newSegment(), newMeta(m.depth+1)
	}
	strays := to.distribute(s)
	x.enterStrays(&to, strays)
	span := uint64(1) << (64 - d.shift - m.depth) // directory entries that lead to s
	for i := range span {
		p := &d.parts[to.prefix*span+i]
		p.meta = to.metas[i/(span/2)]
		p.segment.Store(to.half[i/(span/2)])
	}
	m.live = splitNow
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
	n := len(t.free)
	if n == 0 {
		return t.memory.next()
	}
	s := t.free[n-1]
	t.free = t.free[:n-1]
	*s = segment{}
	return s
}

// settle notes that nobody reads what was old before an epoch.
func (t *table) settle(oldest uint64) {
	n := 0
	for n < len(t.old) && t.old[n].epoch < oldest {
		t.free = append(t.free, t.old[n].segment)
		n++
	}
	t.old = t.old[:copy(t.old, t.old[n:])]
}

// double makes the directory twice as long.
func (t *table) double() *directory {
	d := t.dir.Load()
	longer := &directory{shift: d.shift - 1, parts: make([]part, 2*len(d.parts))}
	for i := range longer.parts {
		longer.parts[i].segment.Store(d.parts[i/2].segment.Load())
		longer.parts[i].meta = d.parts[i/2].meta
	}
	t.dir.Store(longer)
	return longer
}

// halves are the segments that a split makes.
type halves struct {
	from   *meta
	half   [2]*segment // not yet known to any reader
	metas  [2]*meta
	prefix uint64 // the bits that lead to the segment that is split
}

// distribute copies the entries that are in their own buckets, and returns the
// slots of those that need their keys.
func (to *halves) distribute(s *segment) (strays []uint32) {
	if to.metas[0].base != to.from.base { // ways are used up
		strays = make([]uint32, 0, to.from.live)
		for i := range s {
			for j := range bucketSlots {
				if v := s[i].slot(j); v != 0 {
					strays = append(strays, v)
				}
			}
		}
		return strays
	}
	strays = make([]uint32, 0, 512)
	for i := range s {
		b := &s[i]
		var n [2]int
		for j, w := range b.ways {
			v := b.slot(j)
			switch {
			case v == 0:
			case w&away != 0:
				strays = append(strays, v)
			default:
				side := to.from.side(w)
				half, k := &to.half[side][i], n[side]
				half.slots[k>>1] |= uint64(v) << (k & 1 * 32)
				half.ways[k] = w
				n[side] = k + 1
			}
		}
		to.metas[0].live += n[0]
		to.metas[1].live += n[1]
	}
	return strays
}

// sharedSlot is a slot value that can stand for several keys of its line. These
// have as many equal entries, or less while a Store is entering them, from the
// first to the last.
type sharedSlot struct {
	slot  uint32
	count int
}

// enterStrays enters them by the hashes of their keys, which lie anywhere: ask for
// those of some at once, so that the cache misses overlap.
func (x *Index) enterStrays(to *halves, strays []uint32) {
	var shared []sharedSlot
	var keys lineHashes
	for len(strays) > 0 {
		some := strays[:min(64, len(strays))]
		strays = strays[len(some):]
		var touch uint64
		for _, v := range some {
			touch |= x.arena.line(v & lineMask)[0]
		}
		x.touched = touch
	next:
		for _, v := range some {
			hashes := x.slotHashes(&keys, v, to)
			if len(hashes) == 1 {
				to.insert(hashes[0], v&lineMask)
				continue
			}
			for i := range shared {
				if shared[i].slot == v {
					shared[i].count++
					continue next
				}
			}
			shared = append(shared, sharedSlot{v, 1})
		}
	}
	for _, e := range shared {
		line := e.slot & lineMask
		hashes := x.slotHashes(&keys, e.slot, to)
		for i, h := range hashes {
			if e.count > 0 && !to.has(h, line, hashes[:i]) {
				to.insert(h, line)
				e.count--
			}
		}
	}
}

// has tells whether a key's entry was in its own bucket, so that distribute
// copied it. Keys before it in the line may have equal entries there.
func (to *halves) has(h uint64, line uint32, before []uint64) bool {
	side := h >> (63 - to.from.depth) & 1
	w, n := to.metas[side].way(h), 0
	b := &to.half[side][home(h)]
	for i := range b.ways {
		if b.slot(i) == slotOf(h, line) && b.ways[i] == w {
			n++
		}
	}
	for _, k := range before {
		if home(k) == home(h) && k>>(63-to.from.depth)&1 == side && to.metas[side].way(k) == w {
			n--
		}
	}
	return n > 0
}

func (to *halves) insert(h uint64, line uint32) {
	side := h >> (63 - to.from.depth) & 1
	m := to.metas[side]
	m.live++
	to.half[side].insert(h, line, m.way(h))
}

type lineHashes [lineKeys]uint64

// slotHashes returns the hashes of the keys that a slot can stand for in the
// segment that is split, in the order of their positions.
func (x *Index) slotHashes(buf *lineHashes, v uint32, to *halves) []uint64 {
	line, n := v&lineMask, 0
	tag, weak := uint8(v>>lineBits), uint8(x.table.weak)
	for _, key := range x.arena.line(line) {
		if uint8(key)&weak != tag || key == 0 {
			continue
		}
		if h := x.table.hash(key); h>>(63-to.from.depth)>>1 == to.prefix {
			buf[n] = h
			n++
		}
	}
	return buf[:n]
}
