package kvevents

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// diary is a Sink that writes down what happens and keeps counts of copies.
type diary struct {
	log    []string
	blocks map[uint64]int
	losses []Loss
}

func (d *diary) Apply(seq uint64, b *Batch) {
	d.log = append(d.log, fmt.Sprint(seq))
	if d.blocks == nil {
		d.blocks = map[uint64]int{}
	}
	applyTo(d.blocks, b)
}

func (d *diary) Clear(c ClearCause) {
	d.log = append(d.log, "clear: "+c.String())
	clear(d.blocks)
}

func (d *diary) Lost(l Loss) {
	d.log = append(d.log, fmt.Sprintf("lost %d-%d: %v", l.From, int64(l.To), l.Cause))
	d.losses = append(d.losses, l)
}

// take returns what happened since it was last called.
func (d *diary) take() string {
	all := strings.Join(d.log, ", ")
	d.log = nil
	return all
}

// applyTo is the whole rule of an engine's pool: count copies.
func applyTo(blocks map[uint64]int, b *Batch) {
	for _, ev := range b.Events {
		switch ev.Kind {
		case BlockStored:
			for _, h := range ev.Hashes {
				blocks[h]++
			}
		case BlockRemoved:
			for _, h := range ev.Hashes {
				if blocks[h] > 1 {
					blocks[h]--
				} else {
					delete(blocks, h)
				}
			}
		case AllBlocksCleared:
			clear(blocks)
		}
	}
}

// t0 plus seconds, the clock of the tests.
func sec(s float64) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(s * float64(time.Second)))
}

// rig drives one stream by hand.
type rig struct {
	*testing.T
	*Stream
	d   diary
	now time.Time
}

func newRig(t *testing.T, o StreamOptions) *rig {
	r := &rig{T: t, now: sec(0)}
	var err error
	r.Stream, err = NewStream(o, &r.d)
	require.NoError(t, err)
	return r
}

// batch is the payload of one batch; the block it stores names seq and time.
func batchOf(seq uint64, at float64, events ...Event) []byte {
	if events == nil {
		events = []Event{{Kind: BlockStored, Hashes: []uint64{seq<<32 | uint64(at*16)}, BlockSize: 16}}
	}
	return AppendBatch(nil, &Batch{Timestamp: at, HasRank: true, Events: events}, Form{})
}

// live gives messages of connection 1 whose time is base plus their number.
func (r *rig) live(base float64, seqs ...uint64) {
	for _, seq := range seqs {
		r.Message(r.now, 1, Message{Seq: seq, Payload: batchOf(seq, base+float64(seq))})
	}
}

// replies answers the wanted replay.
func (r *rig) replies(base float64, seqs ...uint64) {
	for _, seq := range seqs {
		r.Reply(r.now, r.req.ID, Reply{Seq: seq, Payload: batchOf(seq, base+float64(seq))})
	}
}

func (r *rig) end() { r.Reply(r.now, r.req.ID, Reply{End: true}) }

func (r *rig) wantReplay(from int) {
	r.Helper()
	q, ok := r.Request()
	if from < 0 {
		require.False(r, ok, "replay from %d", q.From)
		return
	}
	require.True(r, ok)
	require.EqualValues(r, from, q.From)
}

func (r *rig) wantState(s State) {
	r.Helper()
	require.Equal(r, s, r.Status(r.now).State)
}

func (r *rig) happened(what string) {
	r.Helper()
	require.Equal(r, what, r.d.take())
}

// joined is a stream that listened from the first batch on.
func joined(t *testing.T, o StreamOptions, seqs ...uint64) *rig {
	r := newRig(t, o)
	r.Connected(r.now, 1)
	if o.Replay {
		r.wantReplay(0)
		r.end()
	}
	r.live(1, seqs...)
	r.wantReplay(-1)
	r.wantState(Live)
	r.d.take()
	return r
}

func TestTrialT65GapIsReplayed(t *testing.T) {
	r := joined(t, StreamOptions{Replay: true}, 0, 1, 2)
	r.live(1, 5)
	r.wantReplay(3)
	r.wantState(Syncing)
	r.happened("")
	r.replies(1, 3, 4)
	r.happened("3, 4, 5")
	r.wantReplay(-1)
	r.wantState(Live)
}

func TestTrialT67ReplayIsReadToItsEnd(t *testing.T) {
	r := joined(t, StreamOptions{Replay: true}, 0, 1)
	r.live(1, 9)
	r.wantReplay(2)
	for seq := uint64(2); seq < 9; seq++ {
		r.wantReplay(2)
		r.replies(1, seq)
	}
	r.happened("2, 3, 4, 5, 6, 7, 8, 9")
	r.wantState(Live)
}

func TestTrialT69ReplayOverlapsLive(t *testing.T) {
	r := joined(t, StreamOptions{Replay: true}, 0, 1, 2)
	r.live(1, 7, 8, 9)
	r.wantReplay(3)
	r.replies(1, 3, 4, 5, 6, 7, 8, 9)
	r.end()
	r.happened("3, 4, 5, 6, 7, 8, 9")
	r.wantState(Live)
	for _, n := range r.d.blocks {
		require.Equal(t, 1, n)
	}
	require.Len(t, r.d.blocks, 10)
}

func TestTrialT73DeadReplayEndpoint(t *testing.T) {
	r := newRig(t, StreamOptions{Replay: true, OnLoss: KeepOnLoss})
	r.Connected(r.now, 1)
	asked := uint64(0)
	applied := 0
	for i := range uint64(600) { // ten minutes in which every other batch is lost
		r.now = sec(float64(i))
		r.live(1, 2*i)
		r.Tick(r.now)
		if q, ok := r.Request(); ok && q.ID != asked {
			asked = q.ID
			r.Failed(r.now, q.ID)
		}
		if l := strings.Split(r.d.take(), ", "); l[len(l)-1] == fmt.Sprint(2*i) {
			applied++
		}
	}
	require.EqualValues(t, 600, applied, "live batches go on")
	require.Less(t, r.Stats().Replays, uint64(20), "one attempt per back-off")
	require.LessOrEqual(t, r.Stats().Replays, r.Stats().Failures+1)
	r.wantState(Degraded)

	r.now = sec(1000) // the endpoint is back
	r.Tick(r.now)
	r.wantReplay(0)
	r.Sent(r.now, r.req.ID)
	for seq := range uint64(1200) {
		r.replies(1, seq)
	}
	r.end()
	r.wantReplay(-1)
	r.wantState(Live)
	require.Zero(t, r.backoff)
	require.Len(t, r.d.blocks, 1200)
}

func TestTrialT74LateJoiner(t *testing.T) {
	r := newRig(t, StreamOptions{Replay: true})
	r.live(1, 10)
	r.wantReplay(0)
	r.live(1, 11)
	r.replies(1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	r.happened("0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11")
	r.wantState(Live)

	r = newRig(t, StreamOptions{}) // no replay
	r.live(1, 10, 11)
	r.happened("lost 0-9: published before we listened, 10, 11")
	require.False(t, r.d.losses[0].Removals)
	r.wantState(Degraded)

	r = newRig(t, StreamOptions{Replay: true}) // the buffer reaches back to 7
	r.Connected(r.now, 1)
	r.replies(1, 7, 8, 9)
	r.live(1, 10)
	r.happened("lost 0-6: published before we listened, 7, 8, 9, 10")
	r.wantState(Degraded)
}

func TestTrialT75Restart(t *testing.T) {
	for _, replay := range []bool{false, true} {
		r := joined(t, StreamOptions{Replay: replay}, 0, 1, 2, 3, 4)
		r.live(100, 0)
		r.happened("clear: engine restarted, 0")
		r.wantState(Live)
		require.Len(t, r.d.blocks, 1)
		require.EqualValues(t, 1, r.Stats().Restarts)

		r = joined(t, StreamOptions{Replay: replay}, 0, 1, 2, 3, 4)
		r.live(100, 2)
		if !replay {
			r.happened("clear: engine restarted, lost 0-1: gap without a replay endpoint, 2")
			r.wantState(Degraded)
			continue
		}
		r.wantReplay(0)
		r.replies(100, 0, 1)
		r.happened("clear: engine restarted, 0, 1, 2")
		r.wantState(Live)
	}
}

func TestTrialT78OneReplayForOneGap(t *testing.T) {
	r := joined(t, StreamOptions{Replay: true}, 0, 1)
	before := r.Stats().Replays
	r.live(1, 5)
	r.replies(1, 2, 3, 4, 5)
	r.live(1, 6, 7)
	r.wantReplay(-1)
	require.Equal(t, before+1, r.Stats().Replays)
	require.EqualValues(t, 8, r.Status(r.now).Next)
	r.happened("2, 3, 4, 5, 6, 7")
}

func TestTrialT89ClearInReplayIsABarrier(t *testing.T) {
	r := newRig(t, StreamOptions{Replay: true})
	r.Connected(r.now, 1)
	store := func(h uint64) Event { return Event{Kind: BlockStored, Hashes: []uint64{h}} }
	for seq, events := range [][]Event{{store(1)}, {{Kind: AllBlocksCleared}, store(2)}} {
		r.Reply(r.now, r.req.ID, Reply{Seq: uint64(seq), Payload: batchOf(uint64(seq), 5, events...)})
	}
	r.end()
	require.Equal(t, map[uint64]int{2: 1}, r.d.blocks)
	r.wantState(Live)
}

func TestTrialT92DuplicateBatch(t *testing.T) {
	r := joined(t, StreamOptions{Replay: true}, 0, 1, 2)
	r.live(1, 2, 1, 2)
	r.happened("")
	require.EqualValues(t, 3, r.Stats().Duplicates)
	r.live(1, 3)
	r.happened("3")
	r.live(50, 3)
	r.wantReplay(0)
	r.happened("clear: engine restarted")
}

// TestSilentRestart: the connection was renewed and the numbers fit, but the
// engine is another one; the last batch, replayed, tells.
func TestSilentRestart(t *testing.T) {
	r := joined(t, StreamOptions{Replay: true}, 0, 1, 2, 3, 4)
	r.Connected(r.now, 2)
	r.wantReplay(4) // what we have, not what we miss
	r.Message(r.now, 2, Message{Seq: 5, Payload: batchOf(5, 105)})
	r.happened("")
	r.replies(100, 4)
	r.happened("clear: engine restarted")
	r.wantReplay(0)
	r.replies(100, 0, 1, 2, 3, 4)
	r.happened("0, 1, 2, 3, 4, 5")
	r.wantState(Live)
	require.EqualValues(t, 1, r.Stats().Restarts)

	// A new engine that has published less than we know.
	r = joined(t, StreamOptions{Replay: true}, 0, 1, 2, 3, 4)
	r.Connected(r.now, 2)
	r.end()
	r.happened("clear: engine restarted")
	r.wantReplay(0)
	r.replies(100, 0, 1)
	r.end()
	r.happened("0, 1")
	r.wantState(Live)

	// The same engine: nothing is cleared, what was missed comes.
	r = joined(t, StreamOptions{Replay: true}, 0, 1, 2)
	r.Connected(r.now, 2)
	r.wantReplay(2)
	r.replies(1, 2, 3, 4)
	r.end()
	r.happened("3, 4")
	r.wantState(Live)

	// Without replay nothing can tell: applied, but not called exact.
	r = joined(t, StreamOptions{}, 0, 1, 2)
	r.Message(r.now, 2, Message{Seq: 3, Payload: batchOf(3, 103)})
	r.happened("3")
	r.wantState(Degraded)
	require.True(t, r.Status(r.now).Unverified)
	r.Message(r.now, 2, Message{Seq: 4, Payload: batchOf(4, 104, Event{Kind: AllBlocksCleared})})
	r.wantState(Live)

	// The buffer no longer has what we know.
	r = joined(t, StreamOptions{Replay: true}, 0, 1, 2)
	r.Connected(r.now, 2)
	r.replies(1, 3)
	r.happened("lost 3-2: publisher may be another one, clear: batches lost, 3")
	r.end()
	r.wantState(Degraded)
}

// TestVerifyGaps: with a proxy between, every gap is checked.
func TestVerifyGaps(t *testing.T) {
	r := joined(t, StreamOptions{Replay: true, VerifyGaps: true}, 0, 1, 2)
	r.live(100, 5)
	r.wantReplay(2)
	r.replies(100, 2)
	r.happened("clear: engine restarted")
	r.wantReplay(0)
	r.wantState(Syncing)
}

// TestClockSetBack: an engine whose clock jumps back behind a replay is not
// taken for a dead one for long.
func TestClockSetBack(t *testing.T) {
	r := joined(t, StreamOptions{Replay: true}, 0, 1)
	r.live(1, 4)
	r.replies(1, 2, 3)
	r.happened("2, 3, 4")
	r.live(-100, 5)
	r.happened("")
	r.wantReplay(4)
	r.replies(1, 4)
	r.replies(-100, 5)
	r.end()
	r.happened("5")
	r.live(-100, 6)
	r.happened("6")
	r.wantState(Live)

	// A new engine whose clock is behind: its content tells.
	r = joined(t, StreamOptions{Replay: true}, 0, 1, 2, 3)
	r.live(-50, 0)
	r.happened("clear: engine restarted, 0")
}

// TestSlowJoiner: what is published after the first replay and before the
// publisher has heard of the subscription is found although nothing follows it.
func TestSlowJoiner(t *testing.T) {
	r := newRig(t, StreamOptions{Replay: true})
	r.Connected(r.now, 1)
	r.replies(1, 0, 1)
	r.end()
	r.wantReplay(-1)
	r.wantState(Live)
	at, ok := r.Stream.Deadline()
	require.True(t, ok)
	r.Tick(at)
	r.wantReplay(1) // what we have, to be sure who answers
	r.replies(1, 1, 2)
	r.end()
	r.happened("0, 1, 2")
	_, ok = r.Stream.Deadline()
	require.False(t, ok)
}

// TestDroppedHere: our own socket drops the last messages, while others wait
// for a replay: that replay is not over when those have their turn.
func TestDroppedHere(t *testing.T) {
	r := joined(t, StreamOptions{Replay: true}, 0)
	r.live(1, 2, 3)
	r.wantReplay(1)
	r.Dropped(r.now) // 4 and 5
	r.replies(1, 1)
	r.happened("1, 2, 3")
	r.wantReplay(-1)
	r.wantState(Degraded)
	at, ok := r.Stream.Deadline()
	require.True(t, ok)
	require.False(t, at.After(r.now))
	r.Tick(r.now)
	r.wantReplay(3)
	r.replies(1, 3, 4, 5)
	r.wantState(Syncing)
	r.end()
	r.happened("4, 5")
	r.wantState(Live)

	r.live(1, 7)
	r.wantReplay(6)
	r.Dropped(r.now)
	r.Interrupted(r.now, r.req.ID)
	r.happened("lost 6-6: replay failed, clear: batches lost, 7")

	r = joined(t, StreamOptions{}, 0) // nobody to ask: the next message tells
	r.Dropped(r.now)
	r.wantState(Degraded)
	r.live(1, 1)
	r.wantState(Live)
}

func TestReplayFaults(t *testing.T) {
	gap := func(policy LossPolicy) *rig {
		r := joined(t, StreamOptions{Replay: true, OnLoss: policy}, 0, 1)
		r.live(1, 6)
		r.wantReplay(2)
		return r
	}
	r := gap(ClearOnLoss) // the buffer starts late
	r.replies(1, 4, 5)
	r.happened("lost 2-3: left the replay buffer, clear: batches lost, 4, 5, 6")
	require.True(t, r.d.losses[0].Removals)
	r.wantState(Degraded)
	require.False(t, r.Status(r.now).Excess)

	r = gap(KeepOnLoss) // a hole
	r.replies(1, 2, 5)
	r.happened("2, lost 3-4: hole in the replay, 5, 6")
	require.True(t, r.Status(r.now).Excess)
	r.Disprove(r.now)
	r.happened("clear: disproved")
	require.False(t, r.Status(r.now).Excess)

	r = gap(ClearOnLoss) // the end marker comes early: asked again, then lost
	r.replies(1, 2, 3)
	r.end()
	r.wantReplay(4)
	r.end()
	r.happened("2, 3, lost 4-5: replay ended early, clear: batches lost, 6")

	r = gap(ClearOnLoss) // it never ends
	r.Sent(r.now, r.req.ID)
	r.replies(1, 2)
	r.now = sec(9)
	r.Tick(r.now)
	r.wantReplay(2)
	r.now = sec(11)
	at, ok := r.Stream.Deadline()
	require.True(t, ok)
	require.False(t, at.After(r.now))
	r.Tick(r.now)
	r.happened("2, lost 3-5: replay failed, clear: batches lost, 6")
	r.wantReplay(-1)

	r = gap(ClearOnLoss) // answers older than asked
	r.replies(1, 0, 1, 2, 3, 4, 5)
	r.happened("2, 3, 4, 5, 6")
	r.wantState(Live)

	r = gap(ClearOnLoss) // the live stream fills the hole itself, late
	r.live(1, 4, 5, 3, 2)
	r.happened("2, 3, 4, 5, 6")
	r.wantReplay(-1)
	r.wantState(Live)
	r.Reply(r.now, r.lastID, Reply{Seq: 3, Payload: batchOf(3, 4)})
	require.EqualValues(t, 1, r.Stats().Stray)

	r = joined(t, StreamOptions{Replay: true, PendingBatches: 3}, 0) // too much waits
	r.live(1, 2, 3, 4, 5, 6)
	r.happened("lost 1-1: too many live batches waited for the replay, clear: batches lost, 2, 3, 4, 5, 6")
	r.now = sec(2)
	r.Tick(r.now)
	r.wantReplay(0)
	r.replies(1, 0, 1, 2, 3, 4, 5, 6)
	r.end()
	r.happened("clear: resynchronized, 0, 1, 2, 3, 4, 5, 6")
	r.wantState(Live)
}

// TestPayloadLoss: a batch that cannot be read, in whole or in part.
func TestPayloadLoss(t *testing.T) {
	r := joined(t, StreamOptions{}, 0)
	r.Message(r.now, 1, Message{Seq: 1, Payload: []byte("\x92\x02")})
	r.happened("lost 1-1: payload unreadable, clear: batches lost")
	r.live(1, 2)
	r.happened("2")
	r.Message(r.now, 1, Message{Seq: 3, Payload: pack(t, arr{5, arr{goodStored, arr{"BlockRemoved", 5}}})})
	r.happened("3, lost 3-3: malformed events, clear: batches lost")
	require.EqualValues(t, 1, r.Stats().Malformed[ReasonFieldType])
	r.Message(r.now, 1, Message{Seq: 4, Payload: pack(t, arr{6, arr{goodStored, arr{"BlockStored", 5}}})})
	r.happened("4, lost 4-4: malformed events") // a store only: nothing can be too much
	require.Len(t, r.d.blocks, 2)
	r.Garbage()
	require.EqualValues(t, 1, r.Stats().Garbage)
}

func TestDecayOnLoss(t *testing.T) {
	r := joined(t, StreamOptions{OnLoss: DecayOnLoss, Decay: time.Minute}, 0, 1)
	r.live(1, 3)
	r.happened("lost 2-2: gap without a replay endpoint, 3")
	require.Equal(t, 1.0, r.Status(r.now).Confidence)
	require.InDelta(t, 0.5, r.Status(sec(30)).Confidence, 1e-9)
	at, ok := r.Stream.Deadline()
	require.True(t, ok)
	require.Equal(t, sec(60), at)
	r.Tick(sec(59))
	r.happened("")
	r.Tick(sec(60))
	r.happened("clear: knowledge decayed")
	require.Equal(t, 1.0, r.Status(sec(60)).Confidence)
	r.wantState(Degraded)
	r.Message(r.now, 1, Message{Seq: 4, Payload: batchOf(4, 9, Event{Kind: AllBlocksCleared})})
	r.wantState(Live)
}

// TestClearWithTiers: a clear makes a stream exact only when the device is all
// there is.
func TestClearWithTiers(t *testing.T) {
	r := newRig(t, StreamOptions{})
	r.live(1, 5)
	cpu := Event{Kind: BlockStored, Hashes: []uint64{1}, Medium: []byte("CPU")}
	r.Message(r.now, 1, Message{Seq: 6, Payload: batchOf(6, 9, cpu)})
	r.Message(r.now, 1, Message{Seq: 7, Payload: batchOf(7, 10, Event{Kind: AllBlocksCleared})})
	r.wantState(Degraded)
}

func TestTrialT120Restarted(t *testing.T) {
	r := joined(t, StreamOptions{Replay: true}, 0, 1, 2)
	r.Restarted(r.now, 0.5) // all is newer
	r.happened("")
	r.Restarted(r.now, 50)
	r.happened("clear: engine restarted")
	r.wantReplay(0)
	r.replies(100, 0, 1)
	r.end()
	r.happened("0, 1")
	r.Restarted(r.now, 50)
	r.happened("")
	r.wantState(Live)
}

func TestStreamOptions(t *testing.T) {
	for _, o := range []StreamOptions{{Decay: -1}, {RetryMin: -1}, {PendingBytes: -1}, {OnLoss: 9}} {
		_, err := NewStream(o, &diary{})
		require.ErrorContains(t, err, "kvevents: StreamOptions.")
	}
	_, err := NewStream(StreamOptions{}, nil)
	require.Error(t, err)
}

// TestStreamAllocs: a live message costs its decoding and no memory.
func TestStreamAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s, err := NewStream(StreamOptions{Replay: true}, nothing{})
	require.NoError(t, err)
	payload := AppendBatch(nil, busyBatch(64, 16), mustForm(t, "vllm", "0.32.0"))
	seq := uint64(0)
	now := sec(0)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.Message(now, 1, Message{Seq: seq, Payload: payload})
		seq++
	}))
	require.Equal(t, Live, s.Status(now).State)
}

type nothing struct{}

func (nothing) Apply(uint64, *Batch) {}
func (nothing) Clear(ClearCause)     {}
func (nothing) Lost(Loss)            {}
