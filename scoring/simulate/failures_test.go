package simulate

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/scoring"
)

// cut shortens a generated trace, to keep the tests quick.
func cut(t *Trace, seconds float64) *Trace {
	n := 0
	for n < len(t.Arrivals) && t.Arrivals[n].At < seconds {
		n++
	}
	return &Trace{BlockSize: t.BlockSize, Arrivals: t.Arrivals[:n]}
}

func play(t *testing.T, c Config, trace *Trace) *Result {
	t.Helper()
	r, err := Run(c, trace)
	require.NoError(t, err)
	require.Zero(t, r.Unfinished)
	return r
}

// The five ways in which policies fail, each with the default and with what
// handles it switched off.

func TestHotSpotIsSpread(t *testing.T) {
	for seed := range uint64(2) {
		trace := hotspot(seed)
		r := play(t, Config{Policy: "kvatlas", Seed: seed, Load: 1.2}, trace)
		require.LessOrEqual(t, r.LoadMaxOverMean, 1.3, "seed %d", seed)
		require.Greater(t, float64(r.Good)/float64(r.Requests), 0.99)
		// The hot prefix is copied to the workers, not computed again and again.
		require.Less(t, float64(r.PrefillTokens), 1.2*float64(r.UniqueTokens))
	}
}

// TestHotSpotBeyondTheFleet: where answers are written too slowly for all, a worker
// without the hot prompt would be half idle; its copies spread the load.
func TestHotSpotBeyondTheFleet(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		trace := hotspot(seed)
		r := play(t, Config{Policy: "kvatlas", Seed: seed, Load: 1.5}, trace)
		require.LessOrEqual(t, r.LoadMaxOverMean, 1.3, "seed %d", seed)
		for _, policy := range []string{"production-stack-session", "dynamo-two-tier"} { // the best two
			other := play(t, Config{Policy: policy, Seed: seed, Load: 1.5}, trace)
			require.Greater(t, float64(r.Good), 0.97*float64(other.Good), "seed %d, %s", seed, policy)
		}
	}
}

func TestFreshWorkerIsUsed(t *testing.T) {
	for seed := range uint64(2) {
		trace := cut(zipf(seed), 60)
		c := Config{Policy: "kvatlas", Seed: seed, Load: 1, Joins: []float64{20}}
		r := play(t, c, trace)
		require.GreaterOrEqual(t, r.JoinSeconds, 0.0)
		require.LessOrEqual(t, r.JoinSeconds, 2.0, "80 %% of the mean share, seed %d", seed)
		// No stampede: it does not get more than it can take.
		require.Greater(t, float64(r.Good)/float64(r.Requests), 0.95)
	}
}

func TestUniquePromptsAreBalanced(t *testing.T) {
	for seed := range uint64(2) {
		trace := cut(unique(seed), 40)
		r := play(t, Config{Policy: "kvatlas", Seed: seed, Load: 1}, trace)
		least := play(t, Config{Policy: "least-loaded", Seed: seed, Load: 1}, trace)
		require.GreaterOrEqual(t, r.Good, least.Good)
		require.LessOrEqual(t, r.TTFT95, least.TTFT95, "seed %d", seed)
	}
}

func TestSiblingBurstsAreComputedOnce(t *testing.T) {
	for seed := range uint64(2) {
		trace := cut(burst(seed), 40)
		c := Config{Policy: "kvatlas", Seed: seed, Load: 1}
		r := play(t, c, trace)
		require.LessOrEqual(t, float64(r.PrefillTokens), 1.2*float64(r.UniqueTokens), "seed %d", seed)
		c.NoSpeculation = true
		without := play(t, c, trace)
		require.Greater(t, without.PrefillTokens, r.PrefillTokens)
	}
}

// TestSiblingsTogetherOrSpread: 64 prompts with the same beginning at the same
// instant. A long one is worth keeping on one worker, one of 128 tokens is not; and
// it is the policy that decides, as the others show.
func TestSiblingsTogetherOrSpread(t *testing.T) {
	siblings := func(shared int) *Trace {
		m := newMaker(1)
		prefix := m.fresh(shared / genBlock)
		for i := range 16 { // so that replicas have heard of each other
			m.request(float64(i)/16, "", 1000, m.fresh(1))
		}
		for range 64 {
			m.request(1, "", 100, prefix)
		}
		return m.done()
	}
	for _, c := range []struct {
		config    Config
		shared    int
		computed  [2]float64 // times what one worker would compute
		imbalance [2]float64 // 8: all on one of eight workers; 1: an eighth on each; beside 16 others
	}{
		{Config{Policy: "kvatlas"}, 8192, [2]float64{1, 1}, [2]float64{4, 8}},
		{Config{Policy: "kvatlas", Routers: 4, PeerLag: 0.02}, 8192, [2]float64{1, 1.1}, [2]float64{4, 8}},
		{Config{Policy: "kvatlas"}, 128, [2]float64{1, 4}, [2]float64{1, 1.5}},
		{Config{Policy: "kvatlas", NoSpeculation: true}, 8192, [2]float64{3, 8}, [2]float64{1, 4}},
		{Config{Policy: "llm-d-approx"}, 8192, [2]float64{1, 1}, [2]float64{4, 8}},
		{Config{Policy: "least-loaded"}, 8192, [2]float64{3, 8}, [2]float64{1, 1.5}},
	} {
		r := play(t, c.config, siblings(c.shared))
		computed := float64(r.PrefillTokens) / float64(r.UniqueTokens)
		t.Logf("%s, %d routers, speculation %v, %d tokens: computed %.2f times, max/mean load %.2f, p99 %.0f ms",
			c.config.Policy, max(1, c.config.Routers), !c.config.NoSpeculation, c.shared, computed, r.LoadMaxOverMean, 1000*r.TTFT99)
		require.True(t, c.computed[0] <= computed && computed <= c.computed[1]+0.001, "%+v: computed %v times", c, computed)
		require.True(t, c.imbalance[0] <= r.LoadMaxOverMean+0.001 && r.LoadMaxOverMean <= c.imbalance[1]+0.001, "%+v: max/mean %v", c, r.LoadMaxOverMean)
	}
}

func TestManyRoutersDoNotHerd(t *testing.T) {
	for seed := range uint64(2) {
		trace := cut(zipf(seed), 60)
		one := play(t, Config{Policy: "kvatlas", Seed: seed, Load: 1.2}, trace)
		four := play(t, Config{Policy: "kvatlas", Seed: seed, Load: 1.2, Routers: 4}, trace)
		require.GreaterOrEqual(t, float64(four.Good), 0.95*float64(one.Good), "seed %d", seed)
	}
}

// TestReplicasThatTell: replicas that hear of each other's requests 20 ms later do in
// an overload what one does, and what shares nothing cannot.
func TestReplicasThatTell(t *testing.T) {
	for name, overload := range map[string]struct {
		trace *Trace
		load  float64
	}{"unique": {unique(1), 1.4}, "samples": {bestOfN(1), 0.9}, "burst": {burst(1), 3}} {
		c := Config{Policy: "kvatlas", Seed: 1, Load: overload.load}
		one := play(t, c, overload.trace)
		c.Routers = 4
		alone := play(t, c, overload.trace)
		c.PeerLag = 0.02
		telling := play(t, c, overload.trace)
		require.Greater(t, float64(telling.Good), 0.85*float64(one.Good), name)
		require.Greater(t, float64(telling.Good), 1.05*float64(alone.Good), name)
		require.LessOrEqual(t, float64(telling.PrefillTokens), 1.1*float64(telling.UniqueTokens), name)
	}
}

// TestReplicasAtOneInstant: eight prompts come to four replicas at the same instant, for
// whom eight workers are idle. No replica can tell the others in time: most prompts wait
// for another, unless replicas have numbers, and learn what to expect.
func TestReplicasAtOneInstant(t *testing.T) {
	const bursts, seeds = 100, 4
	waited := func(seed uint64, routers int, numbered bool) (n int) {
		m := newMaker(seed)
		for i := range bursts {
			for range 8 {
				m.request(1+2*float64(i), "", 2, m.fresh(8192/genBlock))
			}
		}
		c := Config{Policy: "kvatlas", Seed: seed, Noise: -1, PeerLag: 0.002, Routers: routers}
		require.NoError(t, c.validate())
		f, err := newFleet(&c, m.t)
		require.NoError(t, err)
		for _, r := range f.routers {
			if !numbered {
				r.replica = 0 // its notes do not say whose they are
			}
		}
		require.NoError(t, f.run())
		alone := slices.Min(f.result.ttft)
		for _, ttft := range f.result.ttft {
			if ttft > 1.5*alone {
				n++
			}
		}
		return n
	}
	without, with := 0, 0
	for seed := range uint64(seeds) {
		require.Zero(t, waited(seed, 1, true), "seed %d", seed)
		without += waited(seed, 4, false)
		n := waited(seed, 4, true)
		require.Equal(t, n, waited(seed, 4, true), "the seed decides everything")
		with += n
	}
	t.Logf("of %d prompts none wait for another with one router, %d with four, %d with four that have numbers", 8*bursts*seeds, without, with)
	require.Greater(t, without, 8*bursts*seeds/2, "this shows nothing")
	require.Less(t, with, without/2)
}

// TestRoutersAgreeOnNewPrompts: the samples of a prompt reach four routers at
// once, and it is computed little more than once.
func TestRoutersAgreeOnNewPrompts(t *testing.T) {
	for seed := range uint64(2) {
		trace := cut(bestOfN(seed), 30)
		four := play(t, Config{Policy: "kvatlas", Seed: seed, Load: 0.7, Routers: 4}, trace)
		require.Greater(t, float64(four.Good), 0.95*float64(four.Requests), "seed %d", seed)
		require.Less(t, float64(four.PrefillTokens), 1.5*float64(four.UniqueTokens))
	}
}

// TestOverloadLeavesMostInTime: of prompts for which the fleet is too small by a
// seventh, an even spread makes nearly all late.
func TestOverloadLeavesMostInTime(t *testing.T) {
	trace := unique(1)
	with := play(t, Config{Policy: "kvatlas", Seed: 1, Load: 1.4}, trace)
	without := play(t, Config{Policy: "kvatlas", Seed: 1, Load: 1.4, Tuning: scoring.KVAtlasOptions{Objective: -1}}, trace)
	require.Greater(t, with.Good, without.Good*3/2)
	require.Less(t, with.TTFT50, without.TTFT50)
	// Nobody is put off for more than ten objectives by the queue alone.
	require.Less(t, with.TTFT99, 45.0)
}

// TestWorkKeepsPrefixesTogether: without charging the fleet for computing, the
// same prompt is computed in too many places.
func TestWorkKeepsPrefixesTogether(t *testing.T) {
	trace := cut(zipf(1), 60)
	with := play(t, Config{Policy: "kvatlas", Seed: 1, Load: 1}, trace)
	without := play(t, Config{Policy: "kvatlas", Seed: 1, Load: 1, Tuning: scoring.KVAtlasOptions{Work: -1}}, trace)
	require.Less(t, 1.3*float64(with.PrefillTokens), float64(without.PrefillTokens))
}
