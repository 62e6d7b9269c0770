package kvevents_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/kveventstest"
	"github.com/stretchr/testify/require"
)

// TestLossPolicies measures what each policy costs: predicted against reported
// hits of an engine without replay endpoint that loses one batch in fifty. "Until
// proven" keeps what is known until a request is reported fewer tokens than predicted.
func TestLossPolicies(t *testing.T) {
	type result struct{ exact, over, under, overTokens, underTokens int }
	results := map[string]result{}
	const requests = 600
	for _, policy := range []struct {
		name   string
		onLoss kvevents.LossPolicy
		prove  bool
	}{
		{"clear", kvevents.ClearOnLoss, false}, {"decay", kvevents.DecayOnLoss, false},
		{"keep", kvevents.KeepOnLoss, false}, {"keep until proven", kvevents.KeepOnLoss, true},
	} {
		rng := rand.New(rand.NewPCG(11, 11))
		e := engineOf(t, kveventstest.Options{Blocks: 400})
		f := &fleet{}
		s := subscribe(t, f, kvevents.SubscriberOptions{Stream: kvevents.StreamOptions{OnLoss: policy.onLoss, Decay: 100 * time.Millisecond}})
		require.NoError(t, s.Add(targetOf("a", e)))
		require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
		var r result
		unseen := false
		for range requests {
			tokens := make([]uint32, 33+rng.IntN(300))
			text := uint32(min(rng.ExpFloat64()*15, 500)) // some texts are asked for often
			for i := range tokens {
				tokens[i] = text<<16 | uint32(i)
			}
			held := f.of("a", 0)
			predicted := 0
			for i, h := range e.Hashes(tokens) {
				if held[kveventstest.Block{Medium: "GPU", Hash: h}] == 0 || 16*(i+1) >= len(tokens) {
					break
				}
				predicted = 16 * (i + 1)
			}
			if rng.IntN(50) == 0 {
				e.Inject(kveventstest.Drop, 1)
			}
			before := e.Seq()
			reported := e.Serve(tokens)
			switch {
			case predicted > reported:
				r.over++
				r.overTokens += predicted - reported
				if policy.prove {
					require.True(t, s.Disprove(kvevents.Source{Worker: "a"}))
					require.False(t, s.Disprove(kvevents.Source{Worker: "a", Rank: 1}))
					require.False(t, s.Disprove(kvevents.Source{Worker: "b"}))
				}
			case predicted < reported:
				r.under++
				r.underTokens += reported - predicted
			default:
				r.exact++
			}
			// A batch that was dropped shows only with the next one.
			if unseen = unseen && e.Seq() == before; e.Seq() > before {
				for i := 0; i < 40 && statusOf(s, "a", 0).Next < e.Seq(); i++ {
					time.Sleep(100 * time.Microsecond)
				}
			}
		}
		results[policy.name] = r
		t.Logf("%-17s exact %.1f%%, too high %.1f%% (%d tokens), too low %.1f%% (%d tokens), %d losses",
			policy.name, 100*float64(r.exact)/requests, 100*float64(r.over)/requests, r.overTokens,
			100*float64(r.under)/requests, r.underTokens, statusOf(s, "a", 0).Stats.Losses)
	}
	clear, keep, proven := results["clear"], results["keep"], results["keep until proven"]
	require.Less(t, clear.overTokens, keep.overTokens, fmt.Sprint(results))
	require.Less(t, proven.over, keep.over, fmt.Sprint(results))
}
