package kvatlas_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/radix"
	"github.com/kvatlas/kvatlas/scoring"
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

// BenchmarkDecision matches, fills in loads, scores with the default policy and
// picks, for a prompt of 6,250 blocks whose keys are known and which every worker
// holds but for the last few.
func BenchmarkDecision(b *testing.B) {
	for _, workers := range []int{64, 1024} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			x, err := radix.New(radix.Options{})
			require.NoError(b, err)
			profile, err := radix.NewProfile(radix.ProfileOptions{HashUnit: 16})
			require.NoError(b, err)
			loads, err := scoring.NewInFlight(scoring.InFlightOptions{})
			require.NoError(b, err)
			policy, err := scoring.NewKVAtlas(scoring.KVAtlasOptions{})
			require.NoError(b, err)
			keys := make([]uint64, 6250)
			for i := range keys {
				keys[i] = uint64(i+1) * 0x9e3779b97f4a7c15
			}
			candidates := make([]scoring.Candidate, workers)
			for i := range candidates {
				name := fmt.Sprint("worker-", i)
				w, err := x.AddWorker(name, profile)
				require.NoError(b, err)
				require.NoError(b, x.Store(radix.Holder{Worker: w}, keys[:len(keys)-i%7]))
				candidates[i] = scoring.Candidate{ID: scoring.WorkerID(i), Name: name}
				loads.Add(scoring.WorkerID(i))
				for range i % 5 {
					_, err = loads.Begin(scoring.WorkerID(i), scoring.Sent{PromptTokens: 1000})
					require.NoError(b, err)
				}
				require.NoError(b, loads.Scraped(scoring.WorkerID(i), scoring.Load{Running: scoring.Known(9), Waiting: scoring.Known(1), KVUsage: scoring.Known(0.5)}))
			}
			q := radix.Query{Keys: keys, Tokens: 16*len(keys) + 9}
			req := scoring.Request{Tokens: q.Tokens, BlockSize: 16, Novel: 7}
			var found radix.Result
			var d scoring.Decision
			b.ReportAllocs()
			for b.Loop() {
				if err := x.Match(&q, &found); err != nil {
					b.Fatal(err)
				}
				for i := range found.Workers {
					m := &candidates[i].Match
					m.Usable, m.Score, m.Blocks[scoring.GPU] = int32(found.Workers[i].Usable), found.Workers[i].Score, int32(found.Workers[i].Prefix)
				}
				loads.Fill(candidates)
				if err := policy.Policy().Decide(&req, candidates, &d); err != nil {
					b.Fatal(err)
				}
			}
		})
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
