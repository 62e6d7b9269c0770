package scoring

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// LLMD is llm-d's weighted sum, by default 3·prefix + 2·queue + 2·kv:
//
//   - prefix: matched blocks over all blocks, a block on the CPU counting 0.8;
//   - queue: requests waiting in the engine, min-max inverted over the candidates
//     (all equal: 1);
//   - kv: 1 minus the use of the KV cache.
//
// The highest sum wins, ties at random. Source: llm-d-router, scheduling scorers
// prefix, queuedepth, kvcacheutilization, nohitlru and the max-score picker, as
// of September 2026.
type LLMD struct {
	// Weights in the sum; 0 means the default above, and for RunningWeight and
	// NoHitLRUWeight that the scorer is left out.
	PrefixWeight, QueueWeight, KVWeight float64
	// RunningWeight adds the running requests, inverted like the queue.
	RunningWeight float64
	// NoHitLRUWeight adds [NoHitLRU].
	NoHitLRUWeight float64
	// LengthWeight w changes prefix into w·min(1, tokens/8192)² + (1-w)·ratio.
	LengthWeight float64
	// Media weighs the blocks of a match; the zero array is GPU 1, CPU 0.8.
	Media  [NumMedia]float64
	Random Random
}

// Policy returns the policy.
func (o LLMD) Policy() (*Policy, error) { return o.named("llm-d") }

func (o LLMD) named(name string, filters ...Filter) (*Policy, error) {
	s := []WeightedScorer{
		{Prefix{Weights: o.Media, LengthWeight: o.LengthWeight}, orDefault(o.PrefixWeight, 3)},
		{Idle{Signal: Waiting}, orDefault(o.QueueWeight, 2)},
		{Free{}, orDefault(o.KVWeight, 2)},
	}
	if o.RunningWeight != 0 {
		s = append(s, WeightedScorer{Idle{Signal: Running}, o.RunningWeight})
	}
	if o.NoHitLRUWeight != 0 {
		s = append(s, WeightedScorer{NewNoHitLRU(), o.NoHitLRUWeight})
	}
	return New(Options{Name: name, Filters: filters, Scorers: s, Random: o.Random})
}

// LLMDApprox is [LLMD] on a prefix match from routing history instead of events:
// match with a [History] of default options (31,250 blocks a worker, 64-token
// blocks, 131,072 tokens at most). Prompts with the same [Request.Prefix] that
// come within BurstWindow of each other stay together (see [Burst]).
type LLMDApprox struct {
	LLMD
	// BurstWindow is 100 ms where 0, and off where negative.
	BurstWindow time.Duration
	// Now is the clock of the window; nil means [time.Now].
	Now func() time.Time
}

// Policy returns the policy.
func (o LLMDApprox) Policy() (*Policy, error) {
	if o.BurstWindow < 0 {
		return o.named("llm-d-approx")
	}
	if o.BurstWindow == 0 {
		o.BurstWindow = 100 * time.Millisecond
	}
	return o.named("llm-d-approx", NewBurst(o.BurstWindow, o.Now))
}

// NoHitLRU spreads cold requests: where no candidate has a match, the one that
// has gone longest without a cold request scores 1 and the latest 0, by rank,
// never used ones first in their order. Where any candidate has a match all score
// 0.5. It remembers one entry for each worker that got a cold request; ranks are
// among the candidates at hand.
//
// Create it with [NewNoHitLRU]. It is safe for concurrent use. Source: llm-d's
// no-hit-lru-scorer, September 2026.
type NoHitLRU struct {
	mu   sync.Mutex
	last slots[uint64]
	n    uint64
	rank []coldRank
}

type coldRank struct {
	at    uint64
	index int
}

// NewNoHitLRU returns a scorer that has seen no cold request.
func NewNoHitLRU() *NoHitLRU { return &NoHitLRU{} }

// Name implements [Scorer].
func (s *NoHitLRU) Name() string { return "no-hit-lru" }

// Score implements [Scorer].
func (s *NoHitLRU) Score(_ *Request, candidates []*Candidate, dst []float64) error {
	if bestMatch(candidates) > 0 {
		for i := range dst {
			dst[i] = 0.5
		}
		return nil
	}
	if len(candidates) == 1 {
		dst[0] = 1
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rank = s.rank[:0]
	for i, c := range candidates {
		r := coldRank{index: i}
		if at := s.last.get(c.ID); at != nil {
			r.at = *at
		}
		s.rank = append(s.rank, r)
	}
	slices.SortFunc(s.rank, func(a, b coldRank) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.index, b.index))
	})
	for rank, r := range s.rank {
		dst[r.index] = 1 - float64(rank)/float64(len(candidates)-1)
	}
	return nil
}

// Chosen implements [Observer].
func (s *NoHitLRU) Chosen(_ *Request, c *Candidate) {
	if c.Match.Total() > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.last.get(c.ID)
	if at == nil {
		at = new(uint64)
		s.last.put(c.ID, at)
	}
	s.n++
	*at = s.n
}

// Forget drops what is remembered of a worker that went away.
func (s *NoHitLRU) Forget(w WorkerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.remove(w)
}

// Burst keeps prompts with the same [Request.Prefix] together while they come
// within a window of each other: it is a filter that keeps only the worker that
// the last of them went to, if that is among the candidates. Requests without a
// prefix pass. It remembers 4,096 prefixes; a new one takes the place of one of four
// that its value leads to, the one longest not seen.
//
// Create it with [NewBurst]. It is safe for concurrent use.
type Burst struct {
	window time.Duration
	clock  func() time.Time

	mu   sync.Mutex
	sets [][burstWays]burstEntry
}

type burstEntry struct {
	prefix uint64 // 0 for none
	worker WorkerID
	at     time.Time
}

const (
	maxBursts = 4096
	burstWays = 4
)

// NewBurst returns a filter with a window and a clock; nil means [time.Now].
func NewBurst(window time.Duration, now func() time.Time) *Burst {
	if now == nil {
		now = time.Now
	}
	return &Burst{window: window, clock: now, sets: make([][burstWays]burstEntry, maxBursts/burstWays)}
}

// Validate refuses a filter that [NewBurst] did not make.
func (b *Burst) Validate() error {
	if b == nil || b.sets == nil {
		return constError("was not made by NewBurst")
	}
	return nil
}

// Name implements [Filter].
func (b *Burst) Name() string { return "burst" }

// slot returns where a prefix is, or is to be.
func (b *Burst) slot(prefix uint64) *burstEntry {
	set := &b.sets[mix(prefix, 0)%uint64(len(b.sets))]
	oldest := &set[0]
	for i := range set {
		if set[i].prefix == prefix {
			return &set[i]
		}
		if set[i].at.Before(oldest.at) {
			oldest = &set[i]
		}
	}
	return oldest
}

// Filter implements [Filter].
func (b *Burst) Filter(req *Request, candidates []*Candidate) []*Candidate {
	if b.Validate() != nil || req.Prefix == 0 {
		return candidates
	}
	now := b.clock()
	b.mu.Lock()
	e := *b.slot(req.Prefix)
	b.mu.Unlock()
	if e.prefix != req.Prefix || now.Sub(e.at) >= b.window {
		return candidates
	}
	return only(candidates, e.worker)
}

// Chosen implements [Observer].
func (b *Burst) Chosen(req *Request, c *Candidate) {
	if b.Validate() != nil || req.Prefix == 0 {
		return
	}
	now := b.clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	*b.slot(req.Prefix) = burstEntry{req.Prefix, c.ID, now}
}

// only keeps the candidate with an ID, or all where there is none.
func only(candidates []*Candidate, w WorkerID) []*Candidate {
	for i, c := range candidates {
		if c.ID == w {
			return candidates[i : i+1]
		}
	}
	return candidates
}
