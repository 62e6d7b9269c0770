package blockhash

import (
	"encoding/binary"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// span is a Chain's dealing with the memo: the span of blocks it is in, whose
// digests are known, or being collected, or neither.
type span struct {
	known      []byte // digests of the span, from the memo
	collecting bool
	key        memoKey
	digests    []byte // collected so far
	buf        contentBuffer
}

func (s *span) reset() {
	s.known, s.collecting = nil, false
}

// remembered takes the next block's digest from the memo, if it is there.
func (c *Chain) remembered(start int) bool {
	m := c.h.memo
	i := c.blocks % MemoSpan
	if i == 0 {
		c.span.reset()
		end := start + MemoSpan*c.h.opt.BlockSize + c.h.opt.Lookahead
		if c.isWide || c.prompt.Embeds != nil || end > c.Len() {
			return false
		}
		c.span.key = c.spanKey(m.seed, start, end)
		c.span.known = m.get(c.span.key)
		if c.span.known == nil {
			c.span.collecting = true
			c.span.digests = c.span.digests[:0]
		}
	}
	if c.span.known == nil {
		return false
	}
	size := c.h.DigestSize()
	c.size = copy(c.digest[:], c.span.known[i*size:(i+1)*size])
	c.key = KeyOf(c.digest[:c.size])
	c.blocks++
	return true
}

// restKnown takes all that the memo has of the span at once, and returns the
// digests.
func (c *Chain) restKnown() []byte {
	if c.span.known == nil {
		return nil
	}
	size := c.h.DigestSize()
	rest := c.span.known[(c.blocks-1)%MemoSpan*size+size:]
	if len(rest) > 0 {
		copy(c.digest[:], rest[len(rest)-size:])
		c.key = KeyOf(c.digest[:c.size])
		c.blocks += len(rest) / size
	}
	return rest
}

// collect adds the digest just made to the span being collected.
func (c *Chain) collect() {
	s := &c.span
	s.digests = append(s.digests, c.digest[:c.size]...)
	if c.blocks%MemoSpan == 0 {
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
