package kvevents

import "fmt"

type constError string

func (e constError) Error() string { return string(e) }

// Conditions of a payload that make it unreadable as a whole. They are
// wrapped in a [*DecodeError].
const (
	// ErrTruncated is returned when the payload ends inside a value.
	ErrTruncated = constError("payload is cut off")
	// ErrInvalid is returned for a byte that begins no msgpack value.
	ErrInvalid = constError("not msgpack (byte 0xc1)")
	// ErrTrailing is returned when bytes follow the batch.
	ErrTrailing = constError("bytes after the end of the batch")
	// ErrNotBatch is returned when the payload is msgpack but no batch: want
	// [timestamp, events, rank or nil] or a map with ts, events and
	// data_parallel_rank or attn_dp_rank.
	ErrNotBatch = constError("not a batch of [timestamp, events, rank]")
	// ErrLimit is returned when the payload or its list of events is larger
	// than [Limits] allow.
	ErrLimit = constError("over a limit")
)

// ErrNoBatch is returned by Decode when there is no batch to decode into.
const ErrNoBatch = constError("kvevents: Decode needs a Batch to decode into, got nil")

// DecodeError says why a payload could not be read, and where.
type DecodeError struct {
	Offset int   // in the payload, bytes
	Err    error // one of the conditions above
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("kvevents: payload: %v (at byte %d)", e.Err, e.Offset)
}

func (e *DecodeError) Unwrap() error { return e.Err }

// FrameError says why the frames of a message or of a replay reply could not
// be read.
type FrameError struct {
	Frames int    // how many there were
	Reason string // what is wrong, and what is accepted
}

func (e *FrameError) Error() string { return "kvevents: " + e.Reason }
