package blockhash

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTenMillionTokens: a huge prompt costs the result and nothing else.
func TestTenMillionTokens(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("takes seconds, and allocation counts mean nothing under the race detector")
	}
	p := &Prompt{Tokens: make([]uint32, 10_000_000)}
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 256, Seed: SeedText("0"), MemoBytes: 4 << 20})
	content, err := NewContent(ContentOptions{Scheme: h.Scheme(), BlockSize: 256})
	require.NoError(t, err)
	allocated := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	const memo = 3 << 20 // what it remembers of 39,062 blocks, within its limit
	keys := make([]uint64, 0, h.Blocks(p.Len()))
	require.Less(t, allocated(func() { keys, err = h.AppendKeys(keys, p) }), uint64(memo+100_000))
	require.NoError(t, err)
	require.Len(t, keys, 39_062)
	require.Less(t, allocated(func() { keys, err = content.AppendKeys(keys[:0], p) }), uint64(100_000))
	var c Chain
	require.Less(t, allocated(func() {
		require.NoError(t, h.Start(&c, p))
		for {
			if _, ok := c.Next(); !ok {
				break
			}
		}
	}), uint64(memo+100_000))
}

// TestMegabyteSalt: a salt is hashed whatever its length, in the first block.
func TestMegabyteSalt(t *testing.T) {
	for a := range numAlgorithms {
		h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), Algorithm: a, BlockSize: 4, Seed: SeedText("0")})
		p := &Prompt{Tokens: seq(1, 8), CacheSalt: strings.Repeat("é", 1<<19), LoRA: &LoRA{Name: strings.Repeat("n", 1<<20), Path: "p"}}
		digests, err := h.AppendDigests(nil, p)
		require.NoError(t, err)
		require.Equal(t, slowDigests(h, p), digests)
		keysOf(t, h, p)
	}
}

// TestNilWhereOptional: nil and empty are the same.
func TestNilWhereOptional(t *testing.T) {
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 4, Seed: SeedText("0")})
	want := keysOf(t, h, &Prompt{Tokens: seq(1, 8)})
	require.Equal(t, want, keysOf(t, h, &Prompt{Tokens: seq(1, 8), WideTokens: []int64{}, Items: []Item{}}))
	require.Equal(t, want, keysOf(t, h, &Prompt{Tokens: []uint32{}, WideTokens: []int64{1, 2, 3, 4, 5, 6, 7, 8}}))
	keys, err := h.AppendKeys(nil, &Prompt{})
	require.NoError(t, err)
	require.Empty(t, keys)
	_, err = h.AppendMessage(nil, &Prompt{Tokens: seq(1, 4)}, 0, nil)
	require.NoError(t, err, "no parent is the root")
	_, err = h.AppendMessage(nil, &Prompt{Tokens: seq(1, 4)}, 0, make([]byte, 33))
	require.ErrorIs(t, err, ErrOptions)
	var c Chain
	require.NoError(t, h.Start(&c, &Prompt{}))
	c.Extend(nil)
	c.ExtendWide(nil)
	_, ok := c.Next()
	require.False(t, ok)
}

// TestIDsAbove32Bits: vLLM hashes any integer, other schemes say what they hold.
func TestIDsAbove32Bits(t *testing.T) {
	p := &Prompt{WideTokens: []int64{1 << 32, 1<<63 - 1, -1 << 63, 0}}
	for _, s := range Schemes() {
		opt := Options{Scheme: s, BlockSize: 4, Seed: SeedText("0")}
		if s.Engine() == "tensorrt-llm" {
			continue
		}
		h := mustNew(t, opt)
		_, err := h.AppendKeys(nil, p)
		switch s.era().family {
		case familyVLLM:
			require.NoError(t, err)
			require.Equal(t, slowDigests(h, p), h.mustDigests(t, p))
		case familyLMCache, familyServer:
			require.NoError(t, err)
		default:
			require.ErrorIs(t, err, ErrPrompt)
			require.Contains(t, err.Error(), "2^32-1")
		}
	}
}

func (h *Hasher) mustDigests(t *testing.T, p *Prompt) []byte {
	d, err := h.AppendDigests(nil, p)
	require.NoError(t, err)
	return d
}
