package blockhash

// These vectors were computed by vLLM itself (testdata/vllm/hash/README.md).
// When one fails, the code is wrong: change the code, never the vector. New
// behaviour of an engine is a new scheme with vectors of its own.

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/stretchr/testify/require"
)

// goldenCase is a recorded case with its extra keys decoded.
type goldenCase struct {
	recording.HashCase
	ExtraKeys [][]any
}

// readGolden calls yield with every case of one file.
func readGolden(t *testing.T, name string, yield func(*recording.HashFile, *goldenCase)) {
	file, err := recording.ReadHash(bytes.NewReader(golden.Read(t, name)))
	require.NoError(t, err)
	require.Equal(t, "vllm", file.Engine)
	require.NotEmpty(t, file.Cases)
	for _, recorded := range file.Cases {
		c := goldenCase{HashCase: recorded}
		if recorded.ExtraKeys != nil {
			require.NoError(t, json.Unmarshal(recorded.ExtraKeys, &c.ExtraKeys))
		}
		yield(file, &c)
	}
}

// prompt builds the case's prompt.
func (c *goldenCase) prompt() *Prompt {
	p := &Prompt{CacheSalt: c.CacheSalt}
	for _, id := range c.Tokens {
		if id < 0 || id > 1<<32-1 {
			p.WideTokens = c.Tokens
		}
	}
	if p.WideTokens == nil {
		for _, id := range c.Tokens {
			p.Tokens = append(p.Tokens, uint32(id))
		}
	}
	if c.LoRA != nil {
		p.LoRA = &LoRA{Name: c.LoRA.Name, Path: c.LoRA.Path, ID: c.LoRA.ID}
	}
	for _, m := range c.Items {
		p.Items = append(p.Items, Item{m.Identifier, m.Offset, m.Length})
	}
	if c.Embeds != nil {
		p.Embeds = &Embeds{Data: c.Embeds, BytesPerToken: c.EmbedsPerTok}
	}
	return p
}

// hasher makes the hasher of a case. Where the engine's root is random it
// checks that this is refused, and takes the recorded one.
func (c *goldenCase) hasher(t *testing.T, header *recording.HashFile, algorithm string) *Hasher {
	scheme, err := SchemeFor(header.Engine, header.Version)
	require.NoError(t, err)
	require.False(t, scheme.Assumed())
	alg, err := ParseAlgorithm(algorithm)
	require.NoError(t, err)
	opt := Options{Scheme: scheme, Algorithm: alg, BlockSize: c.BlockSize, Lookahead: c.Lookahead, SharedObjects: c.SharedObjects}
	if header.Seed != nil {
		opt.Seed = SeedText(*header.Seed)
	}
	root := header.NoneHash[algorithm]
	h, err := New(opt)
	if random := header.Seed == nil && (alg.xxh() || !scheme.era().fixedRoot); random {
		require.ErrorIs(t, err, ErrRoot)
		opt.Seed = SeedRoot(root)
		h, err = New(opt)
	}
	require.NoError(t, err)
	require.Equal(t, root, h.AppendRoot(nil), "root")
	return h
}

func TestGolden(t *testing.T) {
	for _, name := range golden.Files(t, "vllm/hash/*.jsonl") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			readGolden(t, name, func(header *recording.HashFile, c *goldenCase) {
				require.NotEmpty(t, c.Results, c.Name)
				for algorithm, want := range c.Results {
					what := fmt.Sprintf("%s, %s, %s", header.Version, c.Name, algorithm)
					require.Empty(t, want.Error, what)
					checkGolden(t, what, c.hasher(t, header, algorithm), c.prompt(), want.Hashes, want.Wire)
				}
			})
		})
	}
}

// checkGolden compares every way to hash a prompt with the engine's answer.
func checkGolden(t *testing.T, what string, h *Hasher, p *Prompt, hashes, wire []string) {
	t.Helper()
	require.Equal(t, len(hashes), h.Blocks(p.Len()), what)
	keys := make([]uint64, len(wire))
	for i, w := range wire {
		key, err := strconv.ParseUint(w, 10, 64)
		require.NoError(t, err, what)
		keys[i] = key
	}
	digests, err := h.AppendDigests(nil, p)
	require.NoError(t, err, what)
	require.Equal(t, strings.Join(hashes, ""), hex.EncodeToString(digests), what)
	got, err := h.AppendKeys([]uint64{42}, p)
	require.NoError(t, err, what)
	require.Equal(t, append([]uint64{42}, keys...), got, what)

	// Lazily.
	var c Chain
	require.NoError(t, h.Start(&c, p))
	checkRest(t, what, &c, hashes, keys)

	// A prefix first, then the rest in one piece or several.
	for _, cut := range cuts(p.Len(), h.BlockSize()) {
		require.NoError(t, h.Start(&c, p.slice(0, cut)))
		checkRest(t, what, &c, hashes[:h.Blocks(cut)], keys)
		mid := cut + (p.Len()-cut)/3
		extend(&c, p, cut, mid)
		checkRest(t, what, &c, hashes[:h.Blocks(mid)], keys)
		extend(&c, p, mid, p.Len())
		checkRest(t, what, &c, hashes, keys)

		// The same from the digest alone.
		if n := h.Blocks(cut); n > 0 {
			require.NoError(t, h.Resume(&c, p, n, digests[(n-1)*h.DigestSize():n*h.DigestSize()]))
			checkRest(t, what, &c, hashes, keys)
		}
	}
}

// cuts returns places to cut a prompt at: all of a short one, some around
// block boundaries of a long one.
func cuts(n, blockSize int) (at []int) {
	step := max(n/40, 1)
	if raceEnabled {
		step = max(n/3, 1)
	}
	for i := 0; i < n; i += step {
		at = append(at, i)
	}
	for _, i := range []int{blockSize - 1, blockSize, blockSize + 1, 2 * blockSize, n} {
		if i <= n {
			at = append(at, i)
		}
	}
	return at
}

func (p *Prompt) slice(from, to int) *Prompt {
	q := *p
	if p.WideTokens != nil {
		q.WideTokens = p.WideTokens[from:to]
	} else {
		q.Tokens = p.Tokens[from:to]
	}
	return &q
}

func extend(c *Chain, p *Prompt, from, to int) {
	if p.WideTokens != nil {
		c.ExtendWide(p.WideTokens[from:to])
	} else {
		c.Extend(p.Tokens[from:to])
	}
}

// checkRest takes what the chain has left and compares it.
func checkRest(t *testing.T, what string, c *Chain, hashes []string, keys []uint64) {
	t.Helper()
	for {
		key, ok := c.Next()
		if !ok {
			break
		}
		i := c.Blocks() - 1
		require.Less(t, i, len(hashes), what)
		if key != keys[i] || hex.EncodeToString(c.Digest()) != hashes[i] {
			t.Fatalf("%s: block %d: got %x (%d), engine has %s (%d)", what, i, c.Digest(), key, hashes[i], keys[i])
		}
	}
	require.Equal(t, len(hashes), c.Blocks(), what)
}
