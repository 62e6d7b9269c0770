package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// source joins one stream with its sockets, the clock and the handler.
//
// Everything that happens to the stream happens under mu: live messages,
// answers of replays, timers, news of connections. The lock is held while the
// handler is called, so that nothing overtakes. No socket is closed under it,
// because closing waits for goroutines that report under it.
type source struct {
	Source
	sub              *Subscriber
	endpoint, replay string
	topic            string
	log              *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	socket zmtp.SubSocket

	mu      sync.Mutex
	stream  *Stream
	closed  bool
	state   State
	timer   *time.Timer
	timerAt time.Time
	running Request // the replay that a goroutine serves
	abort   context.CancelFunc

	conns     int
	tells     bool // the transport reports connections
	start     time.Time
	arrived   time.Time
	lag       time.Duration
	silent    bool
	foreign   uint64
	dropped   uint64
	lastErr   error
	lastErrAt time.Time
}

func (s *Subscriber) newSource(t Target, rank int32, endpoint, replay string) (*source, error) {
	src := &source{Source: Source{t.Worker, rank}, sub: s, endpoint: endpoint, replay: replay, topic: t.Topic, start: time.Now()}
	src.log = s.o.Logger.With("worker", t.Worker, "rank", rank)
	o := s.o.Stream
	o.Worker, o.Rank, o.Replay = t.Worker, rank, replay != ""
	var err error
	if src.stream, err = NewStream(o, src); err != nil {
		return nil, err
	}
	if s.o.Resume != nil {
		if p, ok := s.o.Resume(src.Source); ok && !src.stream.Resume(p) {
			src.log.Warn("cannot resume: no replay endpoint", "at", p.Next)
		}
	}
	src.ctx, src.cancel = context.WithCancel(s.ctx)
	src.timer = time.AfterFunc(time.Hour, func() { src.do(src.tick) })
	src.timer.Stop()
	src.do(func(time.Time) {}) // arms the timer
	return src, nil
}

// monitored returns the socket options with a monitor of ours before the
// user's.
func (s *Subscriber) monitored(f func(zmtp.Event)) zmtp.Options {
	o := s.o.Socket
	o.Monitor = monitor{f, s.o.Socket.Monitor}
	return o
}

type monitor struct {
	f    func(zmtp.Event)
	next zmtp.Monitor
}

func (m monitor) ConnEvent(e zmtp.Event) {
	m.f(e)
	if m.next != nil {
		m.next.ConnEvent(e)
	}
}

// dial opens the live socket and reads it in a goroutine.
func (src *source) dial() (err error) {
	if src.socket, err = src.sub.transport().NewSub(src.sub.monitored(src.connEvent)); err != nil {
		return err
	}
	if err = src.socket.Subscribe(src.topic); err == nil {
		err = src.socket.Dial(src.endpoint)
	}
	if err != nil {
		return err
	}
	if src.sub.o.Transport != nil { // it may not report connections
		src.do(func(now time.Time) { src.stream.Connected(now, 0) })
	}
	src.work.Go(src.read)
	return nil
}

func (src *source) connEvent(e zmtp.Event) {
	src.do(func(now time.Time) {
		src.tells = true
		switch e.Kind {
		case zmtp.Connected:
			src.conns++
			src.stream.Connected(now, e.Peer)
		case zmtp.Disconnected:
			src.conns--
			src.fault(now, "live connection ended", e.Err)
		case zmtp.DialFailed, zmtp.HandshakeFailed, zmtp.Rejected:
			src.fault(now, "live endpoint does not answer", e.Err)
		}
	})
}

func (src *source) fault(now time.Time, what string, err error) {
	src.lastErr, src.lastErrAt = err, now
	src.log.Debug(what, "endpoint", src.endpoint, "error", err)
}

// read is the goroutine of the live socket.
func (src *source) read() {
	var m zmtp.Message
	for {
		err := src.socket.Recv(src.ctx, &m)
		loss, dropped := errors.AsType[*zmtp.LossError](err)
		switch {
		case err == nil:
			src.live(&m)
		case dropped:
			src.do(func(now time.Time) {
				src.dropped += loss.Messages
				src.fault(now, "live messages dropped", err)
				src.stream.Dropped(now)
			})
		default:
			return
		}
	}
}

func (src *source) live(m *zmtp.Message) {
	msg, err := ParseMessage(m.Frames)
	src.mu.Lock()
	defer src.mu.Unlock()
	if src.closed {
		return
	}
	now := time.Now()
	switch {
	case err != nil:
		src.lastErr, src.lastErrAt = err, now
		src.stream.Garbage()
		return
	case !topicFits(msg.Topic, src.topic):
		src.foreign++
		return
	}
	src.message(now, m.Peer, msg)
}

// message passes a live message on; mu is held.
func (src *source) message(now time.Time, peer uint64, msg Message) {
	src.arrived = now
	if at, ok := payloadTime(msg.Payload); ok {
		src.lag = time.Duration((float64(now.UnixNano())/1e9 - at) * 1e9)
	}
	src.setSilent(false)
	src.stream.Message(now, peer, msg)
	src.follow(now)
}

// do runs f on the stream and follows what it wants.
func (src *source) do(f func(now time.Time)) {
	src.mu.Lock()
	defer src.mu.Unlock()
	if src.closed {
		return
	}
	now := time.Now()
	f(now)
	src.follow(now)
}

func (src *source) tick(now time.Time) {
	src.timerAt = time.Time{}
	src.stream.Tick(now)
	if d := src.sub.o.SilentAfter; d > 0 && !src.silent && now.Sub(src.quietSince()) >= d {
		src.setSilent(true)
	}
}

func (src *source) quietSince() time.Time {
	if src.arrived.IsZero() {
		return src.start
	}
	return src.arrived
}

func (src *source) setSilent(silent bool) {
	if src.silent == silent {
		return
	}
	src.silent = silent
	if silent {
		src.log.Warn("publishes no events", "for", src.sub.o.SilentAfter)
	} else {
		src.log.Info("publishes events again")
	}
	for _, h := range src.sub.hooks.silence {
		h.OnSilence(src.Source, silent)
	}
}

// follow does what the stream wants after any input: start or stop a replay,
// set the timer, tell of a new state. mu is held.
func (src *source) follow(now time.Time) {
	want, ok := src.stream.Request()
	if src.running.ID != want.ID {
		if src.abort != nil {
			src.abort()
			src.abort = nil
		}
		src.running = want
		if ok {
			var ctx context.Context
			ctx, src.abort = context.WithCancel(src.ctx)
			src.log.Debug("replay asked", "from", want.From)
			src.work.Go(func() { src.runReplay(ctx, want) })
		}
	}
	at, due := src.stream.Deadline()
	if d := src.sub.o.SilentAfter; d > 0 && !src.silent {
		if quiet := src.quietSince().Add(d); !due || quiet.Before(at) {
			at, due = quiet, true
		}
	}
	// A timer that is early only asks again; one that is late would be too late.
	if due && (src.timerAt.IsZero() || at.Before(src.timerAt)) {
		src.timerAt = at
		src.timer.Reset(max(at.Sub(now), 0))
	}
	if state := src.stream.state(); state != src.state {
		src.log.Info("stream", "from", src.state, "to", state)
		for _, h := range src.sub.hooks.state {
			h.OnState(src.Source, src.state, state)
		}
		src.state = state
	}
}

// runReplay is the goroutine of one replay.
func (src *source) runReplay(ctx context.Context, want Request) {
	failed := func(err error) {
		src.do(func(now time.Time) {
			if ctx.Err() == nil && src.running == want {
				src.lastErr, src.lastErrAt = err, now
				src.log.Warn("replay failed", "endpoint", src.replay, "from", want.From, "error", err)
				src.stream.Failed(now, want.ID)
			}
		})
	}
	o := src.sub.monitored(func(e zmtp.Event) {
		switch e.Kind {
		case zmtp.Disconnected, zmtp.DialFailed, zmtp.HandshakeFailed:
			failed(e.Err)
		}
	})
	// The engine sends its whole buffer at once, faster than it can be applied.
	o.ReceiveMessages = max(o.ReceiveMessages, 1<<20)
	o.ReceiveBytes = max(o.ReceiveBytes, 256<<20)
	dealer, err := src.sub.transport().NewDealer(o)
	if err != nil {
		failed(err)
		return
	}
	defer dealer.Close()
	if err = dealer.Dial(src.replay); err == nil {
		err = dealer.Send(ctx, nil, binary.BigEndian.AppendUint64(nil, want.From))
	}
	if err != nil {
		failed(err)
		return
	}
	src.do(func(now time.Time) { src.stream.Sent(now, want.ID) })
	var m zmtp.Message
	for ctx.Err() == nil {
		if err := dealer.Recv(ctx, &m); err != nil {
			loss, dropped := errors.AsType[*zmtp.LossError](err)
			if !dropped {
				failed(err)
				return
			}
			src.do(func(now time.Time) {
				src.dropped += loss.Messages
				src.lastErr, src.lastErrAt = err, now
				src.stream.Interrupted(now, want.ID)
			})
			continue
		}
		reply, err := ParseReplay(m.Frames)
		src.do(func(now time.Time) {
			if err != nil {
				src.lastErr, src.lastErrAt = err, now
				src.stream.Garbage()
				return
			}
			src.stream.Reply(now, want.ID, reply)
		})
		if err == nil && reply.End {
			return
		}
	}
}

// close waits for the goroutines and gives the handler the last Clear.
func (src *source) close() {
	src.mu.Lock()
	src.closed = true // no goroutine begins after this
	src.mu.Unlock()
	src.cancel()
	if src.socket != nil {
		src.socket.Close()
	}
	src.work.Wait()
	src.mu.Lock()
	defer src.mu.Unlock()
	src.timer.Stop()
	if src.abort != nil {
		src.abort()
	}
	src.Clear(ClearRemoved)
}

func (src *source) status() SourceStatus {
	src.mu.Lock()
	defer src.mu.Unlock()
	return SourceStatus{
		Source: src.Source, Endpoint: src.endpoint, ReplayEndpoint: src.replay,
		Status: src.stream.Status(time.Now()), Stats: src.stream.Stats(),
		Connected: src.conns > 0 || !src.tells && src.sub.o.Transport != nil || src.socket == nil, LastArrival: src.arrived, Lag: src.lag, Silent: src.silent,
		Foreign: src.foreign, Dropped: src.dropped, LastError: src.lastErr, LastErrorAt: src.lastErrAt,
	}
}

// The source is the stream's Sink.

func (src *source) Apply(seq uint64, b *Batch) {
	src.sub.o.Handler.Apply(src.Source, seq, b)
	if hooks := src.sub.hooks.batch; len(hooks) > 0 {
		lag := time.Duration((float64(time.Now().UnixNano())/1e9 - b.Timestamp) * 1e9)
		for _, h := range hooks {
			h.OnBatch(src.Source, b, lag)
		}
	}
}

func (src *source) Clear(c ClearCause) {
	if c != ClearRemoved {
		src.log.Warn("cleared", "cause", c)
	}
	src.sub.o.Handler.Clear(src.Source, c)
	for _, h := range src.sub.hooks.clear {
		h.OnClear(src.Source, c)
	}
}

// Confirm is called only where the Handler can, see NewSubscriber.
func (src *source) Confirm(next uint64) {
	src.log.Info("resumed", "at", next)
	if h, ok := src.sub.o.Handler.(SourceConfirmer); ok {
		h.Confirm(src.Source, next)
	}
}

// Empty tells the Handler, if it wants to know.
func (src *source) Empty() {
	if h, ok := src.sub.o.Handler.(SourceEmptier); ok {
		h.Empty(src.Source)
	}
}

func (src *source) Lost(l Loss) {
	src.log.Warn("batches lost", "from", l.From, "to", l.To, "cause", l.Cause)
	src.sub.o.Handler.Lost(l)
	for _, h := range src.sub.hooks.loss {
		h.OnLoss(l)
	}
}
