package conform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents"
)

// sglangPublisher is one publisher of a file of frames: what it published live, then
// its answers to replays.
type sglangPublisher struct {
	line    int
	page    int
	buffer  int
	topic   []byte
	live    []recording.SessionOp
	replays []recording.SessionOp
}

// publishersOf splits a file of frames.
func publishersOf(s *recording.Session) (all []sglangPublisher, err error) {
	for i := range s.Ops {
		op := s.Ops[i]
		if op.Op == "publisher" {
			all = append(all, sglangPublisher{line: op.Line, page: op.PageSize, buffer: op.BufferSteps, topic: []byte(op.Topic)})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("line %d: %q before a publisher", op.Line, op.Op)
		}
		p := &all[len(all)-1]
		switch op.Op {
		case "live":
			m, err := kvevents.ParseMessage(op.Frames)
			if err == nil && (m.Seq != uint64(len(p.live)) || !bytes.Equal(m.Topic, p.topic)) {
				err = fmt.Errorf("sequence %d of topic %q, want %d of %q", m.Seq, m.Topic, len(p.live), p.topic)
			}
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", op.Line, err)
			}
			p.live = append(p.live, op)
		case "replay":
			for _, frames := range op.Replies {
				if r, err := kvevents.ParseReplay(frames); err != nil || !r.End && !p.published(r) {
					return nil, fmt.Errorf("line %d: a reply that was not published (sequence %d, %v)", op.Line, r.Seq, err)
				}
			}
			p.replays = append(p.replays, op)
		}
	}
	for i := range all {
		p := &all[i]
		if len(p.live) == 0 || p.page < 1 || p.buffer < 1 {
			return nil, fmt.Errorf("line %d: a publisher with page size %d, a buffer of %d and %d messages", p.line, p.page, p.buffer, len(p.live))
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no publisher: not a file of frames")
	}
	return all, nil
}

// published tells whether a reply is a live message.
func (p *sglangPublisher) published(r kvevents.Reply) bool {
	return r.Seq < uint64(len(p.live)) && bytes.Equal(r.Payload, p.live[r.Seq].Payload)
}

// sglangFrames collects the messages of a file of frames, live and replayed.
func sglangFrames(file []byte, s *recording.Session) (out []message, err error) {
	first, _, _ := bytes.Cut(file, []byte("\n"))
	var h sglangHeader
	if err := json.Unmarshal(first, &h); err != nil {
		return nil, err
	}
	all, err := publishersOf(s)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		h.PageSize = p.page
		judge, err := newSGLangEvents(h)
		if err != nil {
			return nil, err
		}
		for _, op := range p.live {
			out = append(out, message{where: fmt.Sprintf("line %d", op.Line), frames: op.Frames, judge: judge})
		}
		for _, op := range p.replays {
			for i, frames := range op.Replies {
				out = append(out, message{where: fmt.Sprintf("line %d, reply %d", op.Line, i), frames: frames, reply: true})
			}
		}
	}
	return out, nil
}

// sglangReplay checks the replays of a file of frames: as [Replay] does, and that each
// answer is what was published live, from the start asked for or the oldest that the
// buffer still has, to the last.
func sglangReplay(res *Result, s *recording.Session) *Result {
	all, err := publishersOf(s)
	if err != nil {
		return Broken(res.Check, res.File, err)
	}
	most := 0
	for _, p := range all {
		most = max(most, len(p.replays))
	}
	var missing []string
	for _, p := range all {
		if n := len(p.replays); n < most {
			missing = append(missing, fmt.Sprintf("%d replays of the publisher at line %d", most-n, p.line))
		}
		for i := range p.replays {
			op := &p.replays[i]
			op.Label = fmt.Sprintf("replay from %s", op.Start)
			run := replayRun{res: res, request: op}
			for _, frames := range op.Replies {
				run.next(&recording.SessionOp{Op: "replay_reply", Line: op.Line, Frames: frames})
			}
			run.finish()
			p.compare(&run)
		}
		res.What += fmt.Sprintf("%d live messages and %d replays, ", len(p.live), len(p.replays))
	}
	res.What += fmt.Sprintf("of %d publishers", len(all))
	res.incomplete(missing)
	return res.sound()
}

// compare checks that a replay, whose messages are those of the live ones, is all of
// what was asked for and kept.
func (p *sglangPublisher) compare(r *replayRun) {
	start, err := startOf(r.request)
	if err != nil {
		return // finish said so
	}
	first := max(start, uint64(max(len(p.live)-p.buffer, 0)))
	want := max(len(p.live)-int(min(first, uint64(len(p.live)))), 0)
	if r.request.Socket == "REQ" {
		want = min(want, 1)
	}
	if len(r.replies) != want {
		r.fail(r.request, fmt.Sprintf("%d batches", want), fmt.Sprint(len(r.replies)))
		return
	}
	for i, reply := range r.replies {
		if reply.Seq != first+uint64(i) {
			r.fail(r.request, fmt.Sprintf("sequence %d", first+uint64(i)), fmt.Sprint(reply.Seq))
			return
		}
	}
	r.res.pass()
}
