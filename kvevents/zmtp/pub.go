package zmtp

// Pub sends every message to each peer that subscribed to its topic. It never
// waits: a peer that is Options.SendMessages behind loses messages, which Stats
// counts and nothing else tells. The zero value is
// of no use; make one with NewPub.
//
// All methods may be called by any goroutine at any time.
type Pub struct{ *socket }

// NewPub returns a Pub without connections. It must be closed.
func NewPub(o Options) (*Pub, error) {
	p := new(Pub)
	var err error
	if p.socket, err = newSocket(o, (*pubRole)(p)); err != nil {
		return nil, err
	}
	return p, nil
}

// Send queues one message, whose first frame is the topic, for every peer with a
// subscription for it. It returns ErrNoFrames without frames, ErrClosed after
// Close, and otherwise nil, whoever was listening. The frames are copied, once
// for all peers.
func (p *Pub) Send(frames ...[]byte) error {
	if len(frames) == 0 {
		return ErrNoFrames
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	var pkt *packet
	for _, c := range p.attached {
		if !c.subs.match(frames[0]) {
			continue
		}
		if pkt == nil {
			pkt = encodeMessage(frames)
			pkt.refs.Store(1)
		}
		if c.out.message(pkt, p.opt.SendMessages) {
			p.stats.Sent++
		} else {
			p.stats.SendDropped++
		}
	}
	if pkt != nil {
		pkt.release()
	}
	return nil
}

// Subscriptions returns how many subscriptions the connected peers hold
// together, so that a test can wait for its subscriber.
func (p *Pub) Subscriptions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, c := range p.attached {
		n += len(c.subs.count)
	}
	return n
}

// What one peer may subscribe to.
const (
	maxPeerTopics     = 16 << 10
	maxPeerTopicBytes = 1 << 20
)

type pubRole Pub

func (p *pubRole) socketType() string { return "PUB" }
func (p *pubRole) prefixed() bool     { return false }

func (p *pubRole) attach(c *conn) error {
	// A subscriber sends subscriptions only.
	c.lim.frame = min(c.lim.frame, maxTopic+1)
	c.lim.message = min(c.lim.message, maxTopic+1)
	c.lim.parts = 1
	return nil
}

func (p *pubRole) detach(*conn) {}

// message takes a subscription in the form of ZMTP 3.0.
func (p *pubRole) message(c *conn) error {
	b := c.asm.buf
	if len(b) == 0 || b[0] > 1 {
		return nil
	}
	return p.subscription(c, b[1:], b[0] == 1)
}

func (p *pubRole) subscription(c *conn, topic []byte, on bool) error {
	if len(topic) > maxTopic {
		return &LimitError{What: "command bytes", Got: uint64(len(topic)), Limit: maxTopic}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !on {
		c.subs.remove(string(topic))
		return nil
	}
	c.subs.add(string(topic))
	if len(c.subs.count) > maxPeerTopics || c.subs.bytes > maxPeerTopicBytes {
		return ErrTooManySubscriptions
	}
	return nil
}
