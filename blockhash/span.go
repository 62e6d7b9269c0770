package blockhash

import (
	"encoding/binary"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// span is a Chain's dealing with the memo: the digests of the span of blocks
// it is in are being collected, or not.
type span struct {
	collecting bool
	key        memoKey
	blocks     int    // so many go under the key
	digests    []byte // collected so far
	buf        contentBuffer
}

// halfSpan is what the memo keeps of a prompt's end that is too short for a
// span, so that its next turn hashes less of it again.
const halfSpan = MemoSpan / 2

// remembered returns the digests of the span of blocks that begins at start, or
// of its first half, if the memo has them, and begins to collect the others.
// Elsewhere in a span it does nothing.
func (c *Chain) remembered(start int) []byte {
	m, s, size := c.h.memo, &c.span, c.h.opt.BlockSize
	if c.blocks%MemoSpan != 0 {
		return nil
	}
	s.collecting = false
	room := c.Len() - c.h.opt.Lookahead - start
	if c.isWide || c.prompt.Embeds != nil || room < halfSpan*size {
		return nil
	}
	whole := room >= MemoSpan*size
	if whole {
		s.key, s.blocks = c.spanKey(m.seed, start, MemoSpan), MemoSpan
		if known := m.get(s.key); known != nil {
			return known
		}
	}
	half := c.spanKey(m.seed, start, halfSpan)
	known := m.get(half)
	if !whole {
		s.key, s.blocks = half, halfSpan
	}
	s.collecting = whole || known == nil
	s.digests = append(s.digests[:0], known...)
	return known
}

// collect adds digests just made to the span being collected.
func (c *Chain) collect(digests []byte) {
	s := &c.span
	s.digests = append(s.digests, digests...)
	if want := s.blocks * c.h.DigestSize(); len(s.digests) >= want {
		c.h.memo.put(s.key, s.digests[:want])
		s.collecting = false
	}
}

// spanKey hashes all that the digests of so many blocks from start on depend
// on: the digest before, tokens (with those of the lookahead) and what makes
// the extra keys. The Hasher's options need no place: a memo has one Hasher.
func (c *Chain) spanKey(seed uint64, start, blocks int) memoKey {
	end := start + blocks*c.h.opt.BlockSize + c.h.opt.Lookahead
	ids := c.narrow.at(start, end)
	// The ids as they are in memory: a key never leaves the process.
	view := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), 4*len(ids))
	tokens := xxh3.Hash128Seed(view, seed)

	b := &c.span.buf
	b.start(tokens.Hi)
	*b = binary.LittleEndian.AppendUint64(*b, tokens.Lo)
	*b = append(*b, c.digest[:c.size]...)
	p := &c.prompt
	if l := p.LoRA; l != nil {
		contentExtra(b, extraLoRA, l.Name, l.ID)
		contentExtra(b, extraPath, l.Path, 0)
	}
	if start == 0 {
		contentExtra(b, ExtraText, p.CacheSalt, 0)
	}
	for _, it := range c.items.overlapping(start, end) {
		contentExtra(b, ExtraItem, it.Identifier, int64(it.Offset-start))
		*b = binary.LittleEndian.AppendUint64(*b, uint64(it.Length))
	}
	key := xxh3.Hash128Seed(*b, seed)
	return memoKey{key.Hi, key.Lo}
}
