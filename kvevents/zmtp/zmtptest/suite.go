package zmtptest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// Publisher is a PUB socket at the other end, as that of an engine.
type Publisher interface {
	// Bind binds the socket and returns the endpoint with the chosen port.
	Bind(endpoint string) (string, error)
	// Dial connects the socket.
	Dial(endpoint string) error
	// Send publishes; it never waits.
	Send(frames ...[]byte) error
	// Close closes the socket at once; what waits to be sent is dropped.
	Close() error
}

// Router is a ROUTER socket at the other end, as that of an engine.
type Router interface {
	Bind(endpoint string) (string, error)
	// Recv receives with the identity of the sender in front.
	Recv(ctx context.Context, m *zmtp.Message) error
	// Send sends to the peer whose identity is in front; it never waits.
	Send(frames ...[]byte) error
	Close() error
}

// Peers makes the other end. Its functions may be called by many goroutines.
type Peers struct {
	// NewPublisher returns a publisher with a send high-water mark, in messages
	// for each subscriber.
	NewPublisher func(highWater int) (Publisher, error)
	// NewRouter returns a router with a send high-water mark.
	NewRouter func(highWater int) (Router, error)
}

// Native is the other end made of sockets of package zmtp.
var Native = Peers{
	NewPublisher: func(highWater int) (Publisher, error) {
		return nonNil[Publisher](zmtp.NewPub(zmtp.Options{SendMessages: highWater}))
	},
	NewRouter: func(highWater int) (Router, error) {
		return nonNil[Router](zmtp.NewRouter(zmtp.Options{SendMessages: highWater}))
	},
}

func nonNil[I, S any](s S, err error) (I, error) {
	var none I
	if err != nil {
		return none, err
	}
	return any(s).(I), nil
}

// Suite says what is tried against what.
type Suite struct {
	// Transport is what is tried.
	Transport zmtp.Transport
	// Peers make the other end.
	Peers Peers
	// Pauses are how long a publisher is gone when it restarts, each tried at
	// the same time as the others. Nil means 200 ms only.
	Pauses []time.Duration
	// TellsLoss is set for a transport that reports with a *zmtp.LossError
	// whatever it drops itself. Then every gap in a stream of which the
	// publisher dropped nothing must be told.
	TellsLoss bool
	// NoIPC leaves out ipc endpoints, NoIPv6 the address ::1, for machines or
	// peers that have none.
	NoIPC, NoIPv6 bool
}

// trial is one named part of the suite.
type trial struct {
	name string
	run  func(s *bench)
}

// Run runs every trial as a subtest, several at a time.
func (s Suite) Run(t *testing.T) {
	if s.Pauses == nil {
		s.Pauses = []time.Duration{200 * time.Millisecond}
	}
	trials := []trial{
		{"SlowJoiner", slowJoiner},
		{"DialBeforeBind", dialBeforeBind},
		{"TopicsArePrefixes", topicsArePrefixes},
		{"SubscribeWhileConnected", subscribeWhileConnected},
		{"PublisherDials", publisherDials},
		{"Endpoints", endpoints},
		{"BadEndpoints", badEndpoints},
		{"LargeMessages", largeMessages},
		{"HalfOpen", halfOpen},
		{"IdleIsKept", idleIsKept},
		{"ManyPublishersDialed", manyPublishersDialed},
		{"ManyPublishersDialing", manyPublishersDialing},
		{"PublisherDrops", publisherDrops},
		{"SlowConsumer", slowConsumer},
		{"ContextEndsRecv", contextEndsRecv},
		{"CloseEndsRecv", closeEndsRecv},
		{"AnyGoroutineConcurrentSafe", anyGoroutine},
		{"ReplayForms", replayForms},
		{"LongReplay", longReplay},
		{"RouterRestart", routerRestart},
		{"Identity", identity},
	}
	for _, pause := range s.Pauses {
		trials = append(trials, trial{"Restart/" + pause.String(), func(b *bench) { restart(b, pause) }})
	}
	for _, tr := range trials {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience+2*maxPause(s.Pauses))
			defer cancel()
			tr.run(&bench{T: t, Suite: s, ctx: ctx})
		})
	}
}

// patience is how long anything that should happen at once may take.
const patience = time.Minute

func maxPause(pauses []time.Duration) (d time.Duration) {
	for _, p := range pauses {
		d = max(d, p)
	}
	return d
}

// bench is what a trial works with.
type bench struct {
	*testing.T
	Suite
	ctx context.Context
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) sub(o zmtp.Options, topics ...string) zmtp.SubSocket {
	b.Helper()
	s, err := b.Transport.NewSub(o)
	b.must(err)
	b.Cleanup(func() { s.Close() })
	for _, topic := range topics {
		b.must(s.Subscribe(topic))
	}
	return s
}

func (b *bench) dealer(o zmtp.Options) zmtp.DealerSocket {
	b.Helper()
	d, err := b.Transport.NewDealer(o)
	b.must(err)
	b.Cleanup(func() { d.Close() })
	return d
}

const manyMessages = 100_000 // high-water mark of an engine

func (b *bench) publisher(highWater int) Publisher {
	b.Helper()
	p, err := b.Peers.NewPublisher(highWater)
	b.must(err)
	b.Cleanup(func() { p.Close() })
	return p
}

func (b *bench) router(highWater int) Router {
	b.Helper()
	r, err := b.Peers.NewRouter(highWater)
	b.must(err)
	b.Cleanup(func() { r.Close() })
	return r
}

// bind binds to a port that stays free when the socket is closed.
func (b *bench) bind(s interface{ Bind(string) (string, error) }) string {
	b.Helper()
	var err error
	for range 100 {
		var bound string
		if bound, err = s.Bind(fmt.Sprintf("tcp://127.0.0.1:%d", freePort())); err == nil {
			return bound
		}
	}
	b.Fatal(err)
	return ""
}

// freePort returns a port that is free now and that the system gives to nobody
// who does not ask for it: a port of its own choice could be the local port of
// some connection by the time it is bound again.
func freePort() int {
	for {
		port := 10_000 + rand.IntN(20_000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
}

// number and batch are the form of the messages of an engine: topic, sequence
// number, payload.
func number(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

func seqOf(b *bench, m *zmtp.Message) uint64 {
	b.Helper()
	if len(m.Frames) != 3 || len(m.Frames[1]) != 8 {
		b.Fatalf("message of %d frames: %.40q", len(m.Frames), m.Frames)
	}
	return binary.BigEndian.Uint64(m.Frames[1])
}

// recv receives one message; a loss fails the trial.
func (b *bench) recv(s receiver, m *zmtp.Message) {
	b.Helper()
	b.must(s.Recv(b.ctx, m))
}

type receiver interface {
	Recv(ctx context.Context, m *zmtp.Message) error
}

// joinTopic is the topic of messages that only serve to see that they arrive.
const joinTopic = "join"

// join publishes until the subscriber, which has subscribed to joinTopic or
// everything, receives; and returns when nothing published for this is left.
func (b *bench) join(p Publisher, s receiver) {
	b.Helper()
	var m zmtp.Message
	mark := number(rand.Uint64())
	for round := uint64(0); ; round++ {
		b.must(p.Send([]byte(joinTopic), mark, number(round)))
		ctx, cancel := context.WithTimeout(b.ctx, 20*time.Millisecond)
		err := s.Recv(ctx, &m)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && b.ctx.Err() == nil {
			continue
		}
		b.must(err)
		if string(m.Frames[1]) != string(mark) {
			continue // of an earlier life
		}
		for binary.BigEndian.Uint64(m.Frames[2]) != round {
			b.recv(s, &m)
		}
		return
	}
}

// dialed returns a publisher that is bound and a subscriber that receives from it.
func (b *bench) dialed(o zmtp.Options, highWater int, topics ...string) (Publisher, zmtp.SubSocket, string) {
	b.Helper()
	p := b.publisher(highWater)
	bound := b.bind(p)
	s := b.sub(o, append(topics, joinTopic)...)
	b.must(s.Dial(bound))
	b.join(p, s)
	return p, s, bound
}
