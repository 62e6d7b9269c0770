package scoring

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func chainOf(ids ...uint64) []uint64 { return ids }

func TestHistoryMatches(t *testing.T) {
	h := newHand()
	hist, err := NewHistory(HistoryOptions{Capacity: 4, BlockTokens: 64, Now: h.now})
	require.NoError(t, err)
	cs := []Candidate{{ID: 1}, {ID: 2}}
	req := &Request{Tokens: 64 * 3}
	hist.Sent(1, chainOf(10, 11, 12))
	hist.Match(req, chainOf(10, 11, 12), cs)
	require.Equal(t, int32(3), cs[0].Match.Blocks[GPU])
	require.Equal(t, int32(128), cs[0].Match.Usable, "the last token is always computed")
	require.Equal(t, Match{}, cs[1].Match)
	require.Equal(t, []Gauge{Known(3), Known(0)}, []Gauge{cs[0].Load.CacheSize, cs[1].Load.CacheSize})

	// A fourth and fifth block push out the tail of the first chain, not its
	// head: 12 was the least recently used.
	hist.Sent(1, chainOf(20, 21))
	hist.Match(req, chainOf(10, 11, 12), cs)
	require.Equal(t, int32(2), cs[0].Match.Blocks[GPU])
	require.Equal(t, 4, hist.Blocks(1))
	hist.Remove(1)
	require.Zero(t, hist.Blocks(1))
}

func TestHistoryLimits(t *testing.T) {
	h := newHand()
	hist, err := NewHistory(HistoryOptions{BlockTokens: 64, MaxTokens: 130, TTL: 2 * time.Minute, Now: h.now})
	require.NoError(t, err)
	cs := []Candidate{{ID: 1}}
	hist.Sent(1, chainOf(1, 2, 3))
	hist.Match(&Request{}, chainOf(1, 2, 3), cs)
	require.Equal(t, int32(2), cs[0].Match.Blocks[GPU], "130 tokens are 2 blocks of 64")
	require.Equal(t, int32(128), cs[0].Match.Usable, "of a prompt that may be longer")
	h.advance(time.Minute)
	hist.Sent(1, chainOf(1))
	h.advance(time.Minute)
	hist.Match(&Request{}, chainOf(1, 2), cs)
	require.Equal(t, int32(1), cs[0].Match.Blocks[GPU], "2 expired")
	h.advance(-time.Hour)
	hist.Match(&Request{}, chainOf(1, 2), cs)
	require.Equal(t, int32(1), cs[0].Match.Blocks[GPU])

	for _, o := range []HistoryOptions{{Capacity: -1}, {TTL: -1}, {BlockTokens: -1}, {Capacity: math.MaxInt}} {
		_, err := NewHistory(o)
		require.ErrorIs(t, err, ErrOption)
	}
}

// TestHistoryRestarted is the trial of volcano-sh/kthena#1463: a restarted pod
// keeps its name, and what it held before must not be believed any more.
func TestHistoryRestarted(t *testing.T) {
	h := newHand()
	hist, err := NewHistory(HistoryOptions{Now: h.now})
	require.NoError(t, err)
	hist.Sent(1, chainOf(1, 2, 3))
	h.advance(time.Second)
	restart := h.t
	hist.Sent(1, chainOf(1, 7))
	hist.Restarted(1, restart)
	hist.Restarted(9, restart)
	cs := []Candidate{{ID: 1}}
	hist.Match(&Request{}, chainOf(1, 2, 3), cs)
	require.Equal(t, int32(1), cs[0].Match.Blocks[GPU], "1 was sent again since")
	require.Equal(t, 2, hist.Blocks(1))
	h.advance(-time.Hour) // a clock that goes back stands still
	hist.Sent(2, chainOf(8))
	hist.Restarted(2, restart)
	require.Equal(t, 1, hist.Blocks(2))
}

// TestHistoryAgainstList compares with a list ordered by use.
func TestHistoryAgainstList(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 2))
		h := newHand()
		capacity := 1 + rng.IntN(12)
		hist, err := NewHistory(HistoryOptions{Capacity: capacity, TTL: 30 * time.Second, BlockTokens: 1, MaxTokens: -1, Now: h.now})
		require.NoError(t, err)
		type used struct {
			key uint64
			at  time.Time
		}
		var list []used // least recently used first
		cs := []Candidate{{ID: 3}}
		for range 300 {
			h.advance(time.Duration(rng.IntN(5)) * time.Second)
			keys := make([]uint64, rng.IntN(6))
			for i := range keys { // a chain: a key names all before it
				keys[i] = uint64(rng.IntN(3))
				if i > 0 {
					keys[i] += keys[i-1] * 3
				}
				keys[i] += uint64(i) << 32
			}
			if rng.IntN(2) == 0 {
				hist.Sent(3, keys)
				for _, k := range slices.Backward(keys[:min(len(keys), capacity)]) {
					list = slices.DeleteFunc(list, func(u used) bool { return u.key == k })
					if len(list) == capacity {
						list = list[1:]
					}
					list = append(list, used{k, h.t})
				}
			}
			list = slices.DeleteFunc(list, func(u used) bool { return h.t.Sub(u.at) >= 30*time.Second })
			want := 0
			for want < len(keys) && slices.ContainsFunc(list, func(u used) bool { return u.key == keys[want] }) {
				want++
			}
			hist.Match(&Request{}, keys, cs)
			require.Equal(t, int32(want), cs[0].Match.Blocks[GPU])
			require.Equal(t, len(list), hist.Blocks(3))
		}
	}
}

func TestHistoryConcurrentSafe(t *testing.T) {
	hist, err := NewHistory(HistoryOptions{Capacity: 100})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			cs := []Candidate{{ID: 0}, {ID: 1}}
			for i := range 500 {
				keys := chainOf(uint64(i), uint64(i+1000), uint64(g))
				hist.Sent(WorkerID(i%2), keys)
				hist.Match(&Request{}, keys, cs)
				if i%100 == 0 {
					hist.Remove(WorkerID(g % 2))
				}
			}
		})
	}
	wg.Wait()
}

func TestHistoryAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	hist, err := NewHistory(HistoryOptions{Capacity: 8})
	require.NoError(t, err)
	cs, keys := []Candidate{{ID: 1}}, chainOf(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	n := uint64(0)
	hist.Sent(1, keys)
	require.Zero(t, testing.AllocsPerRun(200, func() {
		for i := range keys {
			n++
			keys[i] = n % 64
		}
		hist.Sent(1, keys)
		hist.Match(&Request{}, keys, cs)
	}))
}
