package scoring

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShadow(t *testing.T) {
	least, err := LeastLoaded{}.Policy()
	require.NoError(t, err)
	failing := mustNew(t, Options{Scorers: []WeightedScorer{{Scorer: forgetful{}}}})
	var last ShadowReport
	s, err := NewShadow(least, mustNew(t, Options{Scorers: []WeightedScorer{{Scorer: Prefix{}}}}), func(r ShadowReport) { last = r })
	require.NoError(t, err)
	cs := []Candidate{worker(0, 0, 0), worker(1, 5, 3)}
	var d Decision
	require.NoError(t, s.Decide(&Request{Blocks: 10}, cs, &d))
	require.Equal(t, "w0", d.Chosen.Name)
	require.Equal(t, []string{"w0", "w1"}, []string{last.Chosen.Name, last.Shadow.Name})
	require.Equal(t, 80, last.CachedTokens)
	cs[0].Load.Requests = Known(4)
	require.NoError(t, s.Decide(&Request{Blocks: 10}, cs, &d))
	require.Equal(t, ShadowStats{Decisions: 2, Agreed: 1, CachedTokens: 80}, s.Stats())
	require.ErrorIs(t, s.Decide(&Request{}, nil, &d), ErrNoCandidates)

	s, err = NewShadow(least, failing, nil)
	require.NoError(t, err)
	require.NoError(t, s.Decide(&Request{}, cs, &d), "a shadow that fails changes nothing")
	require.Equal(t, ShadowStats{Decisions: 1, Failed: 1}, s.Stats())
	_, err = NewShadow(least, nil, nil)
	require.ErrorIs(t, err, ErrOption)

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var d Decision
			for range 200 {
				_ = s.Decide(&Request{}, cs, &d)
			}
		})
	}
	wg.Wait()
	require.Equal(t, uint64(1601), s.Stats().Decisions)
}
