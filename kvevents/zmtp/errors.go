package zmtp

import (
	"fmt"
	"time"
)

// constError is an error that is a constant, so that no importer can replace it.
type constError string

func (e constError) Error() string { return string(e) }

// Conditions that callers test for with errors.Is.
const (
	// ErrClosed is returned by every method of a socket after its Close.
	ErrClosed = constError("zmtp: socket is closed")

	// ErrUnroutable is returned by Router.Send when no connected peer has the
	// identity of the first frame.
	ErrUnroutable = constError("zmtp: no connected peer has this identity")

	// ErrNoFrames is returned by Send when there is nothing to send: a message
	// has at least one frame (which may be empty), and for a Router at least
	// two, the first being the identity of the receiver.
	ErrNoFrames = constError("zmtp: message has too few frames")

	// ErrPeerSilent is the reason of a Disconnected event when the peer sent
	// nothing, not even an answer to PING, for Options.HeartbeatTimeout: a
	// half-open connection.
	ErrPeerSilent = constError("zmtp: peer is silent")

	// ErrTooManyPeers is the reason of a Rejected event when a bound socket
	// already has Options.MaxPeers connections.
	ErrTooManyPeers = constError("zmtp: too many peers")

	// ErrTopicTooLong is returned by Subscribe for a topic that no ZMTP peer of
	// this package would accept: more than 32 KiB.
	ErrTopicTooLong = constError("zmtp: topic is longer than 32 KiB")

	errIdentityInUse = constError("zmtp: another peer has this identity")

	// ErrTooManySubscriptions is the reason of a Disconnected event when a peer
	// of a Pub held more subscriptions than the socket allows one peer.
	ErrTooManySubscriptions = constError("zmtp: too many subscriptions of one peer")
)

// LossError is returned by Recv when messages of a peer had to be dropped
// because the consumer was slower than the peer and the queue of the connection
// was full. It stands at the place of the loss: after every message of that peer
// that came before, and before every one that came after.
//
// It does not end the stream; the next Recv goes on. A consumer that keeps state
// must treat it as a gap, for example by asking for a replay.
type LossError struct {
	// Peer is the connection whose messages were dropped, as in Message.Peer.
	Peer uint64
	// Messages is how many were dropped, at least 1.
	Messages uint64
}

// Error tells the number of messages and the connection.
func (e *LossError) Error() string {
	return fmt.Sprintf("zmtp: %d messages of peer %d dropped at the receive high-water mark", e.Messages, e.Peer)
}

// EndpointError is returned by Dial and Bind for an endpoint that cannot be
// used. Its text says what is accepted.
type EndpointError struct {
	// Endpoint is the text that was given.
	Endpoint string
	// Reason says what is wrong and what is accepted.
	Reason string
}

// Error quotes the endpoint and gives the reason.
func (e *EndpointError) Error() string {
	return fmt.Sprintf("zmtp: endpoint %q: %s", e.Endpoint, e.Reason)
}

// BindError is returned by Bind when the system refuses the address.
type BindError struct {
	// Endpoint is the text that was given.
	Endpoint string
	// Err is the reason of the system.
	Err error
}

// Error names the endpoint and gives the reason.
func (e *BindError) Error() string { return fmt.Sprintf("zmtp: bind %q: %v", e.Endpoint, e.Err) }

// Unwrap returns the reason of the system.
func (e *BindError) Unwrap() error { return e.Err }

// OptionError is returned by the constructors for an option outside its range.
type OptionError struct {
	// Option is the name of the field of Options.
	Option string
	// Reason says what was given and what is accepted.
	Reason string
}

// Error names the option and gives the reason.
func (e *OptionError) Error() string {
	return fmt.Sprintf("zmtp: option %s: %s", e.Option, e.Reason)
}

// ProtocolError is the reason of a HandshakeFailed or Disconnected event when
// the peer did not speak ZMTP 3 with the NULL mechanism, or spoke it wrongly.
type ProtocolError struct {
	// Reason says what the peer sent and what was expected.
	Reason string
}

// Error gives the reason.
func (e *ProtocolError) Error() string { return "zmtp: " + e.Reason }

// LimitError is the reason of a Disconnected event when the peer exceeded a
// limit of Options. The connection is closed because the stream cannot be
// followed past the excess without reading it.
type LimitError struct {
	// What is exceeded: "frame bytes", "message bytes", "message parts",
	// "command bytes", or "buffered bytes" for more than the share of the
	// connection in Options.MaxBuffered.
	What string
	// Got is what the peer announced or sent, Limit the most that is accepted.
	Got, Limit uint64
}

// Error tells what was exceeded by how much.
func (e *LimitError) Error() string {
	return fmt.Sprintf("zmtp: peer sent or announced %d %s, the limit is %d", e.Got, e.What, e.Limit)
}

// PeerError is the reason of a HandshakeFailed or Disconnected event when the peer refused the
// connection with an ERROR command.
type PeerError struct {
	// Reason is the text the peer gave; it comes from the network.
	Reason string
}

// Error quotes the peer.
func (e *PeerError) Error() string { return fmt.Sprintf("zmtp: peer refused: %q", e.Reason) }

func protocolErrorf(format string, args ...any) error {
	return &ProtocolError{Reason: fmt.Sprintf(format, args...)}
}

func optionError(option, format string, args ...any) error {
	return &OptionError{Option: option, Reason: fmt.Sprintf(format, args...)}
}

// checkDuration reports a negative duration of an option that has no "off".
func checkDuration(option string, d time.Duration) error {
	if d < 0 {
		return optionError(option, "%v is negative; 0 means the default", d)
	}
	return nil
}
