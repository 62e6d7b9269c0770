package kvatlas_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// stopwatch adds up what it is told.
type stopwatch struct {
	counts [kvatlas.NumStages]int
	sum    time.Duration
	least  time.Duration
}

func (s *stopwatch) Observe(stage kvatlas.Stage, d time.Duration) {
	s.counts[stage]++
	s.sum += d
	s.least = min(s.least, d)
}

// TestObservedAnswers: whoever looks on changes no answer, though the chain is
// read ahead for them; the stages of a decision do not overlap.
func TestObservedAnswers(t *testing.T) {
	for _, speculate := range []bool{false, true} {
		var seen stopwatch
		plain, err := kvatlas.New(kvatlas.Options{Speculate: speculate})
		require.NoError(t, err)
		observed, err := kvatlas.New(kvatlas.Options{Speculate: speculate, Observer: &seen})
		require.NoError(t, err)
		rng := rand.New(rand.NewPCG(8, 1))
		long := blockhash.Prompt{Tokens: tokens(4000*unit + 1)}
		keys := keysOf(t, worker(""), long)
		for i := range 12 {
			w := worker(fmt.Sprint("w", i))
			switch i % 3 {
			case 1:
				w.Cache.Groups = []radix.Group{{BlockSize: unit}, {BlockSize: unit, Kind: radix.SlidingWindow, Window: 8 * unit}}
			case 2:
				w.Algorithm, w.Seed = blockhash.XXHash, blockhash.Seed{} // by content
			}
			n := rng.IntN(4000)
			event := stored(keys[:n], long.Tokens[:n*unit])
			event.HasGroup = true
			events := []kvevents.Event{event}
			if len(w.Cache.Groups) > 1 {
				event.Group = 1
				events = append(events, event)
			}
			store := payload(t, w.Release, events...)
			for _, a := range []*kvatlas.Atlas{plain, observed} {
				require.NoError(t, a.AddWorker(w))
				require.NoError(t, a.Apply(w.Name, store))
			}
		}
		applied := seen.counts[kvatlas.StageApply]
		require.Equal(t, 12, applied)
		var want, got kvatlas.Match
		var held [12]int
		var choice kvatlas.Choice
		for i := range 200 {
			req := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: append([]uint32(nil), long.Tokens[:rng.IntN(len(long.Tokens))]...)}}
			if n := len(req.Prompt.Tokens); n > 0 && i%2 == 0 {
				req.Prompt.Tokens[rng.IntN(n)]++ // goes another way
			}
			require.NoError(t, plain.Match(&req, &want))
			seen = stopwatch{}
			start := time.Now()
			require.NoError(t, observed.Match(&req, &got))
			require.LessOrEqual(t, seen.sum, time.Since(start))
			require.Zero(t, seen.least)
			require.Equal(t, [...]int{kvatlas.StageHash: 1, kvatlas.StageMatch: 1, kvatlas.StageScore: 0, kvatlas.StageApply: 0}, seen.counts)
			require.Equal(t, want.Workers, got.Workers)
			for j := range held {
				held[j] += got.Workers[j].Usable
			}

			seen = stopwatch{}
			start = time.Now()
			require.NoError(t, observed.Route(&req, &choice))
			require.LessOrEqual(t, seen.sum, time.Since(start))
			require.Zero(t, seen.least)
			require.Equal(t, [...]int{kvatlas.StageHash: 1, kvatlas.StageMatch: 1, kvatlas.StageScore: 1, kvatlas.StageApply: 0}, seen.counts)
			require.Equal(t, want.Workers, choice.Match.Workers)
			chosen, total := choice.Worker, choice.Decision.Total
			require.NoError(t, observed.Choose(&req, &choice))
			require.Equal(t, total, choice.Decision.Total, "halves make a whole")
			require.NotEmpty(t, chosen)
			require.Equal(t, 2, seen.counts[kvatlas.StageScore])
		}
		require.NotContains(t, held[:], 0, "each worker held something")
	}
}

// TestObservedErrors: a prompt that cannot be matched is observed, and nothing is
// scored for it.
func TestObservedErrors(t *testing.T) {
	var seen stopwatch
	a, err := kvatlas.New(kvatlas.Options{Observer: &seen})
	require.NoError(t, err)
	var c kvatlas.Choice
	require.ErrorIs(t, a.Route(&kvatlas.Request{}, &c), kvatlas.ErrNoWorkers)
	require.NoError(t, a.AddWorker(worker("a")))
	bad := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: []uint32{1}, WideTokens: []int64{1}}}
	require.Error(t, a.Route(&bad, &c))
	require.Error(t, a.Match(&bad, &c.Match))
	require.ErrorIs(t, a.Choose(&bad, &c), kvatlas.ErrNoWorkers)
	require.ErrorIs(t, a.Choose(nil, &c), kvatlas.ErrNil)
	require.Equal(t, [...]int{kvatlas.StageHash: 3, kvatlas.StageMatch: 3, kvatlas.StageScore: 0, kvatlas.StageApply: 0}, seen.counts)
}

// BenchmarkObserved is what an observer adds to a decision: the rounds with and
// without alternate.
func BenchmarkObserved(b *testing.B) {
	for _, memo := range []int64{0, 64 << 20} {
		for _, blocks := range []int{64, 6250} {
			var seen stopwatch
			var atlases [2]*kvatlas.Atlas
			w := kvatlas.Worker{Name: "w", Release: "0.32.0", BlockSize: 16}
			p := blockhash.Prompt{Tokens: tokens(blocks*16 + 1)}
			events := stored(keysOf(b, w, p), p.Tokens[:blocks*16])
			events.BlockSize = 16
			for i, o := range []kvatlas.Observer{nil, &seen} {
				var err error
				atlases[i], err = kvatlas.New(kvatlas.Options{MemoBytes: memo, Observer: o})
				require.NoError(b, err)
				require.NoError(b, atlases[i].AddWorker(w))
				require.NoError(b, atlases[i].Apply("w", payload(b, w.Release, events)))
			}
			b.Run(fmt.Sprintf("memo=%t/blocks=%d", memo > 0, blocks), func(b *testing.B) {
				var c [2]kvatlas.Choice
				var took [2]time.Duration
				req := &kvatlas.Request{Prompt: p}
				b.ReportAllocs()
				for b.Loop() {
					for i, a := range atlases {
						start := time.Now()
						if err := a.Route(req, &c[i]); err != nil {
							b.Fatal(err)
						}
						took[i] += time.Since(start)
					}
				}
				b.ReportMetric(float64(took[0].Nanoseconds())/float64(b.N), "plain-ns")
				b.ReportMetric(float64(took[1].Nanoseconds())/float64(b.N), "observed-ns")
				b.ReportMetric(100*(took[1].Seconds()/took[0].Seconds()-1), "more-%")
			})
		}
	}
}
