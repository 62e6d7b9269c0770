package zmtp

import (
	"context"
)

// Sub receives what publishers send under the topics it subscribes to. It may
// dial many publishers, and be bound for many to dial it. The zero value is
// of no use; make one with NewSub.
//
// All methods may be called by any goroutine at any time.
type Sub struct {
	*socket
	topics topics // guarded by socket.mu
}

// NewSub returns a Sub without connections or subscriptions. It must be closed.
func NewSub(o Options) (*Sub, error) {
	s := new(Sub)
	var err error
	if s.socket, err = newSocket(o, (*subRole)(s)); err != nil {
		return nil, err
	}
	return s, nil
}

// maxTopic bounds a topic, so that a subscription fits a command.
const maxTopic = 32 << 10

// Subscribe adds a topic: messages whose first frame begins with these bytes are
// received from every peer, present and future. The empty topic receives
// everything. Subscribing twice is the same as once.
//
// A publisher sends nothing until it has heard of the subscription; what it
// published before is not sent later.
func (s *Sub) Subscribe(topic string) error { return s.change(topic, true) }

// Unsubscribe removes a topic; removing what is not there does nothing. Messages
// that already wait are still received.
func (s *Sub) Unsubscribe(topic string) error { return s.change(topic, false) }

func (s *Sub) change(topic string, on bool) error {
	if len(topic) > maxTopic {
		return ErrTopicTooLong
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	_, have := s.topics.count[topic]
	if have == on {
		return nil
	}
	if on {
		s.topics.add(topic)
	} else {
		s.topics.remove(topic)
	}
	for _, c := range s.attached {
		c.sendSubscription(topic, on)
	}
	return nil
}

// sendSubscription tells a publisher in the form its version knows.
func (c *conn) sendSubscription(topic string, on bool) {
	switch {
	case c.minor >= 1 && on:
		c.out.control(appendCommand(nil, cmdSubscribe, []byte(topic)))
	case c.minor >= 1:
		c.out.control(appendCommand(nil, cmdCancel, []byte(topic)))
	default:
		b := appendHeader(nil, 0, 1+len(topic))
		if on {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
		c.out.control(append(b, topic...))
	}
}

// Recv waits for the next message and puts it into m, whose former content is
// taken back. Peers with messages waiting are served in turn.
//
// It returns ErrClosed after Close, the error of ctx when that ends (also when a
// message waits), and a *LossError where messages were dropped; the last does
// not end the stream. It does not allocate in steady state.
func (s *Sub) Recv(ctx context.Context, m *Message) error { return s.recv(ctx, m) }

type subRole Sub

func (s *subRole) socketType() string { return "SUB" }
func (s *subRole) prefixed() bool     { return false }

func (s *subRole) attach(c *conn) error {
	for topic := range s.topics.count {
		c.sendSubscription(topic, true)
	}
	return nil
}

func (s *subRole) detach(*conn) {}

// message drops what nothing is subscribed to: a publisher may not have heard
// yet, or may not care.
func (s *subRole) message(c *conn) error {
	first := c.asm.buf[:c.asm.ends[0]]
	s.mu.Lock()
	wanted := s.topics.match(first)
	if !wanted {
		s.stats.Received++
		s.stats.ReceivedBytes += uint64(len(c.asm.buf))
		s.stats.Filtered++
	}
	s.mu.Unlock()
	if wanted {
		s.push(c)
	}
	return nil
}

func (s *subRole) subscription(*conn, []byte, bool) error { return nil }
