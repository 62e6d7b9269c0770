package scoring

import (
	"math"
	"sync"
	"time"
)

const (
	// ErrUnknownWorker is returned for a worker that was never added or has
	// been removed.
	ErrUnknownWorker constError = "scoring: worker is not known; add it first"
	// ErrEnded is returned when a request is reported on after it finished,
	// failed or expired. Nothing is changed.
	ErrEnded constError = "scoring: request has already finished, failed or expired"
	// ErrTooMany is returned by [InFlight.Begin] when the limit on tracked
	// requests is reached. The request may be sent, but is not counted.
	ErrTooMany constError = "scoring: too many requests in flight; raise InFlightOptions.MaxRequests or report their ends"
)

// InFlightOptions are the options of [NewInFlight]. The zero value is usable.
type InFlightOptions struct {
	// BlockSize is the number of tokens in a KV block; 0 means 16.
	BlockSize int
	// TTL ends a request on which nothing was reported for so long, so that a
	// lost report cannot load a worker for ever; 0 means 10 minutes.
	TTL time.Duration
	// MaxRequests bounds the memory; 0 means 1,048,576 requests.
	MaxRequests int
	// ScrapeTTL is how long scraped metrics count; older ones are unknown. 0
	// means 30 s.
	ScrapeTTL time.Duration
	// ReleasePromptAtFirstToken takes a request's prompt out of
	// [Load.PromptTokens] at its first token instead of at its end.
	ReleasePromptAtFirstToken bool
	// Now is the clock, for tests and simulations; nil means [time.Now]. A
	// clock that goes back stands still instead.
	Now func() time.Time
}

// InFlight counts what this router has sent to each worker and has not seen
// come back, and merges it with the engines' own metrics.
//
// Create it with [NewInFlight]. It is safe for concurrent use behind one lock;
// every method is constant time for each worker it is asked for, apart from expiry,
// which is constant for each request that expires, and [InFlight.Remove], which looks
// at every request.
type InFlight struct {
	o InFlightOptions

	mu      sync.Mutex
	now     time.Time
	workers slots[account]
	slots   []flight
	free    int32 // list of unused slots through next; -1 ends it
	first   int32 // list of requests, longest unreported first
	last    int32
	count   int
	expired uint64
	others  int // replicas that tell, see Peers
	unheard unheard
}

// flight is one tracked request.
type flight struct {
	generation uint32 // odd while in use
	prev, next int32
	worker     WorkerID
	counted    bool // worker is known and carries this request
	streaming  bool // had its first token
	peer       bool
	prompt     int
	uncached   int
	output     int
	seen       time.Time
}

// account is what is known about one worker.
type account struct {
	requests, peers, queued, prefill, prompt, blocks int
	begun, ended                                     uint64
	rate                                             rateWindow

	scraped            Load
	scrapedAt          time.Time
	begunThen, endThen uint64

	others bool // another replica has it first, see Peers
}

// NewInFlight returns accounting without workers. The error is an
// [*OptionError].
func NewInFlight(o InFlightOptions) (*InFlight, error) {
	for _, c := range []struct {
		name  string
		value int64
	}{{"BlockSize", int64(o.BlockSize)}, {"TTL", int64(o.TTL)}, {"MaxRequests", int64(o.MaxRequests)}, {"ScrapeTTL", int64(o.ScrapeTTL)}} {
		if c.value < 0 {
			return nil, optionErrorf(c.name, "is negative; 0 takes the default")
		}
	}
	if o.BlockSize == 0 {
		o.BlockSize = 16
	}
	if o.TTL == 0 {
		o.TTL = 10 * time.Minute
	}
	if o.MaxRequests == 0 {
		o.MaxRequests = 1 << 20
	}
	if o.MaxRequests > 1<<30 {
		return nil, optionErrorf("MaxRequests", "is %d; at most %d is possible", o.MaxRequests, 1<<30)
	}
	if o.ScrapeTTL == 0 {
		o.ScrapeTTL = 30 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &InFlight{o: o, free: -1, first: -1, last: -1}, nil
}

// Add makes a worker known, with nothing in flight. Adding it again changes
// nothing.
func (a *InFlight) Add(w WorkerID) {
	if !a.lock() {
		return
	}
	defer a.mu.Unlock()
	if a.workers.get(w) == nil {
		a.workers.put(w, &account{})
	}
}

// Remove forgets a worker. Its requests stay open, counted nowhere, until they
// end or [Flight.Served] moves them to another worker. Where [Peers] knows it too, call
// [Peers.Remove] as well, or it goes on taking a turn among the others.
func (a *InFlight) Remove(w WorkerID) {
	if !a.lock() {
		return
	}
	defer a.mu.Unlock()
	if a.workers.get(w) == nil {
		return
	}
	a.workers.remove(w)
	for i := a.first; i >= 0; i = a.slots[i].next {
		if a.slots[i].worker == w {
			a.slots[i].counted = false
		}
	}
}

// Sent describes a request at the moment it is sent to a worker.
type Sent struct {
	// PromptTokens is the length of the prompt, CachedTokens how much of it
	// the worker is expected to hold. No request counts as more than 2^31-1
	// tokens or less than 0, so that no sum overflows.
	PromptTokens, CachedTokens int
	// Peer says that another router sent it and told this one: it counts like
	// one's own, and in [Load.Peers].
	Peer bool
}

const mostTokens = math.MaxInt32

// Flight is the handle of one request in flight. It is a value, may be copied,
// and belongs to the InFlight that made it; the zero value answers [ErrEnded] to
// everything. It is safe for concurrent use.
type Flight struct {
	a          *InFlight
	slot       int32
	generation uint32
}

// Begin counts a request sent to a worker. It returns [ErrUnknownWorker] or
// [ErrTooMany]; the Flight is then the zero value. It allocates only while the
// number of requests grows beyond what it has been.
func (a *InFlight) Begin(w WorkerID, s Sent) (Flight, error) {
	if !a.lock() {
		return Flight{}, ErrNil
	}
	defer a.mu.Unlock()
	acc := a.workers.get(w)
	if acc == nil {
		return Flight{}, ErrUnknownWorker
	}
	i := a.free
	if i >= 0 {
		a.free = a.slots[i].next
	} else {
		if len(a.slots) >= a.o.MaxRequests {
			return Flight{}, ErrTooMany
		}
		a.slots = append(a.slots, flight{})
		i = int32(len(a.slots) - 1)
	}
	f := &a.slots[i]
	prompt := min(max(0, s.PromptTokens), mostTokens)
	*f = flight{generation: f.generation + 1, worker: w, peer: s.Peer, prompt: prompt,
		uncached: prompt - min(max(0, s.CachedTokens), prompt)}
	a.link(i)
	a.count++
	a.carry(f, acc)
	acc.rate.add(a.now)
	if a.others > 0 && !s.Peer {
		a.unheard.decided(a.now)
	}
	return Flight{a, i, f.generation}, nil
}

// FirstToken reports that the prompt has been computed.
func (t Flight) FirstToken() error {
	return t.with(func(f *flight) {
		if f.streaming {
			return
		}
		t.a.drop(f)
		f.streaming, f.output = true, max(f.output, 1)
		t.a.pick(f)
	})
}

// Output reports how many tokens have been generated so far, so that the KV
// blocks of the answer count. It never goes down.
func (t Flight) Output(tokens int) error {
	return t.with(func(f *flight) {
		t.a.drop(f)
		f.output = max(f.output, min(tokens, mostTokens))
		t.a.pick(f)
	})
}

// Served reports that another worker than the one of [InFlight.Begin] serves the
// request, after a retry: everything counted moves there. For a worker that is
// not known it returns [ErrUnknownWorker], and the request stays where it is.
func (t Flight) Served(w WorkerID, cachedTokens int) error {
	unknown := false
	err := t.with(func(f *flight) {
		acc := t.a.workers.get(w)
		if acc == nil {
			unknown = true
			return
		}
		if f.counted && f.worker == w {
			return
		}
		if from := t.a.workers.get(f.worker); f.counted && from != nil {
			t.a.drop(f)
			from.ended++
		}
		f.worker, f.uncached = w, f.prompt-min(max(0, cachedTokens), f.prompt)
		t.a.carry(f, acc)
		acc.rate.add(t.a.now)
	})
	if unknown {
		return ErrUnknownWorker
	}
	return err
}

// Finish reports that the request is complete; Fail that it ended without an
// answer. Both take it out of the counts, once: again they return [ErrEnded].
func (t Flight) Finish() error { return t.with(func(*flight) { t.a.end(t.slot) }) }

// Fail is Finish for a request that ended without an answer.
func (t Flight) Fail() error { return t.Finish() }

// with runs do on the request if it has not ended.
func (t Flight) with(do func(*flight)) error {
	if t.a == nil {
		return ErrEnded
	}
	t.a.mu.Lock()
	defer t.a.mu.Unlock()
	t.a.tick()
	f := &t.a.slots[t.slot]
	if f.generation != t.generation {
		return ErrEnded
	}
	t.a.unlink(t.slot)
	t.a.link(t.slot)
	do(f)
	return nil
}

// carry puts a request on an account it was not on, pick after a change.
func (a *InFlight) carry(f *flight, acc *account) {
	f.counted = true
	acc.begun++
	a.pick(f)
}

func (a *InFlight) pick(f *flight) { a.count1(f, 1) }
func (a *InFlight) drop(f *flight) { a.count1(f, -1) }

// count1 adds or takes away what one request counts for.
func (a *InFlight) count1(f *flight, sign int) {
	acc := a.workers.get(f.worker)
	if !f.counted || acc == nil {
		return
	}
	acc.requests += sign
	if f.peer {
		acc.peers += sign
	}
	if !f.streaming {
		acc.queued += sign
		acc.prefill += sign * f.uncached
	}
	if !f.streaming || !a.o.ReleasePromptAtFirstToken {
		acc.prompt += sign * f.prompt
	}
	acc.blocks += sign * ((f.prompt + f.output + a.o.BlockSize - 1) / a.o.BlockSize)
}

// end takes a request out and frees its slot.
func (a *InFlight) end(i int32) {
	f := &a.slots[i]
	a.drop(f)
	if acc := a.workers.get(f.worker); f.counted && acc != nil {
		acc.ended++
	}
	a.unlink(i)
	f.generation++
	f.next, a.free = a.free, i
	a.count--
}

// lock reports whether there is an account, locks it and brings it to the present.
func (a *InFlight) lock() bool {
	if a == nil || a.o.Now == nil {
		return false
	}
	a.mu.Lock()
	a.tick()
	return true
}

// tick reads the clock and ends what has expired.
func (a *InFlight) tick() {
	if now := a.o.Now(); now.After(a.now) {
		a.now = now
	}
	for a.first >= 0 && a.now.Sub(a.slots[a.first].seen) >= a.o.TTL {
		a.end(a.first)
		a.expired++
	}
}

// link appends to the list of requests; since time never goes back the list is
// in order of the last report.
func (a *InFlight) link(i int32) {
	f := &a.slots[i]
	f.seen, f.prev, f.next = a.now, a.last, -1
	if a.last >= 0 {
		a.slots[a.last].next = i
	} else {
		a.first = i
	}
	a.last = i
}

func (a *InFlight) unlink(i int32) {
	f := &a.slots[i]
	if f.prev >= 0 {
		a.slots[f.prev].next = f.next
	} else {
		a.first = f.next
	}
	if f.next >= 0 {
		a.slots[f.next].prev = f.prev
	} else {
		a.last = f.prev
	}
}

// Scraped stores the engine's own metrics of a worker, which count from now on:
// Running, Waiting, KVUsage and RTT of the load are used, the rest is ignored.
// What could not be read must be left unknown. One of the four that cannot be (see
// [Candidate.Validate]) is a [*FigureError], for a worker that is not known the error is
// [ErrUnknownWorker]; both change nothing, so what was scraped before counts until it
// is too old.
func (a *InFlight) Scraped(w WorkerID, l Load) error {
	c := Candidate{ID: w, Load: Load{Running: l.Running, Waiting: l.Waiting, KVUsage: l.KVUsage, RTT: l.RTT}}
	if err := c.Validate(); err != nil {
		return err
	}
	if !a.lock() {
		return ErrNil
	}
	defer a.mu.Unlock()
	acc := a.workers.get(w)
	if acc == nil {
		return ErrUnknownWorker
	}
	acc.scraped, acc.scrapedAt = c.Load, a.now
	acc.begunThen, acc.endThen = acc.begun, acc.ended
	return nil
}

// told counts a request that another replica told of, for what to expect.
func (a *InFlight) told(tokens int) {
	if !a.lock() {
		return
	}
	defer a.mu.Unlock()
	if a.others > 0 {
		a.unheard.told(a.now, tokens)
	}
}

// share says how many other replicas tell, and which of the workers are theirs first.
func (a *InFlight) share(others int, workers []WorkerID, theirs func(i int) bool) {
	if !a.lock() {
		return
	}
	defer a.mu.Unlock()
	if a.others = others; others == 0 {
		a.unheard = unheard{}
	}
	for acc := range a.workers.all {
		acc.others = false
	}
	for i, w := range workers {
		if acc := a.workers.get(w); acc != nil {
			acc.others = theirs(i)
		}
	}
}

// Load writes what is known about a worker to l, apart from CacheSize, which it
// leaves alone. For a worker that is not known everything becomes unknown and
// the error is [ErrUnknownWorker].
//
// Requests begun since the scrape are added to Waiting and those that ended are
// taken from Running, then from Waiting: between two scrapes the engine's
// figures would otherwise stand still while a burst goes to the same worker.
func (a *InFlight) Load(w WorkerID, l *Load) error {
	if l == nil {
		return ErrNil
	}
	if !a.lock() {
		*l = Load{CacheSize: l.CacheSize}
		return ErrNil
	}
	defer a.mu.Unlock()
	return a.load(w, l)
}

func (a *InFlight) load(w WorkerID, l *Load) error {
	acc := a.workers.get(w)
	if acc == nil {
		*l = Load{CacheSize: l.CacheSize}
		return ErrUnknownWorker
	}
	*l = Load{
		Requests:      Known(float64(acc.requests)),
		Peers:         Known(float64(acc.peers)),
		Queued:        Known(float64(acc.queued)),
		PrefillTokens: Known(float64(acc.prefill)),
		PromptTokens:  Known(float64(acc.prompt)),
		DecodeBlocks:  Known(float64(acc.blocks)),
		QPS:           Known(acc.rate.perSecond(a.now)),
		CacheSize:     l.CacheSize,
	}
	if a.others > 0 {
		l.Unheard = Known(0)
		if acc.others && a.now.Sub(a.unheard.last) < replicaGone { // or nobody is left who could tell
			l.Unheard.Value = a.unheard.expected() / float64(a.others)
		}
	}
	if acc.scrapedAt.IsZero() || a.now.Sub(acc.scrapedAt) >= a.o.ScrapeTTL {
		return nil
	}
	l.Running, l.Waiting, l.KVUsage, l.RTT = acc.scraped.Running, acc.scraped.Waiting, acc.scraped.KVUsage, acc.scraped.RTT
	begun, ended := float64(acc.begun-acc.begunThen), float64(acc.ended-acc.endThen)
	if l.Running.Known {
		left := max(0, ended-l.Running.Value)
		l.Running.Value = max(0, l.Running.Value-ended)
		ended = left
	}
	if l.Waiting.Known {
		l.Waiting.Value = max(0, l.Waiting.Value+begun-ended)
	}
	return nil
}

// Fill sets the load of every candidate, by ID. Workers that are not known have
// an unknown load.
func (a *InFlight) Fill(candidates []Candidate) {
	if !a.lock() {
		for i := range candidates {
			candidates[i].Load = Load{CacheSize: candidates[i].Load.CacheSize}
		}
		return
	}
	defer a.mu.Unlock()
	for i := range candidates {
		_ = a.load(candidates[i].ID, &candidates[i].Load) // unknown is what it then says
	}
}

// InFlightStats are totals for display.
type InFlightStats struct {
	Workers, Requests int
	// Expired counts requests whose end was never reported.
	Expired uint64
}

// Stats returns totals.
func (a *InFlight) Stats() InFlightStats {
	if !a.lock() {
		return InFlightStats{}
	}
	defer a.mu.Unlock()
	return InFlightStats{a.workers.n, a.count, a.expired}
}

// rateWindow counts in a sliding window of a minute, to the second.
type rateWindow struct {
	buckets [rateSeconds]uint32
	total   uint32
	at      int64 // second of the newest bucket
}

const rateSeconds = 60

func (r *rateWindow) advance(now time.Time) {
	second := now.Unix()
	if second-r.at >= rateSeconds {
		*r = rateWindow{at: second}
		return
	}
	for r.at < second {
		r.at++
		b := &r.buckets[(r.at%rateSeconds+rateSeconds)%rateSeconds]
		r.total -= *b
		*b = 0
	}
}

func (r *rateWindow) add(now time.Time) {
	r.advance(now)
	r.buckets[(r.at%rateSeconds+rateSeconds)%rateSeconds]++
	r.total++
}

func (r *rateWindow) perSecond(now time.Time) float64 {
	r.advance(now)
	return float64(r.total) / rateSeconds
}
