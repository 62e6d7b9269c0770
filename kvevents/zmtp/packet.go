package zmtp

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// packet owns the memory of one message: received, being assembled, or encoded
// for sending. Packets are pooled by the size of their buffer, so that a short
// message does not hold a long buffer while it waits in a queue.
type packet struct {
	buf    []byte
	ends   []int    // end of each frame in buf
	frames [][]byte // views of buf, built by seal
	peer   uint64

	// Messages dropped just before this one, and of which connection.
	lost     uint64
	lostPeer uint64

	refs atomic.Int32 // outboxes that hold it; unused on the receiving side
}

const (
	minClass   = 8 // 256 bytes
	maxClass   = 20
	maxPooled  = 1 << maxClass
	frameCost  = 32 // of the memory of a packet, per frame: ends and frames
	maxPooledN = 64 // frames
)

var packets [maxClass - minClass + 1]sync.Pool

func classOf(n int) int { return max(bits.Len(uint(max(n, 1)-1)), minClass) }

// newPacket returns an empty packet with room for n bytes.
func newPacket(n int) *packet {
	class := classOf(n)
	if class > maxClass {
		return &packet{buf: make([]byte, 0, n)}
	}
	if p, ok := packets[class-minClass].Get().(*packet); ok {
		return p
	}
	return &packet{buf: make([]byte, 0, 1<<class)}
}

// free takes back a packet and its memory.
func (p *packet) free() {
	class := classOf(cap(p.buf))
	if class > maxClass || cap(p.buf) != 1<<class || cap(p.frames) > maxPooledN || cap(p.ends) > maxPooledN {
		return
	}
	p.reset()
	packets[class-minClass].Put(p)
}

func (p *packet) reset() {
	p.buf, p.ends, p.frames = p.buf[:0], p.ends[:0], p.frames[:0]
	p.peer, p.lost, p.lostPeer = 0, 0, 0
}

// release gives up one reference of a packet that is being sent.
func (p *packet) release() {
	if p.refs.Add(-1) == 0 {
		p.free()
	}
}

// grow makes room for n more bytes, doubling at least.
func (p *packet) grow(n int) {
	need := len(p.buf) + n
	if need <= cap(p.buf) {
		return
	}
	q := newPacket(max(need, 2*cap(p.buf)))
	q.buf = append(q.buf, p.buf...)
	p.buf, q.buf = q.buf, p.buf
	q.free()
}

// seal builds the frames.
func (p *packet) seal() {
	start := 0
	for _, end := range p.ends {
		p.frames = append(p.frames, p.buf[start:end:end])
		start = end
	}
}

// clone returns a sealed copy with no more memory than it needs.
func (p *packet) clone() *packet {
	q := newPacket(len(p.buf))
	q.buf = append(q.buf, p.buf...)
	q.ends = append(q.ends, p.ends...)
	q.seal()
	return q
}

// cost is the memory a packet holds while it waits.
func (p *packet) cost() int64 { return int64(cap(p.buf)) + frameCost*int64(len(p.ends)) }

// encodeMessage returns a packet with a whole message in its wire form.
func encodeMessage(frames [][]byte) *packet {
	n := 0
	for _, f := range frames {
		n += maxFrameHeader + len(f)
	}
	p := newPacket(n)
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		p.buf = append(appendHeader(p.buf, flags, len(f)), f...)
	}
	return p
}
