package zmtp

import (
	"context"
	"encoding/binary"
)

// Router receives from its peers with the identity of the sender in front, and
// sends to the peer whose identity is in front. The zero value is
// of no use; make one with NewRouter.
//
// All methods may be called by any goroutine at any time.
type Router struct {
	*socket
	peers map[string]*conn // by identity; guarded by socket.mu
}

// NewRouter returns a Router without connections. It must be closed.
func NewRouter(o Options) (*Router, error) {
	r := &Router{peers: make(map[string]*conn)}
	var err error
	if r.socket, err = newSocket(o, (*routerRole)(r)); err != nil {
		return nil, err
	}
	return r, nil
}

// Send queues frames[1:] for the peer whose identity is frames[0]. It never
// waits: when the peer is Options.SendMessages behind, the message is dropped
// and counted by Stats, and Send returns nil, as libzmq does. It returns
// ErrNoFrames for less than two frames, ErrUnroutable when there is no such
// peer, ErrClosed after Close. The frames are copied.
func (r *Router) Send(frames ...[]byte) error {
	if len(frames) < 2 {
		return ErrNoFrames
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	c := r.peers[string(frames[0])]
	if c == nil {
		return ErrUnroutable
	}
	p := encodeMessage(frames[1:])
	p.refs.Store(1)
	defer p.release()
	if c.out.message(p, r.opt.SendMessages) {
		r.stats.Sent++
	} else {
		r.stats.SendDropped++
	}
	return nil
}

// Recv is as for Sub. The first frame is the identity of the sender: the one it
// gave itself, or five bytes of which the first is zero.
func (r *Router) Recv(ctx context.Context, m *Message) error { return r.recv(ctx, m) }

type routerRole Router

func (r *routerRole) socketType() string { return "ROUTER" }
func (r *routerRole) prefixed() bool     { return true }

// attach names the peer. A name in use is refused rather than taken over, so
// that no peer can take the place of another.
func (r *routerRole) attach(c *conn) error {
	if c.identity == "" {
		// Unique until 2^32 connections were made; then a peer may be refused.
		c.identity = string(binary.BigEndian.AppendUint32([]byte{0}, uint32(c.peer)))
	}
	if r.peers[c.identity] != nil {
		return errIdentityInUse
	}
	r.peers[c.identity] = c
	// The identity in front is not counted against the limits of the peer.
	c.lim.parts++
	c.lim.message += uint64(len(c.identity))
	return nil
}

func (r *routerRole) detach(c *conn) { delete(r.peers, c.identity) }

func (r *routerRole) message(c *conn) error { r.push(c); return nil }

func (r *routerRole) subscription(*conn, []byte, bool) error { return nil }
