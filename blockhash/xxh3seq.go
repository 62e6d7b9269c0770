package blockhash

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// stepSeq hashes as Mooncake's RFC 1527 and Dynamo do: local = XXH3-64 of the
// block's ids as u32 little-endian, key_0 = local_0, key_i = XXH3-64 of
// key_(i-1) and local_i, both little-endian; all with one seed, but that Dynamo
// adds hashes of adapter and salt to the seed of tokens (compute_salt_hash of
// its crate dynamo-kv-hashing 1.6.1).
func (c *Chain) stepSeq() bool {
	start := c.done()
	end := start + c.h.opt.BlockSize
	if end > c.Len() || !c.fits(start, end) {
		return false
	}
	b := (*contentBuffer)(&c.enc.buf)
	*b = (*b)[:0]
	if c.isWide {
		for i := start; i < end; i++ {
			*b = binary.LittleEndian.AppendUint32(*b, c.id(i))
		}
	} else {
		b.tokens(c.narrow.at(start, end))
	}
	local := xxh3.HashSeed(*b, c.localSeed)
	if c.blocks == 0 {
		c.key = local
	} else {
		c.key = seqNext(c.key, local, c.h.seqSeed)
	}
	c.blocks++
	c.size = 8
	binary.BigEndian.PutUint64(c.digest[:], c.key)
	return true
}

// startSeq sets the seed of tokens.
func (c *Chain) startSeq() {
	c.localSeed = c.h.seqSeed
	if p := &c.prompt; c.h.era.seqNamespace {
		lora := ""
		if p.LoRA != nil {
			lora = p.LoRA.Name
		}
		c.localSeed = c.h.namespaced(lora, p.CacheSalt)
	}
}

// checkSeq refuses adapters and salts where what they do is not known.
func (h *Hasher) checkSeq(p *Prompt) error {
	switch {
	case h.era.seqNamespace:
	case p.LoRA != nil:
		return promptError("LoRA", -1, "%v has no known rule for adapters", h.opt.Scheme)
	case p.CacheSalt != "":
		return promptError("CacheSalt", -1, "%v has no known rule for salts", h.opt.Scheme)
	}
	return h.checkPlain(p)
}

// DynamoSeed is the seed of Dynamo's block hashes.
const DynamoSeed = 1337
