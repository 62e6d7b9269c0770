package kvatlas

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
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
	// not registered are left out of the answer, and a repeated one counts once.
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
	named   map[*worker]bool // of picked, those that the request named
	places  []*place         // of picked, as they were when the match began
	excess  []bool           // of picked, before the index was asked: it may have too much
	domains memories         // of places
	chunks  memories         // of the LMCaches' chunks
	zeros   []int32
	tokens  int           // of the prompt
	timed   bool          // somebody observes
	hashing time.Duration // so far
}

// WorkerMatch is what one worker holds of the prompt. External is what the engine adds
// from elsewhere: vLLM's offload connector, LMCache, or SGLang's host tier (HiCache).
//
// Besides what package radix says, UpperBound is set where namespaces share hashes
// (SGLang), for engines known from documents, and when removals may have been lost
// (kvevents.KeepOnLoss, kvevents.DecayOnLoss) or events of unknown type came while blocks
// were known, until those are forgotten.
type WorkerMatch struct {
	Name string
	Mode Mode
	// Unknown says why nothing can be known of this prompt on this worker: see
	// [ByContent]; or the worker's events contradict its description, or have not
	// told yet what an automatic worker is. Empty where the match stands.
	Unknown string
	// Unheard says that no event of the worker came yet, so that nothing is known of it
	// rather than its cache empty: it may be a silent publisher. An engine whose replay is
	// empty is not unheard, until a [Trip] ends there and it still announces nothing.
	Unheard bool
	radix.WorkerMatch
	// ExternalUpperBound says that External may be too high: of LMCache in
	// process no event tells what it evicted, and none of LMCache tells salts ([LMCache]);
	// or removals may have been lost.
	ExternalUpperBound bool
}

// memories are those of the domains of one match: the first used ones. They are kept
// for the next.
type memories struct {
	kept []domainMatch
	used int
}

// add makes room for a domain, unless it has some.
func (s *memories) add(d *domain) {
	if s.of(d) != nil {
		return
	}
	if s.used++; s.used > len(s.kept) {
		s.kept = append(s.kept, domainMatch{})
	}
	s.kept[s.used-1].domain = d
}

// of returns the memory of a domain, nil if it has none.
func (s *memories) of(d *domain) *domainMatch {
	for i := range s.kept[:s.used] {
		if s.kept[i].domain == d {
			return &s.kept[i]
		}
	}
	return nil
}

func (s *memories) all() iter.Seq[*domainMatch] {
	return func(yield func(*domainMatch) bool) {
		for i := range s.kept[:s.used] {
			if !yield(&s.kept[i]) {
				return
			}
		}
	}
}

// domainMatch is the memory of a match in one domain.
type domainMatch struct {
	domain *domain
	chain  blockhash.Chain
	keys   blockhash.ContentChain
	query  radix.Query
	result radix.Result
	at     []int // where the domain's workers stand in Match.Workers
	meter  meter
	whole  []uint64 // all keys of the prompt, where they were asked for
	hashed bool     // whole is of this prompt
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
	m.timed, m.hashing, m.tokens = a.options.Observer != nil, 0, req.Prompt.Len()
	a.matches.Add(1)
	f := a.current()
	m.Workers = m.Workers[:0]
	m.picked = m.picked[:0]
	if req.Workers == nil {
		m.picked = append(m.picked, f.workers...)
	}
	clear(m.named)
	for _, name := range req.Workers {
		if w, ok := f.byName[name]; ok && !m.named[w] {
			if m.named == nil {
				m.named = map[*worker]bool{}
			}
			m.named[w] = true
			m.picked = append(m.picked, w)
		}
	}
	var refused error
	m.place(req.Prompt.Features())
	matched := slices.Contains(m.places, nil) // who knows what its engine can hold
	for dm := range m.domains.all() {
		switch err := dm.match(req, m); {
		case err != nil:
			refused = err
			dm.refuse(m, err)
		default:
			matched = true
		}
	}
	for dm := range m.chunks.all() {
		if err := dm.matchChunks(req, m); err != nil {
			refused, matched = err, false
			break
		}
	}
	for i, w := range m.picked { // after the look-up: what was not heard by now was not in it
		m.Workers[i].Unheard = w.unheard()
	}
	if refused != nil && !matched {
		m.Workers = m.Workers[:0]
		a.errors.Add(1)
		return fmt.Errorf("kvatlas: %w", refused)
	}
	return nil
}

// place notes where the picked workers' blocks are, and the domains of these. Workers
// without a place, and those on which prompts of such features are not known, have
// their answer with it.
func (m *Match) place(features blockhash.Features) {
	m.places, m.excess = m.places[:0], m.excess[:0]
	m.domains.used, m.chunks.used = 0, 0
	zeros := m.none(int(radix.Storage) + 1)
	var last *domain
	for _, w := range m.picked {
		if w.chunks != nil {
			m.chunks.add(w.chunks.domain)
		}
		p := w.at.Load()
		m.places, m.excess = append(m.places, p), append(m.excess, w.excess.Load())
		match := WorkerMatch{Name: w.Name, Unknown: w.unknown()}
		match.Known, match.Blocks = true, zeros
		if p == nil {
			match.Unknown = cmp.Or(match.Unknown, unknownYet)
			m.Workers = append(m.Workers, match)
			continue
		}
		if match.Mode = p.mode; match.Unknown == "" && p.open&features != 0 {
			match.Unknown = p.why
		}
		m.Workers = append(m.Workers, match)
		if p.domain != last {
			last = p.domain
			m.domains.add(last)
		}
	}
}

// refuse says of the domain's workers that the prompt has no known match there.
func (dm *domainMatch) refuse(m *Match, err error) {
	for i, at := range dm.at {
		w := &m.Workers[at]
		w.Unknown = err.Error()
		w.WorkerMatch = radix.WorkerMatch{Worker: dm.query.Workers[i], Known: true, Blocks: m.none(int(radix.Storage) + 1)}
	}
}

// none returns as many zeros.
func (m *Match) none(n int) []int32 {
	if len(m.zeros) < n {
		m.zeros = make([]int32, n)
	}
	clear(m.zeros)
	return m.zeros[:n]
}

const unknownPath = "this release hashes the path of the adapter, which is not given: set LoRA.Path"

const unknownMixed = "events of this release do not tell salted and multimodal blocks from plain ones: " +
	"declare the worker PlainOnly, or set PYTHONHASHSEED on an engine that has it"

// lookUp asks the index for the query, and observes how long hashing took.
func (dm *domainMatch) lookUp(m *Match) error {
	dm.meter.reset(dm.query.Source)
	if m.timed && dm.query.Source != nil {
		dm.query.Source = &dm.meter
	}
	err := dm.domain.index.Match(&dm.query, &dm.result)
	m.hashing += dm.meter.took
	return err
}

// match fills the entries of the workers of the domain.
func (dm *domainMatch) match(req *Request, m *Match) error {
	d := dm.domain
	dm.hashed = false
	q := &dm.query
	*q = radix.Query{Tokens: req.Prompt.Len(), Unit: d.key.unit, Workers: q.Workers[:0]}
	if d.key.eagle {
		q.Tokens-- // what its pages cover: n-1 pairs of n tokens
	}
	q.Tokens = max(q.Tokens, 0)
	dm.at = dm.at[:0]
	for i, p := range m.places {
		if p != nil && p.domain == d {
			dm.at = append(dm.at, i)
			q.Workers = append(q.Workers, p.id)
		}
	}
	unknown, named := "", false
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
	} else if l := req.Prompt.LoRA; d.adapters != nil && l != nil && req.Prompt.ExtraKey == "" {
		// Only the engine knows the adapter's namespace; its events name the adapter.
		if err := d.adapters.Start(&dm.keys, &req.Prompt); err != nil {
			return err
		}
		q.Source, named = &dm.keys, true
		for i, at := range dm.at {
			q.Workers[i] = m.places[at].adapters
		}
	} else if d.key.mixed {
		unknown = unknownMixed
	} else if l := req.Prompt.LoRA; l != nil && l.Path == "" && d.key.scheme.LoRAPath() {
		unknown = unknownPath
	} else {
		if err := d.hasher.Start(&dm.chain, &req.Prompt); err != nil {
			return err
		}
		q.Source = &dm.chain
	}
	if err := dm.lookUp(m); err != nil {
		return err
	}
	for i, at := range dm.at {
		w := &m.Workers[at]
		w.Unknown = cmp.Or(w.Unknown, unknown)
		// Namespaces share hashes in SGLang, and pages that are alike where hashes are not
		// chained; or nothing was compared with the engine.
		plain := m.picked[at].PlainOnly && req.Prompt.Features() == 0
		unsure := d.key.scheme.Engine() == sglang && !d.key.dynamo && !plain || !d.key.scheme.Chained() || named || d.key.scheme.FromDocuments()
		w.WorkerMatch = dm.result.Workers[i]
		w.Worker = m.places[at].id
		if w.Unknown != "" {
			w.WorkerMatch = radix.WorkerMatch{Worker: w.Worker, Known: true, Blocks: m.none(len(w.Blocks))}
		} else if unsure || m.excess[at] {
			w.UpperBound = true
		}
		if d.key.scheme.Engine() == sglang { // further pages that are on the host or the device
			w.External = max(min(w.Combined, (q.Tokens-1)/d.key.unit)*d.key.unit-w.Usable, 0)
			w.ExternalTiered = w.External
		}
		w.ExternalUpperBound = m.excess[at] && w.External > 0
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

// BlockSize returns the tokens of the blocks that the i-th worker's match counts; 0 for a
// worker of which nothing is known yet.
func (m *Match) BlockSize(i int) int { return m.places[i].unit() }

// Reason says in words why nothing of the prompt can be had of the i-th worker: its Unknown,
// or that the prompt is shorter than one of its blocks; "" where neither is so. It may
// allocate.
func (m *Match) Reason(i int) string {
	if size := m.BlockSize(i); m.Workers[i].Unknown == "" && m.tokens < size {
		return fmt.Sprintf("the prompt of %d tokens is shorter than one block of %d", m.tokens, size)
	}
	return m.Workers[i].Unknown
}

// keysFor returns all keys of the prompt in the domain of a matched worker; ok is
// false where they are not known.
func (m *Match) keysFor(i int, req *Request) (keys []uint64, ok bool) {
	if m.timed {
		defer func(started time.Time) { m.hashing += time.Since(started) }(time.Now())
	}
	if p := m.places[i]; p != nil && m.Workers[i].Unknown == "" {
		return m.domains.of(p.domain).keysOf(&req.Prompt)
	}
	return nil, false
}

func (dm *domainMatch) keysOf(p *blockhash.Prompt) ([]uint64, bool) {
	d := dm.domain
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
