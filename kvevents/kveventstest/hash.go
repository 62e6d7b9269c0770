package kveventstest

import (
	"fmt"
	"slices"

	"github.com/kvatlas/kvatlas/blockhash"
)

// HashAs returns an [Options.Hash] that hashes plain prompts as an engine does, so
// that predictions can be compared with what [Engine.Serve] returns. BlockSize must be the
// engine's. One function may serve engines that are used one after the other
// only: it remembers every prompt that it hashed, and each block costs a hash of the
// prompt up to there. A prompt that the scheme refuses panics.
func HashAs(o blockhash.Options) (func(parent uint64, chained bool, tokens []uint32) uint64, error) {
	h, err := blockhash.New(o)
	if err != nil {
		return nil, err
	}
	whole := map[uint64][]uint32{} // by hash, the prompt up to there
	return func(parent uint64, chained bool, tokens []uint32) uint64 {
		var prompt []uint32
		if chained {
			prompt = whole[parent]
		}
		prompt = append(slices.Clone(prompt), tokens...)
		keys, err := h.AppendKeys(nil, &blockhash.Prompt{Tokens: prompt})
		if err != nil || len(keys) == 0 {
			panic(fmt.Sprintf("kveventstest: %d tokens have %d hashes of %v: %v", len(prompt), len(keys), h.Scheme(), err))
		}
		key := keys[len(keys)-1]
		whole[key] = prompt
		return key
	}, nil
}
