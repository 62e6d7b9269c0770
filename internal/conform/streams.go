package conform

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents"
)

// log is a sink that writes down what a stream did.
type log struct {
	applied  []uint64
	restarts []int // how many batches had been applied at each
	clears   int
	losses   []kvevents.Loss
}

func (l *log) Apply(seq uint64, _ *kvevents.Batch) { l.applied = append(l.applied, seq) }
func (l *log) Lost(loss kvevents.Loss)             { l.losses = append(l.losses, loss) }
func (l *log) Clear(c kvevents.ClearCause) {
	l.clears++
	if c == kvevents.ClearRestart {
		l.restarts = append(l.restarts, len(l.applied))
	}
}

// Replay checks a recording of replays: every reply is of a known layout and
// decodes, sequences follow each other from where the replay starts, the end
// marker comes last, and a stream that asked for it applies each batch once. A
// replay that starts later than asked is what an engine gives whose buffer does
// not reach back: it is noted, and the stream must say so.
func Replay(name string, r io.Reader) *Result {
	const check = "replay"
	s, err := recording.ReadSession(r)
	if err != nil {
		return Broken(check, name, err)
	}
	res := &Result{File: name, Check: check}
	if len(s.Ops) > 0 && s.Ops[0].Op == "publisher" {
		return sglangReplay(res, s)
	}
	replays := 0
	for i := range s.Ops {
		if s.Ops[i].Op != "replay_request" {
			continue
		}
		replays++
		run := replayRun{res: res, request: &s.Ops[i]}
		for j := i + 1; j < len(s.Ops) && s.Ops[j].Op != "replay_request"; j++ {
			run.next(&s.Ops[j])
		}
		run.finish()
	}
	res.What = fmt.Sprintf("%d replays", replays)
	if replays == 0 {
		return Broken(check, name, fmt.Errorf("no replay_request: not a recording of replays"))
	}
	return res
}

// replayRun is one request and what came of it.
type replayRun struct {
	res     *Result
	request *recording.SessionOp
	replies []kvevents.Reply
	ended   bool // the end marker came
	layouts map[int]int
	done    *recording.SessionOp
}

func (r *replayRun) fail(op *recording.SessionOp, want, got string) {
	r.res.fail(Difference{Where: fmt.Sprintf("line %d, %q", op.Line, r.request.Label), Want: want, Got: got})
}

// next takes one line of the recording.
func (r *replayRun) next(op *recording.SessionOp) {
	switch op.Op {
	case "replay_done":
		r.done = op
	case "replay_reply":
		reply, ok := r.reply(op)
		if !ok {
			return
		}
		if r.ended {
			r.fail(op, "nothing after the end marker", fmt.Sprintf("sequence %d", reply.Seq))
			return
		}
		if r.ended = reply.End; !reply.End {
			r.replies = append(r.replies, reply)
		}
		r.res.pass()
	case "replay_reply_after_second_send":
		// A REQ socket asked again: one reply of a new replay, the rest is lost.
		if _, ok := r.reply(op); ok {
			r.res.pass()
		}
	}
}

// reply reads and decodes one reply.
func (r *replayRun) reply(op *recording.SessionOp) (kvevents.Reply, bool) {
	reply, err := kvevents.ParseReplay(op.Frames)
	if err == nil && !reply.End {
		var b kvevents.Batch
		if err = new(kvevents.Decoder).Decode(reply.Payload, &b); err == nil && len(b.Malformed) > 0 {
			err = fmt.Errorf("malformed event: %s", b.Malformed[0].Reason)
		}
	}
	if err != nil {
		r.fail(op, "a reply", err.Error())
		return reply, false
	}
	if r.layouts == nil {
		r.layouts = map[int]int{}
	}
	r.layouts[len(op.Frames)]++
	return reply, true
}

// finish checks the replay as a whole.
func (r *replayRun) finish() {
	start, err := startOf(r.request)
	if err != nil {
		r.fail(r.request, "a start sequence", err.Error())
		return
	}
	for i, reply := range r.replies {
		if i == 0 && reply.Seq < start || i > 0 && reply.Seq != r.replies[i-1].Seq+1 {
			r.fail(r.request, "sequences that follow each other from the start on", fmt.Sprintf("%d at place %d", reply.Seq, i))
			return
		}
	}
	if r.request.Socket == "DEALER" && r.done == nil && !r.ended {
		r.fail(r.request, "replies to an end marker, or a replay_done", fmt.Sprintf("%d replies", len(r.replies)))
		return
	}
	if r.done != nil && r.done.Messages != 0 && r.done.Messages != len(r.replies)+btoi(r.ended) {
		r.fail(r.done, fmt.Sprintf("%d messages", r.done.Messages), fmt.Sprint(len(r.replies)+btoi(r.ended)))
		return
	}
	if r.done != nil && r.done.EndMarkerSeen != r.ended {
		r.fail(r.done, fmt.Sprintf("end marker seen: %v", r.done.EndMarkerSeen), fmt.Sprint(r.ended))
		return
	}
	if len(r.replies) > 0 && r.replies[0].Seq > start {
		r.res.note("%q: asked from %d, the buffer starts at %d: %d batches had left it", r.request.Label, start, r.replies[0].Seq, r.replies[0].Seq-start)
	}
	if r.request.Socket == "DEALER" {
		r.throughStream()
		return
	}
	r.res.note("%q: a %s socket gets one reply of a replay", r.request.Label, r.request.Socket)
	r.res.pass()
}

// throughStream lets a stream that missed the batches ask for them.
func (r *replayRun) throughStream() {
	var l log
	s, err := kvevents.NewStream(kvevents.StreamOptions{Replay: true}, &l)
	if err != nil {
		r.fail(r.request, "a stream", err.Error())
		return
	}
	now := time.Unix(0, 0)
	s.Connected(now, 1)
	req, ok := s.Request()
	if !ok || req.From != 0 {
		r.fail(r.request, "a new stream that asks from 0", fmt.Sprintf("%v, from %d", ok, req.From))
		return
	}
	s.Sent(now, req.ID)
	for _, reply := range r.replies {
		s.Reply(now, req.ID, reply)
	}
	s.Reply(now, req.ID, kvevents.Reply{End: true})
	for i, reply := range r.replies {
		if i >= len(l.applied) || l.applied[i] != reply.Seq {
			r.fail(r.request, fmt.Sprintf("each of %d batches applied once, in order", len(r.replies)), fmt.Sprint(l.applied))
			return
		}
	}
	if len(l.applied) != len(r.replies) {
		r.fail(r.request, fmt.Sprintf("%d batches applied", len(r.replies)), fmt.Sprint(len(l.applied)))
		return
	}
	if len(r.replies) > 0 && r.replies[0].Seq > 0 {
		want := kvevents.Loss{From: 0, To: r.replies[0].Seq - 1, Cause: kvevents.LossJoined}
		if len(l.losses) != 1 || l.losses[0] != want {
			r.fail(r.request, want.Error(), fmt.Sprint(l.losses))
			return
		}
	}
	r.res.pass()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// startOf reads the sequence asked for: a number, or the bytes sent in hex.
func startOf(op *recording.SessionOp) (uint64, error) {
	var n uint64
	if json.Unmarshal(op.Start, &n) == nil {
		return n, nil
	}
	if len(op.Frames) == 0 {
		return 0, fmt.Errorf("start %s", op.Start)
	}
	sent := op.Frames[len(op.Frames)-1]
	if len(sent) > 8 {
		return 0, fmt.Errorf("start of %d bytes: %s", len(sent), base64.StdEncoding.EncodeToString(sent))
	}
	var b [8]byte
	copy(b[8-len(sent):], sent)
	return binary.BigEndian.Uint64(b[:]), nil
}

// Restart checks a recording of an engine that was killed and started again
// under a subscriber that stayed: a stream applies each message once and finds
// exactly one restart, before the first message of the second engine.
func Restart(name string, r io.Reader) *Result {
	const check = "restart"
	s, err := recording.ReadSession(r)
	if err != nil {
		return Broken(check, name, err)
	}
	res := &Result{File: name, Check: check}
	var l log
	stream, err := kvevents.NewStream(kvevents.StreamOptions{}, &l)
	if err != nil {
		return Broken(check, name, err)
	}
	now := time.Unix(0, 0)
	stream.Connected(now, 1)
	messages, before, restarted := 0, 0, false
	for i := range s.Ops {
		op := &s.Ops[i]
		switch op.Op {
		case "server_killed_and_restarted":
			restarted, before = true, messages
		case "event":
			m, err := kvevents.ParseMessage(op.Frames)
			if err != nil {
				res.fail(Difference{Where: fmt.Sprintf("line %d", op.Line), Want: "a message", Got: err.Error()})
				continue
			}
			messages++
			stream.Message(now, 1, m)
			if len(l.applied) == messages && l.applied[messages-1] == m.Seq {
				res.pass()
			} else {
				res.fail(Difference{Where: fmt.Sprintf("line %d", op.Line), Want: fmt.Sprintf("sequence %d applied, once", m.Seq), Got: fmt.Sprint(l.applied)})
			}
		}
	}
	if !restarted {
		return Broken(check, name, fmt.Errorf("no server_killed_and_restarted: not a recording of a restart"))
	}
	res.What = fmt.Sprintf("%d messages before the kill, %d after", before, messages-before)
	if len(l.restarts) == 1 && l.restarts[0] == before && stream.Status(now).State == kvevents.Live {
		res.note("one restart, found at message %d; the state is live again", before+1)
		res.pass()
	} else {
		res.fail(Difference{
			Where: "restart", Want: fmt.Sprintf("one, after %d messages, and the stream live", before),
			Got: fmt.Sprintf("after %v messages, %s", l.restarts, stream.Status(now).State),
		})
	}
	return res
}
