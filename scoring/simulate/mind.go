package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvatlas/kvatlas/scoring"
)

// mind is a policy and what it wants to be told.
type mind struct {
	policy *scoring.Policy
	// historyTokens > 0 matches by routing history of so many tokens a worker
	// instead of events, as the systems do that the policy comes from.
	historyTokens int
	speculate     bool
	queued        bool // wants all queued prompt tokens as what is ahead

	atlas       *scoring.KVAtlas
	gorgo       *scoring.GorgoCost
	calibration scoring.GorgoCalibration
	seen        int
}

// Policies returns the names that a simulation knows: every preset, and kvatlas.
func Policies() []string {
	names := append(scoring.PresetNames(), "kvatlas")
	slices.Sort(names)
	return names
}

func newMind(f *fleet, random scoring.Random) (m *mind, err error) {
	m = &mind{}
	switch f.c.Policy {
	case "kvatlas":
		o := f.c.Tuning
		o.Random = random
		if o.Objective == 0 {
			o.Objective = time.Duration(f.c.TTFT * float64(time.Second))
		}
		if m.atlas, err = scoring.NewKVAtlas(o); err != nil {
			return nil, err
		}
		m.policy, m.speculate = m.atlas.Policy(), !f.c.NoSpeculation
		return m, nil
	case "gorgo-2d":
		if m.gorgo, err = scoring.NewGorgoCost(true, scoring.GorgoWeights{}); err != nil {
			return nil, err
		}
		m.queued = true
		m.policy, err = scoring.Gorgo{Cost: m.gorgo, Random: random}.Policy()
		return m, err
	case "llm-d-approx":
		m.historyTokens = 31250 * 64
		m.policy, err = scoring.LLMDApprox{LLMD: scoring.LLMD{Random: random}, Now: f.clock}.Policy()
		return m, err
	case "sglang-cache-aware", "ray-prefix-affinity":
		m.historyTokens = 1 << 22 // 2^24 characters of about 4 a token
	case "production-stack-prefixaware":
		m.historyTokens = 1 << 30 // never forgets
	}
	if m.policy, err = scoring.Preset(f.c.Policy, random); err != nil {
		return nil, fmt.Errorf("simulate: policy %q is not known; there are %q", f.c.Policy, Policies())
	}
	return m, nil
}

// firstToken lets policies that learn do so.
func (m *mind) firstToken(fl *flight, o scoring.Observation) {
	if m.atlas != nil {
		m.atlas.FirstToken(o)
	}
	if m.gorgo != nil {
		m.calibration.Add(o.Worker, fl.a.Tokens-fl.cached, fl.ahead, o.TTFT)
		if m.seen++; m.seen%50 == 0 {
			if prefill, queue, ok := m.calibration.Rates(); ok {
				w := m.gorgo.Weights()
				w.PrefillRate, w.QueueRate = prefill, queue
				_ = m.gorgo.SetWeights(w) // positive rates are valid
			}
		}
	}
}
