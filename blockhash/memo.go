package blockhash

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// MemoStats tell what a Hasher's memo has done since it was made. Counts are
// of lookups: of spans of MemoSpan blocks, or where that is not known or the
// prompt too short, of half of one.
type MemoStats struct {
	Hits     uint64 // digests were remembered
	Misses   uint64 // they were not
	Evicted  uint64 // spans dropped to keep within MaxBytes
	Entries  int    // spans held now
	Bytes    int64  // memory they take, bookkeeping included
	MaxBytes int64  // the limit
}

// MemoSpan is the number of consecutive blocks that a memo remembers together.
const MemoSpan = 64

// A memo remembers the digests of spans of blocks. A span's key is a 128-bit
// XXH3 hash with a secret seed over all that its digests depend on: the digest
// before it, tokens, lookahead tokens, extra keys. So two spans are taken for
// each other only if 128 bits agree by chance, and a prompt cannot be made up
// to bring that about without knowing the seed.
//
// New spans go on probation, where they compete among themselves; one that is
// asked for again becomes protected. A flood of prompts that are sent once
// displaces only what is on probation: a quarter of the memory.
type memo struct {
	shards []memoShard
	seed   uint64
	max    int64

	hits, misses, evicted atomic.Uint64
}

type memoKey struct{ hi, lo uint64 }

// memoEntry is an element of one of its shard's two rings.
type memoEntry struct {
	key        memoKey
	prev, next *memoEntry
	protected  bool
	touched    uint64 // the shard's count of puts at the last use
	digests    []byte // immutable
}

const (
	// memoOverhead is what an entry costs beyond its digests: itself, its
	// places in map and free list at the worst load, allocator slack.
	memoOverhead = 224
	memoShards   = 64
	minShard     = 64 << 10
)

// memoShard is an LRU list in two segments. Rings start at a sentinel: next is
// the latest used, prev the oldest.
type memoShard struct {
	mu                   sync.Mutex
	entries              map[memoKey]*memoEntry
	probation, protected memoEntry
	free                 []*memoEntry // dropped ones, for reuse: only digests leave the lock
	bytes, protectedSum  int64
	puts                 uint64
	max                  int64
	_                    [64]byte // keep neighbours' locks on other cache lines
}

func newMemo(maxBytes int64) *memo {
	n := 1
	for n < memoShards && maxBytes/int64(2*n) >= minShard {
		n *= 2
	}
	m := &memo{shards: make([]memoShard, n), seed: rand.Uint64(), max: maxBytes}
	for i := range m.shards {
		s := &m.shards[i]
		s.entries = make(map[memoKey]*memoEntry)
		s.max = maxBytes / int64(n)
		for _, ring := range []*memoEntry{&s.probation, &s.protected} {
			ring.prev, ring.next = ring, ring
		}
	}
	return m
}

func (m *memo) shard(k memoKey) *memoShard { return &m.shards[k.hi%uint64(len(m.shards))] }

// get returns the digests of a span, nil if they are not known.
func (m *memo) get(k memoKey) []byte {
	s := m.shard(k)
	s.mu.Lock()
	e := s.entries[k]
	var digests []byte
	if e != nil {
		digests = e.digests
		s.touch(e)
	}
	s.mu.Unlock()
	if e == nil {
		m.misses.Add(1)
		return nil
	}
	m.hits.Add(1)
	return digests
}

// put remembers a span. The digests are copied.
func (m *memo) put(k memoKey, digests []byte) {
	s := m.shard(k)
	size := int64(len(digests) + memoOverhead)
	if size > s.max {
		return
	}
	digests = append([]byte(nil), digests...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[k] != nil {
		return // another goroutine was faster
	}
	for s.bytes+size > s.max {
		s.evict()
		m.evicted.Add(1)
	}
	s.puts++
	e := s.entry()
	e.key, e.digests, e.protected = k, digests, false
	s.entries[k] = e
	s.bytes += size
	e.insertAfter(&s.probation)
}

// touch notes a use. The oldest protected entries go back on probation when
// these take more than three quarters. The order of uses between two puts does
// not matter, as only a put evicts.
func (s *memoShard) touch(e *memoEntry) {
	if e.protected && e.touched == s.puts {
		return
	}
	e.touched = s.puts
	e.unlink()
	if !e.protected {
		e.protected = true
		s.protectedSum += e.size()
	}
	e.insertAfter(&s.protected)
	for s.protectedSum > s.max/4*3 && s.protected.prev != e {
		old := s.protected.prev
		old.unlink()
		old.protected = false
		s.protectedSum -= old.size()
		old.insertAfter(&s.probation)
	}
}

// evict drops the oldest entry on probation, or of all if none is.
func (s *memoShard) evict() {
	e := s.probation.prev
	if e == &s.probation {
		e = s.protected.prev
		s.protectedSum -= e.size()
	}
	e.unlink()
	s.bytes -= e.size()
	delete(s.entries, e.key)
	e.digests = nil
	s.free = append(s.free, e)
}

// entry returns an unused entry. Entries are made several at a time.
func (s *memoShard) entry() *memoEntry {
	if len(s.free) == 0 {
		chunk := make([]memoEntry, 8)
		for i := range chunk {
			s.free = append(s.free, &chunk[i])
		}
	}
	e := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return e
}

func (e *memoEntry) size() int64 { return int64(len(e.digests) + memoOverhead) }

func (e *memoEntry) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
}

func (e *memoEntry) insertAfter(ring *memoEntry) {
	e.prev, e.next = ring, ring.next
	e.prev.next, e.next.prev = e, e
}

// MemoStats returns what the memo has done; all zero when it is off. It takes
// each shard's lock in turn, so sums of a busy memo are of slightly different
// instants.
func (h *Hasher) MemoStats() MemoStats {
	if h == nil || h.memo == nil {
		return MemoStats{}
	}
	m := h.memo
	st := MemoStats{Hits: m.hits.Load(), Misses: m.misses.Load(), Evicted: m.evicted.Load(), MaxBytes: m.max}
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		st.Entries += len(s.entries)
		st.Bytes += s.bytes
		s.mu.Unlock()
	}
	return st
}
