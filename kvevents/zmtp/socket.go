package zmtp

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

// role is what makes a socket a SUB, a DEALER, a PUB or a ROUTER.
type role interface {
	socketType() string
	prefixed() bool // messages are received with the identity of the sender in front

	// attach and detach are called with socket.mu held.
	attach(c *conn) error
	detach(c *conn)

	// message takes the message assembled by c; subscription what the peer
	// wants or no longer wants. An error ends the connection.
	message(c *conn) error
	subscription(c *conn, topic []byte, on bool) error
}

// socket is the part that all socket types share.
type socket struct {
	opt    Options
	role   role
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // every goroutine but the writers, for which serve waits
	arrive chan struct{}  // capacity 1: something waits for Recv
	room   chan struct{}  // capacity 1: a peer came, or has room again

	mu        sync.Mutex
	closed    bool
	endpoints map[string]bool // dialed
	listeners []net.Listener
	conns     map[*conn]bool // true once attached
	attached  []*conn
	pending   []*conn // accepted, in the handshake, oldest first
	accepted  int     // accepted and attached, or gone but with messages waiting
	lastPeer  uint64
	ready     fifo[*inbox] // inboxes that are not empty, in turn
	waiting   int
	buffered  int64 // of Options.MaxBuffered
	orphans   int   // inboxes whose connection is gone
	stats     Stats
}

func newSocket(o Options, r role) (*socket, error) {
	o, err := o.WithDefaults()
	if err != nil {
		return nil, err
	}
	s := &socket{
		opt:       o,
		role:      r,
		arrive:    make(chan struct{}, 1),
		room:      make(chan struct{}, 1),
		endpoints: make(map[string]bool),
		conns:     make(map[*conn]bool),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

func (s *socket) event(e Event) {
	if s.opt.Monitor != nil {
		s.opt.Monitor.ConnEvent(e)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *socket) signalRoom() { signal(s.room) }

// open registers a connection, so that Close can end it.
func (s *socket) open(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.lastPeer++
	c.peer = s.lastPeer
	s.conns[c] = false
	return nil
}

// attach makes a connection whose handshake is complete one of the peers.
func (s *socket) attach(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetPending(c)
	if s.closed {
		return ErrClosed
	}
	if c.accepted && s.accepted >= s.opt.MaxPeers {
		return ErrTooManyPeers
	}
	if err := s.role.attach(c); err != nil {
		return err
	}
	if c.accepted {
		s.accepted++
	}
	s.conns[c] = true
	s.attached = append(s.attached, c)
	s.stats.Connects++
	signal(s.room)
	return nil
}

func (s *socket) detach(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.role.detach(c)
	s.unreserve(c)
	s.attached = slices.DeleteFunc(s.attached, func(a *conn) bool { return a == c })
	s.stats.Disconnects++
	if !c.accepted {
		return
	}
	if c.in.empty() {
		s.accepted--
	} else {
		c.in.orphan = true
		s.orphans++
	}
}

// ended forgets a connection that has been served, and counts how it ended.
func (s *socket) ended(c *conn, established bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetPending(c)
	delete(s.conns, c)
	switch {
	case established || s.closed:
	case c.err == ErrTooManyPeers:
		s.stats.Rejected++
	default:
		s.stats.HandshakeFailures++
	}
}

func (s *socket) forgetPending(c *conn) {
	if i := slices.Index(s.pending, c); i >= 0 {
		s.pending = slices.Delete(s.pending, i, i+1)
	}
}

// push queues the message assembled by c for Recv.
func (s *socket) push(c *conn) {
	p := c.complete()
	s.mu.Lock()
	s.unreserve(c)
	dropping := c.in.lost > 0
	queued := s.enqueue(c.in, p)
	s.mu.Unlock()
	if !queued {
		p.free()
		if !dropping {
			s.event(c.event(Dropped, nil, 0))
		}
	}
	signal(s.arrive)
}

// enqueue puts a message into an inbox, with s.mu held.
func (s *socket) enqueue(in *inbox, p *packet) bool {
	s.stats.Received++
	for _, f := range p.frames {
		s.stats.ReceivedBytes += uint64(len(f))
	}
	queued := in.room(p, s.opt.ReceiveMessages, s.opt.ReceiveBytes) && s.fits(in.bytes+p.cost(), p.cost())
	in.put(p, queued)
	if queued {
		s.waiting++
		s.buffered += p.cost()
	} else {
		s.stats.ReceiveDropped++
	}
	if !in.listed {
		in.listed = true
		s.ready.push(in)
	}
	return queued
}

// dequeue takes the next message or loss, with s.mu held, serving the peers in
// turn. It says whether there was any.
func (s *socket) dequeue() (p *packet, lost *LossError, ok bool) {
	if s.ready.n == 0 {
		return nil, nil, false
	}
	in := s.ready.pop()
	p, lost = in.take()
	if p != nil {
		s.waiting--
		s.buffered -= p.cost()
	}
	if !in.empty() {
		s.ready.push(in)
		return p, lost, true
	}
	in.listed = false
	if in.orphan {
		in.orphan = false
		s.orphans--
		s.accepted--
	}
	return p, lost, true
}

// recv is Recv of every socket type that receives.
func (s *socket) recv(ctx context.Context, m *Message) error {
	if m.p != nil {
		m.p.free()
	}
	*m = Message{}
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return ErrClosed
		}
		p, lost, ok := s.dequeue()
		more := s.ready.n > 0
		s.mu.Unlock()
		if ok {
			if more {
				signal(s.arrive) // for another goroutine in Recv
			}
			if lost != nil {
				return lost
			}
			m.p, m.Frames, m.Peer = p, p.frames, p.peer
			return nil
		}
		select {
		case <-s.arrive:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return ErrClosed
		}
	}
}

// Stats returns the counts of the socket. It may be called at any time, also
// after Close.
func (s *socket) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Peers = len(s.attached)
	st.Waiting = s.waiting
	return st
}

// Close ends every connection and listener, makes every other call return
// ErrClosed, and returns when all goroutines of the socket have ended. Messages
// that wait for Recv are dropped; those that wait to be written have
// Options.Linger to go. It may be called by any goroutine, any number of times,
// but not by a Monitor. The error is always nil.
func (s *socket) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	var conns, attached []*conn
	var listeners []net.Listener
	if first {
		for c := range s.conns {
			conns = append(conns, c)
		}
		attached = slices.Clone(s.attached)
		listeners = s.listeners
	}
	s.mu.Unlock()

	s.cancel()
	for _, l := range listeners {
		l.Close()
	}
	if s.opt.Linger > 0 {
		linger(attached, s.opt.Linger)
	}
	for _, c := range conns {
		c.shut(ErrClosed)
	}
	s.wg.Wait()
	if first {
		s.drop()
	}
	return nil
}

// linger waits until everything is written, or the time is over.
func linger(conns []*conn, d time.Duration) {
	for _, c := range conns {
		c.nc.SetWriteDeadline(time.Now().Add(d))
		c.out.drain()
	}
	for _, c := range conns {
		<-c.writerDone // the deadline bounds it
	}
}

// drop gives back the messages nobody will receive.
func (s *socket) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		p, _, ok := s.dequeue()
		if !ok {
			return
		}
		if p != nil {
			p.free()
		}
	}
}
