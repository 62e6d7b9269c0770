package blockhash

import (
	"fmt"
	"slices"
	"sync"
)

var contentChains = sync.Pool{New: func() any { return new(ContentChain) }}

// ExtraKind says what an [Extra] holds.
type ExtraKind uint8

const (
	ExtraOther ExtraKind = iota // something else; Text is its encoding, whatever that is
	ExtraText                   // LoRA name, cache salt, or item identifier before vLLM 0.19
	ExtraItem                   // item identifier with its offset relative to the block
	ExtraBytes                  // digest of prompt embeddings
	ExtraInt                    // an integer, in Offset

	// Kinds of content keys that events do not tell apart by themselves.
	extraLoRA // the first ExtraText of a block whose event names an adapter
	extraPath // the adapter's path, which no event carries
)

// Extra is one extra key of a block as an engine's event carries it: untagged
// in every release so far.
type Extra struct {
	Kind   ExtraKind
	Text   []byte // all kinds but ExtraInt
	Offset int64  // of ExtraItem and ExtraInt
}

// Span is what a BlockStored event tells of consecutive blocks. It refers to
// the caller's slices and is not kept.
type Span struct {
	// Parent is the content key of the block before the span, ContentRoot for
	// none.
	Parent uint64
	// Tokens are the ids of the whole span.
	Tokens []uint32
	// Extras has the extra keys of each block of the span, nil where there are
	// none; nil altogether when no block has any.
	Extras [][]Extra
	// Lookahead has the lookahead tokens of each block, when
	// ContentOptions.Lookahead is set.
	Lookahead [][]uint32
	// LoRA reports that the event names an adapter, by name or number.
	LoRA bool
	// LoRAName and CacheSalt are the adapter's name and the salt where events
	// have them as fields and no extra keys: SGLang from 0.5.22 and 0.5.18.
	LoRAName  []byte
	CacheSalt []byte
	// LoRAPath is the adapter's path when ContentOptions.LoRAPath is set.
	LoRAPath string
	// TokenHashes has the hash of each block's tokens, where a relay of Dynamo
	// sends these in place of Tokens; see [Hasher.AppendEventKeys].
	TokenHashes []uint64
}

// AppendEventKeys appends the content keys of the blocks of a span: as many as
// it has whole blocks of tokens. They equal those of [Content.AppendKeys] for
// the prompt that the engine stored.
//
// An event may announce fewer hashes than its span has blocks (sliding-window
// and Mamba groups skip some). Then its hashes cannot be matched to these keys
// by position, and its extra keys cannot be matched to blocks: pass Extras
// only if they have one entry per block of the span.
//
// The error wraps [ErrOpaque] when the event does not tell enough: an adapter
// before extra keys were in events (vLLM 0.17), an extra key of kind
// ExtraOther, missing lookahead tokens; and [ErrOptions] when Extras or
// Lookahead have another number of entries than the span has blocks. dst is
// then returned as it was.
func (c *Content) AppendEventKeys(dst []uint64, s *Span) ([]uint64, error) {
	if !c.made() {
		return dst, errContent
	}
	if s == nil {
		return dst, optionError("the span is nil")
	}
	blocks := len(s.Tokens) / c.opt.BlockSize
	if err := c.checkSpan(s, blocks); err != nil {
		return dst, err
	}
	ch := contentChains.Get().(*ContentChain)
	defer contentChains.Put(ch)
	defer ch.release()
	dst = slices.Grow(dst, blocks)
	key := s.Parent
	for i := range blocks {
		ch.buf.start(key)
		ch.buf.tokens(s.Tokens[i*c.opt.BlockSize : (i+1)*c.opt.BlockSize])
		if c.opt.Lookahead > 0 {
			ch.buf.tokens(s.Lookahead[i])
		}
		switch {
		case s.Extras != nil:
			c.eventExtra(&ch.buf, s, s.Extras[i])
		case !c.era.eventKeys:
			c.eventFields(&ch.buf, s)
		}
		key = c.sum(ch.buf)
		dst = append(dst, key)
	}
	return dst, nil
}

func (c *Content) eventExtra(b *contentBuffer, s *Span, extras []Extra) {
	if s.LoRA { // checkSpan saw that the first one is the adapter
		contentExtra(b, extraLoRA, extras[0].Text, 0)
		if c.opt.LoRAPath {
			contentExtra(b, extraPath, s.LoRAPath, 0)
		}
		extras = extras[1:]
	}
	for i := range extras {
		x := &extras[i]
		contentExtra(b, x.Kind, x.Text, x.Offset)
	}
}

// eventFields adds what events without extra keys tell of all their blocks.
func (c *Content) eventFields(b *contentBuffer, s *Span) {
	if c.era.eventLoRA && len(s.LoRAName) > 0 {
		contentExtra(b, extraLoRA, s.LoRAName, 0)
		if c.opt.LoRAPath {
			contentExtra(b, extraPath, s.LoRAPath, 0)
		}
	}
	if c.era.saltSeeds && len(s.CacheSalt) > 0 {
		contentExtra(b, ExtraText, s.CacheSalt, 0)
	}
}

func (c *Content) checkSpan(s *Span, blocks int) error {
	switch {
	case s.Extras != nil && len(s.Extras) != blocks:
		return optionError("Span.Extras has %d entries for %d blocks", len(s.Extras), blocks)
	case s.Extras != nil && !c.era.eventKeys:
		return fmt.Errorf("%w: events of %v have no extra keys", ErrOpaque, c.opt.Scheme)
	case s.LoRA && c.era.eventLoRA && len(s.LoRAName) > 0:
		return nil
	case s.LoRA && !c.era.eventKeys:
		return fmt.Errorf("%w: events of %v do not carry the adapter's extra key", ErrOpaque, c.opt.Scheme)
	case s.LoRA && s.Extras == nil && blocks > 0:
		return fmt.Errorf("%w: the event names an adapter but has no extra keys", ErrOpaque)
	case c.opt.Lookahead > 0 && len(s.Lookahead) != blocks:
		return fmt.Errorf("%w: lookahead tokens of %d blocks for %d", ErrOpaque, len(s.Lookahead), blocks)
	}
	for i, ids := range s.Lookahead {
		if c.opt.Lookahead > 0 && len(ids) != c.opt.Lookahead {
			return fmt.Errorf("%w: block %d has %d lookahead tokens, not %d", ErrOpaque, i, len(ids), c.opt.Lookahead)
		}
	}
	for i, extras := range s.Extras {
		if s.LoRA && (len(extras) == 0 || extras[0].Kind != ExtraText) {
			return fmt.Errorf("%w: the event names an adapter but the extra keys of block %d do not start with it", ErrOpaque, i)
		}
		for _, x := range extras {
			if x.Kind == ExtraOther || x.Kind > ExtraInt {
				return fmt.Errorf("%w: extra key of unknown kind in block %d", ErrOpaque, i)
			}
		}
	}
	return nil
}
