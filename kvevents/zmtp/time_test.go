package zmtp

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Trial T146: the publisher is gone for a while and comes back at the same
// address; also, it was not there at first. The clock is fake.
func TestPublisherRestart(t *testing.T) {
	for _, pause := range []time.Duration{200 * time.Millisecond, 5 * time.Second, time.Minute, time.Hour} {
		t.Run(pause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var network pipeNet
				var seen events
				sub, err := NewSub(Options{DialContext: network.dial, Monitor: &seen})
				require.NoError(t, err)
				defer sub.Close()
				require.NoError(t, sub.Subscribe("kv"))
				require.NoError(t, sub.Dial(pipeEndpoint))
				time.Sleep(pause) // dial before bind

				var m Message
				var lastPeer uint64
				for life := range 3 {
					pub, err := NewPub(Options{})
					require.NoError(t, err)
					network.bind(pub.socket)
					back := time.Now()
					time.Sleep(DefaultReconnectMax)
					synctest.Wait()
					require.Equal(t, 1, pub.Subscriptions(), "dialed and subscribed again within ReconnectMax")
					require.NoError(t, pub.Send([]byte("kv"), []byte{byte(life)}))
					require.NoError(t, sub.Recv(t.Context(), &m))
					require.Equal(t, []byte{byte(life)}, m.Frames[1])
					require.Greater(t, m.Peer, lastPeer, "a new connection has a new number")
					lastPeer = m.Peer
					require.LessOrEqual(t, time.Since(back), DefaultReconnectMax+time.Second)

					time.Sleep(time.Minute)
					network.serve(nil)
					require.NoError(t, pub.Close())
					time.Sleep(pause)
				}
				st := sub.Stats()
				require.EqualValues(t, 3, st.Connects)
				require.EqualValues(t, 3, st.Disconnects)
				require.Len(t, seen.of(Connected), 3)
				require.Len(t, seen.of(Disconnected), 3)
			})
		})
	}
}

// The waits double to the maximum and are never more than half shortened.
func TestBackoff(t *testing.T) {
	b := backoff{min: 50 * time.Millisecond, max: 2 * time.Second}
	for range 3 {
		for _, full := range []int{50, 100, 200, 400, 800, 1600, 2000, 2000} {
			full := time.Duration(full) * time.Millisecond
			d := b.wait()
			require.LessOrEqual(t, d, full)
			require.GreaterOrEqual(t, d, full/2)
		}
		b.reset()
	}
}

// A peer that accepts and hangs up at once is not dialed in a tight loop.
func TestNoTightReconnectLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network pipeNet
		var n atomic.Int64
		network.serve(func(nc net.Conn) {
			n.Add(1)
			go func() {
				newPeer(nc).handshake("PUB", "", 1)
				nc.Close()
			}()
		})
		sub, err := NewSub(Options{DialContext: network.dial})
		require.NoError(t, err)
		defer sub.Close()
		require.NoError(t, sub.Dial(pipeEndpoint))
		time.Sleep(time.Hour)
		require.Less(t, n.Load(), int64(3700))
		require.Greater(t, n.Load(), int64(1700))
	})
}

// A half-open connection is noticed: nothing comes, and no PONG either.
func TestSilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		sub, err := NewSub(Options{Monitor: &seen})
		require.NoError(t, err)
		defer sub.Close()
		p := connect(sub.socket)
		require.NoError(t, p.handshake("PUB", "", 1))
		start := time.Now()
		p.discard()
		for len(seen.of(Disconnected)) == 0 {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		require.Equal(t, ErrPeerSilent, seen.of(Disconnected)[0].Err)
		require.GreaterOrEqual(t, time.Since(start), DefaultHeartbeatTimeout)
		require.LessOrEqual(t, time.Since(start), DefaultHeartbeatTimeout+DefaultHeartbeatInterval)
	})
}

// An idle peer that answers PING is kept, and so is one of ZMTP 3.0, which is
// sent none.
func TestIdlePeerIsKept(t *testing.T) {
	for minor := range byte(2) {
		synctest.Test(t, func(t *testing.T) {
			sub, err := NewSub(Options{})
			require.NoError(t, err)
			defer sub.Close()
			p := connect(sub.socket)
			require.NoError(t, p.handshake("PUB", "", minor))
			pings := 0
			go func() {
				for {
					name, data, err := p.readCommand()
					if err != nil {
						return
					}
					if name == cmdPing {
						pings++
						p.nc.Write(appendCommand(nil, cmdPong, data[2:]))
					}
				}
			}()
			time.Sleep(6 * time.Hour)
			synctest.Wait()
			require.Equal(t, 1, sub.Stats().Peers)
			if minor == 0 {
				require.Zero(t, pings)
			} else {
				require.Greater(t, pings, 6*60)
			}
		})
	}
}

// Two sockets of this package keep an idle connection, and a busy one sends no
// PING.
func TestHeartbeatsOfOurOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network pipeNet
		pub, err := NewPub(Options{})
		require.NoError(t, err)
		defer pub.Close()
		network.bind(pub.socket)
		sub, err := NewSub(Options{DialContext: network.dial, HeartbeatInterval: -1})
		require.NoError(t, err)
		defer sub.Close()
		require.NoError(t, sub.Subscribe(""))
		require.NoError(t, sub.Dial(pipeEndpoint))
		time.Sleep(24 * time.Hour)
		require.EqualValues(t, 1, sub.Stats().Connects)
		require.Equal(t, 1, pub.Stats().Peers)
	})
}

// A PING may ask to be given up after a time of silence.
func TestPingTimeToLive(t *testing.T) {
	for _, interval := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			sub, err := NewSub(Options{HeartbeatInterval: interval})
			require.NoError(t, err)
			defer sub.Close()
			p := connect(sub.socket)
			require.NoError(t, p.handshake("PUB", "", 1))
			_, err = p.nc.Write(appendCommand(nil, cmdPing, []byte{0, 20}, []byte("context")))
			require.NoError(t, err)
			name, data, err := p.readCommand()
			require.NoError(t, err)
			require.Equal(t, cmdPong, name)
			require.Equal(t, "context", string(data))
			p.discard()
			time.Sleep(1900 * time.Millisecond)
			require.Equal(t, 1, sub.Stats().Peers)
			time.Sleep(2200 * time.Millisecond)
			require.Zero(t, sub.Stats().Peers)
		})
	}
}

// A handshake has a deadline, whatever the pace at which the peer sends.
func TestSlowHandshake(t *testing.T) {
	whole := appendReady(appendGreeting(nil), ready{socketType: "PUB"})
	for _, stopAt := range []int{0, 1, signatureSize, greetingSize, greetingSize + 3, len(whole)} {
		synctest.Test(t, func(t *testing.T) {
			var seen events
			sub, err := NewSub(Options{Monitor: &seen})
			require.NoError(t, err)
			defer sub.Close()
			p := connect(sub.socket)
			p.discard()
			go func() {
				for _, b := range whole[:min(stopAt, len(whole)-1)] {
					time.Sleep(200 * time.Millisecond)
					p.nc.Write([]byte{b})
				}
			}()
			time.Sleep(DefaultHandshakeTimeout)
			synctest.Wait()
			require.EqualValues(t, 1, sub.Stats().HandshakeFailures)
			require.ErrorContains(t, seen.of(HandshakeFailed)[0].Err, "within 5s")
			time.Sleep(time.Minute)
		})
	}
}

// A peer that does not read holds up its own connection only, and Close.
func TestPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, err := NewPub(Options{SendMessages: 10, Linger: 3 * time.Second})
		require.NoError(t, err)
		stalled := connect(pub.socket)
		require.NoError(t, stalled.handshake("SUB", "", 1))
		_, err = stalled.nc.Write(appendCommand(nil, cmdSubscribe))
		require.NoError(t, err)
		// Not even the answers to its PINGs pile up.
		for range 10_000 {
			_, err = stalled.nc.Write(appendCommand(nil, cmdPing, []byte{0, 0}))
			require.NoError(t, err)
		}
		var network pipeNet
		network.bind(pub.socket)
		sub, err := NewSub(Options{DialContext: network.dial})
		require.NoError(t, err)
		defer sub.Close()
		require.NoError(t, sub.Subscribe(""))
		require.NoError(t, sub.Dial(pipeEndpoint))
		synctest.Wait()
		var m Message
		for i := range 100 {
			require.NoError(t, pub.Send([]byte{byte(i)}))
			require.NoError(t, sub.Recv(t.Context(), &m))
			require.Equal(t, []byte{byte(i)}, m.Frames[0])
		}
		require.EqualValues(t, 90, pub.Stats().SendDropped)
		require.EqualValues(t, 110, pub.Stats().Sent)
		start := time.Now()
		require.NoError(t, pub.Close())
		require.Equal(t, 3*time.Second, time.Since(start))
		_, err = io.Copy(io.Discard, stalled.br)
		require.NoError(t, err)
	})
}
