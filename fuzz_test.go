package kvatlas_test

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
)

// FuzzApply feeds any bytes as messages to workers matched by hash, by content, found
// out by their events, and described wrongly. Nothing panics, an error changes
// nothing, and a worker never holds more of the prompt than there is.
func FuzzApply(f *testing.F) {
	real, err := base64.StdEncoding.DecodeString(message)
	require.NoError(f, err)
	f.Add(real, real[:40])
	f.Add([]byte{0x93, 0, 0x90, 0xc0}, []byte{})
	f.Add(payload(f, "0.20.2", stored([]uint64{1, 2}, tokens(8)), removed(1)), payload(f, "0.24.0", stored([]uint64{3}, tokens(4))))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		byHash := kvatlas.Worker{Name: "a", Release: "0.32.0", BlockSize: 32}
		byContent := kvatlas.Worker{Name: "b", Release: "0.32.0", BlockSize: 32, Algorithm: blockhash.XXHash}
		a := newAtlas(t, byHash, byContent, kvatlas.Worker{Name: "auto", Auto: true}, kvatlas.Worker{Name: "plain", Auto: true, PlainOnly: true},
			kvatlas.Worker{Name: "wrong", Release: "0.24.0", BlockSize: 32, Seed: blockhash.SeedText("?")})
		p := blockhash.Prompt{Tokens: prompt}
		for _, name := range []string{"a", "b", "wrong", "auto", "plain"} {
			for _, m := range [][]byte{first, second} {
				before := usable(t, a, p)[name]
				if a.Apply(name, m) != nil {
					require.Equal(t, before, usable(t, a, p)[name])
				}
			}
			held := usable(t, a, p)[name]
			if name == "auto" || name == "plain" { // blocks are of any size
				require.True(t, held >= 0 && held <= 32, held)
				continue
			}
			require.Contains(t, []int{0, 32}, held)
		}
		a.Snapshot()
		for _, name := range []string{"a", "b", "wrong", "auto", "plain"} {
			require.NoError(t, a.Reset(name))
			require.True(t, a.RemoveWorker(name))
		}
		require.Zero(t, a.Snapshot().Index.Memberships)
	})
}

// FuzzAnswers reads any bytes as what engines say of themselves: a worker that can be
// added, or an error.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"version":"0.32.0"}`))
	f.Add([]byte(`{"version":"1"}`))
	f.Add([]byte(`{"version":"0.5.23","page_size":16,"dcp_size":2,"kv_events_config":"{}","kv_events":{"block_size":32}}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, read := range []func(string, []byte) (kvatlas.Worker, error){kvatlas.VLLMWorker, kvatlas.SGLangWorker} {
			w, err := read("w", answer)
			if err != nil {
				require.Zero(t, w)
				continue
			}
			require.NoError(t, newAtlas(t).AddWorker(w))
		}
	})
}
