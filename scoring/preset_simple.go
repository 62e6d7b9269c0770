package scoring

import (
	"math"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
)

// RoundRobin takes the workers in the order of their names, one after the other.
// When workers come and go it continues after the name it took last. Source:
// production-stack routing_logic.py, August 2026.
type RoundRobin struct {
	Random Random
}

// Policy returns the policy.
func (o RoundRobin) Policy() (*Policy, error) {
	return scorePolicy("roundrobin", &roundRobin{}, nil, o.Random)
}

type roundRobin struct {
	mu   sync.Mutex
	last string
	any  bool
}

func (s *roundRobin) Name() string { return "turn" }

// Score moves on at once, so that concurrent decisions take different turns.
func (s *roundRobin) Score(req *Request, candidates []*Candidate, dst []float64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, first := -1, 0
	for i, c := range candidates {
		dst[i] = 0
		if c.Name < candidates[first].Name {
			first = i
		}
		if (!s.any || c.Name > s.last) && (next < 0 || c.Name < candidates[next].Name) {
			next = i
		}
	}
	if next < 0 {
		next = first
	}
	dst[next] = 1
	if !req.DryRun {
		s.last, s.any = candidates[next].Name, true
	}
	return nil
}

// LeastLoaded takes the worker with the lowest load, ties at random, or with
// Of = 2 the better of two drawn at random (power of two choices).
type LeastLoaded struct {
	// Signal is the load; [Requests] by default as the zero value Running
	// would need scraped metrics. Set ByRunning for that.
	Signal    Signal
	ByRunning bool
	// Of draws so many first; 0 compares all.
	Of     int
	Random Random
}

// Policy returns the policy.
func (o LeastLoaded) Policy() (*Policy, error) {
	if o.Signal == Running && !o.ByRunning {
		o.Signal = Requests
	}
	if o.Of < 0 {
		return nil, optionErrorf("Of", "is %d; at least 1 is needed (0 compares all)", o.Of)
	}
	if o.Of > 0 {
		name := "power-of-k"
		if o.Of == 2 {
			name = "power-of-two"
		}
		return scorePolicy(name, Least{o.Signal}, PowerOfK{K: o.Of}, o.Random)
	}
	return scorePolicy("least-loaded", Least{o.Signal}, nil, o.Random)
}

// Uniform takes any worker at random.
type Uniform struct {
	Random Random
}

// Policy returns the policy.
func (o Uniform) Policy() (*Policy, error) {
	return scorePolicy("random", NewScorer("equal", func(*Request, *Candidate) float64 { return 0 }), nil, o.Random)
}

// DualMap gives each prompt two workers by two hashes of [Request.Prefix] and
// takes the first until its predicted time to first token breaks the target,
// then the less loaded of the two (ties: the first). The prediction is
// (prefill tokens queued there + uncached tokens of the prompt)·TokenTime. A
// prompt without a prefix goes to the least loaded. Workers are found by highest
// random weight instead of a ring: the same shares, fewer moves. Source: the
// DualMap router in AIBrix, September 2026, without its queue migration.
type DualMap struct {
	// Target is the time to first token to keep; 0 means 2 s.
	Target time.Duration
	// TokenTime is the time to compute one prompt token; 0 means 50 µs.
	TokenTime time.Duration
	Random    Random
}

// Policy returns the policy.
func (o DualMap) Policy() (*Policy, error) {
	if o.Target < 0 || o.TokenTime < 0 {
		return nil, optionErrorf("Target, TokenTime", "negative; 0 takes the default")
	}
	if o.Target == 0 {
		o.Target = 2 * time.Second
	}
	if o.TokenTime == 0 {
		o.TokenTime = 50 * time.Microsecond
	}
	return scorePolicy("dualmap", &staged{"dualmap", o.fill}, nil, o.Random)
}

func (o DualMap) fill(req *Request, cs []*Candidate, dst []float64) string {
	fill(PrefillTokens, cs, dst)
	if req.Prefix == 0 {
		negate(dst)
		return "no prefix: least loaded"
	}
	first, second := dualChoice(req.Prefix, cs)
	loads := [2]float64{dst[first], dst[second]}
	for i := range dst {
		dst[i] = -dst[i] / (1 + dst[i]) // (-1, 0]: only fallbacks
	}
	uncached := max(0, float64(req.Tokens)-float64(cs[first].Match.Usable))
	ttft := time.Duration((loads[0] + uncached) * float64(o.TokenTime))
	if ttft > o.Target && loads[1] < loads[0] {
		dst[second], dst[first] = 2, 1
		return "first misses the target: the less loaded of two"
	}
	dst[second] = 1
	dst[first] = 2
	if ttft > o.Target {
		return "first misses the target and is the less loaded of two"
	}
	return "first of two"
}

// dualChoice returns the two candidates with the highest weight by two
// independent hashes; different ones if there are two.
func dualChoice(prefix uint64, cs []*Candidate) (first, second int) {
	var best [2]uint64
	second = -1
	for i, c := range cs {
		if h := mix(prefix, xxh3.HashStringSeed(c.Name, 1)); i == 0 || h > best[0] {
			best[0], first = h, i
		}
	}
	for i, c := range cs {
		if i == first {
			continue
		}
		if h := mix(prefix, xxh3.HashStringSeed(c.Name, 2)); second < 0 || h > best[1] {
			best[1], second = h, i
		}
	}
	if second < 0 {
		second = first
	}
	return first, second
}

// mix joins two hashes (the finalizer of splitmix64 over their sum).
func mix(a, b uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 + b
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// LAAR multiplies the score of [PrefixLoad] by [Candidate.Capability], for
// fleets whose workers differ. Source: the idea of load- and accelerator-aware
// routing, September 2026.
type LAAR struct {
	Random Random
}

// Policy returns the policy.
func (o LAAR) Policy() (*Policy, error) {
	c := PrefixLoad()
	c.Name, c.Random = "laar", o.Random
	for i := range c.Scorers {
		c.Scorers[i].Scorer = Capable{c.Scorers[i].Scorer}
	}
	return New(c)
}

// Capable multiplies the values of another scorer, which must not be negative,
// by the candidates' capability factors.
type Capable struct {
	Scorer Scorer
}

// Name implements [Scorer].
func (s Capable) Name() string { return "capable-" + s.Scorer.Name() }

// Validate checks the scorer behind.
func (s Capable) Validate() error {
	if s.Scorer == nil {
		return optionErrorf("Scorer", "is nil")
	}
	if v, ok := s.Scorer.(Validator); ok {
		return v.Validate()
	}
	return nil
}

// Score implements [Scorer].
func (s Capable) Score(req *Request, candidates []*Candidate, dst []float64) error {
	err := s.Scorer.Score(req, candidates, dst)
	for i, c := range candidates {
		dst[i] *= c.capability()
	}
	return err
}

// CacheRoute is [PrefixLoad] with a prefix score that prices a colder medium by
// the time to fetch a block from it: a block is worth 1 - LoadTime/PrefillTime,
// nothing if fetching is slower than computing. Source: the idea of CacheRoute as
// described in a survey of routers, September 2026.
type CacheRoute struct {
	// LoadTime is the time to fetch a block from each medium; the zero array
	// means 0, 0.4, 1 and 2 ms for 16 tokens of an 8B model (2 MiB) over
	// PCIe, from NVMe and over a 10 Gbit/s network.
	LoadTime [NumMedia]time.Duration
	// PrefillTime is the time to compute a block; 0 means 2 ms.
	PrefillTime time.Duration
	Random      Random
}

// Policy returns the policy.
func (o CacheRoute) Policy() (*Policy, error) {
	if o.LoadTime == ([NumMedia]time.Duration{}) {
		o.LoadTime = [NumMedia]time.Duration{0, 400 * time.Microsecond, time.Millisecond, 2 * time.Millisecond}
	}
	if o.PrefillTime < 0 {
		return nil, optionErrorf("PrefillTime", "is negative; 0 takes the default")
	}
	if o.PrefillTime == 0 {
		o.PrefillTime = 2 * time.Millisecond
	}
	var p Prefix
	for m, t := range o.LoadTime {
		if t < 0 {
			return nil, optionErrorf("LoadTime["+Medium(m).String()+"]", "is negative")
		}
		p.Weights[m] = math.Max(0, 1-float64(t)/float64(o.PrefillTime))
	}
	if p.Weights == ([NumMedia]float64{}) {
		return nil, optionErrorf("LoadTime", "makes every medium worthless: the GPU's must be below PrefillTime")
	}
	c := PrefixLoad()
	c.Name, c.Random, c.Scorers[0].Scorer = "cacheroute", o.Random, p
	return New(c)
}
