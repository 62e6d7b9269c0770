package interop

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func newSub(t *testing.T, topics ...string) *zmtp.Sub {
	t.Helper()
	s, err := zmtp.NewSub(zmtp.Options{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	for _, topic := range topics {
		must(t, s.Subscribe(topic))
	}
	return s
}

// freeEndpoint returns an address below those the system gives out, so that it
// can be bound again.
func freeEndpoint(t *testing.T) string {
	t.Helper()
	for port := 20_000; port < 30_000; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return fmt.Sprintf("tcp://127.0.0.1:%d", port)
		}
	}
	t.Fatal("no free port")
	return ""
}

// stream publishes numbered messages of three frames, the last of size bytes,
// until it is stopped; before each, one that nobody subscribed to.
func stream(t *testing.T, send func(frames ...[]byte) error, payload []byte, pause time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for seq := uint64(0); ctx.Err() == nil; seq++ {
			if send([]byte("other"), nil, nil) != nil || send([]byte("kv@1"), binary.BigEndian.AppendUint64(nil, seq), payload) != nil {
				return
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-done }
}

// follow receives n messages and checks that they are without a gap.
func follow(t *testing.T, ctx context.Context, s *zmtp.Sub, n int, payload []byte) {
	t.Helper()
	sum := sha256.Sum256(payload)
	var m zmtp.Message
	var next uint64
	for i := range n {
		must(t, s.Recv(ctx, &m))
		if len(m.Frames) != 3 || string(m.Frames[0]) != "kv@1" || sha256.Sum256(m.Frames[2]) != sum {
			t.Fatalf("received %d frames, the first %q", len(m.Frames), m.Frames[0])
		}
		seq := binary.BigEndian.Uint64(m.Frames[1])
		if i > 0 && seq != next {
			t.Fatalf("received %d, want %d", seq, next)
		}
		next = seq + 1
	}
}

func large() []byte {
	b := make([]byte, 5_000_000)
	rand.Read(b)
	return b
}

func sendTo(s zmq4.Socket) func(frames ...[]byte) error {
	return func(frames ...[]byte) error { return s.SendMulti(zmq4.NewMsgFrom(frames...)) }
}

// Trials T146 and T149: a PUB of go-zeromq is dialed, before it exists, sends
// small and large messages, and comes back after it was gone.
func TestSubDials(t *testing.T) {
	ctx := deadline(t)
	endpoint := freeEndpoint(t)
	s := newSub(t, "kv")
	must(t, s.Dial(endpoint))
	for life, payload := range [][]byte{[]byte("small"), large(), nil} {
		time.Sleep(300 * time.Millisecond)
		pub := zmq4.NewPub(t.Context())
		must(t, pub.Listen(endpoint))
		stop := stream(t, sendTo(pub), payload, 2*time.Millisecond)
		follow(t, ctx, s, 20, payload)
		must(t, pub.Close())
		stop()
		for int(s.Stats().Disconnects) <= life {
			time.Sleep(time.Millisecond)
		}
		drain(t, s)
	}
}

// drain receives what was on the way when a publisher was closed.
func drain(t *testing.T, s *zmtp.Sub) {
	t.Helper()
	var m zmtp.Message
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := s.Recv(ctx, &m)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		must(t, err)
	}
}

// A PUB of go-zeromq dials a SUB that is bound.
func TestSubBinds(t *testing.T) {
	s := newSub(t, "kv")
	bound, err := s.Bind("tcp://127.0.0.1:0")
	must(t, err)
	pub := zmq4.NewPub(t.Context())
	defer pub.Close()
	must(t, pub.Dial(bound))
	payload := large()
	stop := stream(t, sendTo(pub), payload, 2*time.Millisecond)
	defer stop()
	follow(t, deadline(t), s, 20, payload)
}

// A SUB of go-zeromq receives from a Pub.
func TestPub(t *testing.T) {
	pub, err := zmtp.NewPub(zmtp.Options{})
	must(t, err)
	defer pub.Close()
	bound, err := pub.Bind("tcp://127.0.0.1:0")
	must(t, err)
	sub := zmq4.NewSub(t.Context())
	defer sub.Close()
	must(t, sub.Dial(bound))
	must(t, sub.SetOption(zmq4.OptionSubscribe, "kv"))
	stop := stream(t, pub.Send, []byte("payload"), time.Millisecond)
	defer stop()
	for range 20 {
		m, err := sub.Recv()
		must(t, err)
		if len(m.Frames) != 3 || string(m.Frames[0]) != "kv@1" {
			t.Fatalf("received %q", m.Frames)
		}
	}
}

// Replay requests both ways.
func TestDealerAndRouter(t *testing.T) {
	ctx := deadline(t)
	endpoint := freeEndpoint(t)
	theirs := zmq4.NewRouter(t.Context())
	defer theirs.Close()
	must(t, theirs.Listen(endpoint))
	d, err := zmtp.NewDealer(zmtp.Options{Identity: "kvatlas"})
	must(t, err)
	defer d.Close()
	must(t, d.Dial(endpoint))
	must(t, d.Send(ctx, nil, []byte("12345678")))
	ask, err := theirs.Recv()
	must(t, err)
	if len(ask.Frames) != 3 || string(ask.Frames[0]) != "kvatlas" {
		t.Fatalf("received %q", ask.Frames)
	}
	for i := range byte(10) {
		must(t, theirs.SendMulti(zmq4.NewMsgFrom(ask.Frames[0], nil, nil, []byte{i}, []byte("payload"))))
	}
	var m zmtp.Message
	for i := range byte(10) {
		must(t, d.Recv(ctx, &m))
		if len(m.Frames) != 4 || m.Frames[2][0] != i {
			t.Fatalf("received %q", m.Frames)
		}
	}

	r, err := zmtp.NewRouter(zmtp.Options{})
	must(t, err)
	defer r.Close()
	bound, err := r.Bind("tcp://127.0.0.1:0")
	must(t, err)
	dealer := zmq4.NewDealer(t.Context(), zmq4.WithID(zmq4.SocketIdentity("theirs")))
	defer dealer.Close()
	must(t, dealer.Dial(bound))
	must(t, dealer.SendMulti(zmq4.NewMsgFrom(nil, []byte("12345678"))))
	must(t, r.Recv(ctx, &m))
	if len(m.Frames) != 3 || string(m.Frames[0]) != "theirs" {
		t.Fatalf("received %q", m.Frames)
	}
	must(t, r.Send(m.Frames[0], nil, []byte("answer")))
	answer, err := dealer.Recv()
	must(t, err)
	if len(answer.Frames) != 2 || string(answer.Frames[1]) != "answer" {
		t.Fatalf("received %q", answer.Frames)
	}
}
