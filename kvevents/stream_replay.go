package kvevents

import (
	"bytes"
	"math"
	"time"

	"github.com/zeebo/xxh3"
)

// Request is a replay that a stream wants: ask the engine for everything from
// From on, and give every answer to Reply under this ID. A new ID means that
// the former replay is no longer wanted.
type Request struct {
	ID   uint64
	From uint64
}

// request is the replay under way.
type request struct {
	Request
	active bool
	// verify: the first answer must be the batch From, as we know it.
	verify bool
	// fresh: start over from what the engine keeps; what is known is cleared
	// when the first answer shows that it reaches further back.
	fresh bool
	hold  bool // even the next batch waits
	// proven: an answer agreed with something that we know, so that those which
	// go beyond it can be believed.
	proven   bool
	answered bool // an answer came
	sawLive  bool // a live batch shows where it may end
	progress bool // it filled something
	deadline time.Time
}

// Request returns the replay that is wanted now.
func (s *Stream) Request() (Request, bool) { return s.req.Request, s.req.active }

// Deadline returns when Tick is due; ok is false when nothing is.
func (s *Stream) Deadline() (t time.Time, ok bool) {
	earlier := func(d time.Time) {
		if !ok || d.Before(t) {
			t, ok = d, true
		}
	}
	if s.req.active {
		earlier(s.req.deadline)
	} else {
		if s.wants() {
			earlier(s.retryAt)
		}
		if !s.confirmAt.IsZero() {
			earlier(s.confirmAt)
		}
	}
	if s.over && s.o.OnLoss == DecayOnLoss {
		earlier(s.overAt.Add(s.o.Decay))
	}
	return t, ok
}

// Tick lets time pass: replays time out, failed ones are tried again, decayed
// knowledge is forgotten. It may be called at any time.
func (s *Stream) Tick(now time.Time) {
	if s.over && s.o.OnLoss == DecayOnLoss && now.Sub(s.overAt) >= s.o.Decay {
		s.base = s.next
		s.clear(ClearDecay)
	}
	if s.req.active && !now.Before(s.req.deadline) {
		s.fail(now, LossReplayFailed)
	}
	confirm := !s.confirmAt.IsZero() && !now.Before(s.confirmAt)
	if confirm && !s.req.active {
		s.confirmAt = time.Time{}
		s.behind = s.behind || s.started
	}
	if !s.req.active && s.wants() && s.mayAsk(now) {
		s.ask(now)
	}
}

// wants reports whether a replay would be of use although no batch waits.
func (s *Stream) wants() bool {
	return s.o.Replay && (s.unsure || s.behind || s.recover && (!s.started || s.missing || s.over))
}

func (s *Stream) mayAsk(now time.Time) bool { return s.o.Replay && !now.Before(s.retryAt) }

// ask starts the replay that the stream needs most.
func (s *Stream) ask(now time.Time) {
	if !s.mayAsk(now) {
		return
	}
	s.lastID++
	s.stats.Replays++
	r := request{Request: Request{ID: s.lastID, From: s.next}, active: true, deadline: now.Add(s.o.ConnectTimeout)}
	switch {
	case s.recover && s.started && (s.missing || s.over):
		r.From, r.fresh = 0, true
	case s.anchored && s.unsure:
		r.From, r.verify, r.hold = s.proof, true, true
	case s.anchored && (s.o.VerifyGaps || s.conn == 0 || s.behind || s.wait.empty()):
		// Nor is there a live batch behind the answers that would tell.
		r.From, r.verify, r.hold = s.anchor, true, true
	}
	r.sawLive = !s.wait.empty() && !s.behind // what waits is from before what was dropped
	r.proven = !s.anchored && s.wait.empty() // there is nothing to contradict
	s.recover, s.behind = false, false
	s.req = r
}

// Sent says that the request has left: the time to connect is over, the time
// to answer begins.
func (s *Stream) Sent(now time.Time, id uint64) {
	if s.req.active && s.req.ID == id {
		s.req.hold = s.req.hold || s.req.fresh
		s.req.deadline = now.Add(s.o.ReplayTimeout)
	}
}

func (s *Stream) endRequest() { s.req = request{} }

// Failed says that a replay cannot be had or broke off.
func (s *Stream) Failed(now time.Time, id uint64) {
	if s.req.active && s.req.ID == id {
		s.fail(now, LossReplayFailed)
	}
}

// Interrupted says that answers were lost on our side of a replay: it is asked
// again from where it got to, or has failed if it got nowhere.
func (s *Stream) Interrupted(now time.Time, id uint64) {
	switch {
	case !s.req.active || s.req.ID != id:
	case s.req.progress:
		s.endRequest()
		s.ask(now)
	default:
		s.fail(now, LossReplayFailed)
	}
}

// fail gives the replay up: live batches go on over the hole, and the replay
// is tried again after a pause.
func (s *Stream) fail(now time.Time, cause Cause) {
	if s.req.active {
		s.stats.Failures++
	}
	s.endRequest()
	s.recover = s.o.Replay
	s.backoff = min(max(2*s.backoff, s.o.RetryMin), s.o.RetryMax)
	// Up to a quarter less, so that many streams do not ask at once.
	spread := xxh3.HashStringSeed(s.o.Worker, s.stats.Failures<<32|uint64(uint32(s.o.Rank))) % 256
	s.retryAt = now.Add(s.backoff - s.backoff/1024*time.Duration(spread))
	s.advance(now, false, cause)
}

// Reply is given one answer of a replay.
func (s *Stream) Reply(now time.Time, id uint64, r Reply) {
	s.stats.Replies++
	if !s.req.active || s.req.ID != id {
		s.stats.Stray++
		return
	}
	s.req.deadline = now.Add(s.o.ReplayTimeout)
	if r.End {
		s.end(now)
		return
	}
	at, _ := payloadTime(r.Payload)
	if i, _ := s.wait.find(r.Seq); i > 0 && s.wait.all[i-1].time > at {
		// A live batch of a lower number is newer: the answer is from before a restart.
		s.fail(now, LossReplayFailed)
		return
	}
	first := !s.req.answered
	s.req.answered = true
	if first && s.req.fresh && !s.startOver(now, r.Seq) {
		return
	}
	if s.req.verify && r.Seq > s.req.From {
		s.unverifiable(now, r.Seq)
	}
	if r.Seq < s.next {
		s.repeated(now, r)
		return
	}
	if s.contradicts(r, at) {
		s.otherPublisher(now, at)
		return
	}
	if !s.req.proven {
		// It begins beyond all we have: a new engine's might too. What waits goes
		// on, and a replay that begins with the last of it follows.
		s.endRequest()
		s.behind = true
		s.advance(now, false, LossTruncated)
		return
	}
	s.fill(now, r, at, first)
	s.settle()
}

// contradicts compares an answer with the live batches that wait: one with the
// same number must be the same, and none with a higher number can be older, or
// they are of a publisher that died and a new one answers.
func (s *Stream) contradicts(r Reply, at float64) bool {
	i, there := s.wait.find(r.Seq)
	if there {
		if !bytes.Equal(s.wait.all[i].payload, r.Payload) {
			return true
		}
		s.req.proven = true
		i++
	}
	if i < len(s.wait.all) {
		if s.wait.all[i].time < at {
			return true
		}
		s.req.proven = true
	}
	return false
}

// repeated is given an answer that we had: the proof of who is speaking.
func (s *Stream) repeated(now time.Time, r Reply) {
	same, known := s.prints.same(r.Seq, fingerprint(r.Payload))
	switch {
	case known && !same:
		at, _ := payloadTime(r.Payload)
		s.otherPublisher(now, at)
	case known && s.req.verify:
		s.unsure, s.req.verify, s.req.hold, s.lastConn = false, false, false, s.conn
		s.req.proven = true
		if r.Seq >= s.lostEnd { // what they were given up for is the engine's
			s.lostEnd, s.strayed = 0, false
		}
		s.stats.Duplicates++
		s.confirm()
		s.advance(now, false, LossReplayEnd)
	default:
		s.req.proven = s.req.proven || known
		s.stats.Duplicates++
	}
}

// otherPublisher follows a replay that showed another publisher than the one
// we know, already alive at a time. Live batches from before that time, or from
// connections before the newest, are of the dead one.
func (s *Stream) otherPublisher(now time.Time, at float64) {
	s.wait.drop(func(w waiting) bool { return w.time < at || w.conn < s.conn })
	s.restart(at)
	if at > s.newest {
		s.newest = at
	}
	s.ask(now)
	s.advance(now, false, LossJoined)
}

// unverifiable follows a replay that was to begin with a batch we know, and
// begins later: more was published since than the engine keeps.
func (s *Stream) unverifiable(now time.Time, seq uint64) {
	s.req.verify, s.req.hold, s.req.proven = false, false, true
	s.unsure = false // a loss covers it from here on
	seq = max(seq, s.next)
	s.lose(now, s.next, seq-1, LossIdentity)
	s.next = seq
}

// startOver decides on the first answer of a fresh replay whether it tells
// more than is known, and if so clears.
func (s *Stream) startOver(now time.Time, seq uint64) bool {
	if seq >= s.base && !s.over {
		s.endRequest()
		if s.unsure {
			s.ask(now)
		}
		s.advance(now, true, LossJoined)
		return false
	}
	s.clear(ClearResync)
	s.missing, s.unsure = false, false
	s.prints, s.anchored, s.lostEnd, s.strayed = fingerprints{}, false, 0, false
	s.next, s.base = seq, seq
	s.req.fresh, s.req.hold, s.req.proven = false, false, true
	if seq > 0 {
		s.lose(now, 0, seq-1, LossTruncated)
	}
	return true
}

// fill applies an answer, and before it what waits with a lower number.
func (s *Stream) fill(now time.Time, r Reply, at float64, first bool) {
	cause := LossHole
	if first {
		cause = LossTruncated
		if !s.started {
			cause = LossJoined
		}
	}
	for !s.wait.empty() && s.wait.all[0].seq < r.Seq {
		s.skipTo(now, s.wait.all[0].seq, cause)
		s.apply(now, s.wait.pop())
	}
	s.skipTo(now, r.Seq, cause)
	s.apply(now, waiting{seq: r.Seq, conn: s.conn, time: at, payload: r.Payload})
	if s.replayed = at; at > s.newest {
		s.newest = at
	}
	s.req.progress = true
	s.backoff = 0
	s.advance(now, false, cause)
}

// skipTo gives up what is missing before seq.
func (s *Stream) skipTo(now time.Time, seq uint64, cause Cause) {
	if seq > s.next {
		s.lose(now, s.next, seq-1, cause)
		s.next = seq
	}
}

// settle ends a replay that is no longer needed: the live batches that waited
// for it have all been applied.
func (s *Stream) settle() {
	if !s.req.active {
		return
	}
	if s.req.sawLive && s.wait.empty() && !s.req.verify && !s.req.fresh {
		s.backoff = 0
		s.endRequest()
	}
}

// end follows the end marker.
func (s *Stream) end(now time.Time) {
	r := s.req
	if r.verify || r.fresh && s.anchored {
		// It has less than the batch we know, so it is not the one we know.
		at := s.lastTime
		if s.strayed { // or that batch was not its own, whatever its time
			at = math.Inf(-1)
		}
		s.otherPublisher(now, at)
		return
	}
	s.endRequest()
	s.backoff = 0
	s.started = true
	s.advance(now, r.progress, LossReplayEnd)
	if e, tells := s.sink.(Emptier); tells && s.next == 0 {
		e.Empty()
	}
}
