package kvevents

import (
	"encoding/binary"
	"fmt"
)

// Message is one live message of a publisher. Its slices are those of the
// frames it was parsed from.
type Message struct {
	Topic   []byte
	Seq     uint64 // counts batches from 0, +1 each, per publisher process
	Payload []byte // for Decoder.Decode
}

// endSeq is the sequence of the end marker of a replay: -1.
const endSeq = ^uint64(0)

// ParseMessage reads the frames of a live message as a SUB socket receives
// them: topic (may be empty), sequence (8 bytes, big-endian), payload. The
// error is a [*FrameError]. It is safe on untrusted input and does not
// allocate unless it fails.
func ParseMessage(frames [][]byte) (Message, error) {
	if len(frames) != 3 {
		return Message{}, frameErrorf(frames, "message of %d frames, want 3: topic, 8-byte sequence, payload", len(frames))
	}
	m := Message{Topic: frames[0], Payload: frames[2]}
	var err error
	if m.Seq, err = parseSeq(frames, frames[1]); err != nil {
		return Message{}, err
	}
	if m.Seq == endSeq {
		return Message{}, frameErrorf(frames, "message with sequence -1, which only ends a replay; want a count from 0")
	}
	if len(m.Payload) == 0 {
		return Message{}, frameErrorf(frames, "message with an empty payload, want topic, 8-byte sequence, payload")
	}
	return m, nil
}

// Reply is one message of a replay. Its slices are those of the frames it was
// parsed from.
type Reply struct {
	Topic   []byte // nil from releases that send none (vLLM before 0.26, SGLang before 0.5.22)
	Seq     uint64
	Payload []byte
	End     bool // the end marker: nothing follows; Seq and Payload mean nothing
}

// ParseReplay reads the frames of a reply as a DEALER socket receives them:
// an empty frame, then sequence and payload, or topic, sequence and payload,
// by release. A REQ socket gets either without the empty frame; this is read
// too, from the end, so that the number of frames need not be known. The end
// marker has sequence -1 and no payload. The error is a [*FrameError]. It is
// safe on untrusted input and does not allocate unless it fails.
func ParseReplay(frames [][]byte) (Reply, error) {
	const want = "want an empty frame, a topic in newer releases, 8-byte sequence, payload"
	n := len(frames)
	if n < 2 || n > 4 {
		return Reply{}, frameErrorf(frames, "replay reply of %d frames, %s", n, want)
	}
	if n == 4 && len(frames[0]) != 0 {
		return Reply{}, frameErrorf(frames, "replay reply of 4 frames whose first is not empty, %s", want)
	}
	seq, err := parseSeq(frames, frames[n-2])
	if err != nil {
		return Reply{}, err
	}
	r := Reply{Seq: seq, Payload: frames[n-1], End: seq == endSeq}
	if n == 4 || n == 3 && len(frames[0]) != 0 {
		r.Topic = frames[n-3]
	}
	if r.End != (len(r.Payload) == 0) {
		return Reply{}, frameErrorf(frames, "replay reply with sequence %d and a payload of %d bytes; only the end marker, sequence -1, has none", int64(seq), len(r.Payload))
	}
	return r, nil
}

func parseSeq(frames [][]byte, f []byte) (uint64, error) {
	if len(f) != 8 {
		return 0, frameErrorf(frames, "sequence frame of %d bytes, want 8, big-endian", len(f))
	}
	return binary.BigEndian.Uint64(f), nil
}

func frameErrorf(frames [][]byte, format string, args ...any) *FrameError {
	return &FrameError{Frames: len(frames), Reason: fmt.Sprintf(format, args...)}
}
