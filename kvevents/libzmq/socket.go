//go:build cgo && !windows

package libzmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/pebbe/zmq4"
)

// socket owns one socket of libzmq. Only its goroutine calls libzmq, since such
// a socket must not be used by two threads at once; the others hand it work.
type socket struct {
	z     *zmq4.Socket
	w     *waiter
	watch *watch

	messages chan [][]byte // taken from libzmq, not yet by Recv
	room     chan struct{} // capacity 1: a Send that could not go on may try again
	done     chan struct{} // closed by Close
	ended    sync.WaitGroup

	// Of the owner.
	dialed  map[string]bool
	blocked bool // a Send waits for room

	mu       sync.Mutex
	closed   bool
	work     []func()
	paused   bool // messages is full
	received uint64
	bytes    uint64
	sent     uint64
}

// queued is how many messages are taken from libzmq before they are asked for.
const queued = 64

func (t Transport) open(kind zmq4.Type, o zmtp.Options) (*socket, error) {
	o, err := o.WithDefaults()
	if err != nil {
		return nil, err
	}
	if o.DialContext != nil {
		return nil, &zmtp.OptionError{Option: "DialContext", Reason: "libzmq opens its connections itself; use zmtp.Native"}
	}
	z, err := zmq4.NewSocket(kind)
	if err != nil {
		return nil, fmt.Errorf("libzmq: new socket: %w", err)
	}
	s := &socket{
		z:        z,
		messages: make(chan [][]byte, queued),
		room:     make(chan struct{}, 1),
		done:     make(chan struct{}),
		dialed:   make(map[string]bool),
	}
	if err = t.configure(z, o); err == nil {
		s.w, err = newWaiter(z)
	}
	if err == nil {
		s.watch, err = newWatch(z, o.Monitor)
	}
	if err != nil {
		if s.w != nil {
			s.w.close()
		}
		z.Close()
		return nil, err
	}
	s.ended.Go(s.own)
	s.ended.Go(s.watch.run)
	return s, nil
}

// own is the goroutine of the socket.
func (s *socket) own() {
	defer func() {
		_ = s.z.Monitor("", 0) // ends the watch
		s.z.Close()
		s.w.close()
	}()
	for {
		s.w.rearm()
		s.mu.Lock()
		work, closed := s.work, s.closed
		s.work = nil
		s.mu.Unlock()
		for _, f := range work {
			f()
		}
		if closed {
			return
		}
		if err := s.w.wait(s.take); err != nil {
			return
		}
	}
}

// take moves one message from libzmq to the queue, and says whether there was
// one. When the queue is full Recv wakes the owner.
func (s *socket) take() bool {
	if s.blocked {
		if state, err := s.z.GetEvents(); err == nil && state&zmq4.POLLOUT != 0 {
			s.blocked = false
			signal(s.room)
		}
	}
	s.mu.Lock()
	s.paused = len(s.messages) == cap(s.messages)
	paused := s.paused
	s.mu.Unlock()
	if paused {
		return false
	}
	frames, err := s.z.RecvMessageBytes(zmq4.DONTWAIT)
	if err != nil {
		return false
	}
	s.mu.Lock()
	s.received++
	for _, f := range frames {
		s.bytes += uint64(len(f))
	}
	s.mu.Unlock()
	s.messages <- frames // has room: only the owner sends
	return true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// do has the owner call f and returns its error.
func (s *socket) do(f func() error) error {
	result := make(chan error, 1)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return zmtp.ErrClosed
	}
	s.work = append(s.work, func() { result <- f() })
	s.mu.Unlock()
	s.w.wake()
	return <-result
}

// Dial connects to the endpoint; libzmq connects again as needed.
func (s *socket) Dial(endpoint string) error {
	return s.do(func() error {
		if s.dialed[endpoint] {
			return nil
		}
		err := s.prepare(endpoint, false)
		if err == nil {
			err = s.z.Connect(endpoint)
		}
		if err != nil {
			return fmt.Errorf("libzmq: dial %q: %w", endpoint, err)
		}
		s.dialed[endpoint] = true
		return nil
	})
}

// Bind accepts connections and returns the endpoint with the chosen address.
func (s *socket) Bind(endpoint string) (bound string, err error) {
	err = s.do(func() error {
		err := s.prepare(endpoint, true)
		if err == nil {
			err = s.z.Bind(endpoint)
		}
		if err == nil {
			bound, err = s.z.GetLastEndpoint()
		}
		if err != nil {
			return fmt.Errorf("libzmq: bind %q: %w", endpoint, err)
		}
		s.watch.bound(bound)
		return nil
	})
	return bound, err
}

// prepare checks an endpoint, since libzmq takes some that it can never reach,
// and turns IPv6 on for IPv6 addresses only: with it on, libzmq would resolve
// host names to nothing else.
func (s *socket) prepare(endpoint string, bind bool) error {
	scheme, rest, _ := strings.Cut(endpoint, "://")
	if scheme != "tcp" && scheme != "ipc" {
		return nil // libzmq knows more of them
	}
	if !strings.Contains(rest, ";") { // a source address, which only libzmq knows
		if err := zmtp.CheckEndpoint(endpoint, bind); err != nil {
			return err
		}
	}
	return s.z.SetIpv6(scheme == "tcp" && strings.Count(rest, ":") > 1)
}

// Recv waits for the next message.
func (s *socket) Recv(ctx context.Context, m *zmtp.Message) error {
	*m = zmtp.Message{}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-s.done:
		return zmtp.ErrClosed
	default:
	}
	select {
	case m.Frames = <-s.messages:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return zmtp.ErrClosed
	}
	s.mu.Lock()
	paused := s.paused
	s.paused = false
	s.mu.Unlock()
	if paused {
		s.w.wake()
	}
	return nil
}

// Stats returns what this side and the monitor of libzmq have counted.
func (s *socket) Stats() zmtp.Stats {
	st := s.watch.stats()
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Received, st.ReceivedBytes, st.Sent = s.received, s.bytes, s.sent
	st.Waiting = len(s.messages)
	return st
}

// Close ends the socket and waits for its goroutines.
func (s *socket) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	s.mu.Unlock()
	s.w.wake()
	s.ended.Wait()
	return nil
}

type sub struct {
	*socket
	topics map[string]bool // of the owner
}

var _ zmtp.SubSocket = (*sub)(nil)

// Subscribe adds a topic.
func (s *sub) Subscribe(topic string) error {
	return s.do(func() error {
		if s.topics[topic] {
			return nil
		}
		if err := s.z.SetSubscribe(topic); err != nil {
			return fmt.Errorf("libzmq: subscribe: %w", err)
		}
		s.topics[topic] = true
		return nil
	})
}

type dealer struct{ *socket }

var _ zmtp.DealerSocket = (*dealer)(nil)

// Send sends one message to a connected peer, waiting while there is none or
// none has room.
func (d *dealer) Send(ctx context.Context, frames ...[]byte) error {
	if len(frames) == 0 {
		return zmtp.ErrNoFrames
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	parts := make([]any, len(frames))
	for i, f := range frames {
		parts[i] = f
	}
	for {
		err := d.do(func() error {
			_, err := d.z.SendMessageDontwait(parts...)
			d.blocked = errors.Is(err, zmq4.Errno(syscall.EAGAIN))
			return err
		})
		if err == nil {
			d.mu.Lock()
			d.sent++
			d.mu.Unlock()
		}
		if !errors.Is(err, zmq4.Errno(syscall.EAGAIN)) {
			signal(d.room) // for another goroutine in Send
			return err
		}
		select {
		case <-d.room:
		case <-ctx.Done():
			return ctx.Err()
		case <-d.done:
			return zmtp.ErrClosed
		}
	}
}
