package blockhash

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExplain: parts are the whole message in order, all readable, and the
// digest is that of the block.
func TestExplain(t *testing.T) {
	for seed := range 400 {
		d := rand.New(rand.NewPCG(uint64(seed), 9))
		h, p := randomHasher(t, d), randomPrompt(d)
		digests, err := h.AppendDigests(nil, p)
		require.NoError(t, err)
		size := h.DigestSize()
		for i := range h.Blocks(p.Len()) {
			x, err := h.Explain(p, i)
			require.NoError(t, err)
			require.Equal(t, digests[i*size:(i+1)*size], x.Digest)
			require.Equal(t, KeyOf(x.Digest), x.Key)
			require.Equal(t, x.Digest, refSum(h.Algorithm(), x.Message))
			var whole []byte
			for _, part := range x.Parts {
				require.Equal(t, len(whole), part.Offset)
				require.NotEqual(t, "unreadable", part.Text)
				whole = append(whole, part.Bytes...)
			}
			require.Equal(t, x.Message, whole)
		}
		_, err = h.Explain(p, h.Blocks(p.Len()))
		require.ErrorIs(t, err, ErrOptions)
		_, err = h.Explain(p, -1)
		require.ErrorIs(t, err, ErrOptions)
	}
}

func TestExplainListing(t *testing.T) {
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 4, Seed: SeedText("0")})
	x, err := h.Explain(&Prompt{Tokens: []uint32{1, 300, 70000, 1 << 31}, CacheSalt: "tenant", Items: []Item{{"i", 0, 1}, {"j", 2, 1}}}, 0)
	require.NoError(t, err)
	text := x.String()
	for _, want := range []string{
		"block 0, sha256 of vllm-0.31.0", "PROTO 5", "FRAME of ", "BYTES, 32: the parent digest", "INT 1\n", "INT 300\n",
		"INT 70000\n", "LONG 2147483648\n", `STR "mm", 2 bytes`, "GET 2", `STR "tenant", 6 bytes`, "TUPLE3", "STOP", "digest ",
	} {
		require.Contains(t, text, want)
	}
	h = mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), Algorithm: SHA256CBOR, BlockSize: 3, Seed: SeedText("0")})
	x, err = h.Explain(&Prompt{WideTokens: []int64{-7, 70000, 1 << 40}}, 0)
	require.NoError(t, err)
	for _, want := range []string{"array of 3", "negative -7", "unsigned 1099511627776", "null"} {
		require.Contains(t, x.String(), want)
	}
	_, err = h.Explain(nil, 0)
	require.ErrorIs(t, err, ErrPrompt)
}

// FuzzDisassemble: any bytes come back whole.
func FuzzDisassemble(f *testing.F) {
	f.Add([]byte("\x80\x05\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x010\x94."), true)
	f.Add([]byte("\x83\x58\x20"+strings.Repeat("x", 32)+"\x81\x18\x20\xf6"), false)
	f.Add([]byte("B\xff\xff\xff\xff\x8a\xff"), true)
	f.Fuzz(func(t *testing.T, data []byte, pickle bool) {
		alg := SHA256CBOR
		if pickle {
			alg = SHA256
		}
		var whole []byte
		for _, part := range Disassemble(data, alg) {
			whole = append(whole, part.Bytes...)
		}
		require.True(t, bytes.Equal(data, whole))
	})
}
