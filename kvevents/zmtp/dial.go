package zmtp

import (
	"context"
	"math/rand/v2"
	"net"
	"time"
)

// Dial keeps a connection to the endpoint until Close: when it cannot be made,
// or ends, it is made again, however long that takes. Dial itself does not wait
// and the peer need not exist yet; whether it answers is told to
// Options.Monitor. Dialing an endpoint again does nothing.
//
// Endpoints are "tcp://host:port", with a name, an IPv4 address or an IPv6
// address (in brackets or not), and "ipc:///path", or "ipc://@name" for an
// abstract name on Linux. For others Dial returns an *EndpointError.
func (s *socket) Dial(text string) error {
	ep, err := parseEndpoint(text, false)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.endpoints[text] {
		return nil
	}
	s.endpoints[text] = true
	s.wg.Go(func() { s.keepDialed(ep) })
	return nil
}

// backoff is the wait before the next dial.
type backoff struct{ min, max, next time.Duration }

// wait returns the next wait: doubling, less a random part of up to a half.
func (b *backoff) wait() time.Duration {
	d := max(b.next, b.min)
	b.next = min(2*d, b.max)
	return d - rand.N(d/2+1)
}

func (b *backoff) reset() { b.next = 0 }

// keepDialed dials an endpoint and serves the connection, until Close.
func (s *socket) keepDialed(ep endpoint) {
	in := new(inbox)
	b := backoff{min: s.opt.ReconnectMin, max: s.opt.ReconnectMax}
	for s.ctx.Err() == nil {
		started := time.Now()
		ev := s.dialOnce(ep, in)
		// A peer that accepts and then closes is not worth a fresh start.
		if ev.Kind == Disconnected && time.Since(started) >= s.opt.ReconnectMax {
			b.reset()
		}
		ev.Retry = b.wait()
		if s.ctx.Err() != nil {
			ev.Retry = 0
		}
		s.event(ev)
		select {
		case <-time.After(ev.Retry):
		case <-s.ctx.Done():
		}
	}
}

// dialOnce makes one connection, serves it, and tells how it ended.
func (s *socket) dialOnce(ep endpoint, in *inbox) Event {
	nc, err := s.dialConn(ep)
	if err != nil {
		s.mu.Lock()
		s.stats.DialFailures++
		s.mu.Unlock()
		return Event{Kind: DialFailed, Endpoint: ep.text, Err: err}
	}
	c := newConn(s, nc, ep.text, in, false)
	if err := s.open(c); err != nil {
		nc.Close()
		return c.event(Disconnected, err, 0)
	}
	return s.serve(c)
}

// serve runs a registered connection and tells how it ended.
func (s *socket) serve(c *conn) Event {
	established, err := c.serve()
	s.ended(c, established)
	kind := HandshakeFailed
	switch {
	case established:
		kind = Disconnected
	case err == ErrTooManyPeers:
		kind = Rejected
	}
	return c.event(kind, err, 0)
}

func (s *socket) dialConn(ep endpoint) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.opt.DialTimeout)
	defer cancel()
	dial := s.opt.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	nc, err := dial(ctx, ep.network, ep.address)
	if err != nil {
		return nil, err
	}
	s.keepAlive(nc)
	return nc, nil
}

// keepAlive has the system probe an idle connection at the pace of heartbeats,
// for peers that do not answer those. It is an extra: failing to set it up is
// not an error.
func (s *socket) keepAlive(nc net.Conn) {
	t, ok := nc.(*net.TCPConn)
	if !ok || s.opt.HeartbeatInterval < 0 {
		return
	}
	const probes = 3
	_ = t.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable:   true,
		Idle:     s.opt.HeartbeatInterval,
		Interval: max((s.opt.HeartbeatTimeout-s.opt.HeartbeatInterval)/probes, time.Second),
		Count:    probes,
	})
}
