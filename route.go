package kvatlas

import (
	"fmt"
	"sync/atomic"

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
	c.Worker = ""
	if err := a.Match(req, &c.Match); err != nil {
		return err
	}
	if len(c.Match.Workers) == 0 {
		return ErrNoWorkers
	}
	defer a.done(StageScore, a.timed())
	c.request = scoring.Request{
		Tokens: req.Prompt.Len(), OutputTokens: req.OutputTokens, Session: req.Session, Explain: req.Explain,
	}
	c.Candidates = c.Candidates[:0]
	for i := range c.Match.Workers {
		w := c.Match.picked[i]
		c.request.BlockSize = w.Cache.HashUnit
		c.Candidates = append(c.Candidates, w.candidate(uint32(i), &c.Match.Workers[i]))
	}
	if err := a.policy.Decide(&c.request, c.Candidates, &c.Decision); err != nil {
		return fmt.Errorf("kvatlas: %w", err)
	}
	c.Worker = c.Decision.Chosen.Name
	return nil
}

// candidate is the worker as a policy sees it.
func (w *worker) candidate(id uint32, m *WorkerMatch) scoring.Candidate {
	c := scoring.Candidate{
		ID: scoring.WorkerID(id), Name: w.Name, Rank: w.Rank, Labels: w.Labels, Capability: w.Capability,
		Load: w.load.get(),
	}
	if m.Unknown != "" || !m.Known || m.Mismatch {
		return c
	}
	unit := max(w.Cache.HashUnit, 1)
	c.Match.Usable = int32(m.Usable + m.External)
	c.Match.Score = m.Score
	c.Match.Blocks[scoring.GPU] = int32(m.Usable / unit)
	c.Match.Blocks[scoring.CPU] = int32(m.External / unit)
	c.Match.Blocks[scoring.Storage] = int32((m.ExternalTiered - m.External) / unit)
	return c
}

// SetLoad tells what is known of a worker's load: from its metrics, from your
// own accounting. What nobody measured stays unknown.
func (a *Atlas) SetLoad(name string, l scoring.Load) error {
	w, ok := a.fleet.Load().byName[name]
	if !ok {
		return fmt.Errorf("%w: %q", ErrUnknownWorker, name)
	}
	w.load.set(l)
	return nil
}

func defaultPolicy() (*scoring.Policy, error) { return scoring.New(scoring.PrefixLoad()) }

// loadCell holds a worker's load for readers that take no lock.
type loadCell struct{ p atomic.Pointer[scoring.Load] }

func (c *loadCell) set(l scoring.Load) { c.p.Store(&l) }

func (c *loadCell) get() scoring.Load {
	if l := c.p.Load(); l != nil {
		return *l
	}
	return scoring.Load{}
}
