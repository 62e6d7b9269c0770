package blockhash

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/stretchr/testify/require"
)

// TestSGLangGolden: hashes computed by SGLang itself (testdata/sglang).
func TestSGLangGolden(t *testing.T) {
	for _, name := range golden.Files(t, "sglang/hash/*.jsonl") {
		lines := bufio.NewScanner(bytes.NewReader(golden.Read(t, name)))
		lines.Buffer(nil, 16<<20)
		var header struct{ Version string }
		require.True(t, lines.Scan())
		require.NoError(t, json.Unmarshal(lines.Bytes(), &header))
		scheme, err := SchemeFor("sglang", header.Version)
		require.NoError(t, err)
		require.False(t, scheme.Assumed())
		cases := 0
		for lines.Scan() {
			var c struct {
				Name     string
				PageSize int `json:"page_size"`
				Eagle    bool
				Mode     string
				Tokens   []uint32
				ExtraKey string `json:"extra_key"`
				Salt     string `json:"cache_salt"`
				LoRA     string `json:"lora_name"`
				Digests  []string
				Events   []string
			}
			require.NoError(t, json.Unmarshal(lines.Bytes(), &c))
			what := header.Version + " " + c.Name
			h := mustNew(t, Options{Scheme: scheme, BlockSize: c.PageSize, EAGLE: c.Eagle, DynamoEvents: c.Mode == "dynamo"})
			p := &Prompt{Tokens: c.Tokens, CacheSalt: c.Salt, ExtraKey: c.ExtraKey}
			if c.LoRA != "" {
				p.LoRA = &LoRA{Name: c.LoRA}
			}
			keys := make([]uint64, len(c.Events))
			for i, e := range c.Events {
				v, err := strconv.ParseInt(e, 10, 64)
				require.NoError(t, err)
				keys[i] = uint64(v)
			}
			require.Equal(t, len(keys), h.Blocks(p.Len()), what)
			got, err := h.AppendKeys([]uint64{1}, p)
			require.NoError(t, err, what)
			require.Equal(t, keys, got[1:], what)
			if c.Digests != nil {
				require.Equal(t, nonNilText(c.Digests), nonNilText(hashes(t, h, p)), what)
			}
			wide := *p
			wide.Tokens, wide.WideTokens = nil, nil
			for _, id := range c.Tokens {
				wide.WideTokens = append(wide.WideTokens, int64(id))
			}
			got, err = h.AppendKeys(nil, &wide)
			require.NoError(t, err, what)
			require.Equal(t, keys, nonNil(got), what)

			// Lazily: a prefix, then the rest. (A node's hash is of all its
			// tokens, so it has no prefix.)
			for cut := 0; cut <= len(c.Tokens) && scheme.era().sglang != sglangNode; cut += 1 + len(c.Tokens)/9 {
				var chain Chain
				require.NoError(t, h.Start(&chain, p.slice(0, cut)))
				rest, digests := []uint64{}, ""
				for range 2 {
					for key, ok := chain.Next(); ok; key, ok = chain.Next() {
						rest = append(rest, key)
						digests += hex.EncodeToString(chain.Digest())
					}
					chain.Extend(c.Tokens[cut:])
					cut = min(cut, len(c.Tokens))
					if chain.Len() > len(c.Tokens) {
						break
					}
				}
				require.Equal(t, keys, rest[:len(keys)], "%s cut %d", what, cut)
			}
			cases++
		}
		require.NotZero(t, cases)
	}
}

func nonNilText(s []string) []string { return append([]string{}, s...) }

// Mooncake's sglang_map_event_vectors.json (published), and the ids 1 to 48.
func TestSGLangPublished(t *testing.T) {
	scheme, err := SchemeFor("sglang", "0.5.6")
	require.NoError(t, err)
	h := mustNew(t, Options{Scheme: scheme, BlockSize: 4})
	p := &Prompt{Tokens: []uint32{11, 12, 13, 14, 21, 22, 23, 24, 31, 32, 33, 34, 41, 42, 43, 44}}
	require.Equal(t, []string{
		"f67c5ff154ee4961a5f9223699a9f82f6e06cb3c064efbf28119e8a43639ed97",
		"e1c873d83402d824bf984a0e6d5b96bebbdf10e892a0f03a513ff951bea19a2c",
		"71749b3c9f3e04bfcbb2c0091c6e0b6c24b1748ab8210b4a9bcf87700a59d6af",
		"921bc52e4f7533bb365da1b69305fc47545a323b22dea240192afb7b076fdfae",
	}, hashes(t, h, p))
	signed := func(h *Hasher, p *Prompt) (list []int64) {
		for _, key := range keysOf(t, h, p) {
			list = append(list, int64(key))
		}
		return list
	}
	require.Equal(t, []int64{-685567553150498463, -2177363047410903004, 8175329908256277695, -7918518717108636741}, signed(h, p))
	h = mustNew(t, Options{Scheme: scheme, BlockSize: 16})
	require.Equal(t, []int64{8635429971592222890, 1256577331724852459, 5689809685380680247}, signed(h, &Prompt{Tokens: seq(1, 48)}))
	h = mustNew(t, Options{Scheme: scheme, BlockSize: 1})
	require.Equal(t, []int64{-2360060374177730597}, signed(h, &Prompt{Tokens: []uint32{0}}))
}

func TestSGLangRefuses(t *testing.T) {
	scheme, err := SchemeFor("sglang", "0.5.23")
	require.NoError(t, err)
	old, err := SchemeFor("sglang", "0.5.18")
	require.NoError(t, err)
	_, err = SchemeFor("sglang", "0.4.5")
	require.ErrorIs(t, err, ErrScheme)
	for _, opt := range []Options{
		{Scheme: scheme, BlockSize: 4, MemoBytes: 1}, {Scheme: scheme, BlockSize: 4, Lookahead: 1},
		{Scheme: scheme, BlockSize: 4, PartialChunk: true}, {Scheme: old, BlockSize: 4, DynamoEvents: true},
		{Scheme: mustScheme(t, "0.31.0"), Seed: SeedText("0"), BlockSize: 4, EAGLE: true},
	} {
		_, err = New(opt)
		require.ErrorIs(t, err, ErrOptions)
	}
	_, err = New(Options{Scheme: scheme, BlockSize: 4, Algorithm: XXHash})
	require.ErrorIs(t, err, ErrAlgorithm)
	h := mustNew(t, Options{Scheme: scheme, BlockSize: 2})
	for _, p := range []*Prompt{
		{WideTokens: []int64{1, -1}}, {WideTokens: []int64{1 << 32, 1}}, {ExtraKey: "\xff"}, {LoRA: &LoRA{Name: "a"}},
	} {
		_, err = h.AppendKeys(nil, p)
		require.ErrorIs(t, err, ErrPrompt)
	}
	var c Chain
	require.NoError(t, h.Start(&c, &Prompt{Tokens: []uint32{1, 2, 3}}))
	c.ExtendWide([]int64{-1, 5})
	_, ok := c.Next()
	require.True(t, ok)
	_, ok = c.Next()
	require.False(t, ok, "the chain ends rather than hash an id that does not fit")
}
