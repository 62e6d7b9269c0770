package zmtp

import (
	"bufio"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// conn is one connection to one peer. Its reader is the goroutine that called
// socket.serve, its writer another; both end with the connection.
type conn struct {
	s        *socket
	nc       net.Conn
	endpoint string
	peer     uint64
	accepted bool

	// Fixed by the handshake.
	minor    byte
	identity string

	in  *inbox
	out outbox

	// Guarded by socket.mu.
	subs       topics // of the peer, for a Pub
	assembling int64  // bytes reserved for the message being assembled

	// Of the reader.
	beat heartbeat
	br   *bufio.Reader
	lim  limits
	asm  *packet // message being assembled
	cmd  []byte

	once       sync.Once
	done       chan struct{}
	writerDone chan struct{}
	err        error // why it was shut; valid once done is closed
}

// readBuffer is how much is read from the system at once.
const readBuffer = 32 << 10

// newConn takes over a connection, including the duty to close it.
func newConn(s *socket, nc net.Conn, endpoint string, in *inbox, accepted bool) *conn {
	c := &conn{
		s: s, nc: nc, endpoint: endpoint, in: in, accepted: accepted,
		done:       make(chan struct{}),
		writerDone: make(chan struct{}),
		lim: limits{
			frame:   uint64(s.opt.MaxFrameBytes),
			message: uint64(s.opt.MaxMessageBytes),
			parts:   uint64(s.opt.MaxParts),
		},
	}
	c.lim.reserve = func(bytes int) error { return s.reserve(c, int64(bytes)) }
	c.beat.nc = nc
	c.out.wake = make(chan struct{}, 1)
	return c
}

// shut ends the connection for a reason; only the first counts.
func (c *conn) shut(err error) {
	c.once.Do(func() {
		c.err = err
		close(c.done)
		c.nc.Close()
	})
}

// readGrace is how long the reader may go on once the writer has failed.
const readGrace = time.Second

// shutSoon ends the connection after a failed write. A peer that hung up may
// have said more before, and that it hung up is what the reader finds out. A
// deadline for writing is that of the handshake or of Linger, and is the end.
func (c *conn) shutSoon(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.shut(err)
		return
	}
	select {
	case <-c.done:
	case <-time.After(readGrace):
		c.shut(err)
	}
}

func (c *conn) event(kind EventKind, err error, retry time.Duration) Event {
	ev := Event{Kind: kind, Endpoint: c.endpoint, Peer: c.peer, Err: err, Retry: retry}
	if a := c.nc.RemoteAddr(); a != nil {
		ev.Remote = a.String()
	}
	return ev
}

// serve runs the connection to its end and says why it ended, and whether the
// handshake was complete.
func (c *conn) serve() (established bool, err error) {
	go func() {
		defer close(c.writerDone)
		w := writer{o: &c.out, nc: c.nc}
		if err := w.run(c.done, c.s.signalRoom); err != nil {
			c.shutSoon(err)
		}
	}()
	err = c.nc.SetDeadline(time.Now().Add(c.s.opt.HandshakeTimeout))
	if err == nil {
		err = c.handshake()
	}
	if err == nil {
		err = c.s.attach(c)
	}
	if established = err == nil; established {
		c.s.event(c.event(Connected, nil, 0))
		err = c.read()
		c.s.detach(c)
	} else {
		c.refuse(err)
	}
	c.shut(err)
	<-c.writerDone
	c.out.discard()
	if c.asm != nil {
		c.asm.free()
	}
	return established, c.err
}

// refuse tells the peer why its handshake failed, if it can still hear it.
func (c *conn) refuse(err error) {
	if _, ok := errors.AsType[*ProtocolError](err); !ok && err != ErrTooManyPeers && err != errIdentityInUse {
		return
	}
	if c.br == nil { // it did not even greet
		return
	}
	c.out.control(appendError(nil, err.Error()))
	c.out.drain()
	<-c.writerDone // bounded by the deadline of the handshake
}

// read reads traffic until the connection ends.
func (c *conn) read() error {
	var ping func()
	if c.minor >= 1 {
		ping = c.out.sendPing
	}
	if err := c.beat.start(c.s.opt.HeartbeatInterval, c.s.opt.HeartbeatTimeout, ping); err != nil {
		return err
	}
	c.begin()
	for {
		flags, size, err := readHeader(c.br)
		if err != nil {
			return err
		}
		if flags&flagCommand != 0 {
			// libzmq sends PING between the frames of a message too.
			if c.cmd, err = readCommand(c.br, c.cmd, size); err == nil {
				err = c.command()
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := c.lim.readMessageFrame(c.br, c.asm, size); err != nil {
			return err
		}
		if flags&flagMore == 0 {
			if err := c.s.role.message(c); err != nil {
				return err
			}
			c.begin()
		}
	}
}

const (
	firstBuffer = 1 << 10  // of the message being assembled, at first
	keptBuffer  = 64 << 10 // what it may keep between messages
)

// begin makes ready for the next message.
func (c *conn) begin() {
	if c.assembling != 0 { // written by this goroutine only
		c.s.mu.Lock()
		c.s.unreserve(c)
		c.s.mu.Unlock()
	}
	if c.asm != nil && cap(c.asm.buf) > keptBuffer {
		c.asm.free()
		c.asm = nil
	}
	if c.asm == nil {
		c.asm = newPacket(firstBuffer)
	}
	c.asm.reset()
	if c.s.role.prefixed() {
		c.asm.buf = append(c.asm.buf, c.identity...)
		c.asm.ends = append(c.asm.ends, len(c.identity))
	}
}

// complete returns the assembled message, sealed. A short one is copied, so that
// it does not hold a long buffer while it waits.
func (c *conn) complete() *packet {
	if len(c.asm.buf) <= keptBuffer/2 {
		p := c.asm.clone()
		p.peer = c.peer
		return p
	}
	p := c.asm
	c.asm = nil
	p.seal()
	p.peer = c.peer
	return p
}

// command handles c.cmd.
func (c *conn) command() error {
	name, data, err := parseCommand(c.cmd)
	if err != nil {
		return err
	}
	switch string(name) {
	case cmdPing:
		ttl, context, err := parsePing(data)
		if err != nil {
			return err
		}
		c.out.sendPong(context)
		return c.beat.expect(time.Duration(ttl) * (time.Second / 10))
	case cmdError:
		return parseError(data)
	case cmdSubscribe:
		return c.s.role.subscription(c, data, true)
	case cmdCancel:
		return c.s.role.subscription(c, data, false)
	}
	return nil // PONG has done its work by arriving
}
