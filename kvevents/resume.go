package kvevents

import "math"

// Position is where a [Stream] is after a batch: what another stream of the same
// publisher needs, to go on from there with a copy of what was applied so far
// ([Stream.Resume], [SubscriberOptions].Resume). The zero value is none.
type Position struct {
	Next  uint64  // sequence of the next batch
	Print uint64  // fingerprint of the batch before it
	Time  float64 // its timestamp, in seconds since 1970
	Since float64 // timestamp of the publisher's first batch that was applied
	// Missing: the engine may hold blocks that were not announced to us. What was
	// applied is complete from the sequence Base on.
	Missing bool
	Base    uint64
	Tiers   bool // a medium other than the device was seen
}

// Confirmer is implemented by a [Sink] that keeps a copy of what another stream
// applied. Confirm says that the publisher is the one of that copy: what was applied
// up to the batch before next is what the engine held then. If Clear comes instead,
// or Apply, the copy is worth nothing.
type Confirmer interface {
	Confirm(next uint64)
}

// SourceConfirmer is [Confirmer] for a [Handler].
type SourceConfirmer interface {
	Confirm(src Source, next uint64)
}

// Resume makes the stream go on at the position of another one, before it is given
// anything. The replay endpoint is then asked for the batch before that position:
// if it is the same, the sink, which must be a [Confirmer], is told to Confirm, and
// gets the batches that follow. If it is another one, or cannot be had, the sink is
// told to Clear before anything is applied, and everything goes on as in a stream
// without a past. The result is false, and nothing is changed, where the stream
// cannot: without replay, or once it was given something.
func (s *Stream) Resume(p Position) bool {
	_, confirms := s.sink.(Confirmer)
	if p.Next == 0 || !s.o.Replay || !confirms || s.started || s.conn != 0 || s.req.active || s.stats.Messages > 0 {
		return false
	}
	s.next, s.anchor, s.proof, s.base = p.Next, p.Next-1, p.Next-1, p.Base
	s.prints.put(s.anchor, p.Print)
	s.newest, s.lastTime, s.oldest = p.Time, p.Time, p.Since
	s.missing, s.tiers = p.Missing, p.Tiers
	s.started, s.anchored, s.known, s.unsure, s.resuming = true, true, true, true, true
	return true
}

// position is where the stream is after the batch that it anchors to; none where what
// was applied may be too much.
func (s *Stream) position(print uint64) Position {
	if s.over || s.unsure || s.unread || math.IsNaN(s.lastTime) || math.IsInf(s.lastTime, 0) || math.IsNaN(s.oldest) || math.IsInf(s.oldest, 0) {
		return Position{}
	}
	return Position{Next: s.next, Print: print, Time: s.lastTime, Since: s.oldest, Missing: s.missing, Base: s.base, Tiers: s.tiers}
}

// confirm says that the publisher is the one at whose position the stream resumed.
func (s *Stream) confirm() {
	if s.resuming {
		s.resuming = false
		s.sink.(Confirmer).Confirm(s.next)
	}
}
