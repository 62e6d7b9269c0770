package kvatlas

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/radix"
)

// Request is a prompt to find or to route.
type Request struct {
	// Prompt is what the engine will hash: token ids, and where they apply
	// LoRA adapter, cache salt, multimodal items.
	Prompt blockhash.Prompt
	// Workers names the only workers to look at; nil means all. Names that are
	// not registered are left out of the answer.
	Workers []string
	// OutputTokens is how many tokens are expected to be generated, for policies
	// that weigh it; 0 is unknown.
	OutputTokens int
	// Session identifies a conversation for policies with affinity.
	Session string
	// Explain asks Route for each scorer's value; it allocates.
	Explain bool
}

// Match is the answer of [Atlas.Match]. The zero value is ready; it belongs to
// the caller, who should reuse it: it keeps the memory that matching needs. It
// must not be copied or used by two goroutines at once, but may be changed.
type Match struct {
	// Workers has one entry for each worker looked at, in order of
	// registration, or of Request.Workers.
	Workers []WorkerMatch

	picked  []*worker
	domains []domainMatch
	chunks  []domainMatch
	fleet   *fleet        // that domains are of
	timed   bool          // somebody observes
	hashing time.Duration // so far
}

// WorkerMatch is what one worker holds of the prompt.
type WorkerMatch struct {
	Name string
	Mode Mode
	// Unknown says why nothing can be known of this prompt on this worker: see
	// [ByContent], or the worker's events contradict its description. Empty where
	// the match stands.
	Unknown string
	radix.WorkerMatch
	// ExternalUpperBound says that External may be too high: of LMCache in
	// process no event tells what it evicted, and none of LMCache tells salts ([LMCache]).
	ExternalUpperBound bool
}

// domainMatch is the memory of a match in one domain.
type domainMatch struct {
	chain  blockhash.Chain
	keys   blockhash.ContentChain
	query  radix.Query
	result radix.Result
	at     []int // where the domain's workers stand in Match.Workers
	meter  meter
	whole  []uint64 // all keys of the prompt, where they were asked for
	hashed bool     // whole is of this prompt
	zeros  []int32
}

// Match finds how much of a prompt each worker holds. The prompt is hashed once
// for each way of hashing in the fleet, and only as far as any worker can hold
// it. It does not allocate once m has been used with as many workers.
//
// A prompt that a worker's engine cannot express (images on one that hashes none)
// has no known match there. Only a prompt that no worker's can is an error: a
// *blockhash.PromptError, or one that wraps [radix.ErrQuery]; m is then empty. A nil
// req or m is [ErrNil].
func (a *Atlas) Match(req *Request, m *Match) error {
	if req == nil || m == nil {
		return ErrNil
	}
	started := a.timed()
	err := a.match(req, m)
	a.done(StageMatch, started, m.hashing)
	a.hashed(m)
	return err
}

// match is Match but for the observer.
func (a *Atlas) match(req *Request, m *Match) error {
	m.timed, m.hashing = a.options.Observer != nil, 0
	a.matches.Add(1)
	f := a.current()
	m.fleet = f
	m.Workers = m.Workers[:0]
	m.picked = m.picked[:0]
	if req.Workers == nil {
		m.picked = append(m.picked, f.workers...)
	}
	for _, name := range req.Workers {
		if w, ok := f.byName[name]; ok {
			m.picked = append(m.picked, w)
		}
	}
	for _, w := range m.picked {
		m.Workers = append(m.Workers, WorkerMatch{Name: w.Name, Mode: w.mode})
	}
	for len(m.domains) < len(f.domains) {
		m.domains = append(m.domains, domainMatch{})
	}
	var refused error
	matched := false
	for i, d := range f.domains {
		switch err := m.domains[i].match(d, req, m); {
		case err != nil:
			refused = err
			m.domains[i].refuse(m, err)
		case len(m.domains[i].at) > 0:
			matched = true
		}
	}
	for len(m.chunks) < len(f.chunks) {
		m.chunks = append(m.chunks, domainMatch{})
	}
	for i, d := range f.chunks {
		if err := m.chunks[i].matchChunks(d, req, m); err != nil {
			return fmt.Errorf("kvatlas: %w", err)
		}
	}
	if refused != nil && !matched {
		m.Workers = m.Workers[:0]
		a.errors.Add(1)
		return fmt.Errorf("kvatlas: %w", refused)
	}
	return nil
}

// refuse says of the domain's workers that the prompt has no known match there.
func (dm *domainMatch) refuse(m *Match, err error) {
	for i, at := range dm.at {
		w := &m.Workers[at]
		w.Unknown = err.Error()
		w.WorkerMatch = radix.WorkerMatch{Worker: dm.query.Workers[i], Known: true, Blocks: dm.none(int(radix.Storage) + 1)}
	}
}

// none returns as many zeros.
func (dm *domainMatch) none(n int) []int32 {
	if len(dm.zeros) < n {
		dm.zeros = make([]int32, n)
	}
	clear(dm.zeros)
	return dm.zeros[:n]
}

const unknownPath = "this release hashes the path of the adapter, which is not given: set LoRA.Path"

const unknownMixed = "events of this release do not tell salted and multimodal blocks from plain ones: " +
	"declare the worker PlainOnly, or set PYTHONHASHSEED on an engine that has it"

// match fills the entries of the workers of d.
func (dm *domainMatch) match(d *domain, req *Request, m *Match) error {
	dm.hashed = false
	q := &dm.query
	*q = radix.Query{Tokens: req.Prompt.Len(), Unit: d.key.unit, Workers: q.Workers[:0]}
	if d.key.eagle {
		q.Tokens-- // what its pages cover: n-1 pairs of n tokens
	}
	q.Tokens = max(q.Tokens, 0)
	dm.at = dm.at[:0]
	for i, w := range m.picked {
		if w.domain == d {
			dm.at = append(dm.at, i)
			q.Workers = append(q.Workers, w.id)
		}
	}
	if len(dm.at) == 0 {
		return nil
	}
	unknown := ""
	if d.content != nil {
		err := d.content.Start(&dm.keys, &req.Prompt)
		switch {
		case errors.Is(err, blockhash.ErrOpaque):
			unknown = err.Error()
		case err == nil && !d.key.plainOnly && !d.key.scheme.EventExtraKeys():
			unknown = unknownMixed
		case err != nil:
			return err
		default:
			q.Source = &dm.keys
		}
	} else {
		if l := req.Prompt.LoRA; l != nil && l.Path == "" && d.key.scheme.LoRAPath() {
			unknown = unknownPath
		}
		if err := d.hasher.Start(&dm.chain, &req.Prompt); err != nil {
			return err
		}
		q.Source = &dm.chain
	}
	dm.meter.reset(q.Source)
	if m.timed && q.Source != nil {
		q.Source = &dm.meter
	}
	err := d.index.Match(q, &dm.result)
	m.hashing += dm.meter.took
	if err != nil {
		return err
	}
	for i, at := range dm.at {
		w := &m.Workers[at]
		w.Unknown = unknown
		if unknown == "" {
			w.Unknown = m.picked[at].contradicted()
		}
		// Namespaces share hashes there; or nothing was compared with the engine.
		unsure := d.key.scheme.Engine() == sglang && !d.key.dynamo && req.Prompt.ExtraKey != "" || d.key.scheme.FromDocuments()
		if w.WorkerMatch = dm.result.Workers[i]; w.Unknown != "" {
			w.WorkerMatch = radix.WorkerMatch{Worker: w.Worker, Known: true, Blocks: dm.none(len(w.Blocks))}
		} else if unsure {
			w.UpperBound = true
		}
	}
	return nil
}

// Find returns the place of a worker in Workers, -1 if it is not there.
func (m *Match) Find(name string) int {
	for i := range m.Workers {
		if m.Workers[i].Name == name {
			return i
		}
	}
	return -1
}

// keysFor returns all keys of the prompt in the domain of a matched worker; ok is
// false where they are not known.
func (m *Match) keysFor(i int, req *Request) (keys []uint64, ok bool) {
	if m.timed {
		defer func(started time.Time) { m.hashing += time.Since(started) }(time.Now())
	}
	d := m.picked[i].domain
	for j, o := range m.fleet.domains {
		if o == d {
			return m.domains[j].keysOf(d, &req.Prompt)
		}
	}
	return nil, false
}

func (dm *domainMatch) keysOf(d *domain, p *blockhash.Prompt) ([]uint64, bool) {
	if !dm.hashed {
		var err error
		if d.content != nil {
			dm.whole, err = d.content.AppendKeys(dm.whole[:0], p)
		} else {
			dm.whole, err = d.hasher.AppendKeys(dm.whole[:0], p)
		}
		if err != nil {
			return nil, false
		}
		dm.hashed = true
	}
	return dm.whole, true
}
