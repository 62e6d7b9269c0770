package kvevents

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForgedNumber: a message far beyond the engine's own, of any time, does not keep the
// stream from what the engine publishes after it: a replay shows that it is not the engine's;
// without one two more messages do. What is then known is the engine's own.
func TestForgedNumber(t *testing.T) {
	for _, replay := range []bool{true, false} {
		for _, at := range []float64{0, 15.5, 1e12} {
			for _, seq := range []uint64{40, 1 << 40, 1<<64 - 2, 1<<64 - 1} {
				t.Run(fmt.Sprint(replay, at, seq), func(t *testing.T) {
					r := newRig(t, StreamOptions{Replay: replay})
					last := uint64(9)
					// serve answers what is asked, as long as something is.
					serve := func() {
						for n := 0; r.req.active; n++ {
							require.Less(t, n, 10)
							r.Sent(r.now, r.req.ID)
							for s, id := r.req.From, r.req.ID; s <= last && r.req.ID == id; s++ {
								r.replies(1, s)
							}
							r.end()
						}
					}
					publish := func() {
						last++
						r.live(1, last)
						serve()
					}
					r.Connected(r.now, 1)
					serve()
					for range 5 {
						publish()
					}
					r.Message(r.now, 1, Message{Seq: seq, Payload: batchOf(seq, at)})
					serve()
					for range 4 {
						r.now = r.now.Add(1e9)
						publish()
						r.Tick(r.now)
						serve()
					}
					st := r.Status(r.now)
					require.Equal(t, last+1, st.Next)
					want := map[uint64]int{}
					if replay {
						require.Equal(t, Live, st.State, "%+v %s", st, r.d.take())
						for s := range last + 1 {
							want[s<<32|(1+s)*16]++
						}
						require.Equal(t, want, r.d.blocks)
					} else { // what came before is unknown, but nothing is held that is not the engine's
						require.NotEmpty(t, r.d.blocks)
						for hash := range r.d.blocks {
							require.LessOrEqual(t, hash>>32, last, "%s", r.d.take())
						}
					}
				})
			}
		}
	}
}

// TestAnswersOfADeadEngine: an answer that is older than a live batch of a lower number is from
// before a restart, and is not believed.
func TestAnswersOfADeadEngine(t *testing.T) {
	r := newRig(t, StreamOptions{Replay: true})
	r.Connected(r.now, 0)
	r.end()
	r.Message(r.now, 0, Message{Seq: 0, Payload: batchOf(0, 1)})
	r.Message(r.now, 0, Message{Seq: 5, Payload: batchOf(5, 100)})
	require.True(t, r.req.active)
	r.Sent(r.now, r.req.ID)
	r.replies(40, 9) // at 49
	require.NotContains(t, r.d.take(), "9")
	require.Equal(t, Degraded, r.Status(r.now).State)
}
