package scoring

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func (h *hand) speculation(t testing.TB, o SpeculationOptions) *Speculation {
	t.Helper()
	o.Now = h.now
	s, err := NewSpeculation(o)
	require.NoError(t, err)
	return s
}

func TestSpeculationSiblings(t *testing.T) {
	h := newHand()
	s := h.speculation(t, SpeculationOptions{})
	cs := []Candidate{{ID: 1}, {ID: 2}}
	req := &Request{Tokens: 64, BlockSize: 16}
	extend := func(keys []uint64) Match {
		cs[0].Match, cs[1].Match = Match{}, Match{}
		s.Extend(req, keys, cs, nil)
		require.Equal(t, Match{}, cs[1].Match)
		return cs[0].Match
	}
	a := s.Sent(1, chainOf(10, 11, 12, 13))
	require.Equal(t, Match{Blocks: [NumMedia]int32{4}, Speculative: 4, Score: 4, Usable: 48}, extend(chainOf(10, 11, 12, 13)))
	require.Equal(t, int32(2), extend(chainOf(10, 11, 99, 13)).Blocks[GPU])
	b := s.Sent(1, chainOf(10, 11, 20))
	a.Fail()
	require.Equal(t, int32(2), extend(chainOf(10, 11, 12)).Speculative, "b still brings the two")
	a.Fail() // again: nothing
	b.Fail()
	require.Equal(t, Match{}, extend(chainOf(10)))
	require.Equal(t, SpeculationStats{Entered: 5, Failed: 5}, s.Stats())
	SpecTicket{}.Done()
}

func TestSpeculationConfirmed(t *testing.T) {
	h := newHand()
	s := h.speculation(t, SpeculationOptions{})
	held := map[uint64]bool{}
	confirmed := func(_ WorkerID, k uint64) bool { return held[k] }
	cs := []Candidate{{ID: 1}}
	match := func(known int32, keys ...uint64) (total, speculative int32) {
		cs[0].Match = Match{Blocks: [NumMedia]int32{known}}
		s.Extend(&Request{BlockSize: 16}, keys, cs, confirmed)
		return cs[0].Match.Total(), cs[0].Match.Speculative
	}
	a := s.Sent(1, chainOf(1, 2, 3))
	s.Stored(1, chainOf(2)) // confirmed out of order
	held[2] = true
	n, spec := match(0, 1, 2, 3)
	require.Equal(t, []int32{3, 2}, []int32{n, spec}, "goes on over what is confirmed")
	s.Stored(1, chainOf(1, 3))
	require.False(t, s.Has(1, 1))

	// The engine evicts: a claim that was confirmed does not come back with
	// its request, neither before nor after its end.
	s.Removed(1, chainOf(1, 2, 3))
	clear(held)
	n, _ = match(0, 1, 2, 3)
	require.Zero(t, n)
	b := s.Sent(1, chainOf(1, 2)) // a new claim of the same blocks
	a.Fail()
	n, _ = match(0, 1, 2)
	require.Equal(t, int32(2), n, "the end of the confirmed request does not touch it")
	s.Removed(1, chainOf(1))
	require.True(t, s.Has(1, 1), "b waits and will compute it anew")
	b.FirstToken()
	s.Removed(1, chainOf(1))
	require.False(t, s.Has(1, 1), "b has computed it, so it is really gone")
	require.True(t, s.Has(1, 2))
	s.Forget(1)
	require.Zero(t, s.Stats().Entries)
}

func TestSpeculationLives(t *testing.T) {
	h := newHand()
	s := h.speculation(t, SpeculationOptions{})
	s.Sent(1, chainOf(1))
	a := s.Sent(1, chainOf(2))
	h.advance(59 * time.Second)
	require.True(t, s.Has(1, 1))
	a.FirstToken()
	h.advance(time.Second)
	require.False(t, s.Has(1, 1), "60 s without a report")
	require.True(t, s.Has(1, 2))
	h.advance(time.Second)
	require.False(t, s.Has(1, 2), "2 s after the first token")
	require.Equal(t, uint64(2), s.Stats().Expired)

	// A lag of 10 s is measured, and the life follows: four times the average.
	for range 60 {
		b := s.Sent(1, chainOf(7))
		b.FirstToken()
		h.advance(time.Second)
		s.Stored(1, chainOf(7))
	}
	require.InDelta(t, 1, s.Stats().Lag.Seconds(), 0.01)
	b := s.Sent(1, chainOf(8))
	b.Done()
	h.advance(3900 * time.Millisecond)
	require.True(t, s.Has(1, 8))
	h.advance(-time.Hour) // stands still
	require.True(t, s.Has(1, 8))
	h.advance(time.Hour + 200*time.Millisecond)
	require.False(t, s.Has(1, 8))
}

func TestSpeculationLimits(t *testing.T) {
	s := newHand().speculation(t, SpeculationOptions{MaxBlocks: 4})
	a := s.Sent(1, chainOf(1, 2, 3))
	b := s.Sent(1, chainOf(4, 5))
	require.False(t, s.Has(1, 4))
	b.Fail()
	require.Equal(t, uint64(2), s.Stats().Refused)
	a.Fail()
	s.Sent(1, chainOf(4, 5))
	require.True(t, s.Has(1, 4))
	for _, o := range []SpeculationOptions{{MaxTTL: -1}, {MinTTL: -1}, {MaxBlocks: -1}, {LagFactor: -1}} {
		_, err := NewSpeculation(o)
		require.ErrorIs(t, err, ErrOption)
	}
}

// TestSpeculationAgainstList compares with a list of claims.
func TestSpeculationAgainstList(t *testing.T) {
	type claim struct {
		ticket   SpecTicket
		w        WorkerID
		keys     map[uint64]bool
		computed bool
		until    time.Time
	}
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 4))
		h := newHand()
		s := h.speculation(t, SpeculationOptions{MaxTTL: 20 * time.Second, MinTTL: 5 * time.Second, LagFactor: 1e-9})
		var list []*claim
		for range 400 {
			h.advance(time.Duration(rng.IntN(1500)) * time.Millisecond)
			kept := list[:0]
			for _, c := range list {
				if h.t.Before(c.until) {
					kept = append(kept, c)
				}
			}
			list = kept
			keys := make([]uint64, rng.IntN(5))
			for i := range keys {
				keys[i] = uint64(rng.IntN(8))
			}
			w := WorkerID(rng.IntN(2))
			switch rng.IntN(6) {
			case 0, 1:
				c := &claim{ticket: s.Sent(w, keys), w: w, keys: map[uint64]bool{}, until: h.t.Add(20 * time.Second)}
				for _, k := range keys {
					c.keys[k] = true
					for _, o := range list { // the block will be computed again
						if o.w == w && o.computed && o.keys[k] {
							o.keys[k], c.keys[k] = true, true
						}
					}
				}
				list = append(list, c)
			case 2:
				s.Stored(w, keys)
				for _, c := range list {
					for _, k := range keys {
						if c.w == w {
							delete(c.keys, k)
						}
					}
				}
			case 3:
				if len(list) > 0 {
					i := rng.IntN(len(list))
					list[i].ticket.Fail()
					list = append(list[:i], list[i+1:]...)
				}
			case 4:
				if len(list) > 0 {
					if c := list[rng.IntN(len(list))]; !c.computed {
						c.ticket.FirstToken()
						c.computed, c.until = true, h.t.Add(5*time.Second)
					}
				}
			}
			for w := range WorkerID(2) {
				for k := range uint64(8) {
					want := false
					for _, c := range list {
						want = want || c.w == w && c.keys[k]
					}
					require.Equal(t, want, s.Has(w, k), "seed %d", seed)
				}
			}
		}
	}
}

func TestSpeculationConcurrentSafe(t *testing.T) {
	s, err := NewSpeculation(SpeculationOptions{})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			cs := []Candidate{{ID: 0}, {ID: 1}}
			keys := chainOf(1, 2, uint64(g))
			for i := range 300 {
				w := WorkerID(i % 2)
				a := s.Sent(w, keys)
				s.Extend(&Request{}, keys, cs, nil)
				s.Stored(w, keys[:1])
				a.FirstToken()
				s.Removed(w, keys[1:])
				if i%50 == 0 {
					s.Forget(w)
				}
				a.Fail()
			}
		})
	}
	wg.Wait()
	require.Zero(t, s.Stats().Entries)
}

func TestSpeculationAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := newHand().speculation(t, SpeculationOptions{})
	cs, keys, req := []Candidate{{ID: 1}}, chainOf(1, 2, 3, 4), &Request{BlockSize: 16}
	run := func() {
		a := s.Sent(1, keys)
		s.Extend(req, keys, cs, nil)
		s.Stored(1, keys[:2])
		a.FirstToken()
		a.Fail()
	}
	run()
	require.Zero(t, testing.AllocsPerRun(200, run))
}
