package kveventstest

import (
	"context"
	"encoding/binary"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// Fault is what can happen to a batch on its way.
type Fault uint8

const (
	// Drop: it is not sent, as at the publisher's high-water mark; a replay
	// has it.
	Drop Fault = iota
	// Duplicate: it is sent twice.
	Duplicate
	// Reorder: it is sent after the next one.
	Reorder
	// Corrupt: its payload is cut off, live and in replays.
	Corrupt
	numFaults
)

// ReplayFaults is what can go wrong with replays, for as long as it is set.
type ReplayFaults struct {
	Silent   bool   // requests are not answered
	NoEnd    bool   // the end marker is missing
	EarlyEnd int    // so many of the last answers are missing
	Older    uint64 // answers begin so much before what was asked
	Hole     uint64 // the answer to every Hole-th sequence is missing; 0: none
}

// faults decides what happens to batches.
type faults struct {
	next    [numFaults]int
	held    []message // by Reorder or Stall
	stalled bool
	replay  ReplayFaults
}

func (f *faults) take(which Fault) bool {
	if f.next[which] > 0 {
		f.next[which]--
		return true
	}
	return false
}

func (f *faults) corrupt(m *message) {
	if f.take(Corrupt) {
		m.payload = m.payload[:len(m.payload)/2]
	}
}

// pass returns what is sent now in place of m.
func (f *faults) pass(m message) []message {
	switch {
	case f.take(Drop):
		return nil
	case f.stalled:
		f.held = append(f.held, m)
		return nil
	case f.take(Reorder):
		f.held = append(f.held, m)
		return nil
	}
	out := append([]message{m}, f.held...)
	f.held = nil
	if f.take(Duplicate) {
		out = append(out, m)
	}
	return out
}

// Inject makes a fault happen to the next n batches. A fault that is not known happens never.
func (e *Engine) Inject(f Fault, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f < numFaults {
		e.faults.next[f] += n
	}
}

// Stall holds live messages back; when it ends they are sent in one burst.
// Replays go on.
func (e *Engine) Stall(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.faults.stalled = on; !on {
		for _, m := range e.faults.held {
			e.send(m)
		}
		e.faults.held = nil
	}
}

// TruncateBuffer leaves the last keep batches in the replay buffer.
func (e *Engine) TruncateBuffer(keep int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.buffer = e.buffer[max(0, len(e.buffer)-max(0, keep)):]
}

// SetReplayFaults replaces the faults of replays.
func (e *Engine) SetReplayFaults(f ReplayFaults) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults.replay = f
}

// SendRaw sends a message of any frames, which no batch corresponds to:
// garbage, or wrong frames. The first frame should begin with the topic.
func (e *Engine) SendRaw(frames ...[]byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pub == nil {
		return zmtp.ErrClosed
	}
	return e.pub.Send(frames...)
}

// serveReplay answers replay requests until the router is closed.
func (e *Engine) serveReplay(router *zmtp.Router) {
	var m zmtp.Message
	for {
		if err := router.Recv(context.Background(), &m); err != nil {
			return
		}
		if n := len(m.Frames); n == 3 && len(m.Frames[1]) == 0 && len(m.Frames[2]) <= 8 {
			start := uint64(0) // engines take shorter numbers too
			for _, b := range m.Frames[2] {
				start = start<<8 | uint64(b)
			}
			e.answer(router, m.Frames[0], start)
		}
	}
}

func (e *Engine) answer(router *zmtp.Router, peer []byte, start uint64) {
	e.mu.Lock()
	f := e.faults.replay
	var out []message
	for _, m := range e.buffer {
		if m.seq+f.Older >= start && (f.Hole == 0 || m.seq%f.Hole != 0) {
			out = append(out, m)
		}
	}
	e.mu.Unlock()
	if f.Silent {
		return
	}
	send := func(topic string, seq uint64, payload []byte) {
		frames := [][]byte{peer, nil}
		if e.form.ReplayTopic() {
			frames = append(frames, []byte(topic))
		}
		router.Send(append(frames, binary.BigEndian.AppendUint64(nil, seq), payload)...)
	}
	for _, m := range out[:max(0, len(out)-f.EarlyEnd)] {
		send(e.o.Topic, m.seq, m.payload)
	}
	if !f.NoEnd {
		send("", ^uint64(0), nil)
	}
}
