package blockhash

import "encoding/binary"

// LMCache hashes chunks of 256 tokens (lmcache/v1/token_database.py), in a
// namespace of their own: fn((prefix, tokens, nothing)) chained from vLLM's
// NONE_HASH. To 0.3.15 prefix is the digest and nothing is None; from 0.4.7
// prefix is the first 8 bytes of the digest as an integer and nothing is ().
// Its multiprocess server (TokenHasher) keeps the digest and None, and knows
// BLAKE3 over raw ids. testdata/lmcache/README.md has the table.

func (c *Chain) stepLMCache() bool {
	size := c.h.opt.BlockSize
	start := c.done()
	end := min(start+size, c.Len())
	if c.h.opt.Algorithm == BLAKE3 && end-start == size && !c.fits(start, end) {
		return false
	}
	if c.partial { // the chunk was not whole when it was hashed
		if end == c.partialEnd {
			return false
		}
		c.partial = false
		c.size = copy(c.digest[:], c.scratch[:c.partialSize])
	}
	switch whole := end-start == size; {
	case whole:
		c.blocks++
	case start == end || !c.h.opt.PartialChunk:
		return false
	default:
		c.partial, c.partialEnd = true, end
		c.partialSize = copy(c.scratch[:], c.digest[:c.size])
	}
	c.hashChunk(start, end)
	return true
}

func (c *Chain) hashChunk(start, end int) {
	e, alg := &c.enc, c.h.opt.Algorithm
	if alg == BLAKE3 {
		b := append(e.buf[:0], c.digest[:c.size]...)
		for i := start; i < end; i++ {
			b = binary.BigEndian.AppendUint32(b, c.id(i))
		}
		e.buf = b
		c.digest = blake3(b)
		c.key = KeyOf(c.digest[:])
		return
	}
	e.begin()
	e.tuple(3)
	if c.h.era.folded {
		e.uint(binary.BigEndian.Uint64(c.digest[:8]))
	} else {
		e.bytes(c.digest[:c.size])
	}
	e.tuple(end - start)
	c.writeTokens(start, end)
	e.endTuple(end - start)
	if c.h.era.folded {
		e.tuple(0)
		e.endTuple(0)
	} else {
		e.none()
	}
	e.endTuple(3)
	c.sum(e.end())
	if c.h.era.folded {
		c.size = 8
		c.key = binary.BigEndian.Uint64(c.digest[:8])
	}
}

// rootLMCache is the root that LMCache takes from the vLLM beside it.
func (h *Hasher) rootLMCache() ([]byte, error) {
	if h.opt.Algorithm == BLAKE3 {
		root := blake3(make([]byte, 12))
		return root[:], nil
	}
	root, err := h.rootVLLM(h.opt.Beside.era().fixedRoot)
	if err == nil && h.era.folded {
		root = root[:8]
	}
	return root, err
}
