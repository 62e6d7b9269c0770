package kvevents

import "fmt"

// Cause says how batches came to be lost.
type Cause uint8

const (
	// LossJoined: the engine published before we listened, and it keeps no
	// replay buffer, or the buffer does not reach back that far. Normal for an
	// engine that has run a while.
	LossJoined Cause = iota + 1
	// LossNoReplay: a gap, and the engine has no replay endpoint.
	LossNoReplay
	// LossReplayFailed: a gap, and the replay endpoint did not answer, stopped
	// in the middle, or is not to be asked again yet.
	LossReplayFailed
	// LossTruncated: the first missing batches had left the replay buffer.
	LossTruncated
	// LossHole: missing inside a replay, which the engine drops silently at
	// its own high-water mark.
	LossHole
	// LossReplayEnd: the replay ended before the live batches began.
	LossReplayEnd
	// LossPending: more live batches came in during a replay than
	// StreamOptions allow to wait; the replay was given up for them.
	LossPending
	// LossPayload: the batch came, but could not be decoded.
	LossPayload
	// LossEvent: the batch came, but some of its events were malformed.
	LossEvent
	// LossIdentity: after a new connection, or in a stream that resumes, the replay
	// buffer no longer has the last batch we know, or cannot be asked, so nothing
	// tells whether the engine restarted.
	LossIdentity
	numCauses
)

var causeNames = [numCauses]string{
	LossJoined:       "published before we listened",
	LossNoReplay:     "gap without a replay endpoint",
	LossReplayFailed: "replay failed",
	LossTruncated:    "left the replay buffer",
	LossHole:         "hole in the replay",
	LossReplayEnd:    "replay ended early",
	LossPending:      "too many live batches waited for the replay",
	LossPayload:      "payload unreadable",
	LossEvent:        "malformed events",
	LossIdentity:     "publisher may be another one",
}

// String returns a few words for people.
func (c Cause) String() string {
	if c > 0 && c < numCauses {
		return causeNames[c]
	}
	return "unknown cause"
}

// Loss names what a stream could not learn. It is an error, so that it can be
// logged and passed on as one.
type Loss struct {
	Worker string
	Rank   int32
	// From and To are the first and the last sequence whose content is unknown
	// in whole or, with LossEvent, in part. With LossIdentity To may be From-1:
	// no sequence is missing.
	From, To uint64
	Cause    Cause
	// Removals says that removals may be among what was lost while blocks of
	// before are held: without a Clear they may be overcounted.
	Removals bool
}

// Batches returns how many sequences the loss spans.
func (l Loss) Batches() uint64 { return l.To + 1 - l.From }

// Error says what was lost and why.
func (l Loss) Error() string {
	return fmt.Sprintf("kvevents: worker %q rank %d: batches %d to %d lost: %v", l.Worker, l.Rank, l.From, l.To, l.Cause)
}

// LossPolicy says what happens to what is known of a worker when removals may
// have been lost. The zero value is ClearOnLoss.
//
// A removal that was not seen leaves a block in the index that the engine no
// longer has, and no later event ever takes it out: the prompt is then routed
// to a worker that must compute it anew. Losing what is known costs some hits
// until traffic announces the blocks again. Since the wrong answer lasts and
// the missing one heals, forgetting is the default.
type LossPolicy uint8

const (
	// ClearOnLoss forgets the worker's blocks at the place of the loss: the
	// index never overcounts.
	ClearOnLoss LossPolicy = iota
	// DecayOnLoss keeps them for StreamOptions.Decay, during which
	// Status.Confidence falls from 1 to 0, and then forgets them.
	DecayOnLoss
	// KeepOnLoss keeps them until the engine clears its cache, restarts, or is
	// resynchronized, or until the caller proves them wrong (Stream.Disprove,
	// Subscriber.Disprove).
	KeepOnLoss
)

// ClearCause says why a stream clears what is known of its worker.
type ClearCause uint8

const (
	ClearRestart   ClearCause = iota + 1 // the engine restarted with an empty cache
	ClearLoss                            // removals may have been lost (LossPolicy)
	ClearResync                          // a replay starts over from what the engine keeps
	ClearDecay                           // the time of DecayOnLoss is over
	ClearDisproved                       // the caller found the index too high
	ClearRemoved                         // the worker was removed from its Subscriber
)

// String returns a few words for people.
func (c ClearCause) String() string {
	switch c {
	case ClearRestart:
		return "engine restarted"
	case ClearLoss:
		return "batches lost"
	case ClearResync:
		return "resynchronized"
	case ClearDecay:
		return "knowledge decayed"
	case ClearDisproved:
		return "disproved"
	case ClearRemoved:
		return "worker removed"
	}
	return "unknown cause"
}
