package zmtp

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

// Bind accepts connections at the endpoint until Close, and returns the endpoint
// with the address that was chosen.
//
// Endpoints are as for Dial, and also "tcp://*:port" for every interface,
// "tcp://name:port" with the name of an interface, and port 0 or * for one the
// system chooses. A wildcard address is returned as 0.0.0.0, which can be dialed
// on the same host. A socket file that nobody listens at any more is replaced.
func (s *socket) Bind(text string) (string, error) {
	ep, err := parseEndpoint(text, true)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", ErrClosed
	}
	l, err := listen(ep)
	if err != nil {
		return "", &BindError{Endpoint: text, Err: err}
	}
	s.listeners = append(s.listeners, l)
	bound := ep.bound(l.Addr())
	s.wg.Go(func() { s.accept(l, bound) })
	return bound, nil
}

// listen is net.Listen, except that it takes the place of a dead ipc socket.
func listen(ep endpoint) (net.Listener, error) {
	l, err := net.Listen(ep.network, ep.address)
	if err == nil || ep.network != "unix" || !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	info, statErr := os.Lstat(ep.address)
	if statErr != nil || info.Mode().Type() != fs.ModeSocket {
		return nil, err
	}
	nc, dialErr := net.DialTimeout(ep.network, ep.address, time.Second)
	if dialErr == nil {
		nc.Close()
		return nil, err
	}
	if !errors.Is(dialErr, syscall.ECONNREFUSED) || os.Remove(ep.address) != nil {
		return nil, err
	}
	return net.Listen(ep.network, ep.address)
}

// accept serves what connects to a listener, until it is closed.
func (s *socket) accept(l net.Listener, bound string) {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of files, most likely; it passes.
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
			}
			pause = min(2*pause, longest)
			continue
		}
		pause = shortest
		s.keepAlive(nc)
		s.acceptConn(nc, bound)
	}
}

// acceptConn serves one connection that came to a listener. Connections within
// the handshake are as many as peers may be; a further one displaces the oldest,
// so that those who never finish do not keep out those who do.
func (s *socket) acceptConn(nc net.Conn, bound string) {
	c := newConn(s, nc, bound, new(inbox), true)
	if s.open(c) != nil {
		nc.Close()
		return
	}
	var oldest *conn
	s.mu.Lock()
	if len(s.pending) >= s.opt.MaxPeers {
		oldest = s.pending[0]
		s.pending = slices.Delete(s.pending, 0, 1)
	}
	s.pending = append(s.pending, c)
	s.wg.Go(func() { s.event(s.serve(c)) })
	s.mu.Unlock()
	if oldest != nil {
		oldest.shut(ErrTooManyPeers)
	}
}
