package kvevents

// Sequence watches the numbers of events that come over a transport which cannot
// be asked for them again: an engine that is polled, a relay. It says what a
// number means for what was applied before; [Step.Tell] passes that on. For
// publishers with a replay endpoint there is [Stream].
//
// What no number tells is an engine that restarted unseen and comes back with the
// very number that was expected; one that comes back with a higher number looks
// like a gap, and what was known is forgotten all the same.
//
// The zero value is a sequence of which nothing came yet, whose engine counts from
// 0. A Sequence is not safe for concurrent use.
type Sequence struct {
	// First is the number that the engine begins with.
	First uint64

	next    uint64
	started bool
	last    float64       // time of the event taken last that had one
	prints  *fingerprints // of the last events that had a time
	doubted bool          // nothing told what the event before is: number and content
	doubt   struct{ id, content uint64 }
}

// Step is what the number of one event says.
type Step struct {
	// Drop: the event is not to be applied. It was taken before; or, with Cause
	// LossIdentity, nothing tells whether it was.
	Drop bool
	// Restart: the engine counts from its beginning again, with an empty cache.
	Restart bool
	// From and To are the first and the last number missing before the event, if
	// Cause is set; with LossIdentity the event's own.
	From, To uint64
	Cause    Cause
	// Removals: something was taken before, so that removals may be among what is
	// missing.
	Removals bool
}

// Take is given the number of the next event, before it is applied, its time in
// seconds on the sender's clock, and a hash of its content.
//
// A number that goes back is a restart if its time is newer than that of the event
// taken last. Else it is a duplicate, or the engine's clock was set back: the content
// of the last 256 numbers tells. Of a number that was not taken, or before them, nothing
// tells: it is a loss, for which everything is forgotten, and a second one right after
// it is a restart. So what comes late is taken for what it is not only if it is two such
// numbers in a row, and only until the next event in order.
//
// A sender that delivers each event once at most needs no time: 0 means that a number
// which goes back is a restart, and content does not matter.
func (s *Sequence) Take(id uint64, at float64, content uint64) Step {
	st := Step{Removals: s.started}
	if s.started && id < s.next {
		var first *fingerprints // of the engine that restarted
		if at != 0 && !(at > s.last) {
			same, known := s.prints.same(id, content)
			second := s.doubted && id == s.doubt.id+1
			switch {
			case same:
				return Step{Drop: true}
			case !known && !second:
				s.doubted, s.doubt.id, s.doubt.content = true, id, content
				return Step{Drop: true, From: id, To: id, Cause: LossIdentity, Removals: true}
			case second:
				first = new(fingerprints)
				first.put(s.doubt.id, s.doubt.content)
			}
		}
		st.Restart, st.Removals = true, false
		s.started, s.prints = false, first
	}
	expected := s.next
	if !s.started {
		expected = s.First
	}
	if id > expected {
		st.From, st.To, st.Cause = expected, id-1, LossNoReplay
		if !s.started {
			st.Cause = LossJoined
		}
	}
	s.next, s.started, s.doubted = id+1, true, false
	if at != 0 { // not the latest of all: a clock that was wrong once would hide the next restart
		s.last = at
		if s.prints == nil {
			s.prints = new(fingerprints)
		}
		s.prints.put(id, content)
	}
	return st
}

// Tell passes a step on: what was lost, then whether to forget. As [ClearOnLoss]
// has it, what is known is forgotten when removals may be among what is missing.
func (st Step) Tell(h Handler, src Source) {
	if st.Restart {
		h.Clear(src, ClearRestart)
	}
	if st.Cause == 0 {
		return
	}
	h.Lost(Loss{Worker: src.Worker, Rank: src.Rank, From: st.From, To: st.To, Cause: st.Cause, Removals: st.Removals})
	if st.Removals {
		h.Clear(src, ClearLoss)
	}
}
