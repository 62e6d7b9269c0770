package zmtp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// What does not fit the queue is dropped, counted, and told at its place.
func TestReceiveHighWater(t *testing.T) {
	ctx := testContext(t)
	var seen events
	sub := open(t, NewSub, Options{ReceiveMessages: 3, Monitor: &seen})
	require.NoError(t, sub.Subscribe(""))
	p := connect(sub.socket)
	require.NoError(t, p.handshake("PUB", "", 1))
	p.discard()
	send := func(from, to int) {
		for i := from; i < to; i++ {
			require.NoError(t, p.send(fmt.Sprint(i)))
		}
		eventually(t, "arrival", func() bool { return sub.Stats().Received == uint64(to) })
	}
	var m Message
	recv := func(want ...string) {
		for _, w := range want {
			require.NoError(t, sub.Recv(ctx, &m))
			require.Equal(t, w, string(m.Frames[0]))
		}
	}
	recvLoss := func(want uint64) {
		var lost *LossError
		require.ErrorAs(t, sub.Recv(ctx, &m), &lost)
		require.Equal(t, LossError{Peer: 1, Messages: want}, *lost)
		require.Empty(t, m.Frames)
	}
	send(0, 10)
	require.Equal(t, 3, sub.Stats().Waiting)
	recv("0")
	send(10, 12) // 10 has room
	recv("1", "2")
	recvLoss(7) // 3 to 9
	recv("10")
	recvLoss(1) // 11: told although nothing came after it
	send(12, 13)
	recv("12")
	require.EqualValues(t, 8, sub.Stats().ReceiveDropped)
	require.Len(t, seen.of(Dropped), 2, "once for each run of losses")
	require.Zero(t, sub.Stats().Waiting)
}

func TestReceiveBytesHighWater(t *testing.T) {
	sub := open(t, NewSub, Options{ReceiveBytes: 10_000})
	require.NoError(t, sub.Subscribe(""))
	p := connect(sub.socket)
	require.NoError(t, p.handshake("PUB", "", 1))
	p.discard()
	for range 3 {
		// More than the limit, but always accepted when nothing waits.
		require.NoError(t, p.send(string(make([]byte, 100_000))))
	}
	eventually(t, "arrival", func() bool { return sub.Stats().Received == 3 })
	require.Equal(t, 1, sub.Stats().Waiting)
	var m Message
	require.NoError(t, sub.Recv(testContext(t), &m))
	require.Equal(t, 100_000, m.Bytes())
	var lost *LossError
	require.ErrorAs(t, sub.Recv(testContext(t), &m), &lost)
	require.EqualValues(t, 2, lost.Messages)
}

// A loss while the endpoint of a dialed connection is away is still told.
func TestLossSurvivesReconnect(t *testing.T) {
	var network pipeNet
	sub := open(t, NewSub, Options{ReceiveMessages: 1, DialContext: network.dial, ReconnectMin: 1, ReconnectMax: 1})
	require.NoError(t, sub.Subscribe(""))
	for life := range 2 {
		pub := open(t, NewPub, Options{})
		network.bind(pub.socket)
		require.NoError(t, sub.Dial(pipeEndpoint))
		eventually(t, "subscription", func() bool { return pub.Subscriptions() == 1 })
		for range 3 {
			require.NoError(t, pub.Send([]byte{byte(life)}))
		}
		eventually(t, "arrival", func() bool { return sub.Stats().Received == 3*uint64(life+1) })
		network.serve(nil)
		require.NoError(t, pub.Close())
		eventually(t, "end", func() bool { return sub.Stats().Peers == 0 })
	}
	var m Message
	require.NoError(t, sub.Recv(testContext(t), &m))
	require.Equal(t, []byte{0}, m.Frames[0])
	var lost *LossError
	require.ErrorAs(t, sub.Recv(testContext(t), &m), &lost)
	require.EqualValues(t, 5, lost.Messages)
	require.Greater(t, lost.Peer, m.Peer)
}

// A publisher that floods does not displace another: each has its own queue, and
// they are served in turn.
func TestPeersAreServedInTurn(t *testing.T) {
	sub := open(t, NewSub, Options{ReceiveMessages: 100})
	require.NoError(t, sub.Subscribe(""))
	flood, quiet := connect(sub.socket), connect(sub.socket)
	for _, p := range []*peer{flood, quiet} {
		require.NoError(t, p.handshake("PUB", "", 1))
		p.discard()
	}
	for range 1000 {
		require.NoError(t, flood.send("flood"))
	}
	for range 10 {
		require.NoError(t, quiet.send("quiet"))
	}
	eventually(t, "arrival", func() bool { return sub.Stats().Received == 1010 })
	got := 0
	var m Message
	for range 20 {
		require.NoError(t, sub.Recv(testContext(t), &m))
		if string(m.Frames[0]) == "quiet" {
			got++
		}
	}
	require.Equal(t, 10, got)
}

// Random comparison of inbox with a list that is obviously right: nothing is
// reordered, and messages and losses add up at every place.
func TestInboxAgainstModel(t *testing.T) {
	type item struct {
		id   int // of a message
		lost uint64
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		maxMessages, maxBytes := 1+r.IntN(6), int64(1+r.IntN(4))<<10
		var in inbox
		var model []item
		var messages, bytes int64
		for id := range 500 {
			if r.IntN(2) == 0 {
				p := &packet{buf: append(make([]byte, 0, 1<<(6+r.IntN(6))), byte(id>>8), byte(id))}
				fits := messages == 0 || messages < int64(maxMessages) && bytes+p.cost() <= maxBytes
				if in.room(p, maxMessages, maxBytes) != fits {
					t.Fatalf("seed %d: message %d: fits=%v", seed, id, fits)
				}
				in.put(p, fits)
				switch {
				case fits:
					model = append(model, item{id: id})
					messages++
					bytes += p.cost()
				case len(model) > 0 && model[len(model)-1].lost > 0:
					model[len(model)-1].lost++
				default:
					model = append(model, item{lost: 1})
				}
				continue
			}
			if in.empty() != (len(model) == 0) {
				t.Fatalf("seed %d: empty=%v", seed, in.empty())
			}
			if in.empty() {
				continue
			}
			want := model[0]
			model = model[1:]
			p, lost := in.take()
			if want.lost > 0 {
				if lost == nil || lost.Messages != want.lost {
					t.Fatalf("seed %d: got %v, want a loss of %d", seed, lost, want.lost)
				}
				continue
			}
			if p == nil || int(p.buf[0])<<8+int(p.buf[1]) != want.id {
				t.Fatalf("seed %d: got %v, want message %d", seed, p, want.id)
			}
			messages--
			bytes -= p.cost()
		}
		if in.bytes != bytes {
			t.Fatalf("seed %d: %d bytes counted, %d there", seed, in.bytes, bytes)
		}
	}
}

// Trial T71, in small: a million messages at full speed from eight publishers to
// a slow consumer. What is received and what is told lost add up to what was
// sent over the wire; nothing is lost unsaid.
func TestNoSilentLocalDrop(t *testing.T) {
	each := 125_000
	if testing.Short() || raceEnabled {
		each = 5_000
	}
	const publishers = 8
	ctx := testContext(t)
	sub := open(t, NewSub, Options{ReceiveMessages: 64})
	require.NoError(t, sub.Subscribe(""))
	bound, err := sub.Bind("tcp://127.0.0.1:0")
	require.NoError(t, err)
	pubs := make([]*Pub, publishers)
	for i := range pubs {
		pubs[i] = open(t, NewPub, Options{SendMessages: each})
		require.NoError(t, pubs[i].Dial(bound))
		eventually(t, "subscription", func() bool { return pubs[i].Subscriptions() == 1 })
	}
	for i, pub := range pubs {
		go func() {
			for n := range each {
				pub.Send([]byte{byte(i), byte(n >> 16), byte(n >> 8), byte(n)})
			}
		}()
	}
	var received, lost [publishers]int
	peerOf := map[uint64]int{} // publisher by connection
	early := map[uint64]int{}
	var m Message
	total := 0
	for total < publishers*each {
		err := sub.Recv(ctx, &m)
		if l, ok := errors.AsType[*LossError](err); ok {
			total += int(l.Messages)
			if who, ok := peerOf[l.Peer]; ok {
				lost[who] += int(l.Messages)
			} else {
				early[l.Peer] += int(l.Messages)
			}
			continue
		}
		require.NoError(t, err)
		total++
		who := int(m.Frames[0][0])
		if _, ok := peerOf[m.Peer]; !ok {
			peerOf[m.Peer] = who
			lost[who] += early[m.Peer]
		}
		seq := int(m.Frames[0][1])<<16 + int(m.Frames[0][2])<<8 + int(m.Frames[0][3])
		if seq != received[who]+lost[who] {
			t.Fatalf("publisher %d: message %d after %d received and %d told lost", who, seq, received[who], lost[who])
		}
		received[who]++
	}
	st := sub.Stats()
	require.EqualValues(t, publishers*each, st.Received)
	sumLost := 0
	for i := range publishers {
		require.Equal(t, each, received[i]+lost[i])
		require.Zero(t, pubs[i].Stats().SendDropped)
		sumLost += lost[i]
	}
	require.EqualValues(t, sumLost, st.ReceiveDropped)
	t.Logf("%d of %d dropped, all told", sumLost, publishers*each)
}
