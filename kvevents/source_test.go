package kvevents

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/stretchr/testify/require"
)

// silent is a Handler that does nothing.
type silent struct{}

func (silent) Apply(Source, uint64, *Batch) {}
func (silent) Clear(Source, ClearCause)     {}
func (silent) Lost(Loss)                    {}

// TestSourceAllocs: from the frames of a live message to the handler nothing
// is allocated in steady state, timers and states included.
func TestSourceAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s, err := NewSubscriber(SubscriberOptions{Handler: silent{}, SilentAfter: time.Hour})
	require.NoError(t, err)
	defer s.Close()
	src, err := s.newSource(Target{Worker: "a"}, 0, "tcp://h:1", "")
	require.NoError(t, err)
	defer src.close()
	form, err := FormFor("vllm", "0.32.0")
	require.NoError(t, err)
	m := zmtp.Message{Peer: 1, Frames: [][]byte{nil, make([]byte, 8), AppendBatch(nil, busyBatch(64, 16), form)}}
	seq := uint64(0)
	require.Zero(t, testing.AllocsPerRun(200, func() {
		binary.BigEndian.PutUint64(m.Frames[1], seq)
		src.live(&m)
		seq++
	}))
	require.Equal(t, seq, src.status().Next)
}

// FuzzStream: whatever a publisher and its replay endpoint send, in any order,
// a stream does not panic, keeps what waits within bounds, applies sequences in
// rising order between clears, and says Live only while nothing was lost since
// the last restart or clear of the engine.
func FuzzStream(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 0, 2, 0, 0, 5, 0, 1, 3, 0, 1, 4, 0, 3, 0, 0}, true)
	f.Add([]byte{2, 0, 0, 0, 1, 9, 9, 1, 9, 9, 2, 1, 0, 1, 4, 5, 0, 6, 0}, true)
	f.Add([]byte{0, 0, 0, 0, 0, 200, 7, 0, 3, 0, 9, 1, 0, 0}, false)
	f.Fuzz(func(t *testing.T, in []byte, replay bool) {
		sink := &orderly{t: t}
		s, err := NewStream(StreamOptions{Replay: replay, PendingBatches: 20, PendingBytes: 4000}, sink)
		require.NoError(t, err)
		now := sec(0)
		take := func() uint64 {
			if len(in) == 0 {
				return 0
			}
			b := in[0]
			in = in[1:]
			return uint64(b)
		}
		seqOf := func() uint64 {
			switch n := take(); {
			case n == 255:
				return math.MaxUint64 - 1
			case n == 254:
				return 1 << 40
			default:
				return n % 32
			}
		}
		payloadOf := func() []byte {
			n := take()
			if n >= 250 { // anything
				k := min(int(take()), len(in))
				p := in[:k]
				in = in[k:]
				return p
			}
			events := []Event{{Kind: BlockStored, Hashes: []uint64{n % 4}}, {Kind: BlockRemoved, Hashes: []uint64{n % 3}}}
			if n%16 == 0 {
				events = append(events, Event{Kind: AllBlocksCleared})
			}
			return batchOf(0, float64(n), events...)
		}
		conn := uint64(1)
		for len(in) > 0 {
			q, wanted := s.Request()
			switch take() % 12 {
			case 0, 1, 2, 3:
				s.Message(now, conn, Message{Seq: seqOf(), Payload: payloadOf()})
			case 4, 5:
				s.Reply(now, q.ID, Reply{Seq: seqOf(), Payload: payloadOf()})
			case 6:
				s.Reply(now, q.ID, Reply{End: true})
			case 7:
				conn = take() % 8
				s.Connected(now, conn)
			case 8:
				now = now.Add(time.Duration(take()) * 100 * time.Millisecond)
				s.Tick(now)
			case 9:
				s.Failed(now, q.ID)
			case 10:
				s.Dropped(now)
			case 11:
				s.Sent(now, q.ID)
				s.Interrupted(now, q.ID-take()%2)
			}
			require.LessOrEqual(t, len(s.wait.all), 20)
			bytes := 0
			for _, w := range s.wait.all {
				bytes += len(w.payload)
			}
			require.Equal(t, bytes, s.wait.bytes)
			require.False(t, wanted && !replay)
			if at, due := s.Deadline(); due {
				require.False(t, at.After(now.Add(time.Minute)))
			}
			st := s.Status(now)
			require.False(t, st.Excess && !st.Unverified, "excess with ClearOnLoss")
		}
	})
}

type orderly struct {
	t    *testing.T
	next uint64
}

func (o *orderly) Apply(seq uint64, _ *Batch) {
	require.GreaterOrEqual(o.t, seq, o.next)
	o.next = seq + 1
}
func (o *orderly) Clear(ClearCause) { o.next = 0 }
func (o *orderly) Lost(l Loss) {
	require.NotEmpty(o.t, l.Error())
	require.LessOrEqual(o.t, l.From, l.To+1)
}
