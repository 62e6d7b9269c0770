package scoring

import "sync"

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
	// Request names the request among those of all replicas.
	Request uint64
	Event   PeerEvent
	// Worker and what was known of the request when it was sent: of
	// [PeerSent]. ReportedTokens and TTFT as well where they are known: of
	// [PeerFirstToken] or [PeerFinished], for [Peers] to learn from; a TTFT of 0
	// says nothing.
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
}

// Peers counts in what the other replicas of a router tell of their requests, so
// that each decides as if it had sent all of them: their load is known, not
// guessed from metrics, their blocks are known to be under way, and all have
// learned the same. Until a note is heard they decide by different figures, and may
// compute siblings of a prompt twice: send notes at once, one by one. A lag of 2 ms is
// as good as none unless many requests come at the same instant, 20 ms costs up to a
// fifth in an overload of siblings (benchmarks/results/policy.md).
//
// What is heard twice counts once. What ends before it begins, because notes
// overtook each other, counts until [InFlightOptions.TTL]: send a replica's notes
// in order. A note that is lost costs no more than that.
//
// Create it with [NewPeers]. It is safe for concurrent use.
type Peers struct {
	o PeersOptions

	mu    sync.Mutex
	open  map[uint64]peerFlight
	order []uint64 // in which they were heard; some have ended
}

type peerFlight struct {
	flight Flight
	ticket SpecTicket
}

// NewPeers returns an account of other replicas' requests that has heard nothing.
// The error is an [*OptionError].
func NewPeers(o PeersOptions) (*Peers, error) {
	if o.InFlight == nil {
		return nil, optionErrorf("InFlight", "is nil")
	}
	if o.MaxRequests < 0 {
		return nil, optionErrorf("MaxRequests", "is negative; 0 takes the default")
	}
	if o.MaxRequests == 0 {
		o.MaxRequests = 1 << 18
	}
	return &Peers{o: o, open: map[uint64]peerFlight{}}, nil
}

// Heard counts a note in. The worker is the one by this router's number. The error
// is [ErrUnknownWorker] or [ErrTooMany] as of [InFlight.Begin], and nil for notes
// about requests that are not known.
func (p *Peers) Heard(n *PeerNote) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n.Event == PeerSent {
		return p.sent(n)
	}
	f, ok := p.open[n.Request]
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
		delete(p.open, n.Request)
	default:
		p.drop(n.Request)
	}
	if p.o.KVAtlas != nil && n.Event != PeerFailed {
		p.o.KVAtlas.FirstToken(n.Observation)
	}
	return nil
}

func (p *Peers) sent(n *PeerNote) error {
	if _, ok := p.open[n.Request]; ok {
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
	flight, err := p.o.InFlight.Begin(n.Worker, Sent{PromptTokens: n.PromptTokens, CachedTokens: cached, Peer: true})
	if err != nil {
		return err
	}
	f := peerFlight{flight: flight}
	if p.o.Speculation != nil {
		f.ticket = p.o.Speculation.Sent(n.Worker, n.Keys)
	}
	for len(p.open) >= p.o.MaxRequests {
		p.drop(p.order[0])
		p.order = p.order[1:]
	}
	p.open[n.Request] = f
	p.order = append(p.order, n.Request)
	if len(p.order) > 2*len(p.open)+64 {
		kept := make([]uint64, 0, 2*len(p.open))
		for _, id := range p.order {
			if _, ok := p.open[id]; ok {
				kept = append(kept, id)
			}
		}
		p.order = kept
	}
	return nil
}

// drop lets a request go as if it had failed; one that is not known is ignored.
func (p *Peers) drop(id uint64) {
	f := p.open[id] // the zero value does nothing
	_ = f.flight.Fail()
	f.ticket.Fail()
	delete(p.open, id)
}
