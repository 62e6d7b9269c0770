package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/kvatlas/kvatlas/scoring"
)

// Config is one simulation. The zero value of every field is a default.
type Config struct {
	// Policy is a name of [Policies].
	Policy string
	// Seed decides everything random.
	Seed uint64
	// Workers is the fleet at the start, at most 64; 0 means 8. Joins are the
	// times, in seconds, at which one more joins, Leaves at which the oldest
	// one goes, after what it has is finished.
	Workers       int
	Joins, Leaves []float64
	// Autoscale lets the fleet follow the load; the zero value keeps it.
	Autoscale Autoscale
	// Routers is the number of router replicas; 0 means 1.
	Routers int
	// PeerLag is how late, in seconds, a replica learns what the others send and
	// what becomes of it; 0 means that they share nothing.
	PeerLag float64
	// Engine is the model of a worker; zero means [Llama8BOnH100].
	Engine Engine
	// EventLag is how late events reach a router, ScrapeInterval how often
	// metrics do; 0 means 0.02 and 0.2 seconds.
	EventLag, ScrapeInterval float64
	// RTT is the network round trip in seconds; 0 means 0.001.
	RTT float64
	// Noise changes each worker's speed, each gap between arrivals and each
	// answer's length at random by up to this part; 0 means 0.1, negative none.
	Noise float64
	// Load compresses time: 2 sends the same requests twice as fast. 0 means 1.
	Load float64
	// TTFT and TPOT are the objective: seconds to the first token, and on
	// average for each further one; 0 means 3 and 0.2.
	TTFT, TPOT float64
	// Tuning changes the default policy's knobs where the policy is kvatlas;
	// its Objective is TTFT if it is 0.
	Tuning scoring.KVAtlasOptions
	// NoSpeculation switches speculative entries of kvatlas off.
	NoSpeculation bool
	// MeasureRouter fills Result.RouterTime, the only figure that depends on the
	// machine.
	MeasureRouter bool
	// Progress, if not nil, is called now and then with the requests sent.
	Progress func(sent, total int)
}

// Autoscale adds and drains workers by the requests that are in them.
type Autoscale struct {
	// Max is the number of workers at most, Config.Workers at least; 0 switches
	// it off. All that ever join count to the limit of 64.
	Max int
	// Requests a worker, on average, above which one more is started, and below
	// half of which the oldest is drained; 0 means 32.
	Requests float64
	// Every is how often that is looked at, Delay how long a worker takes to
	// start, in seconds; 0 means 5 and 20.
	Every, Delay float64
}

func (c *Config) validate() error {
	def := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	if c.Workers == 0 {
		c.Workers = 8
	}
	if c.Routers == 0 {
		c.Routers = 1
	}
	if c.Engine == (Engine{}) {
		c.Engine = Llama8BOnH100()
	}
	def(&c.EventLag, 0.02)
	def(&c.ScrapeInterval, 0.2)
	def(&c.RTT, 0.001)
	def(&c.Noise, 0.1)
	def(&c.Load, 1)
	def(&c.TTFT, 3)
	def(&c.TPOT, 0.2)
	c.Noise = max(0, c.Noise)
	def(&c.Autoscale.Requests, 32)
	def(&c.Autoscale.Every, 5)
	def(&c.Autoscale.Delay, 20)
	if a := c.Autoscale; a.Max != 0 && (a.Max < c.Workers || a.Max > maxWorkers) || !(a.Requests > 0 && a.Every > 0 && a.Delay > 0) {
		return fmt.Errorf("simulate: Autoscale is %+v; Max from the %d workers to %d, and positive figures are needed", a, c.Workers, maxWorkers)
	}
	if c.Workers < 1 || c.Workers+len(c.Joins) > maxWorkers {
		return fmt.Errorf("simulate: %d workers and %d joins; 1 to %d workers in all are possible", c.Workers, len(c.Joins), maxWorkers)
	}
	if c.Routers < 1 || c.Routers > 64 {
		return fmt.Errorf("simulate: %d routers; 1 to 64 are possible", c.Routers)
	}
	for name, v := range map[string]float64{"EventLag": c.EventLag, "ScrapeInterval": c.ScrapeInterval, "RTT": c.RTT, "Load": c.Load, "TTFT": c.TTFT, "TPOT": c.TPOT} {
		if !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("simulate: %s is %v; a positive number is needed", name, v)
		}
	}
	if !(c.PeerLag >= 0) || math.IsInf(c.PeerLag, 0) {
		return fmt.Errorf("simulate: PeerLag is %v; 0 or a positive number is needed", c.PeerLag)
	}
	if !(c.Noise < 1) {
		return fmt.Errorf("simulate: Noise is %v; below 1 is needed", c.Noise)
	}
	e := c.Engine
	if !(e.Flops > 0 && e.Bandwidth > 0 && e.FlopsPerToken > 0) || e.BatchTokens < 1 || e.MaxRequests < 1 || e.KVTokens < 1 || e.HostTokens > 0 && !(e.HostBandwidth > 0) {
		return fmt.Errorf("simulate: the engine needs positive Flops, FlopsPerToken, Bandwidth, BatchTokens, MaxRequests and KVTokens, and HostBandwidth where there are HostTokens")
	}
	return nil
}

const maxWorkers = 64 // a set of workers is one word

// Arrival is one request of a trace.
type Arrival struct {
	// At is when it arrives, in seconds.
	At float64
	// Tokens and Output are the lengths of prompt and answer, at least 1.
	Tokens, Output int
	// Blocks has a key for each whole block of the prompt; equal keys are
	// equal content with an equal beginning.
	Blocks []uint64
	// Session identifies the conversation, "" for none.
	Session string
}

// Trace is a list of requests in order of arrival.
type Trace struct {
	// BlockSize is the number of tokens of a block.
	BlockSize int
	Arrivals  []Arrival
}

func (t *Trace) validate() error {
	if t.BlockSize < 1 || len(t.Arrivals) == 0 {
		return fmt.Errorf("simulate: a trace needs requests and a block size of at least 1; it has %d and %d", len(t.Arrivals), t.BlockSize)
	}
	last := 0.0
	for i := range t.Arrivals {
		a := &t.Arrivals[i]
		if !(a.At >= last) || math.IsInf(a.At, 0) {
			return fmt.Errorf("simulate: request %d arrives at %v, before the one ahead of it", i, a.At)
		}
		if a.Tokens < 1 || a.Output < 1 || len(a.Blocks) > a.Tokens/t.BlockSize {
			return fmt.Errorf("simulate: request %d has %d prompt tokens, %d output tokens and %d blocks of %d; at least 1, 1 and only whole blocks are needed",
				i, a.Tokens, a.Output, len(a.Blocks), t.BlockSize)
		}
		last = a.At
	}
	return nil
}

type eventKind uint8

const (
	evArrive eventKind = iota
	evStep
	evPublish
	evScrape
	evJoin
	evLeave
	evScale
	evPeer
)

type event struct {
	at      float64
	order   int // of creation, so that equal times have one order
	kind    eventKind
	worker  *worker
	version int
	changes []cacheEvent
	from    *router // of evPeer
	note    *scoring.PeerNote
}

type events []event

func (e events) less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}

// push and pop keep a binary heap, the next event first. (container/heap would
// allocate for each event, of which there are most.)
func (e *events) push(v event) {
	q := append(*e, v)
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.less(i, up) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
	*e = q
}

func (e *events) pop() event {
	q := *e
	first, last := q[0], len(q)-1
	q[0], q[last] = q[last], event{}
	q = q[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && q.less(down+1, down) {
			down++
		}
		if !q.less(down, i) {
			break
		}
		q[i], q[down] = q[down], q[i]
		i = down
	}
	*e = q
	return first
}

// fleet is a running simulation.
type fleet struct {
	c        *Config
	trace    *Trace
	keys     int // block keys are below
	rng      *rand.Rand
	now      float64
	queue    events
	made     int
	workers  []*worker
	routers  []*router
	index    index
	changes  []cacheEvent // of the step that is being applied
	open     int          // requests not finished
	starting int          // workers that the autoscaler has asked for
	sent     int
	peak     int           // workers at a time, at most
	deciding time.Duration // wall clock
	end      float64       // of arrivals
	result   *tally
}

// Run plays a trace through a fleet.
func Run(c Config, trace *Trace) (*Result, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if err := trace.validate(); err != nil {
		return nil, err
	}
	f, err := newFleet(&c, trace)
	if err != nil {
		return nil, err
	}
	if err := f.run(); err != nil {
		return nil, err
	}
	return f.result.finish(f, f.end), nil
}

// newFleet sets a simulation up; c is valid.
func newFleet(c *Config, trace *Trace) (*fleet, error) {
	f := &fleet{c: c, rng: rand.New(rand.NewPCG(c.Seed, 0x5eed))}
	f.trace, f.keys = dense(f.vary(trace))
	f.index = newIndex(f.keys)
	f.end = f.trace.Arrivals[len(f.trace.Arrivals)-1].At
	f.result = newTally(c, f.trace)
	for range c.Workers {
		f.join()
	}
	for i := range c.Routers {
		r, err := newRouter(f, i)
		if err != nil {
			return nil, err
		}
		for _, w := range f.workers {
			r.add(w)
		}
		f.routers = append(f.routers, r)
	}
	f.push(event{at: f.trace.Arrivals[0].At, kind: evArrive})
	f.push(event{at: 0, kind: evScrape})
	for _, at := range c.Joins {
		f.push(event{at: at, kind: evJoin})
	}
	for _, at := range c.Leaves {
		f.push(event{at: at, kind: evLeave})
	}
	if c.Autoscale.Max > 0 {
		f.push(event{at: c.Autoscale.Every, kind: evScale})
	}
	return f, nil
}

// run plays all events until every request is finished.
func (f *fleet) run() error {
	for f.sent < len(f.trace.Arrivals) || f.open > 0 {
		e := f.queue.pop()
		f.now = e.at
		if f.now > f.end+drainLimit {
			break // what is still open has failed the objective anyway
		}
		if err := f.handle(&e); err != nil {
			return err
		}
	}
	return nil
}

const drainLimit = 300

// vary applies the load and the noise to a copy of the trace.
func (f *fleet) vary(t *Trace) *Trace {
	out := &Trace{BlockSize: t.BlockSize, Arrivals: append([]Arrival(nil), t.Arrivals...)}
	at, before := 0.0, 0.0
	for i := range out.Arrivals {
		a := &out.Arrivals[i]
		gap := (t.Arrivals[i].At - before) / f.c.Load * f.jitter()
		before = t.Arrivals[i].At
		at += gap
		a.At = at
		a.Output = max(1, int(math.Round(float64(a.Output)*f.jitter())))
	}
	return out
}

// dense returns a trace whose block keys are small numbers, so that tables by key
// are slices, and the number of keys. Generated and Mooncake's keys are so already.
func dense(t *Trace) (*Trace, int) {
	highest, blocks := uint64(0), 0
	for i := range t.Arrivals {
		blocks += len(t.Arrivals[i].Blocks)
		for _, k := range t.Arrivals[i].Blocks {
			highest = max(highest, k)
		}
	}
	if highest < uint64(2*blocks+1024) {
		return t, int(highest) + 1
	}
	ids := map[uint64]uint64{}
	for i := range t.Arrivals {
		a := &t.Arrivals[i]
		renamed := make([]uint64, len(a.Blocks))
		for n, k := range a.Blocks {
			id, ok := ids[k]
			if !ok {
				id = uint64(len(ids))
				ids[k] = id
			}
			renamed[n] = id
		}
		a.Blocks = renamed
	}
	return t, len(ids)
}

func (f *fleet) jitter() float64 { return 1 + f.c.Noise*(2*f.rng.Float64()-1) }

func (f *fleet) push(e event) {
	e.order = f.made
	f.made++
	f.queue.push(e)
}

func (f *fleet) handle(e *event) error {
	switch e.kind {
	case evArrive:
		if err := f.arrive(f.sent); err != nil {
			return err
		}
		if f.sent++; f.sent < len(f.trace.Arrivals) {
			f.push(event{at: f.trace.Arrivals[f.sent].At, kind: evArrive})
		}
		if f.c.Progress != nil && f.sent%256 == 0 {
			f.c.Progress(f.sent, len(f.trace.Arrivals))
		}
	case evStep:
		if e.version == e.worker.version {
			f.step(e.worker)
		}
	case evPublish:
		f.index.apply(e.worker.id, e.changes)
		for _, r := range f.routers {
			r.published(e.worker, e.changes)
		}
	case evScrape:
		for _, r := range f.routers {
			r.scrape()
		}
		f.push(event{at: f.now + f.c.ScrapeInterval, kind: evScrape})
	case evScale:
		f.scale()
		f.push(event{at: f.now + f.c.Autoscale.Every, kind: evScale})
	case evJoin:
		f.starting = max(0, f.starting-1)
		w := f.join()
		for _, r := range f.routers {
			r.add(w)
		}
	case evLeave:
		f.leave()
	case evPeer:
		for _, r := range f.routers {
			if r != e.from {
				_ = r.peers.Heard(e.note) // of a worker that left nothing counts
			}
		}
	}
	return nil
}

func (f *fleet) join() *worker {
	id := len(f.workers)
	w := &worker{id: id, name: fmt.Sprintf("worker-%02d", id), e: &f.c.Engine, speed: f.jitter(), alive: true, joined: f.now, changed: f.now}
	w.cache = newCache(w.e, f.trace.BlockSize, f.keys, &f.changes)
	f.workers = append(f.workers, w)
	alive := 0
	for _, w := range f.workers {
		if w.alive {
			alive++
		}
	}
	f.peak = max(f.peak, alive)
	return w
}

// scale asks for a worker or drains one.
func (f *fleet) scale() {
	alive, requests := 0, 0
	for _, w := range f.workers {
		if w.alive {
			alive++
			requests += len(w.running) + len(w.waiting)
		}
	}
	a, mean := &f.c.Autoscale, float64(requests)/float64(alive)
	switch {
	case mean > a.Requests && alive+f.starting < a.Max && len(f.workers)+f.starting < maxWorkers:
		f.starting++
		f.push(event{at: f.now + a.Delay, kind: evJoin})
	case mean < a.Requests/2 && alive > f.c.Workers && f.starting == 0:
		f.leave()
	}
}

// leave drains the oldest worker: routers forget it, it finishes what it has.
func (f *fleet) leave() {
	alive := 0
	for _, w := range f.workers {
		if w.alive {
			alive++
		}
	}
	if alive < 2 {
		return
	}
	for _, w := range f.workers {
		if w.alive {
			w.alive, w.left = false, f.now
			f.index.clear(w.id)
			for _, r := range f.routers {
				r.remove(w)
			}
			return
		}
	}
}

func (f *fleet) arrive(i int) error {
	a := &f.trace.Arrivals[i]
	r := f.routers[i%len(f.routers)]
	var started time.Time
	if f.c.MeasureRouter {
		started = time.Now()
	}
	w, fl, err := r.route(a)
	if err != nil {
		return err
	}
	if f.c.MeasureRouter {
		f.deciding += time.Since(started)
	}
	f.open++
	f.result.sent(w, a, f.now)
	w.account(f.now)
	w.waiting = append(w.waiting, &job{arrival: a, flight: fl})
	if !w.stepping {
		f.plan(w)
	} else if end, ok := w.cut(f.now); ok {
		f.push(event{at: end, kind: evStep, worker: w, version: w.version})
	}
	return nil
}

func (f *fleet) plan(w *worker) {
	if end, ok := w.plan(f.now); ok {
		f.push(event{at: end, kind: evStep, worker: w, version: w.version})
	}
	f.publish(w)
}

func (f *fleet) step(w *worker) {
	w.account(f.now)
	w.finish(f.now)
	f.publish(w)
	f.plan(w)
}

// publish sends what changed in a cache on its way to the routers.
func (f *fleet) publish(w *worker) {
	if len(f.changes) == 0 {
		return
	}
	if w.alive {
		f.push(event{at: f.now + f.c.EventLag, kind: evPublish, worker: w, changes: append([]cacheEvent(nil), f.changes...)})
	}
	f.changes = f.changes[:0]
}
