package blockhash

import (
	"fmt"
	"slices"
)

// AppendEventDigests appends the digests of the blocks of a span, computed
// from what the event tells: tokens, extra keys, lookahead tokens; Span.Parent
// is not used. parent is the full digest of the block before, nil for the root
// (an event's 64-bit parent is not enough). It serves to check that an engine
// hashes as it is assumed to.
//
// Extra keys in events are untagged although from 0.31 on the hash has them
// tagged; they are tagged again by place and kind: with Span.LoRA the first is
// the adapter (and Span.LoRAPath must be its path, which no event carries), a
// pair is an item, bytes are a digest of embeddings, other text is the salt.
//
// The error wraps [ErrOpaque] when the event does not tell enough: other
// engines than vLLM, an adapter before 0.17, a key of an unknown kind, missing
// lookahead tokens; or [ErrOptions] for a parent of another length than a
// digest, and for Extras of another length than the span has blocks.
func (h *Hasher) AppendEventDigests(dst, parent []byte, s *Span) ([]byte, error) {
	if !h.made() {
		return dst, errHasher
	}
	if h.era.family != familyVLLM {
		return dst, fmt.Errorf("%w: hashes of %v are not computed from events", ErrOpaque, h.opt.Scheme)
	}
	if s == nil {
		return dst, optionError("the span is nil")
	}
	if parent != nil && len(parent) != h.DigestSize() {
		return dst, optionError("a parent digest of %d bytes: %s has %d", len(parent), h.opt.Algorithm, h.DigestSize())
	}
	blocks := len(s.Tokens) / h.opt.BlockSize
	check := Content{opt: ContentOptions{Scheme: h.opt.Scheme, BlockSize: h.opt.BlockSize, Lookahead: h.opt.Lookahead}, era: h.era}
	if err := check.checkSpan(s, blocks); err != nil {
		return dst, err
	}
	if s.LoRA && s.LoRAPath == "" && h.era.tagged {
		return dst, fmt.Errorf("%w: the event names an adapter, whose path is hashed and not given", ErrOpaque)
	}
	c := chains.Get().(*Chain)
	defer recycle(c)
	if err := h.Start(c, &Prompt{Tokens: s.Tokens}); err != nil {
		return dst, err
	}
	if parent != nil {
		c.size = copy(c.digest[:], parent)
	}
	dst = slices.Grow(dst, blocks*h.DigestSize())
	for i := range blocks {
		c.sum(c.eventMessage(i, s))
		dst = append(dst, c.digest[:c.size]...)
	}
	return dst, nil
}

// eventMessage is message for block i of a span.
func (c *Chain) eventMessage(i int, s *Span) []byte {
	size, look := c.h.opt.BlockSize, c.h.opt.Lookahead
	e := &c.enc
	e.beginBlock(c.digest[:c.size], size)
	e.tokens(s.Tokens[i*size : (i+1)*size])
	e.endTuple(size)
	var extras []Extra
	if s.Extras != nil {
		extras = s.Extras[i]
	}
	if look > 0 {
		e.tuple(1 + look)
		c.eventExtras(extras, s)
		e.tokens(s.Lookahead[i])
		e.endTuple(1 + look)
	} else {
		c.eventExtras(extras, s)
	}
	e.endTuple(3)
	return e.end()
}

func (c *Chain) eventExtras(extras []Extra, s *Span) {
	e := &c.enc
	if len(extras) == 0 {
		e.none()
		return
	}
	e.tuple(len(extras))
	for i := range extras {
		x := &extras[i]
		switch {
		case i == 0 && s.LoRA:
			c.lora(&LoRA{Name: string(x.Text), Path: s.LoRAPath})
		case x.Kind == ExtraItem:
			c.itemKey(&Item{Identifier: string(x.Text), Offset: int(x.Offset)}, 0)
		case x.Kind == ExtraBytes:
			c.embedsKey(x.Text)
		case x.Kind == ExtraInt:
			e.int(x.Offset)
		default: // the salt; or before 0.19 an item, which was not tagged either
			c.salt(string(x.Text))
		}
	}
	e.endTuple(len(extras))
}
