package blockhash

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAppendKeysEach: the same keys as one by one, for any mix of prompts.
func TestAppendKeysEach(t *testing.T) {
	for seed := range 300 {
		d := rand.New(rand.NewPCG(uint64(seed), 6))
		h := randomHasher(t, d)
		var prompts []*Prompt
		var want [][]uint64
		for range d.IntN(8) {
			p := randomPrompt(d)
			prompts = append(prompts, p)
			want = append(want, nonNil(keysOf(t, h, p)))
		}
		got, err := h.AppendKeysEach(nil, prompts)
		require.NoError(t, err)
		for i := range got {
			require.Equal(t, want[i], nonNil(got[i]))
		}
		require.Len(t, got, len(prompts))
	}
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 2, Seed: SeedText("0")})
	got, err := h.AppendKeysEach([][]uint64{{7}}, []*Prompt{{Tokens: seq(1, 4)}, {CacheSalt: "\xff"}})
	require.ErrorIs(t, err, ErrPrompt)
	require.Contains(t, err.Error(), "prompt 1")
	require.Equal(t, [][]uint64{{7}}, got)
	got, err = h.AppendKeysEach(got, []*Prompt{{Tokens: seq(1, 4)}})
	require.NoError(t, err)
	require.Equal(t, uint64(7), got[0][0], "appended")
	require.Len(t, got[0], 3)

	if !raceEnabled {
		prompts := []*Prompt{{Tokens: benchTokens(999)}, {Tokens: benchTokens(500)}, {Tokens: benchTokens(100)}}
		each := func() {
			for i := range got {
				got[i] = got[i][:0]
			}
			got, _ = h.AppendKeysEach(got, prompts)
		}
		each()
		require.Zero(t, testing.AllocsPerRun(20, each))
	}
}
