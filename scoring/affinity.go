package scoring

import (
	"sync"
	"time"
)

// Pins are the identities by which a request may be pinned to a worker, in the
// order in which they are tried; an empty one does not pin. They are LiteLLM's
// responses_api_deployment_check, session_affinity, deployment_affinity and
// prompt_caching.
type Pins struct {
	// Scope keeps equal identities of different models or tenants apart.
	Scope string
	// Response is the previous_response_id of the OpenAI Responses API.
	Response string
	// Session is what [SessionID] finds.
	Session string
	// APIKey is a hash of the caller's API key (see [HashAPIKey]), never the
	// key itself.
	APIKey string
	// Prompt is what [PromptPin] finds: a hash of the prompt up to the last
	// block marked cache_control.
	Prompt string
}

// PinKind says which identity a pin is by.
type PinKind uint8

// The kinds of pins, in the order in which they are tried.
const (
	PinResponse PinKind = iota
	PinSession
	PinAPIKey
	PinPrompt
	numPins
)

// PinKey names a pin in a store. It is comparable.
type PinKey struct {
	Kind      PinKind
	Scope, ID string
}

func (p *Pins) key(kind PinKind) PinKey {
	id := ""
	switch kind {
	case PinResponse:
		id = p.Response
	case PinSession:
		id = p.Session
	case PinAPIKey:
		id = p.APIKey
	case PinPrompt:
		id = p.Prompt
	}
	return PinKey{kind, p.Scope, id}
}

// PinStore keeps which worker, by name, a key is pinned to. [LocalPins] keeps it
// in memory; a shared store makes several routers agree. Implementations must be
// safe for concurrent use, and answer as if empty rather than block for long.
type PinStore interface {
	// Get returns the worker of a key and, if there is one, makes the pin last
	// for ttl from now.
	Get(key PinKey, ttl time.Duration) (worker string, ok bool)
	// Claim pins a key for ttl unless it is pinned already, and returns the
	// worker that it is pinned to: the first writer wins.
	Claim(key PinKey, worker string, ttl time.Duration) (winner string)
	// Release takes the pin away if it still points to the worker.
	Release(key PinKey, worker string)
}

// AffinityOptions are the options of [NewAffinity].
type AffinityOptions struct {
	// Store keeps the pins; nil means a [LocalPins] of its own.
	Store PinStore
	// Session, APIKey, Response and Prompt switch the four affinities off by
	// a negative time, and set how long a pin lasts without use; 0 means
	// 3,600 s, for Prompt 300 s (LiteLLM).
	Session, APIKey, Response, Prompt time.Duration
	// A pinned worker is let go when it has more than OverRatio times the
	// mean of [Load.Requests] of the other candidates plus OverAbs; 0 means 2
	// and 8. A worker whose load is unknown is not overloaded.
	OverRatio, OverAbs float64
}

// Affinity keeps requests with the same identity on one worker, in front of any
// policy: it is a [Filter] that keeps only the pinned worker, and by
// [Affinity.Scorer] a scorer that favours it. The first writer wins and each use
// makes the pin last longer. A pin to a worker that is not among the candidates,
// or overloaded, is let go; the next identity is tried and the worker that the
// policy then takes is pinned instead.
//
// Create it with [NewAffinity]. It is safe for concurrent use. Source: LiteLLM
// router_utils/pre_call_checks, September 2026; there a broken pin fails the
// request or keeps piling on the worker.
type Affinity struct {
	store  PinStore
	ttl    [numPins]time.Duration
	ratio  float64
	excess float64
}

// NewAffinity returns an affinity without pins. The error is an [*OptionError].
func NewAffinity(o AffinityOptions) (*Affinity, error) {
	if err := checks("OverRatio", o.OverRatio, "OverAbs", o.OverAbs); err != nil {
		return nil, err
	}
	a := &Affinity{store: o.Store, ratio: orDefault(o.OverRatio, 2), excess: orDefault(o.OverAbs, 8)}
	if a.store == nil {
		var err error
		if a.store, err = NewLocalPins(LocalPinsOptions{}); err != nil {
			return nil, err
		}
	}
	a.ttl = [numPins]time.Duration{PinResponse: o.Response, PinSession: o.Session, PinAPIKey: o.APIKey, PinPrompt: o.Prompt}
	for k := range a.ttl {
		if a.ttl[k] == 0 {
			a.ttl[k] = time.Hour
			if PinKind(k) == PinPrompt {
				a.ttl[k] = 5 * time.Minute
			}
		}
	}
	return a, nil
}

// Validate refuses an affinity that [NewAffinity] did not make.
func (a *Affinity) Validate() error {
	if a == nil || a.store == nil {
		return constError("was not made by NewAffinity")
	}
	return nil
}

// Name implements [Filter].
func (a *Affinity) Name() string { return "affinity" }

// Filter implements [Filter]. It never drops all candidates.
func (a *Affinity) Filter(req *Request, candidates []*Candidate) []*Candidate {
	if i := a.pinned(req, candidates); i >= 0 {
		return candidates[i : i+1]
	}
	return candidates
}

// Scorer returns a scorer that gives the pinned worker 1 and all others 0.
func (a *Affinity) Scorer() Scorer { return affinityScorer{a} }

type affinityScorer struct{ a *Affinity }

func (s affinityScorer) Name() string { return "affinity" }

func (s affinityScorer) Validate() error { return s.a.Validate() }

func (s affinityScorer) Score(req *Request, candidates []*Candidate, dst []float64) error {
	clear(dst)
	if i := s.a.pinned(req, candidates); i >= 0 {
		dst[i] = 1
	}
	return nil
}

func (s affinityScorer) Chosen(req *Request, c *Candidate) { s.a.Chosen(req, c) }

// pinned returns the index of the pinned worker, or -1. Pins that lead nowhere
// are released on the way, unless the request is a dry run.
func (a *Affinity) pinned(req *Request, candidates []*Candidate) int {
	if a.Validate() != nil {
		return -1
	}
	for kind := range numPins {
		key := req.Pins.key(kind)
		if key.ID == "" || a.ttl[kind] < 0 {
			continue
		}
		name, ok := a.store.Get(key, a.ttl[kind])
		if !ok {
			continue
		}
		for i, c := range candidates {
			if c.Name == name && !a.overloaded(c, candidates) {
				return i
			}
		}
		if !req.DryRun {
			a.store.Release(key, name)
		}
	}
	return -1
}

func (a *Affinity) overloaded(c *Candidate, candidates []*Candidate) bool {
	if !c.Load.Requests.Known {
		return false
	}
	sum, n := 0.0, 0
	for _, o := range candidates {
		if o != c && o.Load.Requests.Known {
			sum, n = sum+o.Load.Requests.Value, n+1
		}
	}
	return n > 0 && c.Load.Requests.Value > a.ratio*sum/float64(n)+a.excess
}

// Chosen implements [Observer]: it pins what is not pinned yet. A response is
// pinned by [Affinity.Responded] instead, when its id is known.
func (a *Affinity) Chosen(req *Request, c *Candidate) {
	if a.Validate() != nil {
		return
	}
	for kind := PinSession; kind < numPins; kind++ {
		if key := req.Pins.key(kind); key.ID != "" && a.ttl[kind] >= 0 {
			a.store.Claim(key, c.Name, a.ttl[kind])
		}
	}
}

// Responded pins the id of a response to the worker that gave it, so that a
// request that names it as previous_response_id goes there.
func (a *Affinity) Responded(scope, responseID, worker string) {
	if a.Validate() == nil && responseID != "" && a.ttl[PinResponse] >= 0 {
		a.store.Claim(PinKey{PinResponse, scope, responseID}, worker, a.ttl[PinResponse])
	}
}

// LocalPinsOptions are the options of [NewLocalPins].
type LocalPinsOptions struct {
	// Capacity is the number of pins kept, least recently used first to go; 0
	// means 1,048,576.
	Capacity int
	// Now is the clock, for tests and simulations; nil means [time.Now].
	Now func() time.Time
}

// LocalPins is a [PinStore] in the memory of this process. Create it with
// [NewLocalPins]. It is safe for concurrent use behind one lock.
type LocalPins struct {
	o LocalPinsOptions

	mu          sync.Mutex
	index       map[PinKey]int32
	slots       []pinSlot
	first, last int32
	free        int32
}

type pinSlot struct {
	key        PinKey
	worker     string
	until      time.Time
	prev, next int32
}

// NewLocalPins returns an empty store.
func NewLocalPins(o LocalPinsOptions) (*LocalPins, error) {
	if o.Capacity < 0 || o.Capacity > 1<<30 {
		return nil, optionErrorf("Capacity", "is %d; 1 to %d pins are possible (0 takes the default)", o.Capacity, 1<<30)
	}
	if o.Capacity == 0 {
		o.Capacity = 1 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &LocalPins{o: o, index: map[PinKey]int32{}, first: -1, last: -1, free: -1}, nil
}

var _ PinStore = (*LocalPins)(nil)

// Get implements [PinStore].
func (p *LocalPins) Get(key PinKey, ttl time.Duration) (string, bool) {
	if !p.lock() {
		return "", false
	}
	defer p.mu.Unlock()
	i, ok := p.find(key)
	if !ok {
		return "", false
	}
	p.touch(i, ttl)
	return p.slots[i].worker, true
}

// Claim implements [PinStore].
func (p *LocalPins) Claim(key PinKey, worker string, ttl time.Duration) string {
	if !p.lock() {
		return worker
	}
	defer p.mu.Unlock()
	if i, ok := p.find(key); ok {
		p.touch(i, ttl)
		return p.slots[i].worker
	}
	if len(p.index) >= p.o.Capacity {
		p.drop(p.first)
	}
	i := p.free
	if i >= 0 {
		p.free = p.slots[i].next
	} else {
		p.slots = append(p.slots, pinSlot{})
		i = int32(len(p.slots) - 1)
	}
	p.slots[i] = pinSlot{key: key, worker: worker}
	p.index[key] = i
	p.link(i)
	p.slots[i].until = p.o.Now().Add(ttl)
	return worker
}

// Release implements [PinStore].
func (p *LocalPins) Release(key PinKey, worker string) {
	if !p.lock() {
		return
	}
	defer p.mu.Unlock()
	if i, ok := p.find(key); ok && p.slots[i].worker == worker {
		p.drop(i)
	}
}

// Len returns the number of pins, expired ones that nobody asked for included.
func (p *LocalPins) Len() int {
	if !p.lock() {
		return 0
	}
	defer p.mu.Unlock()
	return len(p.index)
}

// lock reports whether there is a store, and locks it.
func (p *LocalPins) lock() bool {
	if p == nil || p.o.Now == nil {
		return false
	}
	p.mu.Lock()
	return true
}

// find drops a pin that has expired.
func (p *LocalPins) find(key PinKey) (int32, bool) {
	i, ok := p.index[key]
	if ok && !p.o.Now().Before(p.slots[i].until) {
		p.drop(i)
		return 0, false
	}
	return i, ok
}

func (p *LocalPins) touch(i int32, ttl time.Duration) {
	p.slots[i].until = p.o.Now().Add(ttl)
	p.unlink(i)
	p.link(i)
}

func (p *LocalPins) drop(i int32) {
	p.unlink(i)
	delete(p.index, p.slots[i].key)
	p.slots[i] = pinSlot{next: p.free}
	p.free = i
}

func (p *LocalPins) link(i int32) {
	p.slots[i].prev, p.slots[i].next = p.last, -1
	if p.last >= 0 {
		p.slots[p.last].next = i
	} else {
		p.first = i
	}
	p.last = i
}

func (p *LocalPins) unlink(i int32) {
	s := &p.slots[i]
	if s.prev >= 0 {
		p.slots[s.prev].next = s.next
	} else {
		p.first = s.next
	}
	if s.next >= 0 {
		p.slots[s.next].prev = s.prev
	} else {
		p.last = s.prev
	}
}
