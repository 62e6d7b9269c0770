package blockhash

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
)

// AppendEventKeys appends the keys of the blocks of a span, as the schemes of
// Dynamo and Mooncake have them: equal to those of [Hasher.AppendKeys] for the
// prompt that the engine stored, whatever the engine's own hashes are. It is for
// publishers whose events carry token ids, or a hash of each block's tokens
// ([Span.TokenHashes]), beside hashes that cannot be computed here. Parent is the
// key of the block before, [ContentRoot] for none.
//
// The error wraps [ErrOptions] for a Hasher of another scheme, and [ErrOpaque] when
// the event does not tell enough: extra keys, or an adapter or a salt where the
// scheme has no rule for them. dst is then returned as it was.
func (h *Hasher) AppendEventKeys(dst []uint64, s *Span) ([]uint64, error) {
	switch {
	case !h.made():
		return dst, errHasher
	case s == nil:
		return dst, optionError("the span is nil")
	case h.era.family != familySeq:
		return dst, optionError("the keys of %v cannot be made from events: use Content", h.opt.Scheme)
	}
	locals := s.TokenHashes
	seed, err := h.spanSeed(s)
	if err != nil && locals == nil {
		return dst, err
	}
	blocks := len(locals)
	if locals == nil {
		blocks = len(s.Tokens) / h.opt.BlockSize
	}
	dst = slices.Grow(dst, blocks)
	key := s.Parent
	var b contentBuffer
	for i := range blocks {
		var local uint64
		if locals != nil {
			local = locals[i]
		} else {
			b = b[:0]
			b.tokens(s.Tokens[i*h.opt.BlockSize : (i+1)*h.opt.BlockSize])
			local = xxh3.HashSeed(b, seed)
		}
		if key == ContentRoot {
			key = local
		} else {
			key = seqNext(key, local, h.seqSeed)
		}
		dst = append(dst, key)
	}
	return dst, nil
}

// spanSeed is the seed of a span's tokens.
func (h *Hasher) spanSeed(s *Span) (uint64, error) {
	for i, extras := range s.Extras {
		if len(extras) > 0 {
			return 0, fmt.Errorf("%w: %v has no rule for the extra keys of block %d", ErrOpaque, h.opt.Scheme, i)
		}
	}
	name, salt := string(s.LoRAName), string(s.CacheSalt)
	if (s.LoRA || name != "" || salt != "") && !h.era.seqNamespace || s.LoRA && name == "" {
		return 0, fmt.Errorf("%w: %v has no known rule for this adapter or salt", ErrOpaque, h.opt.Scheme)
	}
	return h.namespaced(name, salt), nil
}

// namespaced is the seed of tokens under an adapter and a salt.
func (h *Hasher) namespaced(lora, salt string) uint64 {
	seed := h.seqSeed
	if lora != "" {
		seed += xxh3.HashStringSeed(lora, 0)
	}
	if salt != "" {
		seed += xxh3.HashStringSeed(salt, 1)
	}
	return seed
}

// seqNext is the key of a block after another.
func seqNext(parent, local, seed uint64) uint64 {
	var pair [16]byte
	binary.LittleEndian.PutUint64(pair[:], parent)
	binary.LittleEndian.PutUint64(pair[8:], local)
	return xxh3.HashSeed(pair[:], seed)
}
