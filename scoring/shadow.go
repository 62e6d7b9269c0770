package scoring

import "sync"

// Shadow decides with one policy and, beside it, with another one that nobody
// acts on, to see what a change would do before making it. Create it with
// [NewShadow]. It is safe for concurrent use.
type Shadow struct {
	active, shadow *Policy
	report         func(ShadowReport)

	mu    sync.Mutex
	stats ShadowStats
	spare []*dryRun
}

// dryRun is what one decision of the shadow needs.
type dryRun struct {
	request  Request
	decision Decision
}

// ShadowReport is one decision and what the shadow would have done. Its pointers
// lead into the candidates of the call and are valid only during it.
type ShadowReport struct {
	Request *Request
	// Chosen is the worker that was taken, Shadow the one that the other
	// policy would have taken; nil if it failed, with Err.
	Chosen, Shadow *Candidate
	Err            error
	// CachedTokens is the shadow's usable tokens minus the chosen one's:
	// positive where the shadow would have found more in the cache.
	CachedTokens int
}

// ShadowStats are totals since the start.
type ShadowStats struct {
	Decisions, Agreed, Failed uint64
	// CachedTokens sums ShadowReport.CachedTokens.
	CachedTokens int64
}

// NewShadow returns a pair of policies. report is called for each decision of
// the active policy, and may be nil. The shadow decides in dry runs: its stateful
// parts stand still, so shadows of round robin or of a learning policy say less.
func NewShadow(active, shadow *Policy, report func(ShadowReport)) (*Shadow, error) {
	if active.Name() == "" || shadow.Name() == "" {
		return nil, notMade("active, shadow", "New; two policies are needed")
	}
	return &Shadow{active: active, shadow: shadow, report: report}, nil
}

// Decide is [Policy.Decide] of the active policy. What becomes of the shadow has
// no influence on it.
func (s *Shadow) Decide(req *Request, candidates []Candidate, d *Decision) error {
	if s == nil {
		return (*Policy)(nil).Decide(req, candidates, d)
	}
	if err := s.active.Decide(req, candidates, d); err != nil {
		return err
	}
	other := s.take()
	other.request = *req
	other.request.DryRun, other.request.Explain, other.request.Fallbacks = true, false, 0
	r := ShadowReport{Request: req, Chosen: d.Chosen}
	if r.Err = s.shadow.Decide(&other.request, candidates, &other.decision); r.Err == nil {
		r.Shadow = other.decision.Chosen
		r.CachedTokens = int(r.Shadow.Match.Usable) - int(d.Chosen.Match.Usable)
	}
	if s.report != nil {
		s.report(r)
	}
	s.count(&r, other)
	return nil
}

// Stats returns the totals.
func (s *Shadow) Stats() ShadowStats {
	if s == nil {
		return ShadowStats{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// maxSpare bounds the decisions kept for reuse, one for each caller at a time.
const maxSpare = 64

func (s *Shadow) take() *dryRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.spare); n > 0 {
		d := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return d
	}
	return &dryRun{}
}

func (s *Shadow) count(r *ShadowReport, spare *dryRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Decisions++
	switch {
	case r.Err != nil:
		s.stats.Failed++
	case r.Shadow == r.Chosen:
		s.stats.Agreed++
	}
	s.stats.CachedTokens += int64(r.CachedTokens)
	if len(s.spare) < maxSpare {
		s.spare = append(s.spare, spare)
	}
}
