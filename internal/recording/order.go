package recording

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// publishers follows the sequence numbers of recorded live messages, by rank
// and process: a recording with a hole in it proves nothing.
type publishers map[publisher]int64

type publisher struct{ rank, server int }

// next returns the sequence of a live message: of its line where the recorder
// noted it, else of its frames. A session with a meta line was recorded from its
// publisher's first message on.
func (p *publishers) next(l *sessionLine, op *SessionOp, whole bool) (int64, error) {
	if op.Op != "event" {
		if l.Seq == nil {
			return 0, nil
		}
		return *l.Seq, nil
	}
	var seq int64
	framed := len(op.Frames) == 3 && len(op.Frames[1]) == 8
	if framed {
		seq = int64(binary.BigEndian.Uint64(op.Frames[1]))
	}
	switch {
	case l.Seq != nil && framed && seq != *l.Seq:
		return 0, fmt.Errorf("seq %d, but %d in the frames", *l.Seq, seq)
	case l.Seq != nil:
		seq = *l.Seq
	case len(op.Frames) == 0:
		return 0, errors.New("an event without seq")
	case !framed:
		return 0, nil // frames of no known layout: for whoever decodes them to say
	}
	if *p == nil {
		*p = publishers{}
	}
	from := publisher{op.PortOffset, op.Server}
	last, seen := (*p)[from]
	want := last + 1
	if !seen {
		want = 0
	}
	if (seen || whole) && seq != want {
		return 0, fmt.Errorf("rank %d: seq %d, want %d: the recording is not whole", op.PortOffset, seq, want)
	}
	(*p)[from] = seq
	return seq, nil
}

// traceOrder follows the numbers of a trace's messages and prompts, which begin at 0.
type traceOrder struct {
	messages int64
	prompts  map[string]bool
}

func (o *traceOrder) next(op *TraceOp) error {
	switch op.Op {
	case "events":
		if op.Seq != o.messages {
			return fmt.Errorf("message %d, want %d: the recording is not whole", op.Seq, o.messages)
		}
		o.messages++
	case "query", "arrive": // a prompt that arrived is looked up later
		if want := fmt.Sprint("q", len(o.prompts)); op.ID != want && !o.prompts[op.ID] {
			return fmt.Errorf("prompt %q, want %q: the recording is not whole", op.ID, want)
		}
		o.prompts[op.ID] = true
	}
	return nil
}
