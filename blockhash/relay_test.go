package blockhash

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

// TestEventKeysEqualThoseOfPrompts: from tokens or from their hashes, in spans cut
// anywhere, an event's keys are those that the prompt has.
func TestEventKeysEqualThoseOfPrompts(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		engine, release := "mooncake", "0.3.0"
		p := Prompt{}
		span := Span{}
		if seed%2 == 0 {
			engine, release = "dynamo", "1.6.1"
			if r.IntN(2) == 0 {
				p.LoRA = &LoRA{Name: "adapter"}
				span.LoRA, span.LoRAName = true, []byte("adapter")
			}
			if r.IntN(2) == 0 {
				p.CacheSalt, span.CacheSalt = "tenant", []byte("tenant")
			}
		}
		scheme, err := SchemeFor(engine, release)
		require.NoError(t, err)
		require.True(t, scheme.FromDocuments())
		require.Equal(t, engine == "dynamo", scheme.Namespaces())
		size := 1 + r.IntN(5)
		h := mustNew(t, Options{Scheme: scheme, BlockSize: size, XXH3Seed: 1337})
		for range size * 10 {
			p.Tokens = append(p.Tokens, r.Uint32())
		}
		want := keysOf(t, h, &p)
		local := h.seqSeed
		if p.LoRA != nil {
			local += xxh3.HashStringSeed("adapter", 0)
		}
		if p.CacheSalt != "" {
			local += xxh3.HashStringSeed("tenant", 1)
		}
		var got []uint64
		for from := 0; from < 10; {
			to := from + 1 + r.IntN(10-from)
			s := span
			if from > 0 {
				s.Parent = got[from-1]
			}
			if tokens := p.Tokens[from*size : to*size]; r.IntN(2) == 0 {
				s.Tokens = tokens
			} else {
				for ; len(tokens) > 0; tokens = tokens[size:] {
					var b []byte
					for _, id := range tokens[:size] {
						b = binary.LittleEndian.AppendUint32(b, id)
					}
					s.TokenHashes = append(s.TokenHashes, xxh3.HashSeed(b, local))
				}
			}
			got, err = h.AppendEventKeys(got, &s)
			require.NoError(t, err)
			from = to
		}
		require.Equal(t, want, got, "seed %d", seed)
	}
}

func TestEventKeysRefuse(t *testing.T) {
	old, err := SchemeFor("dynamo", "1.0.0")
	require.NoError(t, err)
	h := mustNew(t, Options{Scheme: old, BlockSize: 2})
	for name, s := range map[string]Span{
		"adapter without a rule": {Tokens: []uint32{1, 2}, LoRA: true, LoRAName: []byte("a")},
		"salt without a rule":    {Tokens: []uint32{1, 2}, CacheSalt: []byte("s")},
		"extra keys":             {Tokens: []uint32{1, 2}, Extras: [][]Extra{{{Kind: ExtraText}}}},
	} {
		got, err := h.AppendEventKeys([]uint64{7}, &s)
		require.ErrorIs(t, err, ErrOpaque, name)
		require.Equal(t, []uint64{7}, got)
	}
	_, err = h.AppendEventKeys(nil, nil)
	require.ErrorIs(t, err, ErrOptions)
	vllm, err := SchemeFor("vllm", "0.32.0")
	require.NoError(t, err)
	require.False(t, vllm.FromDocuments())
	_, err = mustNew(t, Options{Scheme: vllm, BlockSize: 2, Seed: SeedText("0")}).AppendEventKeys(nil, &Span{})
	require.ErrorIs(t, err, ErrOptions)
}
