package zmtp

// fifo is a queue in a ring that grows as needed. The zero value is empty.
type fifo[T any] struct {
	ring    []T // power of two, or nil
	head, n int
}

func (q *fifo[T]) push(v T) {
	if q.n == len(q.ring) {
		ring := make([]T, max(8, 2*len(q.ring)))
		n := copy(ring, q.ring[q.head:])
		copy(ring[n:], q.ring[:q.head])
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = v
	q.n++
}

func (q *fifo[T]) front() T { return q.ring[q.head] }

func (q *fifo[T]) pop() T {
	var zero T
	v := q.ring[q.head]
	q.ring[q.head] = zero
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return v
}

// idleRing is the size of ring an empty queue keeps.
const idleRing = 1024

// trim gives back the memory of a long ring that has become empty.
func (q *fifo[T]) trim() {
	if q.n == 0 && len(q.ring) > idleRing {
		q.ring, q.head = nil, 0
	}
}

// inbox holds the messages of one peer that wait for Recv. A dialed endpoint
// keeps its inbox from one connection to the next. Guarded by socket.mu.
type inbox struct {
	packets fifo[*packet]
	bytes   int64 // cost of the packets

	// Messages dropped after the last packet, and of which connection.
	lost     uint64
	lostPeer uint64

	listed bool // in socket.ready
	orphan bool // its connection was accepted and is gone
}

func (b *inbox) empty() bool { return b.packets.n == 0 && b.lost == 0 }

// room says whether the inbox is below its own high-water mark.
func (b *inbox) room(p *packet, maxMessages int, maxBytes int64) bool {
	return b.packets.n == 0 || b.packets.n < maxMessages && b.bytes+p.cost() <= maxBytes
}

// put queues a packet, or counts it as lost when there is no room.
func (b *inbox) put(p *packet, room bool) {
	if !room {
		// Losses of two connections in a row are told as one, of the later.
		b.lost++
		b.lostPeer = p.peer
		return
	}
	p.lost, p.lostPeer = b.lost, b.lostPeer
	b.lost = 0
	b.packets.push(p)
	b.bytes += p.cost()
}

// take returns the next packet, or the next loss.
func (b *inbox) take() (*packet, *LossError) {
	if b.packets.n == 0 {
		lost := b.lost
		b.lost = 0
		return nil, &LossError{Peer: b.lostPeer, Messages: lost}
	}
	if p := b.packets.front(); p.lost > 0 {
		lost := p.lost
		p.lost = 0
		return nil, &LossError{Peer: p.lostPeer, Messages: lost}
	}
	p := b.packets.pop()
	b.packets.trim()
	b.bytes -= p.cost()
	return p, nil
}
