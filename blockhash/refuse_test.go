package blockhash

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func mustScheme(t testing.TB, release string) Scheme {
	t.Helper()
	s, err := SchemeFor("vllm", release)
	require.NoError(t, err)
	return s
}

func mustNew(t testing.TB, opt Options) *Hasher {
	t.Helper()
	h, err := New(opt)
	require.NoError(t, err)
	return h
}

func TestParseAlgorithm(t *testing.T) {
	for _, a := range []Algorithm{SHA256, SHA256CBOR, XXHash, XXHashCBOR} {
		got, err := ParseAlgorithm(a.String())
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
	for _, name := range []string{"", "builtin", "SHA256", "sha256-cbor", "sha256_cbor_64bit", "md5", " sha256"} {
		_, err := ParseAlgorithm(name)
		require.ErrorIs(t, err, ErrAlgorithm, name)
		for _, valid := range algorithmNames {
			require.Contains(t, err.Error(), `"`+valid+`"`)
		}
		require.True(t, strings.HasPrefix(err.Error(), "blockhash: "))
	}
	require.Equal(t, "Algorithm(9)", Algorithm(9).String())
	require.Zero(t, Algorithm(9).Size())
	require.Equal(t, 32, SHA256.Size())
	require.Equal(t, 16, XXHashCBOR.Size())
}

func TestSchemeFor(t *testing.T) {
	for release, since := range map[string]string{
		"0.10.2": "0.10.2", "0.11.0": "0.10.2", "0.11.1": "0.11.1", "0.11.2": "0.11.1", "0.12.0": "0.11.1",
		"0.13.0": "0.13.0", "0.16.0": "0.13.0", "0.17.0": "0.17.0", "0.18.1": "0.17.0", "0.19": "0.19.0",
		"v0.20.2": "0.19.0", "0.20.2+cpu": "0.19.0", "0.28.0": "0.19.0", "0.29.0": "0.29.0", "0.30.0.post1": "0.29.0",
		"0.31.0": "0.31.0", "0.32.0": "0.31.0", "0.33.0": "0.33.0",
	} {
		s, err := SchemeFor("vLLM", release)
		require.NoError(t, err, release)
		require.Equal(t, since, s.Since(), release)
		require.False(t, s.Assumed(), release)
		require.Equal(t, "vllm", s.Engine())
	}
	for release, since := range map[string]string{
		"0.33.1": "0.33.0", "0.40.0": "0.33.0", "1.0": "0.33.0", "0.31.0rc1": "0.31.0",
		"0.30.1rc2.dev17+g0123abc": "0.29.0", "0.12.0.dev3": "0.11.1",
	} {
		s, err := SchemeFor("vllm", release)
		require.NoError(t, err, release)
		require.Equal(t, since, s.Since(), release)
		require.True(t, s.Assumed(), release)
		require.Contains(t, s.String(), "assumed")
	}
	for _, bad := range [][2]string{
		{"vllm", ""}, {"vllm", "latest"}, {"vllm", "0.9.2"}, {"vllm", "0.10.1"}, {"vllm", "0"}, {"vllm", "-1.2"},
		{"vllm", "0.31.0 beta"}, {"sglang", "0.32.0"}, {"vllm", "0.100.0"}, {"vllm", "0.31.x"}, {"vllm", "99999999999999999999"}, {"", "0.31.0"}, {"tgi", "1.0"},
	} {
		s, err := SchemeFor(bad[0], bad[1])
		require.ErrorIs(t, err, ErrScheme, bad)
		require.True(t, s.IsZero())
	}
	require.Equal(t, "no scheme", Scheme{}.String())
	require.Empty(t, Scheme{}.Since()+Scheme{}.Through()+Scheme{}.Engine()+Scheme{}.Summary())
	seen := map[Scheme]bool{}
	for _, s := range Schemes() {
		require.False(t, seen[s])
		seen[s] = true
		again, err := SchemeFor(s.Engine(), s.Since())
		require.NoError(t, err)
		require.Equal(t, s, again)
		require.NotEmpty(t, s.Summary())
		require.NotEmpty(t, s.Through())
	}
}

func TestNewRefuses(t *testing.T) {
	old, tagged, newest := mustScheme(t, "0.11.2"), mustScheme(t, "0.31.0"), mustScheme(t, "0.33.0")
	seed := SeedText("0")
	for name, c := range map[string]struct {
		opt  Options
		want error
	}{
		"no scheme":               {Options{BlockSize: 16, Seed: seed}, ErrScheme},
		"block size 0":            {Options{Scheme: tagged, Seed: seed}, ErrOptions},
		"block size -1":           {Options{Scheme: tagged, Seed: seed, BlockSize: -1}, ErrOptions},
		"block size huge":         {Options{Scheme: tagged, Seed: seed, BlockSize: math.MaxInt}, ErrOptions},
		"unknown algorithm":       {Options{Scheme: tagged, Seed: seed, BlockSize: 16, Algorithm: 77}, ErrAlgorithm},
		"xxhash too early":        {Options{Scheme: old, Seed: seed, BlockSize: 16, Algorithm: XXHash}, ErrAlgorithm},
		"lookahead too early":     {Options{Scheme: tagged, Seed: seed, BlockSize: 16, Lookahead: 1}, ErrOptions},
		"lookahead negative":      {Options{Scheme: newest, Seed: seed, BlockSize: 16, Lookahead: -1}, ErrOptions},
		"lookahead huge":          {Options{Scheme: newest, Seed: seed, BlockSize: 16, Lookahead: math.MaxInt}, ErrOptions},
		"random root":             {Options{Scheme: mustScheme(t, "0.28.0"), BlockSize: 16}, ErrRoot},
		"random root, old, cbor":  {Options{Scheme: old, BlockSize: 16, Algorithm: SHA256CBOR}, ErrRoot},
		"random root of xxhash":   {Options{Scheme: newest, BlockSize: 16, Algorithm: XXHash}, ErrRoot},
		"random root xxhash_cbor": {Options{Scheme: newest, BlockSize: 16, Algorithm: XXHashCBOR}, ErrRoot},
		"recorded root too short": {Options{Scheme: newest, BlockSize: 16, Seed: SeedRoot(make([]byte, 8))}, ErrRoot},
		"recorded root empty":     {Options{Scheme: newest, BlockSize: 16, Seed: SeedRoot(nil)}, ErrRoot},
	} {
		h, err := New(c.opt)
		require.ErrorIs(t, err, c.want, name)
		require.Nil(t, h, name)
		require.True(t, strings.HasPrefix(err.Error(), "blockhash: "), err)
	}
}

func TestPromptRefused(t *testing.T) {
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 4, Seed: SeedText("0")})
	content, err := NewContent(ContentOptions{Scheme: mustScheme(t, "0.31.0"), BlockSize: 4})
	require.NoError(t, err)
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8}
	bad := "\xff\xfe"
	for name, c := range map[string]struct {
		prompt *Prompt
		field  string
		index  int
	}{
		"nil":               {nil, "Tokens", -1},
		"both":              {&Prompt{Tokens: tokens, WideTokens: []int64{1}}, "WideTokens", -1},
		"unsorted":          {&Prompt{Tokens: tokens, Items: []Item{{"a", 4, 1}, {"b", 0, 1}}}, "Items", 1},
		"overlapping":       {&Prompt{Tokens: tokens, Items: []Item{{"a", 0, 3}, {"b", 2, 1}}}, "Items", 1},
		"same offset":       {&Prompt{Tokens: tokens, Items: []Item{{"a", 1, 1}, {"b", 1, 1}}}, "Items", 1},
		"negative offset":   {&Prompt{Tokens: tokens, Items: []Item{{"a", -1, 3}}}, "Items", 0},
		"negative length":   {&Prompt{Tokens: tokens, Items: []Item{{"a", 0, 1}, {"b", 3, -1}}}, "Items", 1},
		"offset overflows":  {&Prompt{Tokens: tokens, Items: []Item{{"a", math.MaxInt, 1}}}, "Items", 0},
		"length overflows":  {&Prompt{Tokens: tokens, Items: []Item{{"a", 1, math.MaxInt}}}, "Items", 0},
		"identifier":        {&Prompt{Tokens: tokens, Items: []Item{{bad, 0, 3}}}, "Items", 0},
		"adapter name":      {&Prompt{Tokens: tokens, LoRA: &LoRA{Name: bad}}, "LoRA", -1},
		"adapter path":      {&Prompt{Tokens: tokens, LoRA: &LoRA{Path: "\xed\xa0\x80"}}, "LoRA", -1},
		"salt":              {&Prompt{Tokens: tokens, CacheSalt: bad}, "CacheSalt", -1},
		"embeds width":      {&Prompt{Tokens: tokens, Embeds: &Embeds{Data: []byte{1}}}, "Embeds", -1},
		"embeds width neg.": {&Prompt{Tokens: tokens, Embeds: &Embeds{BytesPerToken: -4}}, "Embeds", -1},
		"embeds ragged":     {&Prompt{Tokens: tokens, Embeds: &Embeds{Data: make([]byte, 5), BytesPerToken: 4}}, "Embeds", -1},
	} {
		keys, err := h.AppendKeys([]uint64{7}, c.prompt)
		require.ErrorIs(t, err, ErrPrompt, name)
		facts, ok := errors.AsType[*PromptError](err)
		require.True(t, ok)
		require.Equal(t, c.field, facts.Field, name)
		require.Equal(t, c.index, facts.Index, name)
		require.NotEmpty(t, facts.Reason)
		require.Equal(t, []uint64{7}, keys, "dst unchanged")
		_, err = h.AppendDigests(nil, c.prompt)
		require.ErrorIs(t, err, ErrPrompt)
		keys, err = content.AppendKeys([]uint64{7}, c.prompt)
		require.ErrorIs(t, err, ErrPrompt, name)
		require.Equal(t, []uint64{7}, keys)

		var chain Chain
		require.NoError(t, h.Start(&chain, &Prompt{Tokens: tokens}))
		require.Error(t, h.Start(&chain, c.prompt))
		_, ok = chain.Next()
		require.False(t, ok, "a chain whose Start failed has no blocks")
		chain.Extend(tokens)
		chain.ExtendWide([]int64{-1})
		_, ok = chain.Next()
		require.False(t, ok)
	}
	_, err = content.AppendKeys(nil, &Prompt{WideTokens: []int64{1, -1}})
	require.ErrorIs(t, err, ErrPrompt)
}

func TestResumeRefuses(t *testing.T) {
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 4, Seed: SeedText("0")})
	p := &Prompt{Tokens: make([]uint32, 9)}
	var c Chain
	require.ErrorIs(t, h.Resume(&c, p, -1, make([]byte, 32)), ErrOptions)
	require.ErrorIs(t, h.Resume(&c, p, 3, make([]byte, 32)), ErrOptions)
	require.ErrorIs(t, h.Resume(&c, p, 1, make([]byte, 16)), ErrOptions)
	require.ErrorIs(t, h.Resume(&c, nil, 1, make([]byte, 32)), ErrPrompt)
	require.NoError(t, h.Resume(&c, p, 0, nil))
	require.NoError(t, h.Resume(&c, p, 2, make([]byte, 32)))
}

func TestZeroChain(t *testing.T) {
	var c Chain
	_, ok := c.Next()
	require.False(t, ok)
	require.Empty(t, c.Digest())
	require.Zero(t, c.Blocks()+c.Len())
	var cc ContentChain
	_, ok = cc.Next()
	require.False(t, ok)
	cc.Extend([]uint32{1})
	require.Equal(t, ContentRoot, cc.Key())
}

func TestContentRefuses(t *testing.T) {
	_, err := NewContent(ContentOptions{BlockSize: 16})
	require.ErrorIs(t, err, ErrScheme)
	_, err = NewContent(ContentOptions{Scheme: mustScheme(t, "0.31.0")})
	require.ErrorIs(t, err, ErrOptions)
	_, err = NewContent(ContentOptions{Scheme: mustScheme(t, "0.31.0"), BlockSize: 16, Lookahead: 2})
	require.ErrorIs(t, err, ErrOptions)
	_, err = NewContent(ContentOptions{Scheme: mustScheme(t, "0.33.0"), BlockSize: 16, Lookahead: -2})
	require.ErrorIs(t, err, ErrOptions)

	// Events before 0.17 do not tell such prompts from plain ones.
	c, err := NewContent(ContentOptions{Scheme: mustScheme(t, "0.16.0"), BlockSize: 2})
	require.NoError(t, err)
	tokens := []uint32{1, 2, 3}
	for _, p := range []Prompt{
		{CacheSalt: "s"}, {LoRA: &LoRA{Name: "a"}}, {Items: []Item{{"i", 0, 1}}}, {Embeds: &Embeds{BytesPerToken: 1}},
	} {
		p.Tokens = tokens
		_, err = c.AppendKeys(nil, &p)
		require.ErrorIs(t, err, ErrOpaque)
	}
	_, err = c.AppendEventKeys(nil, &Span{Tokens: tokens, LoRA: true})
	require.ErrorIs(t, err, ErrOpaque)

	c, err = NewContent(ContentOptions{Scheme: mustScheme(t, "0.33.0"), BlockSize: 2, Lookahead: 1})
	require.NoError(t, err)
	look := [][]uint32{{3}}
	for name, s := range map[string]*Span{
		"no lookahead":         {},
		"lookahead too long":   {Lookahead: [][]uint32{{3, 4}}},
		"adapter, no extras":   {Lookahead: look, LoRA: true},
		"adapter, empty":       {Lookahead: look, LoRA: true, Extras: [][]Extra{{}}},
		"adapter, other first": {Lookahead: look, LoRA: true, Extras: [][]Extra{{{Kind: ExtraItem}}}},
		"unknown kind":         {Lookahead: look, Extras: [][]Extra{{{Kind: ExtraOther}}}},
		"made-up kind":         {Lookahead: look, Extras: [][]Extra{{{Kind: extraPath}}}},
	} {
		s.Tokens = tokens
		keys, err := c.AppendEventKeys([]uint64{7}, s)
		require.ErrorIs(t, err, ErrOpaque, name)
		require.Equal(t, []uint64{7}, keys)
	}
	_, err = c.AppendEventKeys(nil, nil)
	require.ErrorIs(t, err, ErrOptions)
	_, err = c.AppendEventKeys(nil, &Span{Tokens: tokens, Lookahead: look, Extras: make([][]Extra, 2)})
	require.ErrorIs(t, err, ErrOptions)
}
