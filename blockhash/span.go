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
	digests    []byte // collected so far
	buf        contentBuffer
}

// remembered returns the digests of the span of blocks that begins at start,
// if the memo has them, or begins to collect them. Elsewhere in a span it does
// nothing.
func (c *Chain) remembered(start int) []byte {
	m, s := c.h.memo, &c.span
	if c.blocks%MemoSpan != 0 {
		return nil
	}
	s.collecting = false
	end := start + MemoSpan*c.h.opt.BlockSize + c.h.opt.Lookahead
	if c.isWide || c.prompt.Embeds != nil || end > c.Len() {
		return nil
	}
	s.key = c.spanKey(m.seed, start, end)
	known := m.get(s.key)
	if known == nil {
		s.collecting = true
		s.digests = s.digests[:0]
	}
	return known
}

// collect adds digests just made to the span being collected.
func (c *Chain) collect(digests []byte) {
	s := &c.span
	s.digests = append(s.digests, digests...)
	if len(s.digests) == MemoSpan*c.h.DigestSize() {
		c.h.memo.put(s.key, s.digests)
		s.collecting = false
	}
}

// spanKey hashes all that the digests of the blocks from start to end depend
// on: the digest before, tokens (with those of the lookahead) and what makes
// the extra keys. The Hasher's options need no place: a memo has one Hasher.
func (c *Chain) spanKey(seed uint64, start, end int) memoKey {
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
