// Package zmtp is a small, complete implementation of ZMTP 3.1, the wire
// protocol of ZeroMQ, in pure Go. It has the socket types that the event
// stream of an inference engine needs and no others: [Sub] and [Dealer] for
// those who listen, [Pub] and [Router] for those who play the engine.
//
// # What it speaks
//
// Greeting 3.1 and 3.0 (RFC 37 and RFC 23), security mechanism NULL,
// subscriptions as messages (3.0) and as commands (3.1), PING and PONG,
// multipart messages, tcp over IPv4 and IPv6, and ipc. All four sockets dial
// and bind. ZMTP 1 and 2 (libzmq before 4.0) are refused with a clear error, as
// are CURVE and PLAIN: for those, package kvevents/libzmq offers the same
// [Transport] on the C library.
//
// # What it promises
//
// A dialed endpoint is dialed again, with jittered exponential backoff, until
// Close; the peer need not exist yet. Subscriptions are sent again on every new
// connection.
//
// The goroutine that reads a connection never waits for the consumer. Each
// connection has a queue bounded in messages and in bytes; what does not fit is
// dropped, counted, and reported by [Sub.Recv] as a [*LossError] at its place
// in the stream, so that no loss stays unsaid. What the publisher drops at its
// own high-water mark, it does not tell: only sequence numbers inside the
// messages show that.
//
// Nothing a peer sends makes the package panic or hold more memory than the
// limits in [Options] allow: lengths are checked before anything is allocated,
// and a buffer grows only with bytes that have arrived. A handshake has a
// deadline. Peers of one socket are served in turn, each from its own queue, so
// one that floods does not displace the others; and what all of them may have
// buffered together is bounded by Options.MaxBuffered.
//
// # What it does not do
//
// It does not filter topics exactly: a ZeroMQ subscription is a byte prefix,
// and a subscriber to "kv@10.0.0.1" also receives "kv@10.0.0.10". It does not
// authenticate: whoever reaches a bound socket can publish to it.
//
// # Allocation
//
// A receive loop that passes the same [Message] to every Recv does not allocate
// in steady state; see Message for who owns the bytes.
package zmtp
