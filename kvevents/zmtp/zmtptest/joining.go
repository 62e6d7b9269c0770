package zmtptest

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// slowJoiner: a subscriber that comes late misses what was published before,
// sees the rest without a gap, and gets the beginning by replay (trial T74).
func slowJoiner(b *bench) {
	e := newEngine(b, manyMessages)
	for range 10 {
		e.publish(nil)
	}
	// Peers in another process send behind our back, but in order: when they have
	// done something that answers, those ten are out.
	after := b.publisher(1)
	b.bind(after)
	b.must(after.Close())
	s := b.sub(zmtp.Options{}, "kv")
	b.must(s.Dial(e.live))
	stop := e.publishEvery(time.Millisecond)
	defer stop()
	got := map[uint64]bool{}
	var m zmtp.Message
	b.recv(s, &m)
	first := seqOf(b, &m)
	if first < 10 {
		b.Fatalf("received %d, published before there was a subscriber", first)
	}
	got[first] = true
	for seq := first + 1; seq < first+100; seq++ {
		b.recv(s, &m)
		if have := seqOf(b, &m); have != seq {
			b.Fatalf("received %d, want %d", have, seq)
		}
		got[seq] = true
	}
	stop()
	e.replayInto(b, 0, got)
	for seq := range first + 100 {
		if !got[seq] {
			b.Fatalf("%d is missing", seq)
		}
	}
}

// dialBeforeBind: the publisher comes after the subscriber.
func dialBeforeBind(b *bench) {
	s := b.sub(zmtp.Options{}, "")
	p := b.publisher(manyMessages)
	probe := b.publisher(1)
	bound := b.bind(probe)
	b.must(probe.Close())
	b.must(s.Dial(bound))
	time.Sleep(300 * time.Millisecond)
	b.must(retry(b, func() error { _, err := p.Bind(bound); return err }))
	b.join(p, s)
}

// restart: the publisher goes, and another comes at the same address. The
// subscriber is connected again and its subscriptions are known again (T146,
// T149).
func restart(b *bench, pause time.Duration) {
	p, s, bound := b.dialed(zmtp.Options{}, manyMessages, "kv", "other")
	b.must(p.Close())
	time.Sleep(pause)
	p = b.publisher(manyMessages)
	b.must(retry(b, func() error { _, err := p.Bind(bound); return err }))
	start := time.Now()
	b.join(p, s)
	if took := time.Since(start); took > zmtp.DefaultReconnectMax+5*time.Second {
		b.Errorf("back after %v", took)
	}
	b.must(p.Send([]byte("kv1"), number(1), nil))
	b.must(p.Send([]byte("nobody"), number(2), nil))
	b.must(p.Send([]byte("other"), number(3), nil))
	var m zmtp.Message
	for _, want := range []uint64{1, 3} {
		b.recv(s, &m)
		if got := seqOf(b, &m); got != want {
			b.Fatalf("received %d, want %d", got, want)
		}
	}
	if st := s.Stats(); st.Connects < 2 || st.Disconnects < 1 {
		b.Errorf("stats do not tell of two connections: %+v", st)
	}
}

// retry tries for a while what may fail while a port is being released.
func retry(b *bench, f func() error) (err error) {
	for range 100 {
		if err = f(); err == nil || b.ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// topicsArePrefixes: trial T84.
func topicsArePrefixes(b *bench) {
	p, s, _ := b.dialed(zmtp.Options{}, manyMessages, "kv@10.0.0.1")
	for seq, topic := range []string{"kv@10.0.0.2@m", "kv@10.0.0.1@m", "kv@10.0.0.10@m", "kv@10.0.0.", "", "kv@10.0.0.1", joinTopic} {
		b.must(p.Send([]byte(topic), number(uint64(seq)), nil))
	}
	var m zmtp.Message
	for _, want := range []string{"kv@10.0.0.1@m", "kv@10.0.0.10@m", "kv@10.0.0.1", joinTopic} {
		b.recv(s, &m)
		if string(m.Frames[0]) != want {
			b.Fatalf("received topic %q, want %q", m.Frames[0], want)
		}
	}
}

// subscribeWhileConnected: a topic added later is received from then on.
func subscribeWhileConnected(b *bench) {
	p, s, _ := b.dialed(zmtp.Options{}, manyMessages)
	b.must(s.Subscribe("late"))
	b.must(s.Subscribe("late"))
	var m zmtp.Message
	for len(m.Frames) == 0 {
		b.must(p.Send([]byte("late"), number(0), nil))
		b.must(p.Send([]byte("never"), number(1), nil))
		b.must(p.Send([]byte(joinTopic), number(2), nil))
		b.recv(s, &m)
		if string(m.Frames[0]) == joinTopic {
			m.Frames = nil
		}
	}
	if string(m.Frames[0]) != "late" {
		b.Fatalf("received %q", m.Frames[0])
	}
}

// publisherDials: an engine whose endpoint names an address connects its PUB,
// and the subscriber binds.
func publisherDials(b *bench) {
	s := b.sub(zmtp.Options{}, "")
	bound, err := s.Bind("tcp://127.0.0.1:0")
	b.must(err)
	p := b.publisher(manyMessages)
	b.must(p.Dial(bound))
	b.join(p, s)
	sendLarge(b, p, s)
}

// largeMessages: three frames, the last of 5 MB.
func largeMessages(b *bench) {
	p, s, _ := b.dialed(zmtp.Options{}, manyMessages, "kv")
	sendLarge(b, p, s)
}

func sendLarge(b *bench, p Publisher, s receiver) {
	b.Helper()
	payload := make([]byte, 5_000_000)
	for i := range payload {
		payload[i] = byte(rand.Uint32())
	}
	sum := sha256.Sum256(payload)
	var m zmtp.Message
	for seq := range uint64(5) {
		b.must(p.Send([]byte("kv"), number(seq), payload))
		b.must(p.Send([]byte("kv"), number(seq), nil))
		b.recv(s, &m)
		if seqOf(b, &m) != seq || len(m.Frames[2]) != len(payload) || sha256.Sum256(m.Frames[2]) != sum {
			b.Fatalf("message %d is not what was sent", seq)
		}
		b.recv(s, &m)
		if seqOf(b, &m) != seq || len(m.Frames[2]) != 0 {
			b.Fatalf("message after %d is not what was sent", seq)
		}
	}
}

// endpoints: the forms of libzmq that an engine or a user may write.
func endpoints(b *bench) {
	list := []string{"tcp://127.0.0.1:0", "tcp://*:0", "tcp://127.0.0.1:*"}
	if !b.NoIPv6 {
		list = append(list, "tcp://[::1]:0")
	}
	if !b.NoIPC {
		list = append(list, "ipc://"+filepath.Join(b.TempDir(), "s"))
	}
	for _, ep := range list {
		p := b.publisher(manyMessages)
		bound, err := p.Bind(ep)
		b.must(err)
		s := b.sub(zmtp.Options{}, "")
		b.must(s.Dial(bound))
		b.join(p, s)
		b.must(s.Close())
		b.must(p.Close())
	}
	for _, ep := range list {
		s := b.sub(zmtp.Options{}, "")
		bound, err := s.Bind(ep)
		b.must(err)
		if bytes.HasSuffix([]byte(bound), []byte(":0")) || bytes.HasSuffix([]byte(bound), []byte("*")) {
			b.Fatalf("bound to %s, which nobody can dial", bound)
		}
		p := b.publisher(manyMessages)
		b.must(p.Dial(bound))
		b.join(p, s)
		b.must(s.Close())
		b.must(p.Close())
	}
}

// badEndpoints are refused at once.
func badEndpoints(b *bench) {
	s := b.sub(zmtp.Options{})
	d := b.dealer(zmtp.Options{})
	for _, ep := range []string{"", "127.0.0.1:5557", "http://127.0.0.1:5557", "tcp://127.0.0.1", "tcp://127.0.0.1:65536", "tcp://:1", "ipc://"} {
		if s.Dial(ep) == nil || d.Dial(ep) == nil {
			b.Errorf("dialed %q", ep)
		}
		if bound, err := s.Bind(ep); err == nil {
			b.Errorf("bound %q as %s", ep, bound)
		}
	}
	bound, err := s.Bind("tcp://127.0.0.1:0")
	b.must(err)
	if _, err := b.sub(zmtp.Options{}).Bind(bound); err == nil {
		b.Errorf("bound %s twice", bound)
	}
}
