package kvevents

import (
	"bytes"
	"math"
	"time"
)

// Connected says that the live connection was made or made again. Connections
// are numbered upward; 0 means that the transport cannot tell them apart, and
// every gap is then verified. The first one starts a replay, a later one has
// the publisher's identity checked.
func (s *Stream) Connected(now time.Time, conn uint64) {
	s.connect(conn)
	s.retryAt = time.Time{} // who connects may well answer replays
	if s.o.Replay {
		s.confirmAt = now.Add(s.o.ConnectTimeout)
	}
	if !s.req.active && (!s.started || s.unsure || s.behind) {
		s.ask(now)
	}
}

func (s *Stream) connect(conn uint64) {
	if conn <= s.conn {
		return
	}
	renewed := s.conn != 0
	s.conn = conn
	if !renewed {
		return
	}
	if s.req.active { // its answers may be those of another publisher
		s.recover = s.recover || s.req.fresh
		s.behind = true
		s.endRequest()
	}
	if s.anchored {
		s.doubt()
	}
}

// doubt remembers that the next batch may be of another publisher.
func (s *Stream) doubt() {
	if !s.unsure {
		s.unsure, s.proof = true, s.anchor
	}
}

// crosses doubts when a batch came over a later connection than the one applied
// before it.
func (s *Stream) crosses(conn uint64) {
	if s.anchored && s.lastConn != 0 && conn > s.lastConn {
		s.doubt()
	}
}

// Message is given a live message, and the number of the connection it came
// over. Messages of one connection must be given in the order of arrival.
func (s *Stream) Message(now time.Time, conn uint64, m Message) {
	s.stats.Messages++
	if m.Seq == math.MaxUint64 { // the end marker's, of no batch
		s.Garbage()
		return
	}
	at, ok := payloadTime(m.Payload)
	if !ok {
		at = math.NaN()
	}
	if at < s.replayed || conn < s.conn && m.Seq >= s.tail() && at < s.newest {
		// Known from a replay, or left over from a publisher that is gone. Or the
		// engine's clock was set back: the next replay tells.
		s.stats.Duplicates++
		if m.Seq >= s.next {
			if s.anchored {
				s.doubt()
			} else {
				s.behind = s.o.Replay
			}
			if !s.req.active {
				s.ask(now)
			}
		}
		return
	}
	s.connect(conn)
	s.behind = s.behind && s.o.Replay
	s.confirmAt = time.Time{}
	w := waiting{seq: m.Seq, conn: conn, time: at, payload: m.Payload}
	if m.Seq < s.tail() {
		switch {
		case s.fromAnother(w):
			floor := s.lastTime
			if w.time < floor { // its clock is behind
				floor = math.Inf(-1)
			}
			s.restart(floor)
			s.wait.drop(func(waiting) bool { return true })
		case m.Seq < s.next && s.isStray(w) && s.disowned(now, w.seq):
			s.restart(math.Inf(-1))
		case m.Seq < s.next:
			s.stats.Duplicates++
			return
		default: // a late one fills its hole, a second one changes nothing
			if _, there := s.wait.find(m.Seq); there {
				s.stats.Duplicates++
				return
			}
		}
	} else if m.Seq > s.tail() {
		s.stats.Gaps++
	}
	if at > s.newest {
		s.newest = at
	}
	if m.Seq == s.next && s.wait.empty() && !s.holds(now) {
		s.req.sawLive = true
		s.apply(now, w)
		s.settle()
		return
	}
	s.wait.add(w)
	s.req.sawLive = true
	s.advance(now, true, LossJoined)
	s.req.sawLive = true
	if len(s.wait.all) > s.o.PendingBatches || s.wait.bytes > s.o.PendingBytes {
		s.fail(now, LossPending)
	}
}

// Dropped says that messages were lost on our side of the live connection. It
// asks for a replay at once: without it only the next message would show the
// gap.
func (s *Stream) Dropped(now time.Time) {
	s.stats.Gaps++
	s.behind = true
	if !s.req.active { // else when that one is over: it may have been asked too early
		s.ask(now)
	}
}

// Garbage counts a message or reply whose frames could not be parsed. It
// carries no sequence, so it changes nothing; if a batch is missing because of
// it, the next one shows the gap.
func (s *Stream) Garbage() { s.stats.Garbage++ }

// tail is the sequence after the last batch that waits or was applied.
func (s *Stream) tail() uint64 {
	if n := len(s.wait.all); n > 0 {
		return s.wait.all[n-1].seq + 1
	}
	return s.next
}

// fromAnother reports whether a batch whose sequence went back is of a new
// publisher: it is newer than all we know, or not what we had under its number.
func (s *Stream) fromAnother(w waiting) bool {
	if w.time > s.newest {
		return true
	}
	if i, there := s.wait.find(w.seq); there {
		return w.conn >= s.wait.all[i].conn && !bytes.Equal(w.payload, s.wait.all[i].payload)
	}
	same, known := s.prints.same(w.seq, fingerprint(w.payload))
	return s.anchored && w.seq < s.next && known && !same && w.conn >= s.conn
}

// isStray reports whether a batch was given up for one beyond it that came before: over a
// connection that keeps the order, one of the two is not the engine's.
func (s *Stream) isStray(w waiting) bool {
	if w.seq < s.lost || w.seq >= s.lostEnd || w.conn < s.conn {
		return false
	}
	same, _ := s.prints.same(w.seq, fingerprint(w.payload))
	return !same
}

// disowned reports, given a stray, whether the batch applied last is not the engine's, whose
// own numbers then go on: a replay is asked whether it is, without one two strays in a row say so.
func (s *Stream) disowned(now time.Time, seq uint64) bool {
	before := s.strayed && s.stray == seq
	s.stray, s.strayed = seq+1, true
	if !s.o.Replay {
		return before
	}
	s.doubt()
	if !s.req.active {
		s.ask(now)
	}
	return false
}

// holds reports whether the next batch must wait although nothing is missing
// before it.
func (s *Stream) holds(now time.Time) bool {
	return s.req.active && s.req.hold || s.unsure && !s.req.active && s.mayAsk(now)
}

// advance applies what waits as far as it can; where a batch is missing it
// asks for a replay, or gives the batch up for the cause.
func (s *Stream) advance(now time.Time, ask bool, cause Cause) {
	for !s.wait.empty() {
		head := &s.wait.all[0]
		if head.seq == s.next && head.time >= s.replayed {
			s.crosses(head.conn)
		}
		switch {
		case head.seq < s.next, head.time < s.replayed: // the latter is of a publisher that is gone
			s.wait.pop()
			s.stats.Duplicates++
		case s.req.active && (s.req.hold || head.seq > s.next):
			return
		case ask && !s.req.active && (head.seq > s.next || s.unsure) && s.mayAsk(now):
			s.ask(now)
		case head.seq == s.next:
			s.apply(now, s.wait.pop())
		default:
			s.recover = s.recover || ask && s.o.Replay
			s.lose(now, s.next, head.seq-1, s.causeOf(cause))
			s.next = head.seq
		}
	}
	s.settle()
}

// causeOf refines the cause of a hole that no replay was asked for.
func (s *Stream) causeOf(cause Cause) Cause {
	switch {
	case cause != LossJoined:
		return cause
	case s.o.Replay:
		return LossReplayFailed
	case s.started:
		return LossNoReplay
	}
	return LossJoined
}

// apply decodes the next batch and passes it on.
func (s *Stream) apply(now time.Time, w waiting) {
	s.crosses(w.conn)
	if s.resuming { // nobody could be asked
		s.unsure = false
		s.lose(now, w.seq, w.seq-1, LossIdentity)
	}
	if !s.anchored {
		s.oldest = w.time
	}
	s.lastConn = w.conn
	if !math.IsNaN(w.time) {
		s.lastTime = w.time
	}
	print := fingerprint(w.payload)
	s.prints.put(w.seq, print)
	s.next, s.anchor, s.anchored, s.started = w.seq+1, w.seq, true, true
	if err := s.dec.Decode(w.payload, &s.b); err != nil {
		s.lose(now, w.seq, w.seq, LossPayload)
		return
	}
	s.count(&s.b)
	s.known = true
	s.b.Position = s.position(print)
	s.sink.Apply(w.seq, &s.b)
	if len(s.b.Malformed) > 0 {
		s.lose(now, w.seq, w.seq, LossEvent)
	}
}

// count keeps the statistics and learns from a batch what a clear means.
func (s *Stream) count(b *Batch) {
	s.stats.Applied++
	s.stats.UnknownTypes += uint64(b.UnknownTypes)
	s.stats.UnknownFields += uint64(b.UnknownFields)
	for _, m := range b.Malformed {
		s.stats.Malformed[m.Reason]++
	}
	for i := range b.Events {
		ev := &b.Events[i]
		switch ev.Kind {
		case BlockStored:
			s.stats.StoredEvents++
			s.stats.StoredBlocks += uint64(len(ev.Hashes))
		case BlockRemoved:
			s.stats.RemovedEvents++
			s.stats.RemovedBlocks += uint64(len(ev.Hashes))
		case Unknown:
			s.unread = true
		case AllBlocksCleared:
			s.stats.ClearedEvents++
			if !s.tiers {
				// The engine's whole cache is empty here, whatever came before.
				s.missing, s.over, s.unsure, s.unread = false, false, false, false
			}
		}
		if len(ev.Medium) > 0 && string(ev.Medium) != "GPU" {
			s.tiers = true
		}
	}
}

// lose reports a hole and does what the policy says.
func (s *Stream) lose(now time.Time, from, to uint64, cause Cause) {
	l := Loss{Worker: s.o.Worker, Rank: s.o.Rank, From: from, To: to, Cause: cause, Removals: s.known}
	if cause == LossEvent {
		l.Removals = false
		for _, m := range s.b.Malformed {
			l.Removals = l.Removals || m.Kind != BlockStored
		}
	}
	s.stats.Losses++
	s.stats.Lost += l.Batches()
	s.started, s.missing, s.base = true, true, to+1
	if cause != LossPayload && cause != LossEvent && to+1 != from {
		if s.lostEnd == 0 {
			s.lost = from
		}
		s.lostEnd = to + 1
	}
	s.sink.Lost(l)
	if !l.Removals {
		return
	}
	if s.o.OnLoss == ClearOnLoss || s.resuming {
		s.clear(ClearLoss)
	} else if !s.over {
		s.over, s.overAt = true, now
	}
}

func (s *Stream) clear(c ClearCause) {
	s.missing = s.missing || s.unread
	s.known, s.over, s.resuming, s.unread = false, false, false, false
	s.stats.Clears++
	s.sink.Clear(c)
}

// restart makes the stream that of a new publisher: nothing applied, sequence
// from 0, nothing unknown. Live batches before the time floor are of the old.
func (s *Stream) restart(floor float64) {
	s.stats.Restarts++
	s.endRequest()
	s.clear(ClearRestart)
	s.prints = fingerprints{}
	s.next, s.base, s.anchored, s.started = 0, 0, false, true
	s.replayed, s.lastConn = floor, 0
	s.lostEnd, s.strayed = 0, false
	if math.IsInf(floor, -1) { // nor does any time of before count
		s.newest = floor
	}
	s.unsure, s.missing, s.recover, s.tiers = false, false, false, false
	s.behind = false
}

// Restarted is for callers who learn of a restart otherwise, such as from an
// orchestrator: whatever was published before at (seconds since 1970, on the
// engine's clock) is forgotten. It does nothing when every batch applied is of
// that time or later. Calling it again changes nothing.
func (s *Stream) Restarted(now time.Time, at float64) {
	if !s.anchored || s.oldest >= at {
		return
	}
	s.wait.drop(func(w waiting) bool { return w.time < at })
	s.restart(at)
	if s.mayAsk(now) {
		s.ask(now)
	}
	s.advance(now, true, LossJoined)
}

// Disprove is for callers who find that the engine holds less than was
// predicted: everything is forgotten if it may be too much, and the stream
// goes on as after a loss that was cleared.
func (s *Stream) Disprove(now time.Time) {
	if s.over || s.unsure || s.unread {
		s.missing, s.unsure = true, false
		s.base = s.next
		s.clear(ClearDisproved)
	}
}

// payloadTime reads the timestamp of a batch without decoding it.
func payloadTime(payload []byte) (float64, bool) {
	c := cursor{buf: payload}
	if _, f := c.arrayLen(); f == 0 {
		t, f := c.number()
		return t, f == 0
	}
	n, _ := c.mapLen()
	for range n {
		key, f := c.text(false)
		if f != 0 {
			return 0, false
		}
		if string(key) == "ts" {
			t, f := c.number()
			return t, f == 0
		}
		if c.skip() != 0 {
			return 0, false
		}
	}
	return 0, false
}
