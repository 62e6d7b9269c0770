package blockhash

// family is what the eras of one engine have in common: the shape of a hash.
type family uint8

const (
	familyVLLM    family = iota // fn((parent, tokens, extra))
	familySGLang                // SHA-256 of raw ids, or CPython's hash of a tuple
	familyLMCache               // fn((parent, tokens, nothing)) over chunks
	familyServer                // the same of LMCache's server, with BLAKE3 too
	familySeq                   // XXH3-64 of tokens, then of pairs of hashes
	familyOpaque                // cannot be computed: content keys only
)

// step hashes the next block, if there is one, into digest and key.
func (c *Chain) step() bool {
	switch c.h.era.family {
	case familyVLLM:
		return c.stepVLLM()
	case familySGLang:
		return c.stepSGLang()
	case familyLMCache, familyServer:
		return c.stepLMCache()
	}
	return c.stepSeq()
}
