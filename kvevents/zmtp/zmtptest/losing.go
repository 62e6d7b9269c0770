package zmtptest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// halfOpen: the network swallows everything and tells nobody. The subscriber
// notices by its heartbeat and connects anew.
func halfOpen(b *bench) {
	p := b.publisher(manyMessages)
	through := newProxy(b, b.bind(p))
	s := b.sub(zmtp.Options{HeartbeatInterval: 200 * time.Millisecond, HeartbeatTimeout: time.Second}, "")
	b.must(s.Dial(through.endpoint))
	b.join(p, s)
	through.strand()
	start := time.Now()
	b.join(p, s)
	if took := time.Since(start); took > 10*time.Second {
		b.Errorf("back after %v", took)
	}
	if st := s.Stats(); st.Disconnects == 0 {
		b.Errorf("stats do not tell of a disconnection: %+v", st)
	}
}

// idleIsKept: heartbeats and the dial timeout do not end a connection on which
// nothing happens (trial T148).
func idleIsKept(b *bench) {
	p, s, _ := b.dialed(zmtp.Options{
		DialTimeout: 200 * time.Millisecond, HandshakeTimeout: 500 * time.Millisecond,
		HeartbeatInterval: 100 * time.Millisecond, HeartbeatTimeout: 2 * time.Second,
	}, manyMessages, "kv")
	time.Sleep(3 * time.Second)
	b.must(p.Send([]byte("kv"), number(7), nil))
	var m zmtp.Message
	b.recv(s, &m)
	if got := seqOf(b, &m); got != 7 {
		b.Errorf("received %d", got)
	}
	if st := s.Stats(); st.Connects != 1 || st.Disconnects != 0 {
		b.Errorf("the connection was not kept: %+v", st)
	}
}

// publisherDrops: the network stalls, and the publisher drops at its high-water
// mark. The gaps show in the numbers, and a replay fills them (trial T72).
func publisherDrops(b *bench) {
	const burst = 1000
	e := newEngine(b, 2)
	through := newProxy(b, e.live)
	s := b.sub(zmtp.Options{HeartbeatInterval: -1}, "")
	b.must(s.Dial(through.endpoint))
	b.join(e.pub, s)
	through.stall()
	time.Sleep(50 * time.Millisecond)
	payload := make([]byte, 64<<10) // more in all than the system buffers
	for range burst {
		e.publish(payload)
	}
	through.resume()

	got := map[uint64]bool{}
	var m zmtp.Message
	last := -1
	for last < burst {
		stop := time.AfterFunc(50*time.Millisecond, func() { e.publish(nil) }) // the first after the gap
		b.recv(s, &m)
		stop.Stop()
		seq := int(seqOf(b, &m))
		if seq <= last {
			b.Fatalf("received %d after %d", seq, last)
		}
		last = seq
		got[uint64(seq)] = true
	}
	missing := last + 1 - len(got)
	if missing == 0 {
		b.Fatal("the publisher dropped nothing, so nothing was tried")
	}
	e.replayInto(b, 0, got)
	for seq := range uint64(last) {
		if !got[seq] {
			b.Fatalf("%d is missing after the replay", seq)
		}
	}
	b.Logf("%d of %d dropped by the publisher", missing, last+1)
}

// slowConsumer: nobody receives for a while, and something must be dropped. What
// the transport dropped itself it tells, at its place; when it leaves that to the
// publisher, the gap shows in the numbers. Nothing is reordered or repeated, and
// the stream goes on.
func slowConsumer(b *bench) {
	const n = 20_000
	highWater := 100
	if b.TellsLoss {
		highWater = manyMessages // so that the publisher drops nothing
	}
	p, s, _ := b.dialed(zmtp.Options{ReceiveMessages: 100}, highWater, "kv")
	payload := make([]byte, 4000)
	var sent uint64
	send := func() {
		b.must(p.Send([]byte("kv"), number(sent), payload))
		sent++
	}
	for range n {
		send()
	}
	for b.TellsLoss && s.Stats().ReceiveDropped == 0 && b.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	var next, missing, told uint64
	var m zmtp.Message
	for next < n {
		ctx, cancel := context.WithTimeout(b.ctx, 50*time.Millisecond)
		err := s.Recv(ctx, &m)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && b.ctx.Err() == nil {
			send() // the first after the gap
			continue
		}
		if lost, ok := errors.AsType[*zmtp.LossError](err); ok {
			told += lost.Messages
			next += lost.Messages
			continue
		}
		b.must(err)
		seq := seqOf(b, &m)
		if seq < next || seq > next && b.TellsLoss {
			b.Fatalf("received %d, want %d", seq, next)
		}
		missing += seq - next
		next = seq + 1
	}
	if st := s.Stats(); st.ReceiveDropped != told {
		b.Errorf("told of %d, counted %d", told, st.ReceiveDropped)
	}
	if missing+told == 0 {
		b.Error("nothing was dropped, so nothing was tried")
	}
	b.Logf("%d told, %d seen missing", told, missing)
}

const publishers = 64

// manyPublishersDialed: one subscriber dials 64 publishers.
func manyPublishersDialed(b *bench) {
	s := b.sub(zmtp.Options{}, "")
	many(b, s, func(p Publisher) { b.must(s.Dial(b.bind(p))) })
}

// manyPublishersDialing: 64 publishers dial one subscriber.
func manyPublishersDialing(b *bench) {
	s := b.sub(zmtp.Options{}, "")
	bound, err := s.Bind("tcp://127.0.0.1:0")
	b.must(err)
	many(b, s, func(p Publisher) { b.must(p.Dial(bound)) })
}

func many(b *bench, s zmtp.SubSocket, connect func(Publisher)) {
	const each = 50
	list := make([]Publisher, publishers)
	for i := range list {
		list[i] = b.publisher(manyMessages)
		connect(list[i])
	}
	for _, p := range list {
		b.join(p, s)
	}
	for seq := range uint64(each) {
		for i, p := range list {
			b.must(p.Send(fmt.Append(nil, i), number(seq), nil))
		}
	}
	next := map[string]uint64{}
	peers := map[uint64]string{}
	var m zmtp.Message
	for range publishers * each {
		b.recv(s, &m)
		who, seq := string(m.Frames[0]), seqOf(b, &m)
		if seq != next[who] {
			b.Fatalf("publisher %s: received %d, want %d", who, seq, next[who])
		}
		next[who]++
		if m.Peer == 0 {
			continue
		}
		if other, ok := peers[m.Peer]; ok && other != who {
			b.Fatalf("peer %d is publisher %s and %s", m.Peer, other, who)
		}
		peers[m.Peer] = who
	}
	if st := s.Stats(); st.Peers != publishers {
		b.Errorf("stats tell of %d peers", st.Peers)
	}
}
