package kvevents

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// resumed keeps what a stream makes of it, in one text, and of batches the position.
type resumed struct {
	said string
	last Position
}

func (r *resumed) Apply(seq uint64, b *Batch) {
	r.said += fmt.Sprintf("apply %d, ", seq)
	r.last = b.Position
}
func (r *resumed) Clear(c ClearCause)  { r.said += fmt.Sprintf("clear %v, ", c) }
func (r *resumed) Lost(l Loss)         { r.said += fmt.Sprintf("lost %d-%d %v, ", l.From, l.To, l.Cause) }
func (r *resumed) Confirm(next uint64) { r.said += fmt.Sprintf("confirm %d, ", next) }
func (r *resumed) take() (said string) { said, r.said = r.said, ""; return said }
func (r *resumed) message(s *Stream, base float64, seqs ...uint64) {
	for _, seq := range seqs {
		s.Message(sec(0), 1, Message{Seq: seq, Payload: batchOf(seq, base+float64(seq))})
	}
}

// reply answers the replay that is wanted, which must begin at from.
func (r *resumed) reply(t *testing.T, s *Stream, from uint64, base float64, seqs ...uint64) {
	t.Helper()
	q, ok := s.Request()
	require.True(t, ok)
	require.Equal(t, from, q.From)
	s.Sent(sec(0), q.ID)
	for _, seq := range seqs {
		s.Reply(sec(0), q.ID, Reply{Seq: seq, Payload: batchOf(seq, base+float64(seq))})
	}
	s.Reply(sec(0), q.ID, Reply{End: true})
}

// at4 is where a stream is that listened to batches 0 to 4.
func at4(t *testing.T) Position {
	var r resumed
	s, err := NewStream(StreamOptions{}, &r)
	require.NoError(t, err)
	r.message(s, 10, 0, 1, 2, 3, 4)
	require.Equal(t, "apply 0, apply 1, apply 2, apply 3, apply 4, ", r.take())
	require.Equal(t, Position{Next: 5, Print: fingerprint(batchOf(4, 14)), Time: 14, Since: 10}, r.last)
	return r.last
}

// TestResume: what another stream applied counts when the publisher proves to be the
// same, and not otherwise; and nothing is applied before that is said.
func TestResume(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(r *resumed, s *Stream)
		want  string
		state State
	}{
		"an idle engine": {func(r *resumed, s *Stream) { r.reply(t, s, 4, 10, 4) }, "confirm 5, ", Live},
		"an engine that went on": {func(r *resumed, s *Stream) {
			r.message(s, 10, 7)
			require.Empty(t, r.said)
			r.reply(t, s, 4, 10, 4, 5, 6, 7)
			r.message(s, 10, 8)
		}, "confirm 5, apply 5, apply 6, apply 7, apply 8, ", Live},
		"another engine": {func(r *resumed, s *Stream) {
			r.reply(t, s, 4, 20, 4, 5)
			r.reply(t, s, 0, 20, 0, 1, 2, 3, 4, 5)
		}, "clear engine restarted, apply 0, apply 1, apply 2, apply 3, apply 4, apply 5, ", Live},
		"another engine, younger": {func(r *resumed, s *Stream) {
			r.reply(t, s, 4, 20)
			r.reply(t, s, 0, 20, 0, 1)
		}, "clear engine restarted, apply 0, apply 1, ", Live},
		"another engine, live": {func(r *resumed, s *Stream) {
			r.message(s, 20, 2)
			r.reply(t, s, 0, 20, 0, 1, 2)
		}, "clear engine restarted, apply 0, apply 1, apply 2, ", Live},
		"left the buffer": {func(r *resumed, s *Stream) { r.reply(t, s, 4, 10, 7, 8) },
			"lost 5-6 publisher may be another one, clear batches lost, apply 7, apply 8, ", Degraded},
		"no replay to be had": {func(r *resumed, s *Stream) {
			q, _ := s.Request()
			s.Failed(sec(0), q.ID)
			require.Empty(t, r.said)
			r.message(s, 10, 5, 6)
			// Made up for later by what the engine keeps.
			s.Tick(sec(100))
			r.reply(t, s, 0, 10, 0, 1, 2, 3, 4, 5, 6)
		}, "lost 5-4 publisher may be another one, clear batches lost, apply 5, apply 6, " +
			"clear resynchronized, apply 0, apply 1, apply 2, apply 3, apply 4, apply 5, apply 6, ", Live},
		"disproved": {func(r *resumed, s *Stream) { s.Disprove(sec(0)) }, "clear disproved, ", Syncing},
		"restarted": {func(r *resumed, s *Stream) { s.Restarted(sec(0), 15) }, "clear engine restarted, ", Syncing},
		"kept":      {func(r *resumed, s *Stream) { s.Restarted(sec(0), 10) }, "", Syncing},
	} {
		for _, policy := range []LossPolicy{ClearOnLoss, KeepOnLoss} {
			var r resumed
			s, err := NewStream(StreamOptions{Replay: true, OnLoss: policy}, &r)
			require.NoError(t, err)
			require.True(t, s.Resume(at4(t)))
			require.False(t, s.Resume(at4(t)), "once")
			require.True(t, s.Status(sec(0)).Unverified)
			s.Connected(sec(0), 1)
			c.do(&r, s)
			require.Equal(t, c.want, r.take(), name)
			require.Equal(t, c.state, s.Status(sec(200)).State, name)
		}
	}
}

// TestResumeRefused: a stream that could not confirm what is there does not resume.
func TestResumeRefused(t *testing.T) {
	stream := func(o StreamOptions, sink Sink) *Stream {
		s, err := NewStream(o, sink)
		require.NoError(t, err)
		return s
	}
	var r resumed
	require.False(t, stream(StreamOptions{Replay: true}, &r).Resume(Position{}), "no position")
	require.False(t, stream(StreamOptions{}, &r).Resume(at4(t)), "no replay")
	require.False(t, stream(StreamOptions{Replay: true}, &diary{}).Resume(at4(t)), "nobody to confirm to")
	s := stream(StreamOptions{Replay: true}, &r)
	s.Connected(sec(0), 1)
	require.False(t, s.Resume(at4(t)), "under way")
	s = stream(StreamOptions{Replay: true}, &r)
	r.message(s, 0, 7)
	require.False(t, s.Resume(at4(t)), "under way")
	_, err := NewSubscriber(SubscriberOptions{Handler: &told{}, Resume: func(Source) (Position, bool) { return Position{}, false }})
	require.ErrorContains(t, err, "SourceConfirmer")
}

// TestPositionOfUncertainStreams: what may be too much is no place to go on from, and
// what is missing is missing there too.
func TestPositionOfUncertainStreams(t *testing.T) {
	var r resumed
	s, err := NewStream(StreamOptions{OnLoss: KeepOnLoss}, &r)
	require.NoError(t, err)
	r.message(s, 10, 3)
	require.Equal(t, Position{Next: 4, Print: fingerprint(batchOf(3, 13)), Time: 13, Since: 13, Missing: true, Base: 3}, r.last)
	r.message(s, 10, 5)
	require.Zero(t, r.last)
	s.Message(sec(0), 1, Message{Seq: 6, Payload: batchOf(6, 16, Event{Kind: AllBlocksCleared})})
	require.Equal(t, uint64(7), r.last.Next)
	require.False(t, r.last.Missing)
	s.Message(sec(0), 2, Message{Seq: 7, Payload: batchOf(7, 17)})
	require.Zero(t, r.last, "perhaps of another publisher")
}

// TestNoPositionUnverified: while it is not known whether the publisher is still the same,
// what was applied may be another one's, and a stream that resumed there would be
// confirmed by the new one.
func TestNoPositionUnverified(t *testing.T) {
	var r resumed
	s, err := NewStream(StreamOptions{}, &r)
	require.NoError(t, err)
	r.message(s, 10, 0, 1)
	require.NotZero(t, r.last)
	s.Connected(sec(0), 2)
	s.Message(sec(0), 2, Message{Seq: 2, Payload: batchOf(2, 12)})
	require.True(t, s.Status(sec(0)).Unverified)
	require.Contains(t, r.said, "apply 2")
	require.Zero(t, r.last)
}

// TestResumeKeepsTiers: after a stream that saw a host tier, the engine's clear of the
// device does not tell that nothing is missing any more.
func TestResumeKeepsTiers(t *testing.T) {
	for _, tiers := range []bool{false, true} {
		var r resumed
		s, err := NewStream(StreamOptions{Replay: true}, &r)
		require.NoError(t, err)
		at := at4(t)
		at.Missing, at.Tiers = true, tiers
		require.True(t, s.Resume(at))
		s.Connected(sec(0), 1)
		r.reply(t, s, 4, 10, 4)
		require.Equal(t, "confirm 5, ", r.take())
		s.Message(sec(0), 1, Message{Seq: 5, Payload: batchOf(5, 15, Event{Kind: AllBlocksCleared})})
		require.Equal(t, "apply 5, ", r.take())
		require.Equal(t, tiers, s.Status(sec(0)).Missing)
		require.Equal(t, tiers, r.last.Missing)
	}
}
