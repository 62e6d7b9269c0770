package zmtp

import (
	"context"
	"math"
	"net"
	"time"
)

// Defaults of Options. Each is what the zero value of its field means.
const (
	DefaultReceiveMessages   = 10_000
	DefaultReceiveBytes      = 128 << 20
	DefaultSendMessages      = 1_000
	DefaultMaxFrameBytes     = 64 << 20
	DefaultMaxMessageBytes   = 128 << 20
	DefaultMaxBuffered       = 1 << 30
	DefaultMaxParts          = 1_024
	DefaultMaxPeers          = 1_024
	DefaultDialTimeout       = 5 * time.Second
	DefaultHandshakeTimeout  = 5 * time.Second
	DefaultHeartbeatInterval = 5 * time.Second
	DefaultHeartbeatTimeout  = 15 * time.Second
	DefaultReconnectMin      = 50 * time.Millisecond
	DefaultReconnectMax      = 2 * time.Second
)

// Options configures a socket of any type. The zero value means the defaults
// above, which suit a subscriber of an engine. A constructor copies it and
// never changes it, so one value may serve many sockets.
type Options struct {
	// Identity names a Dealer to the Router it dials, which then addresses it
	// by this name. Empty, the Router makes up a name. At most 255 bytes, the
	// first not zero.
	Identity string

	// ReceiveMessages and ReceiveBytes are the receive high-water mark of each
	// connection: how many messages, and how many bytes of them, may wait for
	// Recv. A message is always accepted when none is waiting.
	ReceiveMessages int
	ReceiveBytes    int64

	// SendMessages is the send high-water mark of each connection: how many
	// messages may wait to be written. Beyond it Pub and Router drop and count;
	// Dealer waits.
	SendMessages int

	// MaxFrameBytes, MaxMessageBytes and MaxParts bound one received message:
	// the size of a frame, of all its frames together, and their number. A peer
	// that exceeds one is disconnected.
	MaxFrameBytes   int64
	MaxMessageBytes int64
	MaxParts        int

	// MaxBuffered bounds what all connections together may hold of received
	// messages, complete and incomplete, in bytes. Beyond it, a connection that
	// holds more than an equal share loses messages as at its high-water mark,
	// or is disconnected when it is one incomplete message that is too much.
	MaxBuffered int64

	// MaxPeers bounds the connections a bound socket accepts at one time. A
	// connection that is gone counts until Recv has taken what it left.
	MaxPeers int

	// DialTimeout bounds one attempt to connect, not the life of the socket.
	DialTimeout time.Duration

	// HandshakeTimeout bounds the handshake of one connection, whatever the
	// pace at which the peer sends.
	HandshakeTimeout time.Duration

	// HeartbeatInterval is how long a peer may send nothing before it is sent
	// a PING, and HeartbeatTimeout after how much silence it is given up. A
	// negative interval turns heartbeats off. Peers that speak ZMTP 3.0 do not
	// know PING: for them TCP keep-alive with the same times does the work.
	HeartbeatInterval time.Duration
	HeartbeatTimeout  time.Duration

	// ReconnectMin and ReconnectMax bound the wait before an endpoint is dialed
	// again. The wait doubles from attempt to attempt, and each is shortened by
	// up to a half at random, so that many subscribers do not return at once.
	ReconnectMin time.Duration
	ReconnectMax time.Duration

	// Linger is how long Close lets the peers take what is waiting to be
	// written. Zero drops it.
	Linger time.Duration

	// DialContext opens connections in place of net.Dialer, for tunnels and
	// tests. The network is "tcp" or "unix".
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)

	// Monitor is told of connections that come and go. Nil is nobody.
	Monitor Monitor
}

// Monitor is told what happens to the connections of a socket.
type Monitor interface {
	// ConnEvent is called by the goroutine that serves the connection. It may
	// be called by several goroutines at once, must return soon, and must not
	// call Close of the socket (which waits for that goroutine).
	ConnEvent(Event)
}

// EventKind says what an Event tells.
type EventKind uint8

const (
	// Connected: a handshake is complete; messages may follow.
	Connected EventKind = iota + 1
	// Disconnected: a connection ended; Err says why. A dialed endpoint is
	// dialed again after Retry.
	Disconnected
	// DialFailed: an endpoint did not answer; Err says why. It is dialed again
	// after Retry.
	DialFailed
	// HandshakeFailed: something answered that could not be spoken to; Err says
	// why. A dialed endpoint is dialed again after Retry.
	HandshakeFailed
	// Rejected: a bound socket closed a new connection at once, see Err.
	Rejected
	// Dropped: a queue that was not dropping began to drop messages.
	Dropped
)

var eventKindNames = [...]string{"invalid", "connected", "disconnected", "dial failed", "handshake failed", "rejected", "dropped"}

// String returns the kind in words.
func (k EventKind) String() string {
	if int(k) >= len(eventKindNames) {
		return eventKindNames[0]
	}
	return eventKindNames[k]
}

// Event tells one change of one connection.
type Event struct {
	Kind EventKind
	// Endpoint is the endpoint as given to Dial or as returned by Bind.
	Endpoint string
	// Peer is the number of the connection as in Message.Peer; zero when there
	// was none yet.
	Peer uint64
	// Remote is the network address of the peer, when known.
	Remote string
	// Err is the reason, see the kinds.
	Err error
	// Retry is the wait before the next dial; zero when there is none.
	Retry time.Duration
}

// WithDefaults returns the options with every zero field replaced by its default,
// or an *OptionError when a field is out of range. The constructors call it; it
// is exported for other transports.
func (o Options) WithDefaults() (Options, error) {
	if len(o.Identity) > 255 {
		return o, optionError("Identity", "%d bytes; at most 255 are accepted", len(o.Identity))
	}
	if o.Identity != "" && o.Identity[0] == 0 {
		return o, optionError("Identity", "begins with a zero byte, which is reserved for names a router makes up")
	}
	for _, f := range []struct {
		name string
		p    *int
		def  int
	}{
		{"ReceiveMessages", &o.ReceiveMessages, DefaultReceiveMessages},
		{"SendMessages", &o.SendMessages, DefaultSendMessages},
		{"MaxParts", &o.MaxParts, DefaultMaxParts},
		{"MaxPeers", &o.MaxPeers, DefaultMaxPeers},
	} {
		if *f.p < 0 {
			return o, optionError(f.name, "%d is negative; 0 means the default %d", *f.p, f.def)
		}
		if *f.p == 0 {
			*f.p = f.def
		}
	}
	for _, f := range []struct {
		name string
		p    *int64
		def  int64
	}{
		{"ReceiveBytes", &o.ReceiveBytes, DefaultReceiveBytes},
		{"MaxFrameBytes", &o.MaxFrameBytes, DefaultMaxFrameBytes},
		{"MaxMessageBytes", &o.MaxMessageBytes, DefaultMaxMessageBytes},
		{"MaxBuffered", &o.MaxBuffered, DefaultMaxBuffered},
	} {
		if *f.p < 0 {
			return o, optionError(f.name, "%d is negative; 0 means the default %d", *f.p, f.def)
		}
		if *f.p == 0 {
			*f.p = f.def
		}
	}
	// A buffer doubles, and its size must fit an int.
	o.MaxMessageBytes = min(o.MaxMessageBytes, math.MaxInt/4)
	for _, f := range []struct {
		name string
		p    *time.Duration
		def  time.Duration
	}{
		{"DialTimeout", &o.DialTimeout, DefaultDialTimeout},
		{"HandshakeTimeout", &o.HandshakeTimeout, DefaultHandshakeTimeout},
		{"HeartbeatTimeout", &o.HeartbeatTimeout, DefaultHeartbeatTimeout},
		{"ReconnectMin", &o.ReconnectMin, DefaultReconnectMin},
		{"ReconnectMax", &o.ReconnectMax, max(DefaultReconnectMax, o.ReconnectMin)},
		{"Linger", &o.Linger, 0},
	} {
		if err := checkDuration(f.name, *f.p); err != nil {
			return o, err
		}
		if *f.p == 0 {
			*f.p = f.def
		}
	}
	if o.HeartbeatInterval == 0 {
		o.HeartbeatInterval = min(DefaultHeartbeatInterval, o.HeartbeatTimeout/2)
	}
	if o.ReconnectMax < o.ReconnectMin {
		return o, optionError("ReconnectMax", "%v is below ReconnectMin %v", o.ReconnectMax, o.ReconnectMin)
	}
	if o.HeartbeatTimeout < o.HeartbeatInterval {
		return o, optionError("HeartbeatTimeout", "%v is below HeartbeatInterval %v", o.HeartbeatTimeout, o.HeartbeatInterval)
	}
	return o, nil
}
