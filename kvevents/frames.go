package kvevents

// Message is one published message.
type Message struct {
	Topic   []byte
	Seq     uint64 // counts batches from 0, per publisher process
	Payload []byte
}

// ParseMessage reads the three frames of a live message.
func ParseMessage(frames [][]byte) (Message, error) { return Message{}, nil }

// Reply is one message of a replay.
type Reply struct {
	Topic   []byte
	Seq     uint64
	Payload []byte
	End     bool // the end marker: nothing follows
}

// ParseReplay reads one reply of a replay.
func ParseReplay(frames [][]byte) (Reply, error) { return Reply{}, nil }
