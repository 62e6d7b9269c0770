package simulate

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/kvatlas/kvatlas/scoring"
)

// index is what events say: which workers hold a block, as a set in a word. All
// routers see the same events at the same time, so they share it.
type index struct {
	gpu, host []uint64 // by key
	tiers     bool     // host was ever used
}

func newIndex(keys int) index { return index{gpu: make([]uint64, keys), host: make([]uint64, keys)} }

func (x *index) apply(worker int, changes []cacheEvent) {
	bit := uint64(1) << worker
	for _, c := range changes {
		m := x.gpu
		if c.host {
			m, x.tiers = x.host, true
		}
		if c.stored {
			m[c.key] |= bit
		} else {
			m[c.key] &^= bit
		}
	}
}

func (x *index) clear(worker int) {
	for k := range x.gpu {
		x.gpu[k] &^= 1 << worker
		x.host[k] &^= 1 << worker
	}
}

// match sets the candidates' matches of a prompt.
func (x *index) match(a *Arrival, size int, candidates []scoring.Candidate) {
	var gpu, total [maxWorkers]int
	walk := func(n *[maxWorkers]int, sets func(uint64) uint64) {
		active := ^uint64(0)
		for i, k := range a.Blocks {
			out := active &^ sets(k)
			for rest := out; rest != 0; rest &= rest - 1 {
				n[bits.TrailingZeros64(rest)] = i
			}
			if active &^= out; active == 0 {
				return
			}
		}
		for ; active != 0; active &= active - 1 {
			n[bits.TrailingZeros64(active)] = len(a.Blocks)
		}
	}
	walk(&gpu, func(k uint64) uint64 { return x.gpu[k] })
	total = gpu
	if x.tiers {
		walk(&total, func(k uint64) uint64 { return x.gpu[k] | x.host[k] })
	}
	for i := range candidates {
		c := &candidates[i]
		g, t := gpu[c.ID], total[c.ID]
		c.Match = scoring.Match{Blocks: [scoring.NumMedia]int32{scoring.GPU: int32(g), scoring.CPU: int32(t - g)},
			Usable: int32(min(t, (a.Tokens-1)/size) * size), Score: float64(g) + 0.8*float64(t-g)}
	}
}

// flight is what a router remembers of a request it sent.
type flight struct {
	r        *router
	a        *Arrival
	w        *worker
	account  scoring.Flight
	ticket   scoring.SpecTicket
	sentAt   float64
	ahead    int
	cached   int // predicted
	reported int
	first    float64
	known    int // blocks of the match
	id       uint64
}

// router is one router replica.
type router struct {
	f          *fleet
	replica    uint64
	mind       *mind
	loads      *scoring.InFlight
	spec       *scoring.Speculation
	peers      *scoring.Peers
	history    *scoring.History
	candidates []scoring.Candidate
	workers    []*worker
	decision   scoring.Decision
	request    scoring.Request
	keys       []uint64
}

func (f *fleet) clock() time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(f.now * float64(time.Second)))
}

func newRouter(f *fleet, i int) (*router, error) {
	r := &router{f: f, replica: uint64(i) + 1}
	m, err := newMind(f, scoring.Seeded(f.c.Seed*1000+uint64(i)+1))
	if err != nil {
		return nil, err
	}
	r.mind = m
	if r.loads, err = scoring.NewInFlight(scoring.InFlightOptions{BlockSize: f.trace.BlockSize, TTL: time.Hour, Now: f.clock}); err != nil {
		return nil, err
	}
	if m.speculate {
		if r.spec, err = scoring.NewSpeculation(scoring.SpeculationOptions{Now: f.clock}); err != nil {
			return nil, err
		}
	}
	if r.peers, err = scoring.NewPeers(scoring.PeersOptions{InFlight: r.loads, Speculation: r.spec, KVAtlas: m.atlas, Replica: r.replica}); err != nil {
		return nil, err
	}
	if m.historyTokens > 0 {
		r.history, err = scoring.NewHistory(scoring.HistoryOptions{Capacity: max(1, m.historyTokens/f.trace.BlockSize),
			BlockTokens: f.trace.BlockSize, MaxTokens: -1, Now: f.clock})
	}
	return r, err
}

func (r *router) add(w *worker) {
	r.loads.Add(scoring.WorkerID(w.id))
	r.peers.Add(scoring.WorkerID(w.id), w.name)
	r.candidates = append(r.candidates, scoring.Candidate{ID: scoring.WorkerID(w.id), Name: w.name})
	r.workers = append(r.workers, w)
}

func (r *router) remove(w *worker) {
	id := scoring.WorkerID(w.id)
	r.loads.Remove(id)
	r.peers.Remove(id)
	i := slices.Index(r.workers, w)
	r.workers = slices.Delete(r.workers, i, i+1)
	r.candidates = slices.Delete(r.candidates, i, i+1)
	if r.spec != nil {
		r.spec.Forget(id)
	}
	if r.history != nil {
		r.history.Remove(id)
	}
	if r.mind.atlas != nil {
		r.mind.atlas.Forget(id)
	}
}

// route decides where a request goes.
func (r *router) route(a *Arrival) (*worker, *flight, error) {
	size := r.f.trace.BlockSize
	r.request = scoring.Request{Tokens: a.Tokens, BlockSize: size, Blocks: len(a.Blocks), OutputTokens: 0,
		Session: a.Session}
	if n := len(a.Blocks); n > 0 {
		r.request.Prefix = a.Blocks[min(1, n-1)] // the first block is often everybody's
	}
	if r.history != nil {
		r.history.Match(&r.request, a.Blocks, r.candidates)
	} else {
		r.f.index.match(a, size, r.candidates)
		if r.spec != nil {
			r.spec.Extend(&r.request, a.Blocks, r.candidates, func(w scoring.WorkerID, key uint64) bool {
				return r.f.index.gpu[key]&(1<<w) != 0
			})
		}
	}
	held := 0
	for i := range r.candidates {
		held = max(held, int(r.candidates[i].Match.Total()))
	}
	if held < len(a.Blocks) {
		r.request.Novel = a.Blocks[held] + 1
	}
	r.loads.Fill(r.candidates)
	if err := r.mind.policy.Decide(&r.request, r.candidates, &r.decision); err != nil {
		return nil, nil, fmt.Errorf("simulate: %s: %w", r.f.c.Policy, err)
	}
	c := r.decision.Chosen
	w := r.f.workers[c.ID]
	fl := &flight{r: r, a: a, w: w, sentAt: r.f.now, cached: int(c.Match.Usable), known: int(c.Match.Total()), id: uint64(r.f.sent)}
	fl.ahead = int(c.Load.PrefillTokens.Value)
	if r.mind.queued {
		fl.ahead = int(c.Load.PromptTokens.Value)
	}
	var err error
	if fl.account, err = r.loads.Begin(c.ID, scoring.Sent{PromptTokens: a.Tokens, CachedTokens: fl.cached}); err != nil {
		return nil, nil, err
	}
	if r.history != nil {
		r.history.Sent(c.ID, a.Blocks)
	}
	if r.spec != nil {
		fl.ticket = r.spec.Sent(c.ID, a.Blocks)
	}
	fl.tell(scoring.PeerNote{Event: scoring.PeerSent, Keys: a.Blocks[min(fl.known, len(a.Blocks)):], BlockSize: size,
		Observation: scoring.Observation{Worker: c.ID, PromptTokens: a.Tokens, CachedTokens: fl.cached}})
	return w, fl, nil
}

func (r *router) published(w *worker, changes []cacheEvent) {
	if r.spec == nil {
		return
	}
	for _, stored := range []bool{true, false} {
		r.keys = r.keys[:0]
		for _, c := range changes {
			if c.stored == stored && !c.host {
				r.keys = append(r.keys, c.key)
			}
		}
		if stored {
			r.spec.Stored(scoring.WorkerID(w.id), r.keys)
		} else {
			r.spec.Removed(scoring.WorkerID(w.id), r.keys)
		}
	}
}

func (r *router) scrape() {
	for _, w := range r.workers {
		_ = r.loads.Scraped(scoring.WorkerID(w.id), scoring.Load{ // a worker of this router is known
			Running: scoring.Known(float64(len(w.running))), Waiting: scoring.Known(float64(len(w.waiting))),
			KVUsage: scoring.Known(float64(w.cache.used) / float64(w.cache.capacity)),
			RTT:     scoring.Known(r.f.c.RTT * 1000),
		})
	}
}

func (fl *flight) admitted(j *job) { fl.reported = j.cached }

func (fl *flight) firstToken(j *job, now float64) {
	fl.first = now
	_ = fl.account.FirstToken() // a flight that expired is counted as open by nobody
	fl.ticket.FirstToken()
	fl.r.f.result.firstToken(fl, j)
	o := fl.observation(now)
	fl.r.mind.firstToken(fl, o)
	fl.tell(scoring.PeerNote{Event: scoring.PeerFirstToken, Observation: o})
}

// observation is what the first token tells.
func (fl *flight) observation(now float64) scoring.Observation {
	return scoring.Observation{Worker: scoring.WorkerID(fl.w.id), AheadTokens: fl.ahead, PromptTokens: fl.a.Tokens,
		CachedTokens: fl.cached, ReportedTokens: fl.reported, TTFT: time.Duration((now - fl.sentAt) * float64(time.Second))}
}

// tell sends a note about the request on its way to the other routers.
func (fl *flight) tell(n scoring.PeerNote) {
	f := fl.r.f
	if f.c.PeerLag == 0 || len(f.routers) < 2 {
		return
	}
	n.Request, n.Replica = fl.id, fl.r.replica
	f.push(event{at: f.now + f.c.PeerLag, kind: evPeer, from: fl.r, note: &n})
}

func (fl *flight) finished(j *job, now float64) {
	_ = fl.account.Finish()
	fl.tell(scoring.PeerNote{Event: scoring.PeerFinished})
	fl.r.f.open--
	fl.r.f.result.finished(fl, j, now)
}
