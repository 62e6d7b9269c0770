package blockhash

import (
	"encoding/binary"
	"slices"
	"sync"
)

// chains holds Chains for the one-shot functions.
var chains = sync.Pool{New: func() any { return new(Chain) }}

// AppendKeys appends the hashes of all blocks of p to dst, in the 64-bit form
// of the engine's events, and returns the longer slice. It does not allocate
// when dst has room for [Hasher.Blocks] more. The error is a [PromptError]; dst
// is then returned as it was.
func (h *Hasher) AppendKeys(dst []uint64, p *Prompt) ([]uint64, error) {
	c := chains.Get().(*Chain)
	defer recycle(c)
	c.eager = true
	if err := h.Start(c, p); err != nil {
		return dst, err
	}
	dst = slices.Grow(dst, h.Blocks(c.Len()))
	for {
		digests := c.steps()
		switch {
		case digests == nil:
			return dst, nil
		case len(digests) == c.size:
			dst = append(dst, c.key)
		case c.keys != nil:
			dst = append(dst, c.keys...)
		default:
			for at := c.size; at <= len(digests); at += c.size {
				dst = append(dst, binary.BigEndian.Uint64(digests[at-8:]))
			}
		}
	}
}

// AppendDigests appends the digests of all blocks of p to dst, one after the
// other, [Hasher.DigestSize] bytes each. Otherwise it is like AppendKeys.
func (h *Hasher) AppendDigests(dst []byte, p *Prompt) ([]byte, error) {
	c := chains.Get().(*Chain)
	defer recycle(c)
	c.eager = true
	if err := h.Start(c, p); err != nil {
		return dst, err
	}
	dst = slices.Grow(dst, h.Blocks(c.Len())*h.DigestSize())
	for {
		digests := c.steps()
		if digests == nil {
			return dst, nil
		}
		dst = append(dst, digests...)
	}
}

// AppendMessage appends the bytes that are hashed for one block of p, the
// first being 0, after the given parent digest; nil stands for the root. It
// shows what a hash is made of: hashing the message gives the block's digest.
// The error is a [PromptError], or wraps [ErrOptions] when p has no such block
// or parent is too long for a digest.
//
// Schemes other than vLLM's have no messages here.
func (h *Hasher) AppendMessage(dst []byte, p *Prompt, block int, parent []byte) ([]byte, error) {
	c := chains.Get().(*Chain)
	defer recycle(c)
	if err := h.Start(c, p); err != nil {
		return dst, err
	}
	if h.era.family != familyVLLM {
		return dst, optionError("messages are known of vLLM, not of %v", h.opt.Scheme)
	}
	switch n := h.Blocks(c.Len()); {
	case block < 0 || block >= n:
		return dst, optionError("block %d of a prompt with %d blocks", block, n)
	case len(parent) > len(c.digest):
		return dst, optionError("a parent digest of %d bytes: at most %d", len(parent), len(c.digest))
	}
	if parent != nil {
		c.size = copy(c.digest[:], parent)
	}
	return append(dst, c.message(block*h.opt.BlockSize)...), nil
}

func recycle(c *Chain) {
	c.eager = false
	c.release()
	chains.Put(c)
}
