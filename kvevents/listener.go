package kvevents

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// listener is a bound socket that many publishers dial. Nothing but the topic
// tells whose a message is, and the payload whose rank.
type listener struct {
	socket zmtp.SubSocket
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.RWMutex
	workers []*worker
}

// listen makes a worker one of those of its bound endpoint. s.mu is held.
func (s *Subscriber) listen(w *worker) error {
	t := w.target
	l := s.listeners[t.Endpoint]
	if l == nil {
		l = &listener{}
		var err error
		if l.socket, err = s.transport().NewSub(s.o.Socket); err != nil {
			return err
		}
		if err = l.socket.Subscribe(""); err == nil {
			_, err = l.socket.Bind(t.Endpoint)
		}
		if err != nil {
			l.socket.Close()
			return err
		}
		var ctx context.Context
		ctx, l.cancel = context.WithCancel(s.ctx)
		l.work.Go(func() { l.read(ctx, &s.unattributed) })
		s.listeners[t.Endpoint] = l
	}
	l.mu.Lock()
	l.workers = append(l.workers, w)
	l.mu.Unlock()
	for _, src := range w.sources {
		src.do(func(now time.Time) { src.stream.Connected(now, 0) })
	}
	return nil
}

// unlisten takes a worker out, and closes the socket after the last one.
func (s *Subscriber) unlisten(w *worker) {
	l := s.listeners[w.target.Endpoint]
	if l == nil {
		return
	}
	l.mu.Lock()
	for i, other := range l.workers {
		if other == w {
			l.workers = append(l.workers[:i:i], l.workers[i+1:]...)
			break
		}
	}
	last := len(l.workers) == 0
	l.mu.Unlock()
	if last {
		delete(s.listeners, w.target.Endpoint)
		l.cancel()
		l.socket.Close()
		l.work.Wait()
	}
}

func (l *listener) read(ctx context.Context, unattributed *atomic.Uint64) {
	var m zmtp.Message
	for {
		if err := l.socket.Recv(ctx, &m); err != nil {
			if _, lost := errors.AsType[*zmtp.LossError](err); lost {
				l.dropped() // whose messages they were is not known
				continue
			}
			return
		}
		msg, err := ParseMessage(m.Frames)
		src := l.find(m.Frames, msg, unattributed)
		if src == nil {
			continue
		}
		src.mu.Lock()
		switch {
		case src.closed:
		case err != nil:
			src.lastErr, src.lastErrAt = err, time.Now()
			src.stream.Garbage()
		default:
			src.message(time.Now(), m.Peer, msg)
		}
		src.mu.Unlock()
	}
}

// dropped tells every stream of the socket that messages were lost on our side.
func (l *listener) dropped() {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, w := range l.workers {
		for _, src := range w.sources {
			src.do(func(now time.Time) { src.stream.Dropped(now) })
		}
	}
}

// find returns the source that a message is of. Of several topics that fit, the
// longest counts.
func (l *listener) find(frames [][]byte, msg Message, unattributed *atomic.Uint64) *source {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var w *worker
	for _, other := range l.workers {
		if topicFits(frames[0], other.target.Topic) && (w == nil || len(other.target.Topic) > len(w.target.Topic)) {
			w = other
		}
	}
	if w == nil {
		unattributed.Add(1)
		return nil
	}
	rank, ok := payloadRank(msg.Payload)
	if !ok {
		rank = 0 // unreadable: the stream will say so
	}
	if rank >= int64(len(w.sources)) {
		src := w.sources[0]
		src.mu.Lock()
		src.foreign++
		src.mu.Unlock()
		return nil
	}
	return w.sources[rank]
}
