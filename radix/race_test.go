package radix

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestConcurrentWriters: trial T107. 64 goroutines store, remove, clear and look
// up the same hundred hashes; then each worker equals the replay of its own
// operations on the oracle.
func TestConcurrentWriters(t *testing.T) {
	const goroutines = 64
	x, err := New(Options{})
	require.NoError(t, err)
	p, err := NewProfile(ProfileOptions{HashUnit: 16})
	require.NoError(t, err)
	keys := seqKeys(100)
	type step struct {
		kind int
		h    Holder
		keys []uint64
	}
	logs := make([][]step, goroutines)
	ids := make([]WorkerID, goroutines)
	for i := range ids {
		ids[i], err = x.AddWorker(fmt.Sprint(i), p)
		require.NoError(t, err)
	}
	rounds := 1500
	if raceEnabled {
		rounds = 100
	}
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 9))
			var result Result
			for range rounds {
				from := r.IntN(len(keys))
				s := step{r.IntN(32), Holder{ids[i], Medium(r.IntN(2)), int16(r.IntN(3) - 1)}, keys[from : from+r.IntN(len(keys)-from)+1]}
				switch {
				case s.kind == 0:
					_ = x.Clear(s.h.Worker, s.h.Medium)
				case s.kind < 16:
					_ = x.Store(s.h, s.keys)
				case s.kind < 28:
					_ = x.Remove(s.h, s.keys)
				default:
					_ = x.Match(&Query{Keys: keys, Tokens: 1601}, &result)
					for j := range result.Workers { // the result is the caller's: T109
						result.Workers[j].Score = -1
						clear(result.Workers[j].Blocks)
					}
					continue
				}
				logs[i] = append(logs[i], s)
			}
		})
	}
	wg.Wait()
	o := newOracle()
	for i, log := range logs {
		o.profiles[ids[i]] = &ProfileOptions{HashUnit: 16}
		for _, s := range log {
			switch {
			case s.kind == 0:
				o.clear(s.h.Worker, s.h.Medium)
			case s.kind < 16:
				o.store(s.h, s.keys)
			default:
				o.remove(s.h, s.keys)
			}
		}
	}
	var result Result
	require.NoError(t, x.Match(&Query{Keys: keys, Tokens: 1601}, &result))
	for i, id := range ids {
		e, m := o.match(id, keys, 1601), &result.Workers[i]
		require.Equal(t, e.Combined, m.Combined)
		require.Equal(t, e.Usable, m.Usable)
		s, err := x.WorkerStats(id)
		require.NoError(t, err)
		require.EqualValues(t, o.missed[id], s.Unmatched)
		for _, h := range s.Held {
			require.Len(t, o.count[Holder{id, h.Medium, h.Group}], h.Blocks)
		}
	}
}

// TestNeverTooMuchUnderWrites has one writer grow and shrink a chain while
// readers match it: each answer must lie between the shortest and the longest
// prefix that was held during the call.
func TestNeverTooMuchUnderWrites(t *testing.T) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A", "B")
	keys := seqKeys(700)
	h := Holder{Worker: w[0]}
	// The writer announces what it is about to do: held lies within lo..hi.
	var lo, hi atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	// Versions let a reader see that the bounds moved during its call.
	var version atomic.Uint64
	checked := atomic.Int64{}
	for range 2 {
		wg.Go(func() {
			var r Result
			for !stop.Load() {
				v := version.Load()
				low, high := lo.Load(), hi.Load()
				_ = x.Match(&Query{Keys: keys}, &r)
				got := int64(r.Workers[0].Combined)
				if version.Load() != v {
					continue
				}
				checked.Add(1)
				if got < low || got > high {
					t.Errorf("got %d, held between %d and %d", got, low, high)
					stop.Store(true)
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(5, 5))
	have := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end) && !stop.Load(); {
		to := r.IntN(len(keys) + 1)
		version.Add(1)
		lo.Store(int64(min(have, to)))
		hi.Store(int64(max(have, to)))
		version.Add(1)
		if to > have {
			_ = x.Store(h, keys[have:to])
		} else {
			for i := have; i > to; i -= 7 {
				_ = x.Remove(h, keys[max(to, i-7):i])
			}
		}
		have = to
		version.Add(1)
		lo.Store(int64(have))
		hi.Store(int64(have))
		version.Add(1)
		time.Sleep(20 * time.Microsecond)
	}
	stop.Store(true)
	wg.Wait()
	require.Positive(t, checked.Load())
}
