package blockhash

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
)

// ContentRoot is the parent of a prompt's first block in content keys.
const ContentRoot uint64 = 0

// ContentOptions describe content keys. Scheme and BlockSize are required.
// Keys of two Contents can be compared when their options are equal.
type ContentOptions struct {
	// Scheme is the engine's era: what its events tell of a block.
	Scheme Scheme
	// BlockSize is the number of tokens in a block.
	BlockSize int
	// Lookahead is the number of tokens past a block that its engine hash
	// covers too (see Options.Lookahead); events then carry them.
	Lookahead int
	// LoRAPath says that the caller knows the path of every adapter and sets
	// it both in prompts and in spans. No event carries it, although vLLM
	// hashes it from 0.31 on: without it, an adapter whose name was pointed to
	// another path is taken for the one before.
	LoRAPath bool
	// Seed makes keys unpredictable for those who send prompts, so that nobody
	// can craft prompts with equal keys: take a random number that lives as
	// long as the keys do. Default 0: reproducible keys.
	Seed uint64
}

// Content computes content keys: names of blocks for engines whose own hashes
// cannot be computed from a prompt, because the root is random or the hash is
// opaque. A key chains over tokens and extra keys as a block hash does, in
// 64 bits of XXH3, and comes out equal from a prompt ([Content.AppendKeys])
// and from the events that announced it ([Content.AppendEventKeys]). Whoever
// reads events maps each announced hash to the content key beside it and looks
// prompts up by content key.
//
// The keys are this package's own and no engine's. A Content is immutable and
// safe for concurrent use; use it by pointer, as [NewContent] returns it. A nil or
// zero Content makes no keys: its functions return errors that wrap [ErrOptions].
type Content struct {
	opt ContentOptions
	era *era
}

// NewContent compiles options. Errors wrap [ErrScheme] or [ErrOptions].
func NewContent(opt ContentOptions) (*Content, error) {
	c := &Content{opt: opt, era: opt.Scheme.era()}
	switch {
	case opt.Scheme.IsZero():
		return nil, fmt.Errorf("%w: ContentOptions.Scheme is not set: use SchemeFor", ErrScheme)
	case opt.BlockSize < 1 || opt.BlockSize > maxBlockSize:
		return nil, optionError("BlockSize is %d: want 1 to %d tokens", opt.BlockSize, maxBlockSize)
	case opt.Lookahead < 0 || opt.Lookahead > maxLookahead:
		return nil, optionError("Lookahead is %d: want 0 to %d tokens", opt.Lookahead, maxLookahead)
	case opt.Lookahead > 0 && !c.era.lookahead:
		return nil, optionError("Lookahead is %d: %v hashes no lookahead tokens", opt.Lookahead, opt.Scheme)
	}
	return c, nil
}

// BlockSize returns the number of tokens in a block.
func (c *Content) BlockSize() int {
	if c == nil {
		return 0
	}
	return c.opt.BlockSize
}

// made reports whether c came from NewContent.
func (c *Content) made() bool { return c != nil && c.era != nil }

var errContent = optionError("the Content is nil or zero: make it with NewContent")

// Blocks returns how many keys a prompt of so many tokens has.
func (c *Content) Blocks(tokens int) int {
	if !c.made() {
		return 0
	}
	return max(tokens-c.opt.Lookahead, 0) / c.opt.BlockSize
}

// AppendKeys appends the content keys of all blocks of p. It does not allocate
// when dst has room. The error is a [PromptError], or wraps [ErrOpaque] when
// the prompt has an adapter, items, a salt or embeddings and the events of the
// scheme's releases do not tell such blocks from plain ones: nothing can be
// said about what the engine holds of it.
func (c *Content) AppendKeys(dst []uint64, p *Prompt) ([]uint64, error) {
	ch := contentChains.Get().(*ContentChain)
	defer contentChains.Put(ch)
	defer ch.release()
	if err := c.Start(ch, p); err != nil {
		return dst, err
	}
	dst = slices.Grow(dst, c.Blocks(ch.ids.end()))
	for {
		key, ok := ch.Next()
		if !ok {
			return dst, nil
		}
		dst = append(dst, key)
	}
}

// check refuses prompts that have no content keys and returns their ids.
func (c *Content) check(p *Prompt) error {
	if err := checkPrompt(p); err != nil {
		return err
	}
	var what string
	switch e := c.era; {
	case p.LoRA != nil && !e.eventKeys && !e.eventLoRA:
		what = "an adapter"
	case p.CacheSalt != "" && !e.eventKeys && !e.saltSeeds:
		what = "a salt"
	case len(p.Items) > 0 && !e.eventKeys:
		what = "items"
	case p.Embeds != nil && !e.eventKeys:
		what = "embeddings"
	case p.ExtraKey != "":
		what = "an extra key"
	}
	if what != "" {
		return fmt.Errorf("%w: events of %v do not tell a prompt with %s from a plain one", ErrOpaque, c.opt.Scheme, what)
	}
	return checkUint32(p.WideTokens)
}

// contentBuffer collects what one key is made of.
type contentBuffer []byte

func (b *contentBuffer) tokens(ids []uint32) {
	buf := slices.Grow(*b, 4*len(ids))
	at := len(buf)
	buf = buf[:at+4*len(ids)]
	for ; len(ids) >= 2; ids = ids[2:] {
		binary.LittleEndian.PutUint64(buf[at:], uint64(ids[0])|uint64(ids[1])<<32)
		at += 8
	}
	if len(ids) > 0 {
		binary.LittleEndian.PutUint32(buf[at:], ids[0])
	}
	*b = buf
}

// extra adds an extra key; lengths keep neighbours apart.
func contentExtra[T ~string | ~[]byte](b *contentBuffer, kind ExtraKind, text T, offset int64) {
	*b = append(*b, byte(kind))
	*b = binary.LittleEndian.AppendUint64(*b, uint64(offset))
	*b = binary.LittleEndian.AppendUint32(*b, uint32(len(text)))
	*b = append(*b, text...)
}

// start begins the message of a block.
func (b *contentBuffer) start(parent uint64) {
	*b = binary.LittleEndian.AppendUint64((*b)[:0], parent)
}

func (c *Content) sum(b contentBuffer) uint64 { return xxh3.HashSeed(b, c.opt.Seed) }

// ContentChain hands out the content keys of one prompt one by one, as [Chain]
// does with block hashes; the same rules hold for its use.
type ContentChain struct {
	c      *Content
	prompt Prompt
	ids    window[uint32]
	wide   []uint32 // narrowed WideTokens
	blocks int
	items  itemCursor
	key    uint64
	buf    contentBuffer
}

// Start makes ch ready to hand out the keys of p from its first block on. The
// errors are those of [Content.AppendKeys].
func (c *Content) Start(ch *ContentChain, p *Prompt) error {
	if ch == nil {
		return optionError("the ContentChain is nil")
	}
	ch.c = nil
	if !c.made() {
		return errContent
	}
	if err := c.check(p); err != nil {
		return err
	}
	ch.c, ch.prompt = c, *p
	ids := p.Tokens
	if len(p.WideTokens) > 0 {
		ch.wide = ch.wide[:0]
		for _, id := range p.WideTokens {
			ch.wide = append(ch.wide, uint32(id))
		}
		ids = ch.wide
	}
	ch.ids.set(ids)
	ch.blocks, ch.key = 0, ContentRoot
	ch.items = itemCursor{items: p.Items}
	return nil
}

// Next returns the key of the next block, or false when no full block is left.
func (ch *ContentChain) Next() (key uint64, ok bool) {
	if ch == nil || ch.c == nil {
		return 0, false
	}
	size, look := ch.c.opt.BlockSize, ch.c.opt.Lookahead
	start := ch.blocks * size
	end := start + size + look
	if end > ch.ids.end() {
		return 0, false
	}
	ch.buf.start(ch.key)
	ch.buf.tokens(ch.ids.at(start, end))
	ch.extra(start, end)
	ch.key = ch.c.sum(ch.buf)
	ch.blocks++
	return ch.key, true
}

// Key returns the key handed out last, ContentRoot before the first.
func (ch *ContentChain) Key() uint64 {
	if ch == nil {
		return ContentRoot
	}
	return ch.key
}

// Blocks returns how many keys were handed out.
func (ch *ContentChain) Blocks() int {
	if ch == nil {
		return 0
	}
	return ch.blocks
}

// Extend appends tokens to the prompt, as [Chain.Extend] does.
func (ch *ContentChain) Extend(tokens []uint32) {
	if ch != nil && ch.c != nil && len(tokens) > 0 {
		ch.ids.extend(ch.blocks*ch.c.opt.BlockSize, tokens)
	}
}

// extra adds the extra keys of a block as events carry them: untagged, in the
// order adapter, items, salt, embeddings.
func (ch *ContentChain) extra(start, end int) {
	p, era := &ch.prompt, ch.c.era
	if p.LoRA != nil {
		contentExtra(&ch.buf, extraLoRA, p.LoRA.Name, 0)
		if ch.c.opt.LoRAPath {
			contentExtra(&ch.buf, extraPath, p.LoRA.Path, 0)
		}
	}
	for _, it := range ch.items.overlapping(start, end) {
		if era.mmOffset {
			contentExtra(&ch.buf, ExtraItem, it.Identifier, int64(it.Offset-start))
		} else {
			contentExtra(&ch.buf, ExtraText, it.Identifier, 0)
		}
	}
	if p.CacheSalt != "" && (start == 0 || era.saltSeeds) {
		contentExtra(&ch.buf, ExtraText, p.CacheSalt, 0)
	}
	if p.Embeds != nil {
		digest := sha256.Sum256(p.Embeds.rows(start, end))
		contentExtra(&ch.buf, ExtraBytes, digest[:], 0)
	}
}

// release drops references to the caller's data.
func (ch *ContentChain) release() {
	ch.c, ch.prompt, ch.items = nil, Prompt{}, itemCursor{}
	ch.ids.set(nil)
	if cap(ch.buf) > maxPooledBuffer {
		ch.buf = nil
	}
	if cap(ch.wide) > maxPooledBuffer {
		ch.wide = nil
	}
}
