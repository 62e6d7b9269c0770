package blockhash

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/stretchr/testify/require"
)

// TestEventDigestsGolden: from the events that the engine would have sent come
// its own hashes (vllm-project/vllm#33304), in one event or from the middle.
func TestEventDigestsGolden(t *testing.T) {
	for _, name := range golden.Files(t, "vllm/hash/*.jsonl") {
		readGolden(t, name, func(header *recording.HashFile, c *goldenCase) {
			p := c.prompt()
			for algorithm, want := range c.Results {
				h := c.hasher(t, header, algorithm)
				if p.WideTokens != nil || !h.era.eventKeys && c.ExtraKeys != nil {
					continue // not in events
				}
				n := len(want.Hashes)
				what := header.Version + " " + c.Name + " " + algorithm
				got, err := h.AppendEventDigests(nil, nil, c.span(t, p, 0, n))
				require.NoError(t, err, what)
				require.Equal(t, strings.Join(want.Hashes, ""), hex.EncodeToString(got), what)
				if n > 2 {
					parent, err := hex.DecodeString(want.Hashes[1])
					require.NoError(t, err)
					got, err = h.AppendEventDigests(nil, parent, c.span(t, p, 2, n))
					require.NoError(t, err, what)
					require.Equal(t, strings.Join(want.Hashes[2:], ""), hex.EncodeToString(got), what)
				}
			}
		})
	}
}

func TestEventDigestsRefuse(t *testing.T) {
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 2, Seed: SeedText("0")})
	tokens := seq(1, 4)
	_, err := h.AppendEventDigests(nil, nil, nil)
	require.ErrorIs(t, err, ErrOptions)
	_, err = h.AppendEventDigests(nil, make([]byte, 8), &Span{Tokens: tokens})
	require.ErrorIs(t, err, ErrOptions)
	_, err = h.AppendEventDigests(nil, nil, &Span{Tokens: tokens, Extras: make([][]Extra, 1)})
	require.ErrorIs(t, err, ErrOptions)
	_, err = h.AppendEventDigests(nil, nil, &Span{Tokens: tokens, LoRA: true})
	require.ErrorIs(t, err, ErrOpaque)
	extras := [][]Extra{{{Kind: ExtraText, Text: []byte("a")}}, {{Kind: ExtraText, Text: []byte("a")}}}
	_, err = h.AppendEventDigests(nil, nil, &Span{Tokens: tokens, LoRA: true, Extras: extras})
	require.ErrorIs(t, err, ErrOpaque, "no path")
	_, err = h.AppendEventDigests(nil, nil, &Span{Tokens: tokens, LoRA: true, LoRAPath: "p", Extras: extras})
	require.NoError(t, err)
	sglang, err := SchemeFor("sglang", "0.5.20")
	require.NoError(t, err)
	_, err = mustNew(t, Options{Scheme: sglang, BlockSize: 2}).AppendEventDigests(nil, nil, &Span{Tokens: tokens})
	require.ErrorIs(t, err, ErrOpaque)
}
