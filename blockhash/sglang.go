package blockhash

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
)

// SGLang, by release (sglang/srt/mem_cache/radix_cache.py and, later, its
// native hash): testdata/sglang/README.md has the table.

type sglangRule uint8

const (
	sglangNode  sglangRule = iota // hash(tuple(node)): one hash for all whole pages
	sglangPage                    // hash(tuple(page)), not chained
	sglangChain                   // SHA-256(parent digest, ids)
)

// checkSGLang refuses what the release's hashes cannot express.
func (h *Hasher) checkSGLang(p *Prompt) error {
	if err := h.checkPlain(p); err != nil {
		return err
	}
	if err := checkText("ExtraKey", -1, "key", p.ExtraKey); err != nil {
		return err
	}
	if p.LoRA != nil && p.ExtraKey == "" && (h.era.namespaceLoRA || h.opt.DynamoEvents) {
		return promptError("ExtraKey", -1, "the prompt has an adapter, whose hashes depend on the extra key the server "+
			"made (it ends in a random id): pass that, or key the prompt by content")
	}
	return nil
}

// startSGLang sets what the chain starts from.
func (c *Chain) startSGLang() {
	p, era := &c.prompt, c.h.era
	c.size = 0
	if era.saltSeeds && p.CacheSalt != "" {
		c.scratchText = append(append(c.scratchText[:0], "sglang-cache-salt-v1\x00"...), p.CacheSalt...)
		c.digest = sha256.Sum256(c.scratchText)
		c.size = sha256.Size
	}
	c.mapped = false
	switch {
	case c.h.opt.DynamoEvents:
		c.namespace(p.ExtraKey, p.CacheSalt)
	case era.namespaceLoRA && p.LoRA != nil:
		c.namespace(p.ExtraKey, "")
	}
}

// namespace sets the seed that event values are mapped with; empty texts are
// absent, and without any there is no mapping.
func (c *Chain) namespace(extraKey, salt string) {
	if extraKey == "" && salt == "" {
		return
	}
	b := append(c.scratchText[:0], "sglang-kv-event-namespace-v1"...)
	for _, part := range [...]string{extraKey, salt} {
		if part == "" {
			b = append(b, 0)
			continue
		}
		b = append(b, 1)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	c.scratchText = b
	c.mapped, c.scratch = true, sha256.Sum256(b)
}

func (c *Chain) stepSGLang() bool {
	page := c.h.opt.BlockSize
	start := c.done()
	pages := max(c.Len()-c.eagle()-start, 0) / page
	if pages == 0 {
		return false
	}
	if c.h.era.sglang != sglangNode {
		pages = 1
	}
	end := start + pages*page
	if !c.fits(start, end+c.eagle()) {
		return false
	}
	c.blocks += pages
	if c.h.era.sglang != sglangChain {
		c.key = c.tupleHash(start, end)
		c.size = 8
		binary.BigEndian.PutUint64(c.digest[:], c.key)
		return true
	}
	b := append(c.enc.buf[:0], c.digest[:c.size]...)
	if c.eagle() == 1 {
		for i := start; i < end; i++ {
			b = binary.LittleEndian.AppendUint32(b, c.id(i))
			b = binary.LittleEndian.AppendUint32(b, c.id(i+1))
		}
	} else if c.isWide {
		for i := start; i < end; i++ {
			b = binary.LittleEndian.AppendUint32(b, c.id(i))
		}
	} else {
		(*contentBuffer)(&b).tokens(c.narrow.at(start, end))
	}
	b = slices.Grow(b, shaRoom)
	c.enc.buf = b
	sumSHA256(&c.digest, b)
	c.size = sha256.Size
	c.key = binary.BigEndian.Uint64(c.digest[:])
	if c.mapped {
		var seeded [sha256.Size + 8]byte
		copy(seeded[:], c.scratch[:])
		binary.BigEndian.PutUint64(seeded[sha256.Size:], c.key)
		sum := sha256.Sum256(seeded[:])
		c.key = binary.BigEndian.Uint64(sum[:])
	}
	return true
}

// eagle is how many tokens a page reaches beyond itself: one when keys are
// pairs of neighbours.
func (c *Chain) eagle() int {
	if c.h.opt.EAGLE {
		return 1
	}
	return 0
}

// fits reports whether ids can be hashed as u32, and ends the chain if not.
// What Start saw does; what ExtendWide brought may not.
func (c *Chain) fits(start, end int) bool {
	if c.isWide && checkUint32(c.wide.at(start, end)) != nil {
		c.h = nil
		return false
	}
	return true
}

// id returns one token id that is known to fit.
func (c *Chain) id(i int) uint32 {
	if c.isWide {
		return uint32(c.wide.ids[i-c.wide.base])
	}
	return c.narrow.ids[i-c.narrow.base]
}

// tupleHash is CPython's hash of a tuple of ids, or of pairs (Objects/
// tupleobject.c from 3.8 on: xxHash's rounds with other constants).
func (c *Chain) tupleHash(start, end int) uint64 {
	t := tupleHasher{acc: tuplePrime5}
	for i := start; i < end; i++ {
		if c.eagle() == 0 {
			t.add(uint64(c.id(i)))
			continue
		}
		pair := tupleHasher{acc: tuplePrime5}
		pair.add(uint64(c.id(i)))
		pair.add(uint64(c.id(i + 1)))
		t.add(pair.sum(2))
	}
	return t.sum(end - start)
}

type tupleHasher struct{ acc uint64 }

const (
	tuplePrime1 = 11400714785074694791
	tuplePrime2 = 14029467366897019727
	tuplePrime5 = 2870177450012600261
)

// add takes the hash of an item; that of an int below 2^61-1 is the int.
func (t *tupleHasher) add(lane uint64) {
	t.acc += lane * tuplePrime2
	t.acc = bits.RotateLeft64(t.acc, 31) * tuplePrime1
}

func (t *tupleHasher) sum(n int) uint64 {
	acc := t.acc + (uint64(n) ^ (tuplePrime5 ^ 3527539))
	if acc == 1<<64-1 {
		return 1546275796
	}
	return acc
}
