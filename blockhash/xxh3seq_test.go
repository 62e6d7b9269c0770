package blockhash

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

// TestSeq holds Dynamo's and Mooncake's schemes against their definition.
func TestSeq(t *testing.T) {
	for _, engine := range []string{"dynamo", "mooncake"} {
		for _, seed := range []uint64{0, 7} {
			scheme, err := SchemeFor(engine, "0.3.0")
			require.NoError(t, err)
			h := mustNew(t, Options{Scheme: scheme, BlockSize: 3, XXH3Seed: seed})
			if engine == "dynamo" && seed == 0 {
				seed = 1337
			}
			tokens := []uint32{1, 2, 3, 1 << 31, 1<<32 - 1, 6, 7}
			var want []uint64
			for i := 0; i+3 <= len(tokens); i += 3 {
				var b []byte
				for _, id := range tokens[i : i+3] {
					b = binary.LittleEndian.AppendUint32(b, id)
				}
				key := xxh3.HashSeed(b, seed)
				if i > 0 {
					key = xxh3.HashSeed(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, want[len(want)-1]), key), seed)
				}
				want = append(want, key)
			}
			require.Equal(t, want, keysOf(t, h, &Prompt{Tokens: tokens}))
			var wide []int64
			for _, id := range tokens {
				wide = append(wide, int64(id))
			}
			require.Equal(t, want, keysOf(t, h, &Prompt{WideTokens: wide}))
			var c Chain
			require.NoError(t, h.Start(&c, &Prompt{Tokens: tokens[:4]}))
			first, _ := c.Next()
			c.Extend(tokens[4:])
			second, _ := c.Next()
			require.Equal(t, want, []uint64{first, second})
			require.NoError(t, h.Resume(&c, &Prompt{Tokens: tokens}, 1, binary.BigEndian.AppendUint64(nil, first)))
			second, ok := c.Next()
			require.True(t, ok)
			require.Equal(t, want[1], second)
			_, err = h.AppendKeys(nil, &Prompt{WideTokens: []int64{1, 2, -3}})
			require.ErrorIs(t, err, ErrPrompt)
		}
	}
	scheme, err := SchemeFor("tensorrt-llm", "1.2.0")
	require.NoError(t, err)
	_, err = New(Options{Scheme: scheme, BlockSize: 32})
	require.ErrorIs(t, err, ErrScheme)
	content, err := NewContent(ContentOptions{Scheme: scheme, BlockSize: 32})
	require.NoError(t, err)
	keys, err := content.AppendKeys(nil, &Prompt{Tokens: make([]uint32, 64)})
	require.NoError(t, err)
	require.Len(t, keys, 2)
}

// Vectors in the tests of Dynamo's crate dynamo-tokens 1.6.1 (published).
func TestDynamoPublished(t *testing.T) {
	for _, release := range []string{"1.0.0", "1.6.1"} {
		scheme, err := SchemeFor("dynamo", release)
		require.NoError(t, err)
		h := mustNew(t, Options{Scheme: scheme, BlockSize: 4})
		require.Equal(t, []uint64{14643705804678351452, 4945711292740353085, 12583592247330656132}, keysOf(t, h, &Prompt{Tokens: seq(1, 12)}))
	}
}

// TestDynamoCrate: what compute_seq_hash_for_block of crate dynamo-kv-router
// 1.6.1 gave for the ids 0, 7919, ... 39*7919 (benchmarks/hash/rust, "vectors").
func TestDynamoCrate(t *testing.T) {
	scheme, err := SchemeFor("dynamo", "1.6.1")
	require.NoError(t, err)
	var ids []uint32
	for i := range uint32(40) {
		ids = append(ids, i*7919)
	}
	for block, want := range map[int][]uint64{
		1:  {16451421758532862321, 3502212205722424560, 16668888318341037368, 18124371293083017664},
		4:  {2549612451876491239, 3669287487725607340, 6535926926665701220, 501653680270581777},
		16: {18048930289670594939, 8523913590584316653},
	} {
		keys := keysOf(t, mustNew(t, Options{Scheme: scheme, BlockSize: block}), &Prompt{Tokens: ids})
		require.Equal(t, want, keys[:len(want)])
	}
}

// TestDynamoNamespaces: adapter and salt are added to the seed of tokens, not
// to that of the chain (compute_salt_hash of dynamo-kv-hashing 1.6.1).
func TestDynamoNamespaces(t *testing.T) {
	scheme, err := SchemeFor("dynamo", "1.6.1")
	require.NoError(t, err)
	h := mustNew(t, Options{Scheme: scheme, BlockSize: 1})
	for _, p := range []Prompt{{LoRA: &LoRA{Name: "a"}}, {CacheSalt: "a"}, {LoRA: &LoRA{Name: "a"}, CacheSalt: "b"}, {LoRA: &LoRA{}}} {
		p.Tokens = []uint32{7, 9}
		seed := uint64(1337)
		if p.LoRA != nil && p.LoRA.Name != "" {
			seed += xxh3.HashStringSeed(p.LoRA.Name, 0)
		}
		if p.CacheSalt != "" {
			seed += xxh3.HashStringSeed(p.CacheSalt, 1)
		}
		first := xxh3.HashSeed([]byte{7, 0, 0, 0}, seed)
		second := xxh3.HashSeed([]byte{9, 0, 0, 0}, seed)
		second = xxh3.HashSeed(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, first), second), 1337)
		require.Equal(t, []uint64{first, second}, keysOf(t, h, &p))
	}
	_, err = h.AppendKeys(nil, &Prompt{Items: []Item{{"i", 0, 1}}})
	require.ErrorIs(t, err, ErrPrompt)
	old, err := SchemeFor("dynamo", "1.0.0")
	require.NoError(t, err)
	_, err = mustNew(t, Options{Scheme: old, BlockSize: 1}).AppendKeys(nil, &Prompt{CacheSalt: "s"})
	require.ErrorIs(t, err, ErrPrompt)
}
