package blockhash

import (
	"encoding/binary"
	"math"

	"github.com/zeebo/xxh3"
)

// Chain hands out the hashes of one prompt one by one, hashing a block only
// when it is asked for, and can be extended with further tokens without
// hashing anything again.
//
// The zero value is ready for [Hasher.Start]. A Chain belongs to one goroutine
// at a time and must not be copied after its first use. It keeps its buffers,
// so keep and reuse it: Next then does not allocate. It refers to the Prompt's
// slices until it is started anew; they must not change meanwhile.
type Chain struct {
	h      *Hasher
	prompt Prompt
	narrow window[uint32]
	wide   window[int64]
	isWide bool
	blocks int // hashed so far
	items  itemCursor
	bare   bool // no extra keys but perhaps a salt

	digest  [32]byte // of the last block, the root before the first
	size    int
	key     uint64   // its 64-bit form
	scratch [32]byte // vLLM: digest of embeddings; SGLang: namespace; LMCache: prefix of a partial chunk

	mapped      bool   // SGLang: event values are mapped by the namespace
	partial     bool   // LMCache: the last hash was of a partial chunk
	partialEnd  int    // where that ended
	partialSize int    // length of the prefix it had
	localSeed   uint64 // Dynamo: of tokens
	scratchText []byte // kept for reuse

	known []byte   // digests of the next blocks: remembered, or hashed ahead
	keys  []uint64 // their 64-bit forms when they were hashed ahead
	eager bool     // all blocks will be asked for
	enc   encoder
	span  span
	fast  fast
}

// Start makes c ready to hand out the hashes of p from its first block on,
// whatever it did before. Tokens may end anywhere in a block; Items and Embeds
// may reach beyond them if Extend is to follow. The error is a [PromptError].
// Cost: a look at items and texts, not at tokens.
func (h *Hasher) Start(c *Chain, p *Prompt) error {
	if !h.made() {
		c.stop()
		return errHasher
	}
	return h.resume(c, p, 0, h.root)
}

// Resume is Start for a prompt whose first blocks were hashed before: it goes
// on after them, given the digest of the last. Nothing is checked against the
// prompt: a digest of other blocks gives hashes of another prompt. The digest
// is copied. A digest or a number of blocks that cannot be is an [ErrOptions].
func (h *Hasher) Resume(c *Chain, p *Prompt, blocks int, digest []byte) error {
	if blocks == 0 || !h.made() {
		return h.Start(c, p)
	}
	c.stop()
	if most := p.Len() / h.opt.BlockSize; p != nil && (blocks < 0 || blocks > most) {
		return optionError("Resume after %d blocks: the prompt has %d", blocks, most)
	}
	if len(digest) != h.DigestSize() {
		return optionError("Resume from a digest of %d bytes: %s has %d", len(digest), h.opt.Algorithm, h.DigestSize())
	}
	return h.resume(c, p, blocks, digest)
}

func (h *Hasher) resume(c *Chain, p *Prompt, blocks int, digest []byte) error {
	if c == nil {
		return optionError("the Chain is nil")
	}
	if err := h.check(p); err != nil {
		c.stop()
		return err
	}
	c.h, c.prompt = h, *p
	c.isWide = len(p.WideTokens) > 0
	c.narrow.set(p.Tokens)
	c.wide.set(p.WideTokens)
	c.blocks, c.items = blocks, itemCursor{items: p.Items}
	c.known, c.span.collecting = nil, false
	c.bare = p.LoRA == nil && len(p.Items) == 0 && (p.Embeds == nil || h.era.embeds == embedsIgnored)
	c.size = copy(c.digest[:], digest)
	c.partial = false
	if h.era.family == familySGLang {
		c.startSGLang()
		if blocks > 0 {
			c.size = copy(c.digest[:], digest)
		}
	}
	if h.era.family == familySeq {
		c.startSeq()
		if blocks > 0 {
			c.key = binary.BigEndian.Uint64(c.digest[:])
		}
	}
	c.enc.cbor, c.enc.sharing = h.opt.Algorithm.cbor(), h.opt.SharedObjects
	if h.era.family == familyVLLM {
		c.setFast()
	}
	return nil
}

// Next hashes the next block and returns its hash in the 64-bit form of the
// engine's events, or false when no full block (with its lookahead tokens) is
// left. After false, Extend can make more. A Chain that was never started, or
// whose Start failed, has no blocks.
func (c *Chain) Next() (key uint64, ok bool) {
	if !c.started() || !c.step() {
		return 0, false
	}
	return c.key, true
}

// Digest returns the full digest of the block that Next handed out last; the
// root before the first block. The slice is valid until the next call.
func (c *Chain) Digest() []byte {
	if c == nil {
		return nil
	}
	return c.digest[:c.size]
}

// Blocks returns how many blocks were hashed or skipped by Resume.
func (c *Chain) Blocks() int {
	if c == nil {
		return 0
	}
	return c.blocks
}

func (c *Chain) started() bool { return c != nil && c.h != nil }

// stop makes a chain one without blocks.
func (c *Chain) stop() {
	if c != nil {
		c.h = nil
	}
}

// Len returns the number of tokens the chain has, hashed or not.
func (c *Chain) Len() int {
	switch {
	case c == nil:
		return 0
	case c.isWide:
		return c.wide.end()
	}
	return c.narrow.end()
}

// Extend appends tokens to the prompt: what was generated, or the next turn.
// Tokens of an unfinished block are kept and joined. The tokens are copied.
// It does nothing on a Chain that is not started.
func (c *Chain) Extend(tokens []uint32) {
	switch {
	case !c.started() || len(tokens) == 0:
	case c.isWide:
		c.wide.extend(c.done(), nil)
		for _, t := range tokens {
			c.wide.own = append(c.wide.own, int64(t))
		}
		c.wide.ids = c.wide.own
	default:
		c.narrow.extend(c.done(), tokens)
	}
}

// ExtendWide is Extend for ids that are negative or above 2^32-1. With a
// scheme that cannot hold an id the chain ends before its block.
func (c *Chain) ExtendWide(tokens []int64) {
	if !c.started() || len(tokens) == 0 {
		return
	}
	if !c.isWide {
		c.widen()
	}
	c.wide.extend(c.done(), tokens)
}

// widen goes over to wide ids.
func (c *Chain) widen() {
	c.fast = fast{}
	rest := c.narrow.at(c.done(), c.narrow.end())
	c.wide.own = c.wide.own[:0]
	for _, t := range rest {
		c.wide.own = append(c.wide.own, int64(t))
	}
	c.wide.ids, c.wide.base, c.wide.owned = c.wide.own, c.done(), true
	c.isWide = true
}

// done is the position of the first token that is not hashed yet.
func (c *Chain) done() int { return c.blocks * c.h.opt.BlockSize }

func (c *Chain) stepVLLM() bool {
	if c.fill() {
		c.take(c.h.DigestSize())
		return true
	}
	return c.hashNext()
}

// steps hashes the next blocks, one or several, and returns their digests; none
// at the end. Of one block the key is in c.key.
func (c *Chain) steps() []byte {
	switch {
	case c.h.era.family != familyVLLM:
		if !c.step() {
			return nil
		}
	case c.fill():
		return c.take(len(c.known))
	case !c.hashNext():
		return nil
	}
	return c.digest[:c.size]
}

// fill reports whether digests of the next blocks are known: remembered, or
// hashed ahead.
func (c *Chain) fill() bool {
	if len(c.known) > 0 {
		return true
	}
	start := c.done()
	if start+c.h.opt.BlockSize+c.h.opt.Lookahead > c.Len() {
		return false
	}
	if c.h.memo != nil {
		if c.known, c.keys = c.remembered(start), nil; len(c.known) > 0 {
			return true
		}
	}
	c.known, c.keys = c.hashAhead(start)
	if c.span.collecting && len(c.known) > 0 {
		c.collect(c.known)
	}
	return len(c.known) > 0
}

// hashNext hashes the next block, if there is one.
func (c *Chain) hashNext() bool {
	start := c.done()
	if start+c.h.opt.BlockSize+c.h.opt.Lookahead > c.Len() {
		return false
	}
	c.sum(c.encode(start))
	c.advance()
	return true
}

// take goes on by the blocks of the first n bytes that are known, and returns
// these.
func (c *Chain) take(n int) []byte {
	size := c.h.opt.Algorithm.Size()
	taken := c.known[:n]
	c.known = c.known[n:]
	c.size = copy(c.digest[:], taken[n-size:])
	c.key = KeyOf(c.digest[:size])
	c.blocks += n / size
	return taken
}

// encode returns the message of a block, with room for padding.
func (c *Chain) encode(start int) []byte {
	if msg := c.fastMessage(start); msg != nil {
		return msg
	}
	return c.message(start)
}

// advance is called when a block has been hashed.
func (c *Chain) advance() {
	c.blocks++
	if c.span.collecting {
		c.collect(c.digest[:c.size])
	}
}

// sum hashes an encoded message into digest and key.
func (c *Chain) sum(msg []byte) {
	if c.h.opt.Algorithm.xxh() {
		sum := xxh3.Hash128(msg)
		binary.BigEndian.PutUint64(c.digest[0:], sum.Hi)
		binary.BigEndian.PutUint64(c.digest[8:], sum.Lo)
		c.key, c.size = sum.Lo, 16
		return
	}
	sumSHA256(&c.digest, msg)
	c.key, c.size = binary.BigEndian.Uint64(c.digest[24:]), 32
}

// message encodes the block that starts at start: (parent, tokens, extra),
// hash_block_tokens in vLLM.
func (c *Chain) message(start int) []byte {
	end := start + c.h.opt.BlockSize
	look := c.h.opt.Lookahead
	e := &c.enc
	e.beginBlock(c.digest[:c.size], end-start)
	c.writeTokens(start, end)
	e.endTuple(end - start)
	if look > 0 {
		e.tuple(1 + look)
		c.extra(start, end+look)
		c.writeTokens(end, end+look)
		e.endTuple(1 + look)
	} else {
		c.extra(start, end)
	}
	e.endTuple(3)
	return e.end()
}

func (c *Chain) writeTokens(from, to int) {
	if c.isWide {
		c.enc.wideTokens(c.wide.at(from, to))
	} else {
		c.enc.tokens(c.narrow.at(from, to))
	}
}

// release drops references to the caller's data.
func (c *Chain) release() {
	c.h, c.prompt, c.items = nil, Prompt{}, itemCursor{}
	c.narrow.set(nil)
	c.wide.set(nil)
	c.known, c.keys = nil, nil
	clear(c.enc.few[:cap(c.enc.few)])
	if len(c.enc.many) > 0 {
		clear(c.enc.many)
	}
	if max(cap(c.enc.buf), cap(c.scratchText), cap(c.span.buf)) > maxPooledBuffer {
		c.enc.buf, c.scratchText, c.span.buf = nil, nil, nil
	}
}

// maxPooledBuffer bounds what a pooled Chain keeps after an unusual prompt.
const maxPooledBuffer = 1 << 20

// hashSeed returns fn(text): the root made of a seed.
func (h *Hasher) hashSeed(text string) ([]byte, error) {
	if len(text) > math.MaxInt32 {
		return nil, optionError("the seed has %d bytes", len(text))
	}
	c := Chain{h: h, enc: encoder{cbor: h.opt.Algorithm.cbor()}}
	c.enc.begin()
	c.enc.text(text)
	c.sum(c.enc.end())
	return c.digest[:c.size], nil
}
