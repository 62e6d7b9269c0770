package kvatlas_test

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
)

// FuzzApply feeds any bytes as messages to workers matched by hash and by
// content. Nothing panics, an error changes nothing, and a worker never
// holds more of the prompt than there is.
func FuzzApply(f *testing.F) {
	real, err := base64.StdEncoding.DecodeString(message)
	require.NoError(f, err)
	f.Add(real, real[:40])
	f.Add([]byte{0x93, 0, 0x90, 0xc0}, []byte{})
	f.Add(payload(f, "0.20.2", stored([]uint64{1, 2}, tokens(8)), removed(1)), payload(f, "0.24.0", stored([]uint64{3}, tokens(4))))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		byHash := kvatlas.Worker{Name: "a", Release: "0.32.0", BlockSize: 32}
		byContent := kvatlas.Worker{Name: "b", Release: "0.32.0", BlockSize: 32, Algorithm: blockhash.XXHash}
		a := newAtlas(t, byHash, byContent)
		p := blockhash.Prompt{Tokens: prompt}
		for _, name := range []string{"a", "b"} {
			for _, m := range [][]byte{first, second} {
				before := usable(t, a, p)[name]
				if a.Apply(name, m) != nil {
					require.Equal(t, before, usable(t, a, p)[name])
				}
			}
			require.Contains(t, []int{0, 32}, usable(t, a, p)[name])
		}
	})
}
