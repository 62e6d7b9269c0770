// Package parity finds out from a worker's events how its engine hashes, which
// releases it may be of, and whether that stays so.
//
// A [Monitor] looks at the events of one worker. Their form rules releases out: an
// array or a map, the sign of hashes, the fields that are there. Then it takes
// blocks that begin a prompt, are on the device and are described in full, hashes
// their tokens in every way that it knows of, and settles on the one that gives the
// announced hash: 64 equal bits are proof. From then on it checks a sample. If
// nothing fits, or what fitted does so no more, it says so once, with what was
// tried: that worker's prompts must then be matched by content, or not at all,
// but never by a hash that is known to be wrong.
//
// Releases that hash plain blocks alike stay candidates side by side
// ([Verdict.Eras]) until a block with a salt, an item or an adapter tells them
// apart. Nothing is guessed among them: which prompts they hash in different ways
// is known (blockhash.Scheme.Differ), and all others are sure.
//
// Blocks that an event does not describe in full are never a mismatch, since
// something that the event leaves out may be in the hash: all blocks before
// vLLM 0.17 (no extra keys), blocks of adapters (their path is hashed from 0.31
// on and in no event), blocks with several extra keys, offload tiers. They are
// counted as unknown.
package parity

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
)

// AnyEngine is the engine of a monitor that is to find it.
const AnyEngine = "any"

// Options configures a [Monitor]. The zero value is vLLM of any release.
type Options struct {
	// Engine is "vllm" (default), "sglang", or AnyEngine.
	Engine string
	// Release is the engine's, if both are known: among eras that fit alike
	// Verdict.Scheme is of this one.
	Release string
	// Algorithms are tried in this order; nil means vLLM's four.
	Algorithms []blockhash.Algorithm
	// Seeds are tried in this order, before the unset seed and "0".
	Seeds []blockhash.Seed
	// PlainOnly says that no request has a salt, an adapter or items: events are then
	// described in full even where they carry no extra keys.
	PlainOnly bool
	// Dynamo says whether SGLang publishes in "format": "dynamo"; Open is to find out.
	// Blocks of namespaces, which no event tells of, decide nothing then.
	Dynamo Answer
	// HashBlockSize is the number of tokens that a hash covers, for models of
	// several cache groups, whose events tell only the group's own; 0 takes the
	// size of each event.
	HashBlockSize int
	// Sample is how many blocks pass between two that are checked once the way
	// of hashing is found; default 64.
	Sample int
	// Doubts is how many fully described blocks must fail, in a row, before
	// Mismatch is said; default 3.
	Doubts int
	// Notify is told of every change of what the verdict says of the engine. It
	// is called by Observe and must not call the monitor. Nil is nobody.
	Notify func(Verdict)
}

// State is what a monitor knows. The zero value is Undecided.
type State uint8

const (
	// Undecided: no block was seen that decides anything.
	Undecided State = iota
	// Exact: the way of hashing is found, and every checked block agrees.
	Exact
	// Mismatch: fully described blocks agree with no way of hashing that is
	// known: a random root, another seed, an unknown release. Match by content.
	Mismatch
	// Alien: no release that is known publishes such events; or what came before
	// was of another release. Reset the monitor to begin anew.
	Alien
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Exact:
		return "exact"
	case Mismatch:
		return "mismatch"
	case Alien:
		return "alien"
	}
	return "undecided"
}

// Answer is a fact that may not be known yet. The zero value is No.
type Answer uint8

const (
	No Answer = iota
	Yes
	Open // not known
)

// Verdict is what a monitor found.
type Verdict struct {
	State State
	// Eras are the releases that the events can be of, oldest first within an
	// engine.
	Eras []Era
	// Scheme, Algorithm, Seed, BlockSize, Lookahead and EAGLE are the way of
	// hashing when State is Exact; with Mismatch, the last three are the last
	// block's. Scheme is one of those of Eras: that of the
	// release in Options, or the newest.
	Scheme    blockhash.Scheme
	Algorithm blockhash.Algorithm
	Seed      blockhash.Seed
	BlockSize int
	Lookahead int
	EAGLE     bool
	// Candidates are the ways of hashing that agree with every block, the newest
	// first, when State is Exact. They hash plain blocks alike.
	Candidates []Candidate
	// Dynamo tells whether SGLang publishes in "format": "dynamo". It is Open
	// until a block with a salt tells.
	Dynamo Answer
	// Nodes says that the events are of SGLang before 0.5.1, where the parent of a
	// prompt's first block is hash(()): to 0.4.7 an event is a node of any size,
	// and its hash says nothing of where it lies. Nothing is decided then.
	Nodes bool
	// Tried lists the ways that do not fit, when State is Mismatch.
	Tried []string
	// Announced and Computed are the hashes of the last block that did not
	// agree; Computed is that of the way found before, or the first tried.
	Announced, Computed uint64
	// Matched, Mismatched and Unknown count blocks: those that were checked, and
	// those that cannot decide.
	Matched, Mismatched, Unknown uint64
}

// Error describes in one line what is wrong.
func (v Verdict) Error() string {
	if v.State == Alien {
		return "parity: no known release publishes such events, or they are of another release than those before"
	}
	return fmt.Sprintf("parity: announced hash %016x is none of: %s", v.Announced, strings.Join(v.Tried, ", "))
}

// Monitor checks the hashes of one worker. It is safe for concurrent use; make
// it with [New].
type Monitor struct {
	o      Options
	prefer blockhash.Scheme // of Options.Release
	engine []Era            // those of the engine

	mu      sync.Mutex
	v       Verdict
	changed bool
	forms   []Era       // that the form of the events admits
	seen    [4]wireSeen // by kind: the form looked at last
	cands   []Candidate // when Exact: the eras that fit, by scheme and format
	found   way         // when Exact; its scheme is that of the first candidate
	since   int         // blocks since the last check
	doubts  int
	hashers map[way]*blockhash.Hasher
	keys    []uint64
	tokens  []uint32
	digests []byte
	said    []outcome
	subj    subject
}

type wireSeen struct {
	wire   kvevents.Wire
	fields kvevents.FieldSet
}

// Candidate is a scheme, and a format of events where the engine has two.
type Candidate struct {
	Scheme blockhash.Scheme
	Dynamo bool // SGLang's "format": "dynamo"
}

// way is one way of hashing.
type way struct {
	Candidate
	algorithm blockhash.Algorithm
	seed      blockhash.Seed
	size      int
	lookahead int
	eagle     bool
}

func (w way) String() string {
	s := fmt.Sprintf("%v %v seed %v", w.Scheme, w.algorithm, w.seed)
	if w.Dynamo {
		s += " dynamo"
	}
	return s
}

// New returns a monitor. The error is that of an unknown engine, an unreadable
// release, or a seed that no engine can have ([blockhash.Seed.Validate]).
func New(o Options) (*Monitor, error) {
	if o.Engine == "" {
		o.Engine = "vllm"
	}
	if o.Sample <= 0 {
		o.Sample = 64
	}
	if o.Doubts <= 0 {
		o.Doubts = 3
	}
	if o.Algorithms == nil {
		o.Algorithms = []blockhash.Algorithm{blockhash.SHA256, blockhash.SHA256CBOR, blockhash.XXHash, blockhash.XXHashCBOR}
	}
	for _, s := range o.Seeds {
		if err := s.Validate(); err != nil {
			return nil, fmt.Errorf("parity: Options.Seeds: %w", err)
		}
	}
	o.Seeds = append(slices.Clone(o.Seeds), blockhash.Seed{}, blockhash.SeedText("0"))
	m := &Monitor{o: o, hashers: map[way]*blockhash.Hasher{}}
	for _, e := range allEras() {
		if o.Engine == AnyEngine || strings.EqualFold(e.Scheme.Engine(), o.Engine) {
			m.engine = append(m.engine, e)
		}
	}
	if len(m.engine) == 0 {
		return nil, fmt.Errorf("parity: unknown engine %q, want vllm, sglang or %s", o.Engine, AnyEngine)
	}
	if o.Release != "" {
		var err error
		if m.prefer, err = blockhash.SchemeFor(o.Engine, o.Release); err != nil {
			return nil, err
		}
	}
	m.reset()
	return m, nil
}

// Reset forgets everything that was seen: the engine restarted, perhaps as another
// one.
func (m *Monitor) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reset()
}

func (m *Monitor) reset() {
	m.v, m.cands, m.found = Verdict{}, nil, way{}
	m.since, m.doubts, m.changed = 0, 0, false
	m.allForms()
}

func (m *Monitor) allForms() {
	m.forms = append(m.forms[:0], m.engine...)
	m.seen = [4]wireSeen{}
}

// Verdict returns what is known now.
func (m *Monitor) Verdict() Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.verdict()
}

func (m *Monitor) verdict() Verdict {
	v := m.v
	v.Tried, v.Candidates = slices.Clone(v.Tried), slices.Clone(m.cands)
	for _, e := range m.forms {
		if v.State != Exact || slices.ContainsFunc(m.cands, func(c Candidate) bool { return c.Scheme == e.Scheme }) {
			v.Eras = append(v.Eras, e)
		}
	}
	return v
}

// Observe looks at a batch of the worker. Once the way of hashing is found it
// costs little: one block in Options.Sample is hashed. A nil batch is an empty one.
func (m *Monitor) Observe(b *kvevents.Batch) {
	if b == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range b.Events {
		ev := &b.Events[i]
		m.look(ev)
		if m.changed && m.o.Notify != nil {
			m.o.Notify(m.verdict())
		}
		m.changed = false
	}
}

func (m *Monitor) look(ev *kvevents.Event) {
	// Other caches publish in vLLM's stream: LMCache in process as "cpu", where vLLM writes
	// "CPU", and hashes with a sign, as Python's own, beyond the device.
	other := len(ev.Medium) > 0 && !strings.EqualFold(string(ev.Medium), "GPU")
	if m.v.State == Alien || string(ev.Medium) == "cpu" || other && ev.Wire&kvevents.WireSigned != 0 {
		return
	}
	if !m.form(ev) {
		m.enter(Alien)
		return
	}
	if ev.Kind == kvevents.BlockStored {
		if !m.v.Nodes && ev.HasParent && ev.Parent == rootOfNodes {
			m.v.Nodes, m.changed = true, true
		}
		m.block(ev)
	}
}

func (m *Monitor) enter(s State) {
	m.changed = m.changed || s != m.v.State
	m.v.State = s
}

// form rules out releases that do not publish such events, and reports whether any
// is left.
func (m *Monitor) form(ev *kvevents.Event) bool {
	if int(ev.Kind) >= len(m.seen) {
		return true // no kind that there is
	}
	seen := &m.seen[ev.Kind]
	if ev.Fields == seen.fields && ev.Wire|seen.wire == seen.wire {
		return true
	}
	seen.fields, seen.wire = ev.Fields, ev.Wire|seen.wire
	n := len(m.forms)
	m.forms = slices.DeleteFunc(m.forms, func(e Era) bool { return !e.form.Admits(ev) || e.form.Omits(ev) })
	if len(m.forms) == n {
		return true
	}
	left := len(m.cands)
	m.cands = slices.DeleteFunc(m.cands, func(c Candidate) bool {
		return !slices.ContainsFunc(m.forms, func(e Era) bool { return e.Scheme == c.Scheme })
	})
	m.changed = m.changed || m.v.State != Undecided
	if m.v.State == Exact && len(m.cands) > 0 {
		m.settle(m.cands)
	}
	return len(m.forms) > 0 && (left == 0 || len(m.cands) > 0)
}

// block checks the first block of an event, if it can be.
func (m *Monitor) block(ev *kvevents.Event) {
	n := len(ev.Hashes)
	s, ok := m.subject(ev)
	if !ok {
		m.v.Unknown += uint64(n)
		return
	}
	tells := !s.plain() && len(m.cands) > 1 // the candidates apart
	if m.since += n; m.v.State != Undecided && m.since < m.o.Sample && !tells {
		return
	}
	m.since = 0
	if m.v.State == Exact {
		switch m.narrow(s) {
		case fits:
			m.agree()
			return
		case open:
			m.v.Unknown += uint64(n)
			return
		}
	}
	switch found := m.search(s); {
	case found == fits:
		m.agree()
		return
	case found == open, !s.plain():
		m.v.Unknown += uint64(n)
		return
	}
	m.v.Mismatched++
	m.v.Announced = s.hash
	if m.doubts++; m.doubts >= m.o.Doubts {
		m.changed = m.changed || m.v.BlockSize != s.size || m.v.Lookahead != s.lookahead
		m.enter(Mismatch)
		m.cands = nil
		m.v.BlockSize, m.v.Lookahead, m.v.EAGLE = s.size, s.lookahead, s.eagle
	}
}

func (m *Monitor) agree() {
	m.v.Matched++
	m.v.Tried, m.doubts = nil, 0
	m.enter(Exact)
}

// narrow asks the candidates about a block. Where some fit, the others are out;
// where none does, those are out that would have to.
func (m *Monitor) narrow(s *subject) outcome {
	w := m.found
	w.size, w.lookahead, w.eagle = s.size, s.lookahead, s.eagle
	m.said = m.said[:0]
	for _, c := range m.cands {
		w.Candidate = c
		o, _ := m.outcome(w, s)
		m.said = append(m.said, o)
	}
	best := slices.Max(m.said)
	if best == differs {
		return differs
	}
	left := m.cands[:0]
	for i, c := range m.cands {
		if m.said[i] == best {
			left = append(left, c)
		}
	}
	if best == fits {
		m.changed = m.changed || w.size != m.found.size || w.lookahead != m.found.lookahead || w.eagle != m.found.eagle
		w.Candidate = m.found.Candidate
		m.found = w
	}
	if m.changed = m.changed || len(left) != len(m.said); m.changed {
		m.settle(left)
	}
	return best
}

// settle takes the candidates that are left over into the verdict.
func (m *Monitor) settle(cands []Candidate) {
	m.cands = cands
	best, dynamo := cands[0], 0
	for _, c := range cands {
		if best.Scheme.Since() != m.prefer.Since() || c.Scheme == m.prefer {
			best = c
		}
		if c.Dynamo {
			dynamo++
		}
	}
	m.v.Dynamo = Open
	switch dynamo {
	case 0:
		m.v.Dynamo = No
	case len(cands):
		m.v.Dynamo = Yes
	}
	w := m.found
	m.v.Scheme, m.v.Algorithm, m.v.Seed, m.v.BlockSize, m.v.Lookahead, m.v.EAGLE = best.Scheme, w.algorithm, w.seed, w.size, w.lookahead, w.eagle
}

// search tries every way on the block and settles on what fits.
func (m *Monitor) search(s *subject) (best outcome) {
	all := m.formCandidates()
	var tried []string
	var fit []Candidate
	for _, algorithm := range m.o.Algorithms {
		for _, seed := range m.o.Seeds {
			for _, c := range all {
				w := way{c, algorithm, seed, s.size, s.lookahead, s.eagle}
				if c.Scheme.Engine() == "sglang" && (algorithm != m.o.Algorithms[0] || seed != m.o.Seeds[0]) {
					continue // it has no choice
				}
				if c.Scheme.Engine() == "sglang" {
					w.algorithm, w.seed = 0, blockhash.Seed{}
				}
				o, key := m.outcome(w, s)
				best = max(best, o)
				if o == fits {
					if len(fit) == 0 {
						m.found = w
					}
					fit = append(fit, c)
				}
				if o == differs && key != 0 {
					if len(tried) == 0 {
						m.v.Computed = key
					}
					tried = append(tried, w.String())
				}
			}
			if len(fit) > 0 {
				m.changed = true
				m.settle(fit)
				return fits
			}
		}
	}
	m.v.Tried = tried
	return best
}

// formCandidates are the schemes that the form of the events admits, the newest
// first.
func (m *Monitor) formCandidates() (all []Candidate) {
	for _, e := range slices.Backward(m.forms) {
		plain, dynamo := Candidate{e.Scheme, false}, Candidate{e.Scheme, true}
		switch {
		case slices.Contains(all, plain) || slices.Contains(all, dynamo):
		case !e.Scheme.HasDynamoEvents() || m.o.Dynamo == No:
			all = append(all, plain)
		case m.o.Dynamo == Yes:
			all = append(all, dynamo)
		default:
			all = append(all, plain, dynamo)
		}
	}
	return all
}
