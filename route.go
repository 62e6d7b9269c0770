package kvatlas

import (
	"errors"
	"fmt"

	"github.com/kvatlas/kvatlas/scoring"
)

// Choice is the answer of [Atlas.Route]: the decision, and the match it rests
// on. The zero value is ready; it belongs to the caller, who should reuse it.
type Choice struct {
	// Worker is the name of the chosen worker.
	Worker string
	// Decision has the totals, and with Request.Explain each scorer's part.
	Decision scoring.Decision
	// Match has what each worker holds, in the order of Candidates.
	Match Match
	// Candidates are the workers as the policy saw them.
	Candidates []scoring.Candidate

	request scoring.Request // here so that it does not escape
}

// Route matches a prompt with the fleet and lets the policy choose a worker. It
// does not allocate once c has been used with as many workers, unless
// Request.Explain is set.
//
// The error is one of [Atlas.Match], [ErrNoWorkers], or the policy's.
func (a *Atlas) Route(req *Request, c *Choice) error {
	if req == nil || c == nil {
		return ErrNil
	}
	c.Worker, c.Decision.Chosen = "", nil
	started := a.timed()
	err := a.match(req, &c.Match)
	a.done(StageMatch, started, c.Match.hashing)
	if err == nil {
		err = a.scored(req, c)
	}
	a.hashed(&c.Match)
	return err
}

// Choose is the second half of [Atlas.Route]: it lets the policy choose among the
// workers of c.Match, which must come from [Atlas.Match] with the same request.
func (a *Atlas) Choose(req *Request, c *Choice) error {
	if req == nil || c == nil {
		return ErrNil
	}
	c.Worker, c.Decision.Chosen = "", nil
	c.Match.hashing = 0
	err := a.scored(req, c)
	if c.Match.hashing > 0 {
		a.hashed(&c.Match)
	}
	return err
}

// scored is score, observed.
func (a *Atlas) scored(req *Request, c *Choice) error {
	if len(c.Match.Workers) == 0 {
		return ErrNoWorkers
	}
	started, hashing := a.timed(), c.Match.hashing
	err := a.score(req, c)
	a.done(StageScore, started, c.Match.hashing-hashing)
	return err
}

// score lets the policy choose among the workers of c.Match.
func (a *Atlas) score(req *Request, c *Choice) error {
	c.request = scoring.Request{
		Tokens: req.Prompt.Len(), OutputTokens: req.OutputTokens, Session: req.Session, Explain: req.Explain,
	}
	c.Candidates = c.Candidates[:0]
	for i := range c.Match.Workers {
		unit := c.Match.places[i].unit()
		if c.request.BlockSize == 0 || unit > 0 && unit < c.request.BlockSize {
			c.request.BlockSize = unit // the smallest of the fleet's
		}
		c.Candidates = append(c.Candidates, c.Match.picked[i].candidate(&c.Match.Workers[i], unit))
	}
	a.flights.Fill(c.Candidates)
	if a.speculation != nil {
		named := -1 // whose keys name what nobody holds
		for i := range c.Candidates {
			w, p := c.Match.picked[i], c.Match.places[i]
			if c.Match.Workers[i].Unknown != "" || len(w.Cache.Groups) > 1 || w.Cache.Eagle || p.domain.key.eagle {
				continue // what is under way says nothing of other rules than full attention's
			}
			if keys, ok := c.Match.keysFor(i, req); ok {
				own := c.request
				own.BlockSize = p.unit()
				a.speculation.Extend(&own, keys, c.Candidates[i:i+1], nil)
				if named < 0 {
					named = i
				}
			}
		}
		c.request.Novel = c.novel(named, req)
	}
	var err error
	if a.shadow != nil {
		err = a.shadow.Decide(&c.request, c.Candidates, &c.Decision)
	} else {
		err = a.policy.Decide(&c.request, c.Candidates, &c.Decision)
	}
	if err != nil {
		return fmt.Errorf("kvatlas: %w", err)
	}
	c.Worker = c.Decision.Chosen.Name
	return nil
}

// novel names the first block that no candidate holds by the key that it has on
// one worker: other routers whose workers are registered in the same order name
// it so too. 0 if there is none.
func (c *Choice) novel(worker int, req *Request) uint64 {
	if worker < 0 {
		return 0
	}
	held := int32(0)
	for i := range c.Candidates {
		held = max(held, c.Candidates[i].Match.Usable)
	}
	keys, _ := c.Match.keysFor(worker, req) // were known before
	if block := int(held) / max(1, c.Match.places[worker].unit()); block < len(keys) {
		return keys[block]
	}
	return 0
}

// candidate is the worker as a policy sees it.
func (w *worker) candidate(m *WorkerMatch, unit int) scoring.Candidate {
	c := scoring.Candidate{ID: w.serial, Name: w.Name, Rank: w.Rank, Labels: w.Labels, Capability: w.Capability}
	if m.Unknown != "" || !m.Known || m.Mismatch {
		return c
	}
	unit = max(unit, 1)
	c.Match.Usable = int32(m.Usable + m.External)
	c.Match.Score = m.Score
	c.Match.Blocks[scoring.GPU] = int32(m.Usable / unit)
	c.Match.Blocks[scoring.CPU] = int32(m.External / unit)
	c.Match.Blocks[scoring.Storage] = int32((m.ExternalTiered - m.External) / unit)
	return c
}

// SetLoad tells what an engine's metrics say of a worker's load: running and
// waiting requests, use of the cache, round trip. It is merged with what is under
// way from here ([Atlas.Begin]); what nobody measured stays unknown. Only Running,
// Waiting, KVUsage and RTT are read: the rest of a Load is this router's own account.
//
// A value that cannot be (see [scoring.Candidate.Validate]) is an error that wraps
// [ErrOptions] and a pointer to a [scoring.FigureError], and changes nothing.
func (a *Atlas) SetLoad(name string, l scoring.Load) error {
	w, err := a.find(name)
	if err != nil {
		return err
	}
	err = a.flights.Scraped(w.serial, l)
	if e, ok := errors.AsType[*scoring.FigureError](err); ok {
		e.Worker = name
		return fmt.Errorf("%w: %w", ErrOptions, e)
	}
	return err
}
