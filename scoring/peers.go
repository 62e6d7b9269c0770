package scoring

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// PeerEvent is what became of another router's request.
type PeerEvent uint8

const (
	PeerSent       PeerEvent = iota // it was sent to a worker
	PeerFirstToken                  // its prompt has been computed
	PeerFinished                    // it is complete
	PeerFailed                      // it ended without an answer, or another worker has it
)

// PeerNote is what one replica of a router tells the others of a request that it
// sent. It is plain data, made to be sent over whatever connects the replicas.
type PeerNote struct {
	// Replica is the one that tells ([PeersOptions.Replica]); 0 if it does not say.
	// Request is its number for the request, which no other of its requests has; among
	// replicas that do not say who they are, no other of any of them.
	Request, Replica uint64
	Event            PeerEvent
	// Worker, by the number that it has where the note is heard, and what was known
	// of the request when it was sent: of [PeerSent]. The same again, with
	// ReportedTokens and TTFT where they are known: of [PeerFirstToken] or
	// [PeerFinished], for [Peers] to learn from; a TTFT of 0 says nothing.
	Observation
	// Keys are the prompt's whole blocks beyond the cached ones, of BlockSize
	// tokens each: of [PeerSent].
	Keys      []uint64
	BlockSize int
}

// PeersOptions are the options of [NewPeers].
type PeersOptions struct {
	// InFlight is needed; Speculation and KVAtlas may be nil.
	InFlight    *InFlight
	Speculation *Speculation
	KVAtlas     *KVAtlas
	// MaxRequests bounds the requests that are followed; beyond, the oldest is
	// let go as if it had failed. 0 means 262,144.
	MaxRequests int
	// Replica is this replica's number, another one than any other's; such as a random
	// one. 0 expects nothing that was not told, see [Peers].
	Replica uint64
}

// Peers counts in what the other replicas of a router tell of their requests, so
// that each decides as if it had sent all of them: their load is known, not
// guessed from metrics, their blocks are known to be under way, and all have
// learned the same. Until a note is heard they decide by different figures, and may
// compute siblings of a prompt twice: send notes at once, one by one. A lag of 2 ms is
// about as good as none, 20 ms costs up to a seventh in an overload of siblings
// (benchmarks/results/policy.md).
//
// Of requests that come to all replicas at the same instant no note can be in time. So
// each worker ([Peers.Add]) is one replica's first: all take turns, in the order of the
// workers' names and of the replicas' numbers. From the notes that follow its own
// decisions within some tens of milliseconds a replica learns how many prompt tokens
// one other sends at such a moment, beyond what is told all the time and leaving
// siblings of prompts under way out, and expects as many at each worker that another
// has first ([Load.Unheard]). Where requests come one by one that is about nothing, and
// all replicas use all workers alike. A replica of which nothing was heard for a
// minute or two is taken to be gone. More than 256 others do not share.
//
// What is heard twice counts once, and what begins again after it is complete not at
// all, while the request is among the last 4096 or so that were completed. A request
// that failed may be sent again. A note that is lost, or overtaken by one of the same
// request, costs no more than a request that counts until [InFlightOptions.TTL]: send
// a replica's notes in order. What is told of a request after that time changes no
// load and no blocks any more; its speed is learned all the same, and its end lets it
// go. A [PeerSent] that comes late counts from when it is heard.
//
// Create it with [NewPeers]. It is safe for concurrent use.
type Peers struct {
	o PeersOptions

	mu    sync.Mutex
	open  map[peerRequest]peerFlight
	order []peerTurn // in which they were heard; some have ended
	// The requests that were completed last, and those before them.
	done, doneBefore map[peerRequest]struct{}

	names    map[WorkerID]string
	replicas map[uint64]time.Time // the others, and when they last told something
	looked   time.Time            // for replicas that are gone
}

const (
	replicaGone  = time.Minute
	doneKept     = 4096
	mostReplicas = 256 // that share the workers; what others tell is counted all the same
)

type peerRequest struct{ replica, request uint64 }

type peerFlight struct {
	worker WorkerID
	flight Flight
	ticket SpecTicket
}

// peerTurn is a request and which time it is: one that failed may be sent again.
type peerTurn struct {
	request peerRequest
	flight  Flight
}

// NewPeers returns an account of other replicas' requests that has heard nothing.
// The error is an [*OptionError].
func NewPeers(o PeersOptions) (*Peers, error) {
	switch {
	case o.InFlight == nil || o.InFlight.o.Now == nil:
		return nil, notMade("InFlight", "NewInFlight")
	case o.Speculation != nil && o.Speculation.o.Now == nil:
		return nil, notMade("Speculation", "NewSpeculation")
	case o.KVAtlas != nil && !o.KVAtlas.made():
		return nil, notMade("KVAtlas", "NewKVAtlas")
	}
	if o.MaxRequests < 0 {
		return nil, optionErrorf("MaxRequests", "is negative; 0 takes the default")
	}
	if o.MaxRequests == 0 {
		o.MaxRequests = 1 << 18
	}
	return &Peers{o: o, open: map[peerRequest]peerFlight{}, done: map[peerRequest]struct{}{}, names: map[WorkerID]string{}, replicas: map[uint64]time.Time{}}, nil
}

// Add makes a worker known that [InFlight.Add] made known before, by the name that all
// replicas have for it. One that was not added is no replica's first, nor are those
// without a name or with the name of another one, on which replicas could not agree;
// their requests count like all others. Adding it again changes its name.
func (p *Peers) Add(w WorkerID, name string) {
	if !p.lock() {
		return
	}
	defer p.mu.Unlock()
	p.names[w] = name
	p.share()
}

// Remove forgets a worker, and the requests sent there: who tells of their ends may do
// so by a name that is not known any more. It looks at every open request. What is
// sent there after that counts as long as [InFlight.Remove] was not called too.
func (p *Peers) Remove(w WorkerID) {
	if !p.lock() {
		return
	}
	defer p.mu.Unlock()
	delete(p.names, w)
	for id, f := range p.open {
		if f.worker == w {
			p.drop(id)
		}
	}
	p.share()
}

// lock reports whether there is an account, and locks it.
func (p *Peers) lock() bool {
	if p == nil || p.open == nil {
		return false
	}
	p.mu.Lock()
	return true
}

// share gives each worker to one replica.
func (p *Peers) share() {
	if len(p.replicas) == 0 {
		p.o.InFlight.share(0, nil, nil)
		return
	}
	named := map[string]int{"": 2}
	for _, name := range p.names {
		named[name]++
	}
	workers := slices.SortedFunc(maps.Keys(p.names), func(a, b WorkerID) int { return cmp.Compare(p.names[a], p.names[b]) })
	workers = slices.DeleteFunc(workers, func(w WorkerID) bool { return named[p.names[w]] > 1 })
	before := 0
	for id := range p.replicas {
		if id < p.o.Replica {
			before++
		}
	}
	p.o.InFlight.share(len(p.replicas), workers, func(i int) bool { return i%(len(p.replicas)+1) != before })
}

// from notes that a replica is there, and which are no more.
func (p *Peers) from(replica uint64) {
	if p.o.Replica == 0 || replica == 0 || replica == p.o.Replica {
		return
	}
	now := p.o.InFlight.o.Now()
	_, known := p.replicas[replica]
	if known || len(p.replicas) < mostReplicas {
		p.replicas[replica] = now
	}
	gone := false
	if now.Sub(p.looked) >= replicaGone {
		p.looked = now
		for id, last := range p.replicas {
			if now.Sub(last) >= replicaGone {
				delete(p.replicas, id)
				gone = true
			}
		}
	}
	if _, knows := p.replicas[replica]; knows != known || gone {
		p.share()
	}
}

// Heard counts a note in. The worker is the one by this router's number. The error
// is [ErrUnknownWorker] or [ErrTooMany] as of [InFlight.Begin], wraps [ErrPeerEvent] for
// an event that is not known, as of a newer release, which changes nothing, and is nil
// for notes about requests that are not known, and for one's own, which count nothing.
func (p *Peers) Heard(n *PeerNote) error {
	if n == nil || p == nil || p.open == nil {
		return ErrNil
	}
	if n.Replica != 0 && n.Replica == p.o.Replica {
		return nil
	}
	if n.Event > PeerFailed {
		return fmt.Errorf("%w: %d, want 0 (PeerSent) to %d (PeerFailed)", ErrPeerEvent, n.Event, PeerFailed)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.from(n.Replica)
	if n.Event == PeerSent {
		return p.sent(n)
	}
	id := peerRequest{n.Replica, n.Request}
	f, ok := p.open[id]
	if !ok {
		return nil
	}
	switch n.Event {
	case PeerFirstToken:
		_ = f.flight.FirstToken() // what has expired is counted no more
		f.ticket.FirstToken()
	case PeerFinished:
		_ = f.flight.Finish()
		f.ticket.Done()
		delete(p.open, id)
		p.complete(id)
	default:
		p.drop(id)
	}
	if p.o.KVAtlas != nil && n.Event != PeerFailed {
		p.o.KVAtlas.FirstToken(n.Observation)
	}
	return nil
}

func (p *Peers) sent(n *PeerNote) error {
	id := peerRequest{n.Replica, n.Request}
	if p.known(id) {
		return nil
	}
	cached := n.CachedTokens
	if p.o.Speculation != nil { // a sibling may have been sent there from here meanwhile
		for _, key := range n.Keys {
			if !p.o.Speculation.Has(n.Worker, key) {
				break
			}
			cached += n.BlockSize
		}
		cached = min(cached, n.PromptTokens-1) // the last token is computed
	}
	sibling := p.o.Speculation != nil && len(p.replicas) > 0 && len(n.Keys) > 0 && p.o.Speculation.underWay(n.Keys[0])
	flight, err := p.o.InFlight.Begin(n.Worker, Sent{PromptTokens: n.PromptTokens, CachedTokens: cached, Peer: true})
	if err != nil {
		return err
	}
	if !sibling { // it goes where the others are, whoever has that worker first
		p.o.InFlight.told(min(max(0, n.PromptTokens-cached), mostTokens))
	}
	f := peerFlight{worker: n.Worker, flight: flight}
	if p.o.Speculation != nil {
		f.ticket = p.o.Speculation.Sent(n.Worker, n.Keys)
	}
	for len(p.open) >= p.o.MaxRequests {
		if !p.over(p.order[0]) {
			p.drop(p.order[0].request)
		}
		p.order = p.order[1:]
	}
	p.open[id] = f
	p.order = append(p.order, peerTurn{id, flight})
	if len(p.order) > 2*len(p.open)+64 {
		p.order = slices.Clone(slices.DeleteFunc(p.order, p.over))
	}
	return nil
}

// over tells whether a request has ended since.
func (p *Peers) over(t peerTurn) bool { return p.open[t.request].flight != t.flight }

// known tells whether a request is open or was completed not long ago.
func (p *Peers) known(id peerRequest) bool {
	_, open := p.open[id]
	_, done := p.done[id]
	_, before := p.doneBefore[id]
	return open || done || before
}

// complete remembers that a request is complete: the last ones in two halves, of which
// the older is forgotten as a whole.
func (p *Peers) complete(id peerRequest) {
	if p.done[id] = struct{}{}; len(p.done) == doneKept {
		p.done, p.doneBefore = make(map[peerRequest]struct{}, doneKept), p.done
	}
}

// drop lets a request go as if it had failed; one that is not known is ignored.
func (p *Peers) drop(id peerRequest) {
	f := p.open[id] // the zero value does nothing
	_ = f.flight.Fail()
	f.ticket.Fail()
	delete(p.open, id)
}
