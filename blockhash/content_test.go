package blockhash

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/stretchr/testify/require"
)

// TestContentGolden builds the events that the engine would have sent for each
// vector, from the extra keys that it recorded, and holds the content keys of
// events against those of the prompt.
func TestContentGolden(t *testing.T) {
	for _, name := range golden.Files(t, "vllm/hash/*.jsonl") {
		seen := map[uint64]string{} // content key -> digest
		readGolden(t, name, func(header *recording.HashFile, c *goldenCase) {
			scheme, err := SchemeFor(header.Engine, header.Version)
			require.NoError(t, err)
			content, err := NewContent(ContentOptions{Scheme: scheme, BlockSize: c.BlockSize, Lookahead: c.Lookahead, LoRAPath: true, Seed: 3})
			require.NoError(t, err)
			what := header.Version + " " + c.Name
			p := c.prompt()
			keys, err := content.AppendKeys(nil, p)
			switch {
			case p.WideTokens != nil:
				return // above 2^32-1, or negative
			case !scheme.EventExtraKeys() && (p.LoRA != nil || p.Items != nil || p.CacheSalt != "" || p.Embeds != nil):
				require.ErrorIs(t, err, ErrOpaque, what)
				return
			}
			require.NoError(t, err, what)
			require.Len(t, keys, len(c.Results["sha256"].Hashes), what)

			got, err := content.AppendEventKeys(nil, c.span(t, p, 0, len(keys)))
			require.NoError(t, err, what)
			require.Equal(t, nonNil(keys), nonNil(got), what)
			for i := 0; i+1 < len(keys); i += 1 + len(keys)/7 { // as two events
				s := c.span(t, p, i+1, len(keys))
				s.Parent = keys[i]
				got, err := content.AppendEventKeys(nil, s)
				require.NoError(t, err, what)
				require.Equal(t, keys[i+1:], got, what)
			}

			// Lazily, and extended.
			var chain ContentChain
			for _, cut := range cuts(p.Len(), c.BlockSize) {
				require.NoError(t, content.Start(&chain, p.slice(0, cut)))
				got := drain(&chain, nil)
				chain.Extend(p.Tokens[cut:])
				require.Equal(t, nonNil(keys), nonNil(drain(&chain, got)), what)
				require.Equal(t, len(keys), chain.Blocks())
			}

			// Equal keys only where the engine's hashes are equal.
			for i, key := range keys {
				digest := c.Results["sha256_cbor"].Hashes[i]
				if old, ok := seen[key]; ok {
					require.Equal(t, old, digest, what)
				}
				seen[key] = digest
			}
		})
	}
}

func nonNil(keys []uint64) []uint64 { return append([]uint64{}, keys...) }

func drain(c *ContentChain, keys []uint64) []uint64 {
	for {
		key, ok := c.Next()
		if !ok {
			return keys
		}
		keys = append(keys, key)
	}
}

// span is the event of the case's blocks from and to.
func (c *goldenCase) span(t *testing.T, p *Prompt, from, to int) *Span {
	s := &Span{Tokens: p.Tokens[from*c.BlockSize : to*c.BlockSize], LoRA: p.LoRA != nil}
	if s.LoRA {
		s.LoRAPath = p.LoRA.Path
	}
	for i := from; i < to && c.ExtraKeys != nil; i++ {
		s.Extras = append(s.Extras, untagged(t, c.ExtraKeys[i], p))
	}
	for i := from; i < to && c.Lookahead > 0; i++ {
		end := (i + 1) * c.BlockSize
		s.Lookahead = append(s.Lookahead, p.Tokens[end:end+c.Lookahead])
	}
	return s
}

// untagged gives recorded extra keys the form of events.
func untagged(t *testing.T, keys []any, p *Prompt) (extras []Extra) {
	for _, key := range keys {
		if l, ok := key.([]any); ok {
			switch l[0] {
			case tagLoRA, tagSalt, tagEmbeds:
				key = l[1]
			case tagItem:
				key = l[1:]
			}
		}
		switch key := key.(type) {
		case string:
			extras = append(extras, Extra{Kind: ExtraText, Text: []byte(key)})
		case []any:
			extras = append(extras, Extra{Kind: ExtraItem, Text: []byte(key[0].(string)), Offset: int64(key[1].(float64))})
		case map[string]any:
			if digits, ok := key["bytes_hex"].(string); ok {
				b, err := hex.DecodeString(digits)
				require.NoError(t, err)
				extras = append(extras, Extra{Kind: ExtraBytes, Text: b})
			} else { // a text too long for the file: the salt
				extras = append(extras, Extra{Kind: ExtraText, Text: []byte(p.CacheSalt)})
			}
		default:
			t.Fatalf("%T", key)
		}
	}
	return extras
}

// TestContentNamespaces: two tenants never share a key, nor do parts of a
// block that were cut differently.
func TestContentNamespaces(t *testing.T) {
	seen := map[uint64]string{}
	for _, path := range []bool{false, true} {
		c, err := NewContent(ContentOptions{Scheme: mustScheme(t, "0.31.0"), BlockSize: 4, LoRAPath: path, Seed: 1 + uint64(len(seen))})
		require.NoError(t, err)
		for name, p := range map[string]*Prompt{
			"plain":            {},
			"salt a":           {CacheSalt: "a"},
			"salt b":           {CacheSalt: "b"},
			"salt aa":          {CacheSalt: "aa"},
			"adapter a, a":     {LoRA: &LoRA{Name: "a"}, CacheSalt: "a"},
			"adapter aa":       {LoRA: &LoRA{Name: "aa"}},
			"item a":           {Items: []Item{{"a", 0, 8}}},
			"item b":           {Items: []Item{{"b", 0, 8}}},
			"item a later":     {Items: []Item{{"a", 1, 8}}},
			"item a, salted a": {Items: []Item{{"a", 0, 8}}, CacheSalt: "a"},
			"embeddings":       {Embeds: &Embeds{make([]byte, 8), 1}},
			"other embeddings": {Embeds: &Embeds{make([]byte, 16), 2}},
		} {
			p.Tokens = seq(1, 8)
			keys, err := c.AppendKeys(nil, p)
			require.NoError(t, err)
			for i, key := range keys {
				require.Empty(t, seen[key], "%s, block %d", name, i)
				seen[key] = fmt.Sprintf("%s %d", name, i)
			}
		}
	}
	one, _ := NewContent(ContentOptions{Scheme: mustScheme(t, "0.31.0"), BlockSize: 4, LoRAPath: true})
	p, err := one.AppendKeys(nil, &Prompt{Tokens: seq(1, 4), LoRA: &LoRA{Name: "a", Path: "p"}})
	require.NoError(t, err)
	q, err := one.AppendKeys(nil, &Prompt{Tokens: seq(1, 4), LoRA: &LoRA{Name: "a", Path: "q"}})
	require.NoError(t, err)
	require.NotEqual(t, p, q)
}

// TestContentWide: ids given wide that fit are the same ids.
func TestContentWide(t *testing.T) {
	c, err := NewContent(ContentOptions{Scheme: mustScheme(t, "0.31.0"), BlockSize: 2})
	require.NoError(t, err)
	narrow, err := c.AppendKeys(nil, &Prompt{Tokens: []uint32{1, 1<<32 - 1, 3, 4}})
	require.NoError(t, err)
	wide, err := c.AppendKeys(nil, &Prompt{WideTokens: []int64{1, 1<<32 - 1, 3, 4}})
	require.NoError(t, err)
	require.Equal(t, narrow, wide)
}

// TestContentSGLang: adapter and salt are fields of SGLang's events, and hold
// for all blocks of a prompt.
func TestContentSGLang(t *testing.T) {
	seen := map[uint64]bool{}
	for _, release := range []string{"0.5.16", "0.5.18", "0.5.22", "0.5.23"} {
		scheme, err := SchemeFor("sglang", release)
		require.NoError(t, err)
		c, err := NewContent(ContentOptions{Scheme: scheme, BlockSize: 4, Seed: uint64(len(seen))})
		require.NoError(t, err)
		for _, p := range []Prompt{{}, {CacheSalt: "a"}, {LoRA: &LoRA{Name: "a"}}, {LoRA: &LoRA{Name: "a"}, CacheSalt: "b"}} {
			p.Tokens = seq(1, 12)
			keys, err := c.AppendKeys(nil, &p)
			if p.CacheSalt != "" && !scheme.era().saltSeeds || p.LoRA != nil && !scheme.era().eventLoRA {
				require.ErrorIs(t, err, ErrOpaque)
				continue
			}
			require.NoError(t, err)
			s := &Span{Tokens: p.Tokens[:4], CacheSalt: []byte(p.CacheSalt), LoRA: p.LoRA != nil}
			if s.LoRA {
				s.LoRAName = []byte(p.LoRA.Name)
			}
			got, err := c.AppendEventKeys(nil, s)
			require.NoError(t, err)
			s.Tokens, s.Parent = p.Tokens[4:], got[0]
			got, err = c.AppendEventKeys(got, s)
			require.NoError(t, err)
			require.Equal(t, keys, got)
			for _, key := range keys {
				require.False(t, seen[key])
				seen[key] = true
			}
		}
		_, err = c.AppendKeys(nil, &Prompt{ExtraKey: "k"})
		require.ErrorIs(t, err, ErrOpaque)
		_, err = c.AppendEventKeys(nil, &Span{Tokens: seq(1, 4), Extras: make([][]Extra, 1)})
		require.ErrorIs(t, err, ErrOpaque)
	}
}
