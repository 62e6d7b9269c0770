package blockhash

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSeedsThatNoEngineHas: what cannot be in PYTHONHASHSEED is refused, not hashed.
func TestSeedsThatNoEngineHas(t *testing.T) {
	for seed, want := range map[Seed]string{
		SeedText("\x00"):         `Seed PYTHONHASHSEED="\x00" has a NUL byte`,
		SeedText("0\x001"):       "has a NUL byte",
		SeedText("\xff\x00"):     "has a NUL byte",
		SeedText("\xff"):         `Seed PYTHONHASHSEED="\xff" is not valid UTF-8`,
		SeedText("\xed\xb3\xbf"): "is not valid UTF-8", // a lone surrogate, as pickle writes it
	} {
		require.ErrorIs(t, seed.Validate(), ErrOptions)
		require.ErrorContains(t, seed.Validate(), want)
		for _, s := range []Scheme{mustScheme(t, "0.20.2"), mustScheme(t, "0.33.0")} {
			_, err := New(Options{Scheme: s, BlockSize: 16, Seed: seed})
			require.ErrorIs(t, err, ErrOptions)
			require.ErrorContains(t, err, want)
		}
	}
	require.ErrorIs(t, SeedRoot(make([]byte, 15)).Validate(), ErrRoot)
	for _, seed := range []Seed{{}, SeedText(""), SeedText("0"), SeedText(" 7"), SeedText("random"), SeedText("ä"), SeedText("a program's own"), SeedRoot(make([]byte, 16)), SeedRoot(make([]byte, 32))} {
		require.NoError(t, seed.Validate())
		_, err := New(Options{Scheme: mustScheme(t, "0.33.0"), BlockSize: 16, Seed: seed})
		require.NoError(t, err)
	}
}
