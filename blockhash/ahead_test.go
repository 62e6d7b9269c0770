package blockhash

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// idsOfWidths draws n ids: of one width, of any, and sometimes one that only
// the slow path can write.
func idsOfWidths(d dice, n int) []uint32 {
	width, rare := d.IntN(4), d.IntN(4) == 0
	ids := make([]uint32, n)
	for i := range ids {
		bits := []int{5, 8, 16, 24}[width] // at most
		if d.IntN(8) == 0 {
			bits = 1 + d.IntN(31)
		}
		if rare && d.IntN(2*n) == 0 {
			bits = 32
		}
		ids[i] = uint32(d.IntN(1<<16)<<16|d.IntN(1<<16)) & (1<<bits - 1)
	}
	return ids
}

// fastMost is the largest block that is hashed ahead.
const fastMost = 8192

// checkAhead compares blocks hashed ahead with those one by one, and with the
// reference.
func checkAhead(t *testing.T, d dice, size, blocks int) {
	var c Chain
	for _, a := range []Algorithm{XXHash, XXHashCBOR, SHA256} {
		h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), Algorithm: a, BlockSize: size, Seed: SeedText("0")})
		p := &Prompt{Tokens: idsOfWidths(d, size*blocks+d.IntN(size))}
		if d.IntN(4) == 0 {
			p.CacheSalt = "tenant"
		}
		got, err := h.AppendDigests(nil, p)
		require.NoError(t, err)
		gotKeys, err := h.AppendKeys(nil, p)
		require.NoError(t, err)
		require.NoError(t, h.Start(&c, p))
		var want []byte
		var keys []uint64
		for range blocks {
			key, ok := c.Next()
			require.True(t, ok)
			want = append(want, c.Digest()...)
			keys = append(keys, key)
		}
		require.Equal(t, want, got, "%v, blocks of %d", a, size)
		require.Equal(t, keys, gotKeys, "%v, blocks of %d", a, size)
		require.Equal(t, slowDigests(h, p), got, "%v, blocks of %d", a, size)
	}
}

// TestAhead: for blocks of every length of message that XXH3 tells apart.
func TestAhead(t *testing.T) {
	d := rand.New(rand.NewPCG(3, 3))
	for size := 8; size <= fastMost; size += 8 {
		if size > 480 {
			size *= 2
		}
		blocks := 1 + d.IntN(10)
		if d.IntN(8) == 0 {
			blocks += 300
		}
		checkAhead(t, d, size, min(blocks, 1+100_000/size))
	}
}

// FuzzAhead is that for any ids.
func FuzzAhead(f *testing.F) {
	for _, seed := range []string{"", "\x01\x03\x02\x00", "sixteen tokens or more and a salt, then another block of them"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &fuzzDice{data}
		checkAhead(t, d, 8*(1+d.IntN(40)), d.IntN(9))
	})
}
