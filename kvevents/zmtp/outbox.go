package zmtp

import (
	"net"
	"sync"
)

// outbox holds what waits to be written to one connection. Control frames
// (handshake, subscriptions, PING) pass in order with messages but do not count
// against the high-water mark; their number is bounded by what this side does.
type outbox struct {
	mu       sync.Mutex
	queue    fifo[outgoing]
	messages int // in the queue or being written
	full     bool
	ping     bool   // a PING waits
	pong     []byte // context of a PONG that waits, when pongs
	pongs    bool
	draining bool // the writer ends when the queue is empty

	wake chan struct{} // of the writer, capacity 1
}

type outgoing struct {
	p       *packet
	message bool
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// control queues bytes of the protocol itself.
func (o *outbox) control(b []byte) {
	p := newPacket(len(b))
	p.buf = append(p.buf, b...)
	p.refs.Store(1)
	o.mu.Lock()
	o.queue.push(outgoing{p: p})
	o.mu.Unlock()
	o.signal()
}

// message queues a message, adding a reference, unless limit messages wait.
func (o *outbox) message(p *packet, limit int) bool {
	o.mu.Lock()
	if o.messages >= limit || o.draining {
		o.full = true
		o.mu.Unlock()
		return false
	}
	p.refs.Add(1)
	o.messages++
	o.queue.push(outgoing{p: p, message: true})
	o.mu.Unlock()
	o.signal()
	return true
}

func (o *outbox) sendPing() {
	o.mu.Lock()
	o.ping = true
	o.mu.Unlock()
	o.signal()
}

// sendPong answers the latest PING. A peer that sends many without reading the
// answers gets the last only, so that they do not pile up.
func (o *outbox) sendPong(context []byte) {
	o.mu.Lock()
	o.pong, o.pongs = append(o.pong[:0], context...), true
	o.mu.Unlock()
	o.signal()
}

// drain lets the writer end once everything is written.
func (o *outbox) drain() {
	o.mu.Lock()
	o.draining = true
	o.mu.Unlock()
	o.signal()
}

// writeBatch is how many frames go to the system in one call.
const writeBatch = 64

// writer writes the queue of one outbox to a connection.
type writer struct {
	o     *outbox
	nc    net.Conn
	batch []outgoing
	bufs  net.Buffers
	ctl   []byte // PING and PONG of this batch

	unwritten net.Buffers
}

// fill takes the next batch and says whether the writer is to end instead.
func (w *writer) fill() (end bool) {
	o := w.o
	o.mu.Lock()
	defer o.mu.Unlock()
	w.batch, w.bufs, w.ctl = w.batch[:0], w.bufs[:0], w.ctl[:0]
	if o.ping {
		w.ctl = append(w.ctl, pingFrame...)
	}
	if o.pongs {
		w.ctl = appendCommand(w.ctl, cmdPong, o.pong)
	}
	o.ping, o.pongs = false, false
	if len(w.ctl) > 0 {
		w.bufs = append(w.bufs, w.ctl)
	}
	for o.queue.n > 0 && len(w.batch) < writeBatch {
		out := o.queue.pop()
		w.batch = append(w.batch, out)
		w.bufs = append(w.bufs, out.p.buf)
	}
	o.queue.trim()
	return len(w.bufs) == 0 && o.draining
}

// settle gives back a batch and says whether a sender may be waiting for room.
func (w *writer) settle() (room bool) {
	messages := 0
	for _, out := range w.batch {
		if out.message {
			messages++
		}
		out.p.release()
	}
	if messages == 0 {
		return false
	}
	o := w.o
	o.mu.Lock()
	defer o.mu.Unlock()
	o.messages -= messages
	room, o.full = o.full, false
	return room
}

// run writes until the connection fails, done is closed, or the outbox is
// drained. onRoom is called when a full outbox has room again.
func (w *writer) run(done <-chan struct{}, onRoom func()) error {
	for {
		if w.fill() {
			return nil
		}
		if len(w.bufs) == 0 {
			select {
			case <-w.o.wake:
				continue
			case <-done:
				return nil
			}
		}
		// WriteTo consumes the slice it is called on; a local one would escape.
		w.unwritten = w.bufs
		_, err := w.unwritten.WriteTo(w.nc)
		if w.settle() {
			onRoom()
		}
		if err != nil {
			return err
		}
	}
}

// discard gives back what was never written and returns how many messages that
// was.
func (o *outbox) discard() (messages int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.queue.n > 0 {
		out := o.queue.pop()
		if out.message {
			messages++
		}
		out.p.release()
	}
	o.draining = true
	return messages
}
