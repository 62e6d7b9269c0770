package zmtp

// Message is one received message.
//
// The zero value is ready for use. The frames belong to the socket and are valid
// until the same Message is passed to Recv again, which takes the memory back;
// use a second Message, or copy, to keep them longer. A Message must not be used
// by two goroutines at once, nor copied while in use.
type Message struct {
	// Frames are the parts of the message, at least one after a successful
	// Recv. For a Router the first is the identity of the sender.
	Frames [][]byte

	// Peer numbers the connection the message came by: never zero, never used
	// twice by one socket. Publishers that share a bound socket are told apart
	// by it, and a new number from a dialed endpoint means a new connection.
	// Zero when the transport cannot tell (libzmq).
	Peer uint64

	p *packet // owns the memory of Frames; nil when the caller does
}

// Bytes returns the number of bytes in all frames together.
func (m *Message) Bytes() int {
	n := 0
	for _, f := range m.Frames {
		n += len(f)
	}
	return n
}
