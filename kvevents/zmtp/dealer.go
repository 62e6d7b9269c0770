package zmtp

import "context"

// Dealer sends messages to its peers in turn and receives from all of them. With
// one dialed endpoint it is a client of that Router; Options.Identity names it.
// The zero value is
// of no use; make one with NewDealer.
//
// All methods may be called by any goroutine at any time.
type Dealer struct {
	*socket
	turn int // guarded by socket.mu
}

// NewDealer returns a Dealer without connections. It must be closed.
func NewDealer(o Options) (*Dealer, error) {
	d := new(Dealer)
	var err error
	if d.socket, err = newSocket(o, (*dealerRole)(d)); err != nil {
		return nil, err
	}
	return d, nil
}

// Send queues one message of at least one frame for a connected peer, the next
// in turn that has room. It waits while there is none, and returns the error of
// ctx when that ends, or ErrClosed. The frames are copied.
//
// A message queued on a connection that then ends is lost, as is the answer to
// one that was sent: ask again, when no answer comes or a new Message.Peer shows
// a new connection.
func (d *Dealer) Send(ctx context.Context, frames ...[]byte) error {
	if len(frames) == 0 {
		return ErrNoFrames
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p := encodeMessage(frames)
	p.refs.Store(1)
	defer p.release()
	for {
		sent, err := d.trySend(p)
		if sent || err != nil {
			signal(d.room) // for another goroutine in Send
			return err
		}
		select {
		case <-d.room:
		case <-ctx.Done():
			return ctx.Err()
		case <-d.ctx.Done():
			return ErrClosed
		}
	}
}

func (d *Dealer) trySend(p *packet) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false, ErrClosed
	}
	for range d.attached {
		d.turn = (d.turn + 1) % len(d.attached)
		if d.attached[d.turn].out.message(p, d.opt.SendMessages) {
			d.stats.Sent++
			return true, nil
		}
	}
	return false, nil
}

// Recv is as for Sub.
func (d *Dealer) Recv(ctx context.Context, m *Message) error { return d.recv(ctx, m) }

type dealerRole Dealer

func (d *dealerRole) socketType() string                     { return "DEALER" }
func (d *dealerRole) prefixed() bool                         { return false }
func (d *dealerRole) attach(*conn) error                     { return nil }
func (d *dealerRole) detach(*conn)                           {}
func (d *dealerRole) message(c *conn) error                  { d.push(c); return nil }
func (d *dealerRole) subscription(*conn, []byte, bool) error { return nil }
