// Package recorded turns what was recorded of an engine's requests into prompts.
package recorded

import (
	"math"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/recording"
)

// Prompt is that of a case of a file of block hashes.
func Prompt(c *recording.HashCase) *blockhash.Prompt {
	p := &blockhash.Prompt{CacheSalt: c.CacheSalt, Items: Items(c.Items)}
	p.Tokens, p.WideTokens = Tokens(c.Tokens)
	if c.LoRA != nil {
		p.LoRA = &blockhash.LoRA{Name: c.LoRA.Name, ID: c.LoRA.ID, Path: c.LoRA.Path}
	}
	if c.Embeds != nil {
		p.Embeds = &blockhash.Embeds{Data: c.Embeds, BytesPerToken: c.EmbedsPerTok}
	}
	return p
}

// Tokens returns the ids in the narrow form, or in the wide one when one of
// them needs it.
func Tokens(ids []int64) ([]uint32, []int64) {
	narrow := make([]uint32, len(ids))
	for i, id := range ids {
		if id < 0 || id > math.MaxUint32 {
			return nil, ids
		}
		narrow[i] = uint32(id)
	}
	return narrow, nil
}

// Items turns recorded multimodal items into those of a prompt.
func Items(items []recording.Item) []blockhash.Item {
	var out []blockhash.Item
	for _, it := range items {
		out = append(out, blockhash.Item{Identifier: it.Identifier, Offset: it.Offset, Length: it.Length})
	}
	return out
}
