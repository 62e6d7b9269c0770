package zmtp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPubSub(t *testing.T) {
	for _, ep := range []string{"tcp://127.0.0.1:0", "tcp://[::1]:*", "tcp://*:0", "tcp://[::]:0", "ipc://" + t.TempDir() + "/s", "ipc://@kvatlas-zmtp-test"} {
		t.Run(ep, func(t *testing.T) {
			ctx := testContext(t)
			pub := open(t, NewPub, Options{})
			bound, err := pub.Bind(ep)
			require.NoError(t, err)
			sub := open(t, NewSub, Options{})
			require.NoError(t, sub.Subscribe("kv"))
			require.NoError(t, sub.Dial(bound))
			require.NoError(t, sub.Dial(bound), "again does nothing")
			eventually(t, "subscription", func() bool { return pub.Subscriptions() == 1 })
			require.NoError(t, pub.Send([]byte("other"), []byte("no")))
			require.NoError(t, pub.Send([]byte("kv@1"), make([]byte, 300), nil))
			var m Message
			require.NoError(t, sub.Recv(ctx, &m))
			require.Equal(t, [][]byte{[]byte("kv@1"), make([]byte, 300), {}}, m.Frames)
			require.Equal(t, 304, m.Bytes())
			require.NotZero(t, m.Peer)
			require.Equal(t, 1, pub.Stats().Peers)
			require.EqualValues(t, 1, pub.Stats().Sent)
		})
	}
}

// An engine connects its PUB when its endpoint names an address; many may share
// a bound SUB, and Message.Peer tells them apart.
func TestPublishersDialASub(t *testing.T) {
	ctx := testContext(t)
	sub := open(t, NewSub, Options{})
	require.NoError(t, sub.Subscribe(""))
	bound, err := sub.Bind("tcp://127.0.0.1:0")
	require.NoError(t, err)
	const publishers, each = 64, 20
	for i := range publishers {
		pub := open(t, NewPub, Options{})
		require.NoError(t, pub.Dial(bound))
		go func() {
			for pub.Subscriptions() == 0 {
				time.Sleep(time.Millisecond)
			}
			for n := range each {
				pub.Send([]byte(fmt.Sprint(i)), []byte(fmt.Sprint(n)))
			}
		}()
	}
	next := map[string]int{}
	peerOf := map[string]uint64{}
	var m Message
	for range publishers * each {
		require.NoError(t, sub.Recv(ctx, &m))
		who := string(m.Frames[0])
		require.Equal(t, fmt.Sprint(next[who]), string(m.Frames[1]))
		next[who]++
		if peerOf[who] == 0 {
			peerOf[who] = m.Peer
		}
		require.Equal(t, peerOf[who], m.Peer)
	}
	require.Len(t, peerOf, publishers)
}

func TestDealerRouter(t *testing.T) {
	ctx := testContext(t)
	router := open(t, NewRouter, Options{})
	bound, err := router.Bind("tcp://127.0.0.1:0")
	require.NoError(t, err)
	named := open(t, NewDealer, Options{Identity: "me"})
	require.NoError(t, named.Dial(bound))
	unnamed := open(t, NewDealer, Options{})
	require.NoError(t, unnamed.Dial(bound))
	var m, answer Message
	for i := range 100 {
		for _, d := range []*Dealer{named, unnamed} {
			require.NoError(t, d.Send(ctx, nil, []byte("ask")))
			require.NoError(t, router.Recv(ctx, &m))
			require.Len(t, m.Frames, 3)
			require.Equal(t, "ask", string(m.Frames[2]))
			if d == named {
				require.Equal(t, "me", string(m.Frames[0]))
			} else {
				require.Len(t, m.Frames[0], 5)
				require.Zero(t, m.Frames[0][0])
			}
			require.NoError(t, router.Send(m.Frames[0], nil, fmt.Append(nil, i)))
			require.NoError(t, d.Recv(ctx, &answer))
			require.Equal(t, []string{"", fmt.Sprint(i)}, texts(&answer))
		}
	}
	require.ErrorIs(t, router.Send([]byte("you"), nil), ErrUnroutable)
	require.ErrorIs(t, router.Send([]byte("me")), ErrNoFrames)
	require.ErrorIs(t, named.Send(ctx), ErrNoFrames)
}

// A name in use is refused: no peer takes the place of another.
func TestRouterIdentityInUse(t *testing.T) {
	ctx := testContext(t)
	router := open(t, NewRouter, Options{})
	bound, err := router.Bind("tcp://127.0.0.1:0")
	require.NoError(t, err)
	first := open(t, NewDealer, Options{Identity: "me"})
	require.NoError(t, first.Dial(bound))
	eventually(t, "first", func() bool { return router.Stats().Peers == 1 })
	var seen events
	second := open(t, NewDealer, Options{Identity: "me", Monitor: &seen})
	require.NoError(t, second.Dial(bound))
	eventually(t, "refusal", func() bool { return router.Stats().HandshakeFailures > 0 })
	eventually(t, "reason", func() bool { return len(seen.of(Disconnected)) > 0 })
	var refused *PeerError
	require.ErrorAs(t, seen.of(Disconnected)[0].Err, &refused)
	require.Contains(t, refused.Reason, "identity")
	require.NoError(t, router.Send([]byte("me"), []byte("hello")))
	var m Message
	require.NoError(t, first.Recv(ctx, &m))
	require.NoError(t, first.Close())
	eventually(t, "end of first", func() bool { return router.Stats().Disconnects == 1 })
	eventually(t, "second", func() bool { return router.Send([]byte("me"), []byte("hello")) == nil })
	require.NoError(t, second.Recv(ctx, &m))
}

// Send of a Dealer waits for a peer, and for room.
func TestDealerWaits(t *testing.T) {
	d := open(t, NewDealer, Options{SendMessages: 2})
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, d.Send(short, []byte("x")), context.DeadlineExceeded)
	require.ErrorIs(t, d.Send(short, []byte("x")), context.DeadlineExceeded)

	p := connect(d.socket)
	require.NoError(t, p.handshake("ROUTER", "", 1))
	ctx := testContext(t)
	var senders sync.WaitGroup
	const senderCount, each = 4, 50
	for range senderCount {
		senders.Go(func() {
			for range each {
				if err := d.Send(ctx, []byte("x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range senderCount * each {
		flags, size, err := readHeader(p.br)
		require.NoError(t, err)
		require.Zero(t, flags)
		require.EqualValues(t, 1, size)
		_, err = p.br.Discard(1)
		require.NoError(t, err)
	}
	senders.Wait()
}

func TestUnsubscribe(t *testing.T) {
	for minor := range byte(2) {
		sub := open(t, NewSub, Options{})
		require.NoError(t, sub.Subscribe("b"))
		require.NoError(t, sub.Subscribe("a"))
		p := connect(sub.socket)
		require.NoError(t, p.handshake("PUB", "", minor))
		p.discard()
		eventually(t, "peer", func() bool { return sub.Stats().Peers == 1 })
		require.NoError(t, sub.Unsubscribe("a"))
		require.NoError(t, sub.Unsubscribe("a"), "again does nothing")
		require.NoError(t, p.send("a1", "no"))
		require.NoError(t, p.send("b1", "yes"))
		var m Message
		require.NoError(t, sub.Recv(testContext(t), &m))
		require.Equal(t, []string{"b1", "yes"}, texts(&m))
		require.EqualValues(t, 1, sub.Stats().Filtered)
		require.EqualValues(t, 2, sub.Stats().Received)
		require.EqualValues(t, len("a1no")+len("b1yes"), sub.Stats().ReceivedBytes)
	}
	sub := open(t, NewSub, Options{})
	require.ErrorIs(t, sub.Subscribe(string(make([]byte, maxTopic+1))), ErrTopicTooLong)
}

// What goes over the wire for a subscription, by version (RFC 23 and RFC 37).
func TestSubscriptionForms(t *testing.T) {
	for minor, want := range []string{"\x00\x03\x01kv", "\x04\x0c\x09SUBSCRIBEkv"} {
		sub := open(t, NewSub, Options{})
		require.NoError(t, sub.Subscribe("kv"))
		p := connect(sub.socket)
		require.NoError(t, p.handshake("XPUB", "", byte(minor)))
		got := make([]byte, len(want))
		_, err := p.br.Read(got)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	// A Pub takes both forms from anybody.
	pub := open(t, NewPub, Options{})
	p := connect(pub.socket)
	require.NoError(t, p.handshake("SUB", "", 1))
	p.discard()
	require.NoError(t, p.send("\x01a"))
	p.nc.Write(appendCommand(nil, cmdSubscribe, []byte("b")))
	eventually(t, "two", func() bool { return pub.Subscriptions() == 2 })
	require.NoError(t, p.send("\x00a"))
	require.NoError(t, p.send("\x05ignored"))
	require.NoError(t, p.send(""))
	p.nc.Write(appendCommand(nil, cmdCancel, []byte("b")))
	p.nc.Write(appendCommand(nil, "JOIN", []byte("ignored")))
	eventually(t, "none", func() bool { return pub.Subscriptions() == 0 })
	require.Equal(t, 1, pub.Stats().Peers)
}

func TestCloseEndsEverything(t *testing.T) {
	ctx := testContext(t)
	sub := open(t, NewSub, Options{})
	require.NoError(t, sub.Dial("tcp://127.0.0.1:1"))
	bound, err := sub.Bind("tcp://127.0.0.1:0")
	require.NoError(t, err)
	dealer := open(t, NewDealer, Options{})
	var waiting sync.WaitGroup
	for range 4 {
		waiting.Go(func() {
			var m Message
			if err := sub.Recv(ctx, &m); err != ErrClosed {
				t.Error(err)
			}
			if err := dealer.Send(ctx, []byte("x")); err != ErrClosed {
				t.Error(err)
			}
		})
	}
	time.Sleep(10 * time.Millisecond)
	for range 4 {
		waiting.Go(func() { sub.Close(); dealer.Close() })
	}
	waiting.Wait()
	var m Message
	require.ErrorIs(t, sub.Recv(ctx, &m), ErrClosed)
	require.ErrorIs(t, sub.Subscribe(""), ErrClosed)
	require.ErrorIs(t, sub.Dial("tcp://127.0.0.1:1"), ErrClosed)
	_, err = sub.Bind("tcp://127.0.0.1:0")
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, dealer.Send(ctx, []byte("x")), ErrClosed)
	pub := open(t, NewPub, Options{})
	require.NoError(t, pub.Close())
	require.ErrorIs(t, pub.Send([]byte("x")), ErrClosed)
	require.ErrorIs(t, pub.Send(), ErrNoFrames)
	router := open(t, NewRouter, Options{})
	require.NoError(t, router.Close())
	require.ErrorIs(t, router.Send(nil, nil), ErrClosed)
	_, err = net.Dial("tcp", bound[len("tcp://"):])
	require.Error(t, err, "the port is free again")
}

// Trial T144: every method from many goroutines while messages come and the
// socket is closed.
func TestAnyGoroutineConcurrentSafe(t *testing.T) {
	for range 5 {
		ctx := testContext(t)
		pub := open(t, NewPub, Options{})
		bound, err := pub.Bind("tcp://127.0.0.1:0")
		require.NoError(t, err)
		sub := open(t, NewSub, Options{ReceiveMessages: 8})
		require.NoError(t, sub.Subscribe(""))
		require.NoError(t, sub.Dial(bound))
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				var m Message
				for {
					err := sub.Recv(ctx, &m)
					if err == ErrClosed {
						return
					}
					if _, ok := errors.AsType[*LossError](err); err != nil && !ok {
						t.Error(err)
						return
					}
				}
			})
			all.Go(func() {
				topic := fmt.Sprint(i)
				for sub.Subscribe(topic) == nil && sub.Unsubscribe(topic) == nil {
					sub.Stats()
				}
			})
			all.Go(func() {
				for pub.Send([]byte("t"), make([]byte, 100)) == nil {
					pub.Stats()
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		for range 2 {
			all.Go(func() { sub.Close() })
			all.Go(func() { pub.Close() })
		}
		all.Wait()
	}
}

// Trial T148: the dial timeout does not bound the life of the socket, an idle
// Recv returns nothing, and a cancelled context ends it.
func TestDialTimeoutIsNotTheLifeOfTheSocket(t *testing.T) {
	pub := open(t, NewPub, Options{})
	bound, err := pub.Bind("tcp://127.0.0.1:0")
	require.NoError(t, err)
	sub := open(t, NewSub, Options{DialTimeout: 50 * time.Millisecond, HandshakeTimeout: 50 * time.Millisecond})
	require.NoError(t, sub.Subscribe(""))
	require.NoError(t, sub.Dial(bound))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var m Message
	require.ErrorIs(t, sub.Recv(ctx, &m), context.DeadlineExceeded)
	require.Empty(t, m.Frames)
	require.EqualValues(t, 1, sub.Stats().Connects)
	require.Zero(t, sub.Stats().Disconnects)
	require.NoError(t, pub.Send([]byte("late")))
	require.NoError(t, sub.Recv(testContext(t), &m))
}

// A socket file left by a process that died is replaced, one in use is not.
func TestBindIPC(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	dead.SetUnlinkOnClose(false)
	require.NoError(t, dead.Close())
	first := open(t, NewPub, Options{})
	_, err = first.Bind("ipc://" + path)
	require.NoError(t, err)
	second := open(t, NewPub, Options{})
	_, err = second.Bind("ipc://" + path)
	var bind *BindError
	require.ErrorAs(t, err, &bind)
	require.ErrorContains(t, err, "in use")
	require.NoError(t, first.Close())
	_, err = second.Bind("ipc://" + path)
	require.NoError(t, err)
}

func TestLinger(t *testing.T) {
	ctx := testContext(t)
	pub := open(t, NewPub, Options{SendMessages: 5000, Linger: 10 * time.Second})
	bound, err := pub.Bind("tcp://127.0.0.1:0")
	require.NoError(t, err)
	sub := open(t, NewSub, Options{})
	require.NoError(t, sub.Subscribe(""))
	require.NoError(t, sub.Dial(bound))
	eventually(t, "subscription", func() bool { return pub.Subscriptions() == 1 })
	const n = 5000
	for i := range n {
		require.NoError(t, pub.Send(fmt.Append(nil, i), make([]byte, 1000)))
	}
	require.NoError(t, pub.Close())
	var m Message
	for i := range n {
		require.NoError(t, sub.Recv(ctx, &m))
		require.Equal(t, fmt.Sprint(i), string(m.Frames[0]))
	}
}
