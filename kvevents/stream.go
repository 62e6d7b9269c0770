package kvevents

import (
	"fmt"
	"math"
	"time"
)

// State is how much a stream knows of its worker's cache. The zero value is
// Cold.
type State uint8

const (
	Cold     State = iota // nothing applied yet
	Syncing               // a replay is under way; live batches wait for it
	Live                  // what was applied is exactly what the engine holds
	Degraded              // something is missing, or may be too much: see Status
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Cold:
		return "cold"
	case Syncing:
		return "syncing"
	case Live:
		return "live"
	case Degraded:
		return "degraded"
	}
	return "unknown"
}

// Sink receives what a [Stream] makes of its input: calls in the order in
// which their effects are to happen. Every call is made from within a method
// of the stream; it must not call the stream back.
type Sink interface {
	// Apply is given the next batch, in sequence, each once. The batch is valid
	// during the call only.
	Apply(seq uint64, b *Batch)
	// Clear forgets everything that was applied so far.
	Clear(ClearCause)
	// Lost tells of a hole, before the Clear (if any) and the Apply after it.
	Lost(Loss)
}

// Emptier is implemented by a [Sink] that tells an engine that holds nothing from one
// that was not heard yet. Empty says that the engine answered a replay with nothing, so
// that it has published nothing so far.
type Emptier interface{ Empty() }

// StreamOptions configures a [Stream]. The zero value is a stream without
// replay that clears on loss.
type StreamOptions struct {
	// Worker and Rank name the stream in every Loss.
	Worker string
	Rank   int32
	// Replay says that the engine has a replay endpoint.
	Replay bool
	// OnLoss is the policy for losses that may hide removals.
	OnLoss LossPolicy
	// Decay is the time of DecayOnLoss; default 1 minute.
	Decay time.Duration
	// VerifyGaps checks at every gap, not only after a new connection, that the
	// publisher is still the one we know: the replay is asked from the last
	// batch we have instead of the first we miss. Set it where a proxy stands
	// between, so that our connection outlives the engine's.
	VerifyGaps bool
	// PendingBatches and PendingBytes bound the live batches that wait during a
	// replay; defaults 100,000 and 64 MiB. Beyond them the replay is given up.
	PendingBatches, PendingBytes int
	// ConnectTimeout is how long a replay may take until the request is sent,
	// ReplayTimeout how long it may then be silent; defaults 2 s and 10 s.
	ConnectTimeout, ReplayTimeout time.Duration
	// RetryMin and RetryMax bound the pause after a replay that failed, which
	// doubles each time; defaults 1 s and 1 minute.
	RetryMin, RetryMax time.Duration
	// Limits are those of the decoder.
	Limits Limits
}

func (o *StreamOptions) validate() error {
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"Decay", &o.Decay, time.Minute},
		{"ConnectTimeout", &o.ConnectTimeout, 2 * time.Second},
		{"ReplayTimeout", &o.ReplayTimeout, 10 * time.Second},
		{"RetryMin", &o.RetryMin, time.Second},
		{"RetryMax", &o.RetryMax, time.Minute},
	} {
		if *d.value < 0 {
			return fmt.Errorf("kvevents: StreamOptions.%s is %v, want 0 or more", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	o.RetryMax = max(o.RetryMax, o.RetryMin)
	if o.PendingBatches < 0 || o.PendingBytes < 0 {
		return fmt.Errorf("kvevents: StreamOptions.PendingBatches is %d and PendingBytes %d, want 0 or more", o.PendingBatches, o.PendingBytes)
	}
	if o.PendingBatches == 0 {
		o.PendingBatches = 100_000
	}
	if o.PendingBytes == 0 {
		o.PendingBytes = 64 << 20
	}
	if o.OnLoss > KeepOnLoss {
		return fmt.Errorf("kvevents: StreamOptions.OnLoss is %d, want ClearOnLoss, DecayOnLoss or KeepOnLoss", o.OnLoss)
	}
	return nil
}

// Stream makes an ordered, gap-free sequence of batches from what one
// publisher (one data-parallel rank of one worker) sends: it finds gaps and
// asks for their replay, drops duplicates, finds restarts, and names every
// loss.
//
// It is a state machine without sockets, clocks or goroutines: every method
// is given the time, and calls the [Sink] before it returns. After each call
// the owner looks at [Stream.Request], which is the replay that is wanted, and
// at [Stream.Deadline], when Tick is due. Payloads given to it are borrowed
// for the call. A Stream is not safe for concurrent use; make it with
// [NewStream].
//
// In steady state a message costs its decoding and does not allocate.
type Stream struct {
	o    StreamOptions
	sink Sink
	dec  Decoder
	b    Batch

	next    uint64 // sequence of the next batch to apply
	anchor  uint64 // sequence of the last batch applied, if anchored
	started bool   // next means something
	// anchored says that a batch of this publisher was applied and is
	// remembered in prints.
	anchored bool
	prints   fingerprints
	newest   float64 // timestamp of the newest batch
	oldest   float64 // timestamp of the first batch of this publisher
	lastTime float64 // timestamp of the last batch applied
	replayed float64 // live batches before this time are known, or of a dead publisher
	conn     uint64  // newest connection
	lastConn uint64  // that of the last batch applied
	// unsure: the connection was renewed since the last proof that the
	// publisher is the one whose batches were applied. The last of them is
	// proof; what was applied since then proves nothing.
	unsure bool
	proof  uint64
	// resuming: nothing was applied since Resume, and the publisher is not confirmed.
	resuming bool
	behind   bool      // live messages were lost on our side
	missing  bool      // blocks may be held that we do not know
	over     bool      // blocks may be known that are not held
	overAt   time.Time // since when, for DecayOnLoss
	known    bool      // something was applied since the last Clear
	base     uint64    // knowledge is complete from this sequence on
	tiers    bool      // a medium other than the device was seen
	unread   bool      // an event of unknown type came since the last clear
	// Numbers from lost to before lostEnd were given up for a live batch beyond them; none
	// if lostEnd is 0.
	lost, lostEnd uint64
	stray         uint64 // the number after the last stray's, see isStray
	strayed       bool   // there was one

	wait pending

	req    request
	lastID uint64
	// confirmAt is when a connection that brought nothing yet is followed by
	// another replay: a publisher does not hear of a new subscription at once,
	// and what it published after the first replay and before that is in neither.
	confirmAt time.Time
	retryAt   time.Time // no replay before
	backoff   time.Duration
	recover   bool // a replay that failed is to be made up for at retryAt

	stats StreamStats
}

// NewStream returns a stream in state Cold that feeds sink.
func NewStream(o StreamOptions, sink Sink) (*Stream, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if sink == nil {
		return nil, constError("kvevents: NewStream needs a Sink")
	}
	return &Stream{o: o, sink: sink, dec: Decoder{Limits: o.Limits}, newest: math.Inf(-1), lastTime: math.Inf(-1), replayed: math.Inf(-1)}, nil
}

// Status is a stream's knowledge of itself.
type Status struct {
	State State
	// Next is the sequence of the next batch to apply.
	Next uint64
	// Missing: the engine may hold blocks that were never announced to us.
	Missing bool
	// Excess: blocks may be known that the engine no longer holds. With
	// ClearOnLoss only an Unverified publisher and Unread events can cause it.
	Excess bool
	// Unread: events of a type that is not known came since the last clear. They may
	// have stored or removed blocks (Missing, Excess); StreamStats.UnknownTypes counts them.
	Unread bool
	// Unverified: the connection is new since the last batch that proves the
	// publisher is the same, and there is no replay to ask.
	Unverified bool
	// Confidence is 1, or falls to 0 during the time of DecayOnLoss.
	Confidence float64
	// Waiting are the live batches that wait for a replay.
	Waiting, WaitingBytes int
	// Time is the engine's timestamp of the newest batch, in seconds.
	Time float64
}

// Status returns the state as of now.
func (s *Stream) Status(now time.Time) Status {
	st := Status{
		Next: s.next, Missing: s.missing || s.unread, Excess: s.over || s.unsure || s.unread, Unread: s.unread, Unverified: s.unsure, Confidence: 1,
		Waiting: len(s.wait.all), WaitingBytes: s.wait.bytes, Time: max(s.newest, 0),
	}
	if s.over && s.o.OnLoss == DecayOnLoss {
		st.Confidence = min(max(1-now.Sub(s.overAt).Seconds()/s.o.Decay.Seconds(), 0), 1)
	}
	st.State = s.state()
	return st
}

func (s *Stream) state() State {
	switch {
	case s.req.active:
		return Syncing
	case !s.started:
		return Cold
	case s.missing || s.over || s.unsure || s.unread || s.behind:
		return Degraded
	}
	return Live
}

// StreamStats are counts since NewStream.
type StreamStats struct {
	Messages   uint64 // live messages given
	Replies    uint64 // replay replies given
	Garbage    uint64 // messages and replies whose frames were wrong
	Stray      uint64 // replies to a replay that was over
	Duplicates uint64 // batches that had been applied, or belong to a dead publisher
	Applied    uint64 // batches applied
	Gaps       uint64 // holes found in the live sequence
	Replays    uint64 // replays asked
	Failures   uint64 // replays that failed
	Restarts   uint64 // restarts of the engine
	Clears     uint64 // of what was known, for any cause
	Losses     uint64 // calls of Sink.Lost
	Lost       uint64 // batches they span

	UnknownTypes  uint64 // events of unknown type
	UnknownFields uint64
	Malformed     [NumReasons]uint64 // events left out, by Reason

	StoredEvents, StoredBlocks   uint64
	RemovedEvents, RemovedBlocks uint64
	ClearedEvents                uint64
}

// Stats returns the counts.
func (s *Stream) Stats() StreamStats { return s.stats }
