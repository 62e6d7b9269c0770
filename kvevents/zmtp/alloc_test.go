package zmtp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A message goes from Pub.Send over a TCP connection to Sub.Recv without an
// allocation, on either side, in steady state. The least of several runs counts,
// since the collector may empty the pools in any of them.
func TestNoAllocsPerMessage(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ctx := testContext(t)
	pub := open(t, NewPub, Options{})
	bound, err := pub.Bind("tcp://127.0.0.1:0")
	require.NoError(t, err)
	sub := open(t, NewSub, Options{})
	require.NoError(t, sub.Subscribe("kv"))
	require.NoError(t, sub.Dial(bound))
	eventually(t, "subscription", func() bool { return pub.Subscriptions() == 1 })
	for _, size := range []int{0, 100, 4_000, 100_000, 1_000_000} {
		frames := [][]byte{[]byte("kv@engine"), make([]byte, 8), make([]byte, size)}
		var m Message
		least := 1e9
		for range 5 {
			least = min(least, testing.AllocsPerRun(200, func() {
				if err := pub.Send(frames...); err != nil {
					t.Error(err)
				}
				if err := sub.Recv(ctx, &m); err != nil {
					t.Error(err)
				}
			}))
		}
		require.Zero(t, least, "%d bytes", size)
	}
}

func TestPacketClasses(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, 257, 4096, maxPooled, maxPooled + 1} {
		p := newPacket(n)
		require.GreaterOrEqual(t, cap(p.buf), n)
		require.LessOrEqual(t, cap(p.buf), max(256, 2*n))
		require.Empty(t, p.buf)
		p.buf = append(p.buf, 1)
		p.grow(3 * n)
		require.Equal(t, []byte{1}, p.buf)
		require.GreaterOrEqual(t, cap(p.buf), 1+3*n)
		p.free()
	}
}
