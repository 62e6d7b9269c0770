package scoring

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Gorgo is GORGO's linear cost, the lowest wins, the first of equals:
//
//	gorgo:    RTT·rtt_ms + Prefill·uncached_tokens + Queue·queued_tokens
//	gorgo-2d: RTT·rtt_ms + PrefillRate·uncached_tokens + QueueRate·Queue·queued_tokens
//
// uncached_tokens is the prompt beyond [Match.Usable]; queued_tokens is
// [Load.PromptTokens]: prompt tokens dispatched and not completed, not discounted
// by hits (see [InFlightOptions.ReleasePromptAtFirstToken] for the option to
// release them at the first token). Fill [Load.RTT] with an EWMA of probes, or
// the scrape's time where there is none. Source: the package gorgo-lb 0.2.0, file
// policy/gorgo.py, MIT licence.
type Gorgo struct {
	// TwoD selects gorgo-2d.
	TwoD bool
	// Weights; the zero value means 1 for all.
	Weights GorgoWeights
	// Cost, if given, is used instead of Weights and TwoD: to tune it while
	// the policy works.
	Cost   *GorgoCost
	Random Random
}

// GorgoWeights are the weights and rates of [Gorgo]. Rates are milliseconds a
// token.
type GorgoWeights struct {
	RTT, Prefill, Queue, PrefillRate, QueueRate float64
}

// Policy returns the policy.
func (o Gorgo) Policy() (*Policy, error) {
	cost := o.Cost
	if cost == nil {
		var err error
		if cost, err = NewGorgoCost(o.TwoD, o.Weights); err != nil {
			return nil, under("Weights", err)
		}
	}
	return New(Options{Name: cost.Name(), Cost: cost, Picker: Argmax{First: true}, Random: o.Random})
}

// GorgoCost is the cost of [Gorgo] with weights that may change while it is
// used. Create it with [NewGorgoCost]; the zero value is gorgo with all weights 1. It
// is safe for concurrent use.
type GorgoCost struct {
	twoD    bool
	weights atomic.Pointer[GorgoWeights]
}

// NewGorgoCost returns a cost; zero weights mean 1 for all.
func NewGorgoCost(twoD bool, w GorgoWeights) (*GorgoCost, error) {
	if w == (GorgoWeights{}) {
		w = allOne
	}
	c := &GorgoCost{twoD: twoD}
	return c, c.SetWeights(w)
}

// SetWeights changes the weights of later decisions.
func (c *GorgoCost) SetWeights(w GorgoWeights) error {
	if err := checks("RTT", w.RTT, "Prefill", w.Prefill, "Queue", w.Queue, "PrefillRate", w.PrefillRate, "QueueRate", w.QueueRate); err != nil {
		return err
	}
	c.weights.Store(&w)
	return nil
}

// Weights returns the weights in use.
func (c *GorgoCost) Weights() GorgoWeights { return *cmp.Or(c.weights.Load(), &allOne) }

var allOne = GorgoWeights{1, 1, 1, 1, 1}

// Name implements [Cost].
func (c *GorgoCost) Name() string {
	if c.twoD {
		return "gorgo-2d"
	}
	return "gorgo"
}

// Cost implements [Cost].
func (c *GorgoCost) Cost(req *Request, candidates []*Candidate, dst []float64) error {
	w := c.Weights()
	prefill, queue := w.Prefill, w.Queue
	if c.twoD {
		prefill, queue = w.PrefillRate, w.QueueRate*w.Queue
	}
	rtt := mean(RTT, candidates)
	fill(PromptTokens, candidates, dst)
	for i, cand := range candidates {
		dst[i] = w.RTT*cand.Load.RTT.Or(rtt) + prefill*uncached(req, cand) + queue*dst[i]
	}
	return nil
}

func uncached(req *Request, c *Candidate) float64 {
	return float64(max(0, req.Tokens-int(c.Match.Usable)))
}

// GorgoTuner tunes the weights of a [GorgoCost] while it works: a (1+1)
// evolution strategy with a Gaussian step in the logarithm of each weight and
// the 1/5 success rule. Every Hop first tokens it takes the p95 of the last
// Window times to first token; weights that improve it by Tolerance stay. After
// MaxSteps trials, or when the step has become small, the best weights are
// pinned. Source: gorgo-lb 0.2.0, file tuner.py, MIT licence.
//
// Create it with [NewGorgoTuner]. It is safe for concurrent use.
type GorgoTuner struct {
	o    GorgoTunerOptions
	cost *GorgoCost

	mu      sync.Mutex
	samples []float64 // ring of the last Window
	seen    int
	since   int
	best    GorgoWeights
	bestP95 float64
	trial   GorgoWeights
	sigma   float64
	recent  []bool
	steps   int
	done    bool
}

// GorgoTunerOptions are the options of [NewGorgoTuner]; 0 means the default of
// gorgo-lb.
type GorgoTunerOptions struct {
	Window, Hop int     // 100 and 50 first tokens
	Sigma       float64 // first step, 0.5
	SigmaMin    float64 // 0.05
	MaxSteps    int     // 16
	Random      Random
}

const (
	sigmaDecay    = 0.817
	successWindow = 8
	successRate   = 0.2
	tuneTolerance = 0.005
	weightMin     = 1e-3
	weightMax     = 1e3
)

// NewGorgoTuner returns a tuner of a cost.
func NewGorgoTuner(cost *GorgoCost, o GorgoTunerOptions) (*GorgoTuner, error) {
	if cost == nil {
		return nil, optionErrorf("cost", "is nil")
	}
	if o.Window < 0 || o.Window > 1<<20 || o.Hop < 0 || o.MaxSteps < 0 {
		return nil, optionErrorf("Window, Hop, MaxSteps", "negative, or a Window above %d; 0 takes the default", 1<<20)
	}
	if err := checks("Sigma", o.Sigma, "SigmaMin", o.SigmaMin); err != nil {
		return nil, err
	}
	if o.Window == 0 {
		o.Window = 100
	}
	if o.Hop == 0 {
		o.Hop = 50
	}
	if o.MaxSteps == 0 {
		o.MaxSteps = 16
	}
	o.Sigma, o.SigmaMin = orDefault(o.Sigma, 0.5), orDefault(o.SigmaMin, 0.05)
	if o.Random == nil {
		o.Random = defaultRandom
	}
	return &GorgoTuner{o: o, cost: cost, samples: make([]float64, o.Window), sigma: o.Sigma,
		best: cost.Weights(), bestP95: math.Inf(1), trial: cost.Weights()}, nil
}

// FirstToken reports a time to first token under the weights in use. Times that
// are not positive are ignored.
func (t *GorgoTuner) FirstToken(ttft time.Duration) {
	if t == nil || t.cost == nil || ttft <= 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return
	}
	t.samples[t.seen%len(t.samples)] = ttft.Seconds()
	t.seen++
	t.since++
	if t.seen < len(t.samples) || t.since < t.o.Hop {
		return
	}
	t.since = 0
	t.step(percentile(t.samples, 0.95))
}

// Done reports whether tuning has ended.
func (t *GorgoTuner) Done() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done
}

// step judges the weights in use and proposes the next.
func (t *GorgoTuner) step(p95 float64) {
	if math.IsInf(t.bestP95, 1) {
		t.bestP95 = p95 // the baseline
	} else {
		accepted := p95*(1+tuneTolerance) < t.bestP95
		if accepted {
			t.best, t.bestP95 = t.trial, p95
		}
		t.steps++
		t.adapt(accepted)
	}
	if t.steps >= t.o.MaxSteps || t.sigma < t.o.SigmaMin {
		t.done, t.trial = true, t.best
	} else {
		t.trial = GorgoWeights{t.vary(t.best.RTT), t.vary(t.best.Prefill), t.vary(t.best.Queue), t.best.PrefillRate, t.best.QueueRate}
	}
	_ = t.cost.SetWeights(t.trial) // clamped weights are valid
}

// adapt is the 1/5 success rule.
func (t *GorgoTuner) adapt(accepted bool) {
	if t.recent = append(t.recent, accepted); len(t.recent) > successWindow {
		t.recent = t.recent[1:]
	}
	if len(t.recent) < successWindow {
		return
	}
	wins := 0
	for _, ok := range t.recent {
		if ok {
			wins++
		}
	}
	switch rate := float64(wins) / successWindow; {
	case rate > successRate:
		t.sigma /= sigmaDecay
	case rate < successRate:
		t.sigma *= sigmaDecay
	}
}

func (t *GorgoTuner) vary(w float64) float64 {
	// Box-Muller; 1-Float64 is in (0, 1], so the logarithm is finite.
	g := math.Sqrt(-2*math.Log(1-t.o.Random.Float64())) * math.Cos(2*math.Pi*t.o.Random.Float64())
	return min(weightMax, max(weightMin, max(w, weightMin)*math.Exp(t.sigma*g)))
}

// percentile returns the nearest-rank percentile of a copy of the values.
func percentile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

// GorgoCalibration fits the rates of gorgo-2d to observed times to first token:
// least squares of ttft_ms = intercept(worker) + PrefillRate·uncached +
// QueueRate·queued, with an intercept for each worker that takes up its network
// and fixed costs. Source: gorgo-lb 0.2.0, file tuner.py, MIT licence.
//
// The zero value is ready. It is safe for concurrent use and keeps a few sums for
// each worker.
type GorgoCalibration struct {
	mu      sync.Mutex
	workers map[WorkerID]*calibration
	n       int
}

type calibration struct {
	n, u, q, y, uu, qq, uq, uy, qy float64
}

// Add folds in a request: its uncached tokens and the tokens queued at its worker
// when it was dispatched. Times that are not positive are ignored.
func (g *GorgoCalibration) Add(w WorkerID, uncachedTokens, queuedTokens int, ttft time.Duration) {
	if ttft <= 0 {
		return
	}
	u, q, y := float64(max(1, uncachedTokens)), float64(max(0, queuedTokens)), ttft.Seconds()*1000
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.workers == nil {
		g.workers = map[WorkerID]*calibration{}
	}
	s := g.workers[w]
	if s == nil {
		s = &calibration{}
		g.workers[w] = s
	}
	g.n++
	s.n++
	s.u, s.q, s.y = s.u+u, s.q+q, s.y+y
	s.uu, s.qq, s.uq, s.uy, s.qy = s.uu+u*u, s.qq+q*q, s.uq+u*q, s.uy+u*y, s.qy+q*y
}

// Rates returns the fitted rates in milliseconds a token. ok is false with fewer
// than workers + 4 requests, where the two terms cannot be told apart, or where
// a rate comes out negative.
func (g *GorgoCalibration) Rates() (prefill, queue float64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n < len(g.workers)+4 {
		return 0, 0, false
	}
	// An intercept for each worker is the same as centring each worker's
	// samples on their mean.
	var uu, qq, uq, uy, qy float64
	for _, s := range g.workers {
		uu += s.uu - s.u*s.u/s.n
		qq += s.qq - s.q*s.q/s.n
		uq += s.uq - s.u*s.q/s.n
		uy += s.uy - s.u*s.y/s.n
		qy += s.qy - s.q*s.y/s.n
	}
	det := uu*qq - uq*uq
	if det <= 1e-9*uu*qq {
		return 0, 0, false
	}
	prefill, queue = (uy*qq-qy*uq)/det, (qy*uu-uy*uq)/det
	return prefill, queue, prefill >= 0 && queue >= 0
}
