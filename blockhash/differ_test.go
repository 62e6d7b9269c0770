package blockhash

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFeatures(t *testing.T) {
	for text, p := range map[string]Prompt{
		"none":            {Tokens: []uint32{1}},
		"LoRA":            {LoRA: &LoRA{Name: "a"}, ExtraKey: "the adapter's own"},
		"items":           {Items: []Item{{}}},
		"embeds":          {Embeds: &Embeds{}},
		"salt, extra key": {CacheSalt: "s", ExtraKey: "k"},
	} {
		require.Equal(t, text, p.Features().String())
	}
	require.Equal(t, "LoRA, items, salt, embeds, extra key", allFeatures.String())
	require.Equal(t, "none", (*Prompt)(nil).Features().String())
}
