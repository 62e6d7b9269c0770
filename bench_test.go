package kvatlas_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
)

// BenchmarkRoute hashes, matches, scores and picks for a prompt of 6,250 blocks
// that every worker holds: hashed from its beginning ("warm"), or remembered
// ("memo"). "cold" is a prompt nobody holds, of which one block is hashed.
func BenchmarkRoute(b *testing.B) {
	b.Run("hash", func(b *testing.B) { benchmarkRoute(b, 0) })
	b.Run("memo", func(b *testing.B) { benchmarkRoute(b, 64<<20) })
}

func benchmarkRoute(b *testing.B, memo int64) {
	for _, workers := range []int{1, 8, 64} {
		a, err := kvatlas.New(kvatlas.Options{MemoBytes: memo})
		require.NoError(b, err)
		p := blockhash.Prompt{Tokens: tokens(6250*16 + 1)}
		w := kvatlas.Worker{Release: "0.32.0", BlockSize: 16}
		keys := keysOf(b, w, p)
		events := stored(keys, p.Tokens[:6250*16])
		events.BlockSize = 16
		store := payload(b, w.Release, events)
		for i := range workers {
			w.Name = fmt.Sprint("w", i)
			require.NoError(b, a.AddWorker(w))
			require.NoError(b, a.Apply(w.Name, store))
		}
		cold := tokens(6250*16 + 1)
		cold[0]++
		for name, ids := range map[string][]uint32{"warm": p.Tokens, "cold": cold} {
			b.Run(fmt.Sprintf("%s/workers=%d", name, workers), func(b *testing.B) {
				var c kvatlas.Choice
				req := &kvatlas.Request{Prompt: blockhash.Prompt{Tokens: ids}}
				b.ReportAllocs()
				for b.Loop() {
					if err := a.Route(req, &c); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkApply decodes and applies the message of a 64-block store and that of
// its removal.
func BenchmarkApply(b *testing.B) {
	w := worker("w")
	p := blockhash.Prompt{Tokens: tokens(64*unit + 1)}
	keys := keysOf(b, w, p)
	a := newAtlas(b, w)
	store := payload(b, w.Release, stored(keys, p.Tokens[:64*unit]))
	drop := payload(b, w.Release, removed(keys...))
	b.ReportAllocs()
	for b.Loop() {
		if a.Apply("w", store) != nil || a.Apply("w", drop) != nil {
			b.Fatal("not applied")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/128, "ns/block")
}
