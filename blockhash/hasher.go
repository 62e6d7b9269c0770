package blockhash

import (
	"encoding/binary"
	"fmt"
)

// Options describe an engine's hashing. Scheme and BlockSize are required;
// everything else has a useful zero value.
type Options struct {
	// Scheme is the engine's era, from [SchemeFor].
	Scheme Scheme
	// Algorithm is the engine's prefix_caching_hash_algo. Default SHA256.
	Algorithm Algorithm
	// BlockSize is the number of tokens a hash covers: vLLM's hash block size
	// (the greatest common divisor of its cache groups' block sizes, times the
	// decode context parallel size).
	BlockSize int
	// Lookahead is the number of tokens past a block that its hash covers too
	// (vLLM 0.33 with a multi-token draft model). Default 0: none.
	Lookahead int
	// Seed says what the root is made of. Default: PYTHONHASHSEED unset. Only
	// vLLM and LMCache have one.
	Seed Seed
	// SharedObjects says that equal strings of one prompt are one Python
	// object, which pickle writes as a back reference. In a served engine they
	// are not, so the default is false; CBOR does not differ.
	SharedObjects bool
	// MemoBytes bounds a memory of digests of prompts seen before, so that the
	// next turn of a conversation hashes its new blocks only. Default 0: off.
	// A block of SHA-256 takes about 36 bytes, so 64 MiB remember 1.9 million
	// blocks. For vLLM's schemes only. See [Hasher.MemoStats].
	MemoBytes int64

	// EAGLE says that SGLang runs with EAGLE: its pages are of pairs of
	// neighbouring tokens.
	EAGLE bool
	// DynamoEvents says that SGLang publishes events in "format": "dynamo"
	// (from 0.5.22), which maps their values by extra key and salt.
	DynamoEvents bool
	// PartialChunk says that LMCache keeps a last chunk that is not full
	// (save_unfull_chunk).
	PartialChunk bool
	// Beside is the scheme of the vLLM that LMCache runs in. It decides
	// whether the root is known when the seed is unset, and is needed then.
	Beside Scheme
	// XXH3Seed is the seed of the schemes of Dynamo and Mooncake. For Dynamo 0
	// means [DynamoSeed].
	XXH3Seed uint64
}

// Hasher computes block hashes of one engine configuration. But for its memo
// it is immutable, and it is safe for concurrent use; use it by pointer, as [New]
// returns it. A nil or zero Hasher hashes nothing: its functions return errors
// that wrap [ErrOptions].
type Hasher struct {
	opt  Options
	era  *era
	root []byte // NONE_HASH: 16 or 32 bytes; other engines: 0, 8 or 32
	memo *memo  // nil when off

	seqSeed uint64
}

// New compiles options into a Hasher. Errors wrap [ErrScheme], [ErrAlgorithm],
// [ErrRoot] or [ErrOptions].
func New(opt Options) (*Hasher, error) {
	h := &Hasher{opt: opt, era: opt.Scheme.era()}
	if err := h.validate(); err != nil {
		return nil, err
	}
	root, err := h.makeRoot()
	if err != nil {
		return nil, err
	}
	h.root = root
	if opt.MemoBytes > 0 {
		h.memo = newMemo(opt.MemoBytes)
	}
	return h, nil
}

// maxBlockSize and maxLookahead keep sizes computed from options far from
// overflow. No engine comes near.
const (
	maxBlockSize = 1 << 24
	maxLookahead = 1 << 16
)

func (h *Hasher) validate() error {
	o, e := &h.opt, h.era
	switch {
	case o.Scheme.IsZero():
		return fmt.Errorf("%w: Options.Scheme is not set: use SchemeFor", ErrScheme)
	case e.family == familyOpaque:
		return fmt.Errorf("%w: hashes of %v are opaque: use Content keys", ErrScheme, o.Scheme)
	case o.Algorithm == BLAKE3 && e.family == familyServer:
	case o.Algorithm >= numAlgorithms:
		return fmt.Errorf("%w %v: valid are %s", ErrAlgorithm, o.Algorithm, quoteList(algorithmNames[:]))
	case o.Algorithm != SHA256 && (e.family == familySGLang || e.family == familySeq):
		return fmt.Errorf("%w %q: %v has no choice, leave it at the default", ErrAlgorithm, o.Algorithm, o.Scheme)
	case o.Algorithm.xxh() && !e.xxhash:
		return fmt.Errorf("%w %q: %v does not have it; valid are %s",
			ErrAlgorithm, o.Algorithm, o.Scheme, quoteList(algorithmNames[:2]))
	}
	if err := o.Seed.Validate(); err != nil {
		return err
	}
	switch {
	case o.BlockSize < 1 || o.BlockSize > maxBlockSize:
		return optionError("BlockSize is %d: want 1 to %d tokens", o.BlockSize, maxBlockSize)
	case o.Lookahead < 0 || o.Lookahead > maxLookahead:
		return optionError("Lookahead is %d: want 0 to %d tokens", o.Lookahead, maxLookahead)
	case o.MemoBytes < 0:
		return optionError("MemoBytes is %d: want 0 (off) or more", o.MemoBytes)
	case o.Lookahead > 0 && !e.lookahead:
		return optionError("Lookahead is %d: %v hashes no lookahead tokens, vLLM does from 0.33 on", o.Lookahead, o.Scheme)
	case o.MemoBytes > 0 && e.family != familyVLLM:
		return optionError("MemoBytes is for vLLM, not %v", o.Scheme)
	case o.EAGLE && e.family != familySGLang:
		return optionError("EAGLE is for SGLang, not %v", o.Scheme)
	case o.DynamoEvents && !e.dynamoEvents:
		return optionError("DynamoEvents is for SGLang from 0.5.22 on, not %v", o.Scheme)
	case o.PartialChunk && e.family != familyLMCache:
		return optionError("PartialChunk is for LMCache, not %v", o.Scheme)
	}
	return nil
}

// defaultSeed is what vLLM 0.29 on hashes when PYTHONHASHSEED is unset and the
// algorithm is cryptographic (DEFAULT_NONE_HASH_SEED).
const defaultSeed = "vllm-none-hash"

func (h *Hasher) makeRoot() ([]byte, error) {
	switch h.era.family {
	case familyVLLM:
		return h.rootVLLM(h.era.fixedRoot)
	case familyLMCache, familyServer:
		return h.rootLMCache()
	}
	h.seqSeed = h.opt.XXH3Seed
	if h.opt.Scheme.Engine() == "dynamo" && h.seqSeed == 0 {
		h.seqSeed = DynamoSeed
	}
	return nil, nil
}

// rootVLLM is vLLM's NONE_HASH; fixed says that an unset seed is a constant.
func (h *Hasher) rootVLLM(fixed bool) ([]byte, error) {
	seed, alg := h.opt.Seed, h.opt.Algorithm
	switch seed.kind {
	case seedRoot:
		return []byte(seed.data), nil
	case seedText:
		return h.hashSeed(seed.data)
	}
	if fixed && !alg.xxh() {
		return h.hashSeed(defaultSeed)
	}
	return nil, fmt.Errorf("%w: with PYTHONHASHSEED unset, %s of %v starts from random bytes (or from those of the "+
		"vLLM beside it, if Options.Beside is not set); set the variable on the engine and use SeedText, record the "+
		"root and use SeedRoot, or use Content keys", ErrRoot, alg, h.opt.Scheme)
}

// Scheme returns the scheme the Hasher was made for.
func (h *Hasher) Scheme() Scheme { return h.options().Scheme }

// Algorithm returns the algorithm the Hasher was made for.
func (h *Hasher) Algorithm() Algorithm { return h.options().Algorithm }

// BlockSize returns the number of tokens in a block.
func (h *Hasher) BlockSize() int { return h.options().BlockSize }

// Lookahead returns the number of tokens past a block that its hash covers.
func (h *Hasher) Lookahead() int { return h.options().Lookahead }

// options returns those of New, none for nil.
func (h *Hasher) options() *Options {
	if h == nil {
		return &Options{}
	}
	return &h.opt
}

// DigestSize returns the length in bytes of a block's digest: that of the
// algorithm, or 8 for schemes whose hashes are integers.
func (h *Hasher) DigestSize() int {
	if !h.made() {
		return 0
	}
	if e := h.era; e.folded || e.family == familySeq || e.family == familySGLang && e.sglang != sglangChain {
		return 8
	}
	return h.opt.Algorithm.Size()
}

// AppendRoot appends the root: the parent of a prompt's first block, NONE_HASH
// in vLLM.
func (h *Hasher) AppendRoot(dst []byte) []byte {
	if !h.made() {
		return dst
	}
	return append(dst, h.root...)
}

// Blocks returns how many hashes a prompt of so many tokens has: only full
// blocks whose lookahead tokens exist are hashed. (A last partial chunk of
// LMCache counts, and SGLang to 0.4.7 has one hash for all full pages.)
func (h *Hasher) Blocks(tokens int) int {
	if !h.made() {
		return 0
	}
	n := max(tokens-h.opt.Lookahead, 0)
	switch o := &h.opt; {
	case o.EAGLE:
		n = max(n-1, 0)
	case o.PartialChunk:
		n += o.BlockSize - 1
	}
	n /= h.opt.BlockSize
	if h.era.family == familySGLang && h.era.sglang == sglangNode {
		n = min(n, 1)
	}
	return n
}

// KeyOf returns the 64-bit form of a digest in which vLLM's events carry block
// hashes (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=1, the default): the last eight
// bytes, big-endian. Of a shorter digest it takes what there is.
func KeyOf(digest []byte) uint64 {
	if n := len(digest); n >= 8 {
		return binary.BigEndian.Uint64(digest[n-8:])
	}
	var key uint64
	for _, b := range digest {
		key = key<<8 | uint64(b)
	}
	return key
}
