package kvevents

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnknownType: an event of a type that is not known may have removed blocks, or stored
// some, so that the stream is not Live until the engine clears or restarts.
func TestUnknownType(t *testing.T) {
	r := newRig(t, StreamOptions{})
	r.live(0, 0, 1)
	require.Equal(t, Live, r.Status(r.now).State)
	message := func(seq uint64, types ...string) {
		payload := []byte{0x92, 0xcb, 0x40, 0x59, 0, 0, 0, 0, 0, byte(seq), 0x90 | byte(len(types))} // [100.0, events]
		for _, name := range types {
			payload = append(append(payload, 0x91, 0xa0|byte(len(name))), name...)
		}
		r.Message(r.now, 1, Message{Seq: seq, Payload: payload})
	}
	message(2, "BlockPinned")
	st := r.Status(r.now)
	require.Equal(t, Degraded, st.State)
	require.Equal(t, []bool{true, true, true, false}, []bool{st.Unread, st.Missing, st.Excess, st.Unverified})
	require.EqualValues(t, 1, r.Stats().UnknownTypes)
	require.Len(t, r.d.blocks, 2, "it is kept all the same")
	require.Zero(t, r.b.Position)

	message(3, "AllBlocksCleared")
	require.Equal(t, Live, r.Status(r.now).State)
	require.NotZero(t, r.b.Position)

	message(4, "AllBlocksCleared", "BlockPinned")
	require.True(t, r.Status(r.now).Unread)
	r.live(200, 0) // a restart
	require.Equal(t, Live, r.Status(r.now).State)

	message(1, "BlockPinned")
	r.Disprove(r.now)
	st = r.Status(r.now)
	require.Equal(t, []bool{false, true, false}, []bool{st.Unread, st.Missing, st.Excess})
	require.Empty(t, r.d.blocks)
}
