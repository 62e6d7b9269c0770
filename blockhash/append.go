package blockhash

import (
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
	if err := h.Start(c, p); err != nil {
		return dst, err
	}
	dst = slices.Grow(dst, h.Blocks(c.Len()))
	for c.step() {
		dst = append(dst, KeyOf(c.digest[:c.size]))
	}
	return dst, nil
}

// AppendDigests appends the digests of all blocks of p to dst, one after the
// other, [Hasher.DigestSize] bytes each. Otherwise it is like AppendKeys.
func (h *Hasher) AppendDigests(dst []byte, p *Prompt) ([]byte, error) {
	c := chains.Get().(*Chain)
	defer recycle(c)
	if err := h.Start(c, p); err != nil {
		return dst, err
	}
	dst = slices.Grow(dst, h.Blocks(c.Len())*h.DigestSize())
	for c.step() {
		dst = append(dst, c.digest[:c.size]...)
	}
	return dst, nil
}

func recycle(c *Chain) {
	c.release()
	chains.Put(c)
}
