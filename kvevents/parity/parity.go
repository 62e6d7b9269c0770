// Package parity watches whether the block hashes that an engine announces are
// those that package blockhash computes, and finds out how the engine hashes.
//
// A [Monitor] looks at the events of one worker: it takes blocks that begin a
// prompt, are on the device, and are described in full (tokens, no adapter, no
// extra keys), hashes their tokens in every way that it knows of, and settles
// on the one that gives the announced hash. From then on it checks a sample. If
// nothing fits, or what fitted does so no more, it says so once, with what was
// tried: that worker's prompts must then be matched by content, or not at all,
// but never by a hash that is known to be wrong.
//
// Blocks that an event does not describe in full are never a mismatch, since
// something that the event leaves out may be in the hash: all blocks before
// vLLM 0.17 (no extra keys), blocks of adapters (their path is hashed from 0.31
// on and in no event), salted and multimodal ones, offload tiers. They are
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

// Options configures a [Monitor]. The zero value is vLLM of any release.
type Options struct {
	// Engine is "vllm" (default) or "sglang".
	Engine string
	// Release is the engine's, if known: its era is tried before the others.
	Release string
	// Algorithms are tried in this order; nil means vLLM's four.
	Algorithms []blockhash.Algorithm
	// Seeds are tried in this order, before the unset seed and "0".
	Seeds []blockhash.Seed
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
	// Notify is told of every change of the verdict's state. It is called by
	// Observe and must not call the monitor. Nil is nobody.
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
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Exact:
		return "exact"
	case Mismatch:
		return "mismatch"
	}
	return "undecided"
}

// Verdict is what a monitor found.
type Verdict struct {
	State State
	// Scheme, Algorithm, Seed, BlockSize and Lookahead are the way of hashing
	// when State is Exact. Eras that hash plain blocks alike cannot be told
	// apart: the scheme is then that of the release in Options, or the newest.
	Scheme    blockhash.Scheme
	Algorithm blockhash.Algorithm
	Seed      blockhash.Seed
	BlockSize int
	Lookahead int
	// Tried lists the ways that do not fit, when State is Mismatch.
	Tried []string
	// Announced and Computed are the hashes of the last block that did not
	// agree; Computed is that of the way found before, or the first tried.
	Announced, Computed uint64
	// Matched, Mismatched and Unknown count blocks: those that were checked, and
	// those that cannot decide.
	Matched, Mismatched, Unknown uint64
}

// Error describes a mismatch in one line.
func (v Verdict) Error() string {
	return fmt.Sprintf("parity: announced hash %016x is none of: %s", v.Announced, strings.Join(v.Tried, ", "))
}

// Monitor checks the hashes of one worker. It is safe for concurrent use; make
// it with [New].
type Monitor struct {
	o       Options
	schemes []blockhash.Scheme

	mu      sync.Mutex
	v       Verdict
	found   *blockhash.Hasher
	since   int // blocks since the last check
	doubts  int
	hashers map[way]*blockhash.Hasher
	keys    []uint64
	tokens  []uint32
}

// way is one way of hashing.
type way struct {
	scheme        blockhash.Scheme
	algorithm     blockhash.Algorithm
	seed          blockhash.Seed
	size          int
	lookahead     int
	eagle, dynamo bool
}

func (w way) String() string {
	s := fmt.Sprintf("%v %v seed %v", w.scheme, w.algorithm, w.seed)
	if w.dynamo {
		s += " dynamo"
	}
	return s
}

// New returns a monitor. The error is that of an unknown engine or an unreadable
// release.
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
	o.Seeds = append(slices.Clone(o.Seeds), blockhash.Seed{}, blockhash.SeedText("0"))
	m := &Monitor{o: o, hashers: map[way]*blockhash.Hasher{}}
	if o.Release != "" {
		s, err := blockhash.SchemeFor(o.Engine, o.Release)
		if err != nil {
			return nil, err
		}
		m.schemes = append(m.schemes, s)
	}
	for _, s := range slices.Backward(blockhash.Schemes()) {
		if strings.EqualFold(s.Engine(), o.Engine) && !slices.Contains(m.schemes, s) {
			m.schemes = append(m.schemes, s)
		}
	}
	if len(m.schemes) == 0 {
		return nil, fmt.Errorf("parity: unknown engine %q, want vllm or sglang", o.Engine)
	}
	return m, nil
}

// Verdict returns what is known now.
func (m *Monitor) Verdict() Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.verdict()
}

func (m *Monitor) verdict() Verdict {
	v := m.v
	v.Tried = slices.Clone(v.Tried)
	return v
}

// Observe looks at a batch of the worker. Once the way of hashing is found it
// costs little: one block in Options.Sample is hashed.
func (m *Monitor) Observe(b *kvevents.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.v.State
	for i := range b.Events {
		if ev := &b.Events[i]; ev.Kind == kvevents.BlockStored {
			m.look(ev)
		}
	}
	if m.v.State != before && m.o.Notify != nil {
		m.o.Notify(m.verdict())
	}
}

// look checks the first block of an event, if it can be.
func (m *Monitor) look(ev *kvevents.Event) {
	n := len(ev.Hashes)
	w, ok := m.usable(ev)
	if !ok {
		m.v.Unknown += uint64(n)
		return
	}
	if m.since += n; m.v.State == Exact && m.since < m.o.Sample {
		return
	}
	m.since = 0
	if m.found != nil {
		if key, ok := m.hash(m.found); ok && key == ev.Hashes[0] {
			m.agree()
			return
		}
	}
	if m.search(w, ev) {
		return
	}
	if !m.decides(ev) {
		m.v.Unknown++
		return
	}
	m.v.Mismatched++
	m.v.Announced = ev.Hashes[0]
	if m.doubts++; m.doubts >= m.o.Doubts {
		m.v.State = Mismatch
		m.found = nil
	}
}

func (m *Monitor) agree() {
	m.v.Matched++
	m.v.State, m.v.Tried, m.doubts = Exact, nil, 0
}

// usable reports whether the tokens of an event's first block are known and
// everything that we can see allows to hash them. It puts them into m.tokens.
func (m *Monitor) usable(ev *kvevents.Event) (w way, ok bool) {
	size := ev.BlockSize
	if m.o.HashBlockSize > 0 {
		size = m.o.HashBlockSize
	}
	switch {
	case ev.HasParent, len(ev.Hashes) == 0, size <= 0, ev.BlockSize%max(size, 1) != 0,
		len(ev.Medium) > 0 && !strings.EqualFold(string(ev.Medium), "GPU"),
		len(ev.LoRAName) > 0, ev.HasLoRAID, len(ev.CacheSalt) > 0,
		len(ev.ExtraKeys) > 0 && len(ev.ExtraKeys[0]) > 0:
		return w, false
	}
	m.tokens = m.tokens[:0]
	switch ev.TokenForm {
	case kvevents.TokensPlain:
		// Where blocks of the span are left out, the first hash need not be the first block's.
		if len(ev.Tokens) != len(ev.Hashes)*ev.BlockSize {
			return w, false
		}
		m.tokens = append(m.tokens, ev.Tokens[:ev.BlockSize]...)
	case kvevents.TokensPairs:
		if len(ev.Tokens) != 2*len(ev.Hashes)*ev.BlockSize {
			return w, false
		}
		w.eagle = true
		for i := range ev.BlockSize {
			m.tokens = append(m.tokens, ev.Tokens[2*i])
		}
		m.tokens = append(m.tokens, ev.Tokens[2*ev.BlockSize-1])
	default:
		return w, false
	}
	if len(ev.Lookahead) > 0 {
		w.lookahead = len(ev.Lookahead[0])
		m.tokens = append(m.tokens, ev.Lookahead[0]...)
	}
	w.size = size
	return w, true
}

// decides reports whether an event says everything that goes into the hash, so
// that a difference is a mismatch.
func (m *Monitor) decides(ev *kvevents.Event) bool {
	return strings.EqualFold(m.o.Engine, "sglang") || len(ev.ExtraKeys) > 0
}

// hash returns the hash of the block in m.tokens, which is that at its end.
func (m *Monitor) hash(h *blockhash.Hasher) (key uint64, ok bool) {
	var err error
	m.keys, err = h.AppendKeys(m.keys[:0], &blockhash.Prompt{Tokens: m.tokens})
	if err != nil || len(m.keys) == 0 {
		return 0, false
	}
	return m.keys[len(m.keys)-1], true
}

// search tries every way on the block and settles on the first that fits.
func (m *Monitor) search(w way, ev *kvevents.Event) bool {
	var tried []string
	sglang := strings.EqualFold(m.o.Engine, "sglang")
	algorithms, seeds := m.o.Algorithms, m.o.Seeds
	if sglang {
		algorithms, seeds = []blockhash.Algorithm{0}, []blockhash.Seed{{}}
	}
	for _, w.scheme = range m.schemes {
		for _, w.algorithm = range algorithms {
			for _, w.seed = range seeds {
				for _, w.dynamo = range []bool{false, true}[:1+btoi(sglang)] {
					key, ok := m.hashBy(w)
					if !ok {
						continue
					}
					if key == ev.Hashes[0] {
						m.found = m.hashers[w]
						m.v.Scheme, m.v.Algorithm, m.v.Seed, m.v.BlockSize, m.v.Lookahead = w.scheme, w.algorithm, w.seed, w.size, w.lookahead
						m.agree()
						return true
					}
					if len(tried) == 0 {
						m.v.Computed = key
					}
					tried = append(tried, w.String())
				}
			}
		}
	}
	m.v.Tried = tried
	return false
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// hashBy hashes the block one way; ok is false where that way has no root.
func (m *Monitor) hashBy(w way) (uint64, bool) {
	h, known := m.hashers[w]
	if !known {
		if len(m.hashers) > 4096 { // block sizes come from the network
			clear(m.hashers)
		}
		h, _ = blockhash.New(blockhash.Options{Scheme: w.scheme, Algorithm: w.algorithm, Seed: w.seed, BlockSize: w.size,
			Lookahead: w.lookahead, EAGLE: w.eagle, DynamoEvents: w.dynamo})
		m.hashers[w] = h
	}
	if h == nil {
		return 0, false
	}
	return m.hash(h)
}
