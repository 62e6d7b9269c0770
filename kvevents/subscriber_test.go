package kvevents_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/kveventstest"
	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/stretchr/testify/require"
)

// fleet is a Handler that keeps what every source holds.
type fleet struct {
	delay time.Duration

	mu     sync.Mutex
	held   map[kvevents.Source]map[kveventstest.Block]int
	next   map[kvevents.Source]uint64
	losses []kvevents.Loss
	clears []string
	states []string
	silent []bool
	lags   int
	errs   []string
}

func (f *fleet) Apply(src kvevents.Source, seq uint64, b *kvevents.Batch) {
	if f.delay > 0 {
		for end := time.Now().Add(f.delay); time.Now().Before(end); {
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil {
		f.held, f.next = map[kvevents.Source]map[kveventstest.Block]int{}, map[kvevents.Source]uint64{}
	}
	if f.held[src] == nil {
		f.held[src] = map[kveventstest.Block]int{}
	}
	if seq < f.next[src] {
		f.errs = append(f.errs, fmt.Sprintf("%v: %d after %d", src, seq, f.next[src]))
	}
	f.next[src] = seq + 1
	kveventstest.Track(f.held[src], b)
}

func (f *fleet) Clear(src kvevents.Source, c kvevents.ClearCause) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.held, src)
	delete(f.next, src)
	f.clears = append(f.clears, fmt.Sprint(src.Worker, " ", src.Rank, " ", c))
}

func (f *fleet) Lost(l kvevents.Loss) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.losses = append(f.losses, l)
}

func (f *fleet) OnState(src kvevents.Source, from, to kvevents.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states = append(f.states, fmt.Sprint(from, " to ", to))
}

func (f *fleet) OnSilence(_ kvevents.Source, silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = append(f.silent, silent)
}

func (f *fleet) OnBatch(kvevents.Source, *kvevents.Batch, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lags++
}

func (f *fleet) of(worker string, rank int32) map[kveventstest.Block]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.held[kvevents.Source{Worker: worker, Rank: rank}])
}

// subscribe makes a subscriber that retries soon and leaves no goroutine.
func subscribe(t *testing.T, f *fleet, o kvevents.SubscriberOptions) *kvevents.Subscriber {
	t.Helper()
	before := runtime.NumGoroutine()
	o.Handler = f
	o.Hooks = []any{f}
	o.Stream.RetryMin, o.Stream.RetryMax = 50*time.Millisecond, 400*time.Millisecond
	o.Socket.ReconnectMin, o.Socket.ReconnectMax = 10*time.Millisecond, 50*time.Millisecond
	s, err := kvevents.NewSubscriber(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.Close()
		for range 200 {
			if runtime.NumGoroutine() <= before {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := runtime.NumGoroutine(); n > before && !t.Failed() {
			buf := make([]byte, 1<<16)
			t.Errorf("%d goroutines, %d before:\n%s", n, before, buf[:runtime.Stack(buf, true)])
		}
		require.Empty(t, f.errs)
	})
	return s
}

func engineOf(t *testing.T, o kveventstest.Options) *kveventstest.Engine {
	t.Helper()
	e, err := kveventstest.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

func targetOf(name string, e *kveventstest.Engine) kvevents.Target {
	return kvevents.Target{Worker: name, Endpoint: e.Endpoint(), ReplayEndpoint: e.ReplayEndpoint()}
}

func ctxOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func statusOf(s *kvevents.Subscriber, worker string, rank int32) kvevents.SourceStatus {
	for _, st := range s.AppendStatus(nil) {
		if st.Worker == worker && st.Rank == rank {
			return st
		}
	}
	return kvevents.SourceStatus{}
}

// caughtUp waits until all that an engine published was applied.
func caughtUp(t *testing.T, s *kvevents.Subscriber, f *fleet, worker string, rank int32, e *kveventstest.Engine) kvevents.SourceStatus {
	t.Helper()
	var st kvevents.SourceStatus
	if !waitFor(func() bool {
		st = statusOf(s, worker, rank)
		return st.Next == e.Seq() && st.State != kvevents.Syncing && st.State != kvevents.Cold
	}) {
		t.Fatalf("engine at %d, stream %+v, %+v, error %v", e.Seq(), st.Status, st.Stats, st.LastError)
	}
	return st
}

func waitFor(ok func() bool) bool {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return false
}

// traffic serves prompts of which some repeat.
func traffic(e *kveventstest.Engine, rng *rand.Rand, n int) {
	for range n {
		tokens := make([]uint32, 32+16*rng.IntN(10))
		text := uint32(rng.IntN(20))
		for i := range tokens {
			tokens[i] = text<<16 | uint32(i)
		}
		e.Serve(tokens)
	}
}

// TestSubscriberEveryRelease: with every form of the wire, a subscriber that
// comes late, misses batches, and lives through a restart knows what the
// engine holds.
func TestSubscriberEveryRelease(t *testing.T) {
	for _, c := range []kveventstest.Options{
		{Release: "0.10.2"}, {Release: "0.19.0", Digests: 32}, {Release: "0.24.0"}, {Release: "0.26.0"}, {Release: "0.33.0", CPUBlocks: 40},
		{Engine: "sglang", Release: "0.5.16"}, {Engine: "sglang", Release: "0.5.23"},
	} {
		t.Run(fmt.Sprint(c.Engine, c.Release), func(t *testing.T) {
			c.Replay, c.Blocks, c.Topic = true, 100, "kv-events"
			rng := rand.New(rand.NewPCG(1, 1))
			e := engineOf(t, c)
			traffic(e, rng, 20)
			f := &fleet{}
			s := subscribe(t, f, kvevents.SubscriberOptions{})
			require.NoError(t, s.Add(targetOf("a", e)))
			st := caughtUp(t, s, f, "a", 0, e)
			require.Equal(t, kvevents.Live, st.State)
			require.Equal(t, e.Held(), f.of("a", 0))

			require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
			e.Inject(kveventstest.Drop, 3)
			e.Inject(kveventstest.Duplicate, 2)
			traffic(e, rng, 20)
			st = caughtUp(t, s, f, "a", 0, e)
			require.Equal(t, kvevents.Live, st.State)
			require.Equal(t, e.Held(), f.of("a", 0))

			require.NoError(t, e.Restart())
			traffic(e, rng, 10)
			require.True(t, waitFor(func() bool { return statusOf(s, "a", 0).Stats.Restarts == 1 }))
			st = caughtUp(t, s, f, "a", 0, e)
			require.Equal(t, kvevents.Live, st.State)
			require.Equal(t, e.Held(), f.of("a", 0))
			require.Empty(t, f.losses)
			require.True(t, st.Connected)
			require.Positive(t, f.lags)
		})
	}
}

func TestTrialT71SlowIndex(t *testing.T) {
	publishers, batches := 8, 3000
	if testing.Short() {
		batches = 300
	}
	if all, err := strconv.Atoi(os.Getenv("BATCHES")); err == nil { // make slow-index-test
		batches = all / publishers
	}
	// Queues so short, and an index so slow, that our own sockets drop.
	f := &fleet{delay: 20 * time.Microsecond}
	s := subscribe(t, f, kvevents.SubscriberOptions{Socket: zmtp.Options{ReceiveMessages: 50},
		Stream: kvevents.StreamOptions{PendingBatches: batches, PendingBytes: 1 << 30}})
	var engines []*kveventstest.Engine
	for i := range publishers {
		e := engineOf(t, kveventstest.Options{Replay: true, BufferSteps: batches + 10})
		engines = append(engines, e)
		require.NoError(t, s.Add(targetOf(fmt.Sprint(i), e)))
		require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
	}
	var work sync.WaitGroup
	for i, e := range engines {
		work.Go(func() {
			for n := range batches {
				e.Publish(kvevents.Event{Kind: kvevents.BlockStored, Medium: []byte("GPU"), Hashes: []uint64{uint64(n), uint64(i)}})
			}
		})
	}
	work.Wait()
	dropped := uint64(0)
	for i, e := range engines {
		name := fmt.Sprint(i)
		for last := uint64(0); statusOf(s, name, 0).Next > last; { // as long as it gets on
			last = statusOf(s, name, 0).Next
			waitFor(func() bool { return statusOf(s, name, 0).Next == e.Seq() })
		}
		st := caughtUp(t, s, f, name, 0, e)
		dropped += st.Dropped
		require.Equal(t, kvevents.Live, st.State, "%+v", st)
		held := f.of(name, 0)
		require.Len(t, held, batches)
		require.Equal(t, batches+1, held[kveventstest.Block{Medium: "GPU", Hash: uint64(i)}])
	}
	require.Empty(t, f.losses)
	t.Logf("%d batches, %d dropped by our sockets, none lost", publishers*batches, dropped)
}

func TestTrialT72PublisherDrops(t *testing.T) {
	e := engineOf(t, kveventstest.Options{Replay: true, SendMessages: 2})
	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{Stream: kvevents.StreamOptions{ReplayTimeout: 200 * time.Millisecond}})
	require.NoError(t, s.Add(targetOf("a", e)))
	require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
	for n := range 1000 {
		e.Publish(kvevents.Event{Kind: kvevents.BlockStored, Medium: []byte("GPU"), Hashes: []uint64{uint64(n)}})
	}
	// The router has the same high-water mark here and drops answers too: what
	// stays lost must be said, and what is held must be true.
	settled := func() bool {
		st := statusOf(s, "a", 0)
		return st.Next == e.Seq() && st.State != kvevents.Syncing
	}
	for range 100 {
		e.Publish(kvevents.Event{Kind: kvevents.BlockStored, Medium: []byte("GPU"), Hashes: []uint64{5000}})
		for i := 0; i < 100 && !settled(); i++ {
			time.Sleep(5 * time.Millisecond)
		}
		if settled() {
			break
		}
	}
	require.True(t, settled())
	if st := statusOf(s, "a", 0); st.State == kvevents.Live {
		require.Len(t, f.of("a", 0), 1001)
	} else {
		require.NotEmpty(t, f.losses)
	}

	// With a router that keeps all, the index equals the oracle.
	e = engineOf(t, kveventstest.Options{Replay: true})
	require.NoError(t, s.Add(targetOf("b", e)))
	require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
	rng := rand.New(rand.NewPCG(2, 2))
	for range 10 {
		e.Inject(kveventstest.Drop, 90)
		traffic(e, rng, 100)
	}
	e.Publish()
	require.Equal(t, kvevents.Live, caughtUp(t, s, f, "b", 0, e).State)
	require.Equal(t, e.Held(), f.of("b", 0))
}

func TestTrialT73ClosedReplayPort(t *testing.T) {
	e := engineOf(t, kveventstest.Options{})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := "tcp://" + closed.Addr().String()
	closed.Close()
	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{})
	require.NoError(t, s.Add(kvevents.Target{Worker: "a", Endpoint: e.Endpoint(), ReplayEndpoint: dead}))
	require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
	before := runtime.NumGoroutine()
	for i := range 50 {
		e.Inject(kveventstest.Drop, 1)
		e.Publish(kvevents.Event{Kind: kvevents.BlockStored, Hashes: []uint64{1}})
		e.Publish(kvevents.Event{Kind: kvevents.BlockStored, Hashes: []uint64{uint64(i)}})
		time.Sleep(10 * time.Millisecond)
	}
	require.True(t, waitFor(func() bool { return statusOf(s, "a", 0).Next == e.Seq() }))
	require.LessOrEqual(t, runtime.NumGoroutine(), before+8)
	st := statusOf(s, "a", 0)
	require.Less(t, st.Stats.Replays, uint64(20))
	require.Error(t, st.LastError)
	require.NotEmpty(t, f.losses)
}

func TestTrialT75RestartOfOneRank(t *testing.T) {
	for _, replay := range []bool{true, false} {
		rng := rand.New(rand.NewPCG(3, 3))
		ranks, err := kveventstest.StartRanks(kveventstest.Options{Replay: replay}, 2)
		require.NoError(t, err)
		other := engineOf(t, kveventstest.Options{})
		f := &fleet{}
		s := subscribe(t, f, kvevents.SubscriberOptions{})
		target := targetOf("dp", ranks[0])
		target.Ranks = 2
		require.NoError(t, s.Add(target))
		require.NoError(t, s.Add(targetOf("other", other)))
		all := append(ranks, other)
		for _, e := range all {
			t.Cleanup(func() { e.Close() })
			require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
			traffic(e, rng, 10)
		}
		for rank, e := range ranks {
			caughtUp(t, s, f, "dp", int32(rank), e)
			require.Equal(t, e.Held(), f.of("dp", int32(rank)))
		}
		caughtUp(t, s, f, "other", 0, other)
		require.NoError(t, ranks[1].Restart())
		require.NoError(t, ranks[1].WaitSubscribed(ctxOf(t), 1))
		traffic(ranks[1], rng, 3)
		caughtUp(t, s, f, "dp", 1, ranks[1])
		require.Equal(t, ranks[1].Held(), f.of("dp", 1))
		require.Equal(t, ranks[0].Held(), f.of("dp", 0))
		require.Equal(t, other.Held(), f.of("other", 0))
		f.mu.Lock()
		require.Equal(t, []string{"dp 1 engine restarted"}, f.clears)
		f.mu.Unlock()
	}
}

func TestTrialT77BoundSocket(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	endpoint := "tcp://" + free.Addr().String()
	free.Close()
	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{})
	require.Error(t, s.Add(kvevents.Target{Worker: "x", Endpoint: endpoint, Listen: true})) // no topic
	topics := []string{"kv@10.0.0.1@m", "kv@10.0.0.10@m"}
	for i, topic := range []string{"kv@10.0.0.1", "kv@10.0.0.10"} {
		require.NoError(t, s.Add(kvevents.Target{Worker: fmt.Sprint(i), Endpoint: endpoint, Topic: topic, Listen: true, Ranks: 2}))
	}
	require.ErrorContains(t, s.Add(kvevents.Target{Worker: "2", Endpoint: endpoint, Topic: "kv@10.0.0.1", Listen: true}), "also one of worker")
	var engines []*kveventstest.Engine
	for i, topic := range []string{topics[0], topics[1], topics[1], "kv@10.0.0.100@m"} {
		e := engineOf(t, kveventstest.Options{Endpoint: endpoint, Connect: true, Topic: topic, Rank: i / 2})
		require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
		engines = append(engines, e)
	}
	rng := rand.New(rand.NewPCG(4, 4))
	for range 20 { // interleaved: 0,0,1,1,2,2
		for _, e := range engines {
			traffic(e, rng, 1)
		}
	}
	for i, e := range engines[:3] {
		worker, rank := fmt.Sprint(min(i, 1)), int32(i/2)
		st := caughtUp(t, s, f, worker, rank, e)
		require.Zero(t, st.Stats.Restarts)
		require.Equal(t, kvevents.Live, st.State)
		require.Equal(t, e.Held(), f.of(worker, rank))
	}
	require.True(t, waitFor(func() bool { return s.Unattributed() == engines[3].Seq() }))
	require.Empty(t, f.clears)
	require.True(t, s.Remove("0"))
	require.True(t, s.Remove("1"))
	require.NoError(t, s.Add(kvevents.Target{Worker: "0", Endpoint: endpoint, Topic: "kv@10.0.0.1", Listen: true}))
}

func TestTrialT79RankEndpoints(t *testing.T) {
	live, err := kvevents.RankEndpoints("tcp://10.0.0.7:5557", 4)
	require.NoError(t, err)
	require.Equal(t, []string{"tcp://10.0.0.7:5557", "tcp://10.0.0.7:5558", "tcp://10.0.0.7:5559", "tcp://10.0.0.7:5560"}, live)
	replay, err := kvevents.RankEndpoints("tcp://[::1]:6557", 4)
	require.NoError(t, err)
	require.Equal(t, "tcp://[::1]:6560", replay[3])
	inproc, err := kvevents.RankEndpoints("inproc://kv", 2)
	require.NoError(t, err)
	require.Equal(t, []string{"inproc://kv", "inproc://kv_dp1"}, inproc)

	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{})
	require.NoError(t, s.Add(kvevents.Target{Worker: "a", Endpoint: "tcp://127.0.0.1:5557", ReplayEndpoint: "tcp://127.0.0.1:6557", Ranks: 4}))
	for _, bad := range []kvevents.Target{
		{Worker: "b", Endpoint: "tcp://127.0.0.1:5559", Ranks: 4},
		{Worker: "b", Endpoint: "tcp://127.0.0.1:7000", ReplayEndpoint: "tcp://127.0.0.1:6560"},
		{Worker: "b", Endpoint: "tcp://127.0.0.1:7000", ReplayEndpoint: "tcp://127.0.0.1:7001", Ranks: 2},
	} {
		require.Error(t, s.Add(bad))
	}
	require.Len(t, s.AppendStatus(nil), 4)
	require.NoError(t, s.Add(kvevents.Target{Worker: "b", Endpoint: "tcp://127.0.0.1:5561", Ranks: 2}))
}

func TestTrialT81PortOutOfRange(t *testing.T) {
	_, err := kvevents.RankEndpoints("tcp://h:65535", 2)
	require.ErrorContains(t, err, "rank 1")
	require.ErrorContains(t, err, "65536")
	s := subscribe(t, &fleet{}, kvevents.SubscriberOptions{})
	require.ErrorContains(t, s.Add(kvevents.Target{Worker: "a", Endpoint: "tcp://h:65535", Ranks: 2}), "65536")
	for _, bad := range []string{"", "h:5557", "tcp://h", "tcp://h:x", "tcp://h:0", "tcp://h:65536", "tcp://"} {
		_, err := kvevents.RankEndpoints(bad, 1)
		require.ErrorContains(t, err, "kvevents: ", bad)
	}
	_, err = kvevents.RankEndpoints("ipc:///x", 2)
	require.Error(t, err)
	for _, ranks := range []int{-1, 0, 65536, math.MaxInt} {
		for _, base := range []string{"tcp://h:1", "inproc://kv"} {
			_, err = kvevents.RankEndpoints(base, ranks)
			require.ErrorContains(t, err, "want 1 to 65535", "%s, %d ranks", base, ranks)
		}
	}
	for _, ranks := range []int{-1, 65536, math.MaxInt} {
		for _, listen := range []bool{false, true} {
			require.ErrorContains(t, s.Add(kvevents.Target{Worker: "a", Endpoint: "tcp://127.0.0.1:5557", Topic: "a", Ranks: ranks, Listen: listen}), "ranks, want")
		}
	}
	all, err := kvevents.RankEndpoints("tcp://h:1", 65535)
	require.NoError(t, err)
	require.Equal(t, "tcp://h:65535", all[65534])
}

func TestTrialT83Topics(t *testing.T) {
	for topic, want := range map[string]kvevents.Topic{
		"kv@10.0.0.1@Qwen/Q2":      {Pod: "10.0.0.1", Model: "Qwen/Q2"},
		"kv@10.0.0.1:8000@Qwen/Q2": {Pod: "10.0.0.1", Port: "8000", Model: "Qwen/Q2"},
		"kv@[fd00::1]:8000@org/m":  {Pod: "fd00::1", Port: "8000", Model: "org/m"},
		"kv@p@m@2024@x":            {Pod: "p", Model: "m@2024@x"},
	} {
		got, ok := kvevents.ParseTopic(topic)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	for _, topic := range []string{"", "kv", "kv@", "kv@pod", "kv@@m", "kv@pod@", "x@pod@m"} {
		_, ok := kvevents.ParseTopic(topic)
		require.False(t, ok, topic)
	}
}

// TestTrialT84 has a topic of which another worker's is a prefix, and one
// without the usual parts, which stays with the worker it was registered for.
func TestTrialT84TopicPrefix(t *testing.T) {
	e := engineOf(t, kveventstest.Options{Topic: "kv@10.0.0.1@m"})
	odd := engineOf(t, kveventstest.Options{Topic: "whatever"})
	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{})
	target := targetOf("a", e)
	target.Topic = "kv@10.0.0.1"
	require.NoError(t, s.Add(target))
	require.NoError(t, s.Add(targetOf("odd", odd)))
	require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
	require.NoError(t, odd.WaitSubscribed(ctxOf(t), 1))
	payload := kvevents.AppendBatch(nil, &kvevents.Batch{Timestamp: 1}, kvevents.Form{})
	require.NoError(t, e.SendRaw([]byte("kv@10.0.0.10@m"), make([]byte, 8), payload))
	rng := rand.New(rand.NewPCG(5, 5))
	traffic(e, rng, 3)
	traffic(odd, rng, 3)
	st := caughtUp(t, s, f, "a", 0, e)
	require.EqualValues(t, 1, st.Foreign)
	require.Equal(t, e.Held(), f.of("a", 0))
	caughtUp(t, s, f, "odd", 0, odd)
	require.Equal(t, odd.Held(), f.of("odd", 0))
}

// TestTrialT29 over sockets: wrong frames are counted and change nothing.
func TestTrialT29WrongFramesOverSockets(t *testing.T) {
	e := engineOf(t, kveventstest.Options{Replay: true})
	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{})
	require.NoError(t, s.Add(targetOf("a", e)))
	require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
	rng := rand.New(rand.NewPCG(6, 6))
	traffic(e, rng, 2)
	seq := binary.BigEndian.AppendUint64(nil, 77)
	for _, frames := range [][][]byte{{nil}, {nil, seq}, {nil, seq, {1}, {2}}, {nil, nil, {1}}, {nil, seq[1:], {1}}, {nil, append(seq[:8:8], 0), {1}}, {nil, seq, nil}} {
		require.NoError(t, e.SendRaw(frames...))
	}
	traffic(e, rng, 2)
	st := caughtUp(t, s, f, "a", 0, e)
	require.EqualValues(t, 7, st.Stats.Garbage)
	require.Error(t, st.LastError)
	require.Equal(t, e.Held(), f.of("a", 0))
	require.Equal(t, kvevents.Live, st.State)
}

// TestTrialT122 and T158: a registered worker that publishes nothing.
func TestTrialT122SilentPublisher(t *testing.T) {
	e := engineOf(t, kveventstest.Options{})
	var log strings.Builder
	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{SilentAfter: 50 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, s.Add(targetOf("a", e)))
	require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
	require.True(t, waitFor(func() bool { return statusOf(s, "a", 0).Silent }))
	time.Sleep(150 * time.Millisecond) // one warning, not one each 50 ms
	require.Equal(t, kvevents.Cold, statusOf(s, "a", 0).State)
	traffic(e, rand.New(rand.NewPCG(7, 7)), 1)
	st := caughtUp(t, s, f, "a", 0, e)
	require.False(t, st.LastArrival.IsZero())
	f.mu.Lock()
	require.GreaterOrEqual(t, len(f.silent), 2)
	require.Equal(t, []bool{true, false}, f.silent[:2])
	f.mu.Unlock()
	s.Close()
	require.Contains(t, log.String(), "publishes no events")
}

// TestRemoveLeavesNoGhost: after Remove nothing comes any more.
func TestRemoveLeavesNoGhost(t *testing.T) {
	e := engineOf(t, kveventstest.Options{Replay: true})
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		rng := rand.New(rand.NewPCG(8, 8))
		for {
			select {
			case <-stop:
				return
			default:
				traffic(e, rng, 1)
			}
		}
	})
	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{})
	for range 20 {
		require.NoError(t, s.Add(targetOf("a", e)))
		require.NoError(t, s.Add(targetOf("a", e))) // again: nothing
		other := targetOf("a", e)
		other.Ranks = 2
		require.ErrorIs(t, s.Add(other), kvevents.ErrTargetExists)
		time.Sleep(5 * time.Millisecond)
		require.True(t, s.Remove("a"))
		require.False(t, s.Remove("a"))
		require.Empty(t, f.of("a", 0))
		f.mu.Lock()
		require.Equal(t, "a 0 worker removed", f.clears[len(f.clears)-1])
		f.mu.Unlock()
	}
	time.Sleep(20 * time.Millisecond)
	require.Empty(t, f.of("a", 0))
	close(stop)
	work.Wait()
	s.Close()
	s.Close()
	require.ErrorIs(t, s.Add(targetOf("a", e)), kvevents.ErrSubscriberClosed)
}

// TestReconnect: the engine is away for a while, and there before or after us.
func TestReconnect(t *testing.T) {
	e := engineOf(t, kveventstest.Options{Replay: true})
	target := targetOf("a", e)
	e.Kill()
	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{})
	require.NoError(t, s.Add(target)) // dial before bind
	require.True(t, waitFor(func() bool { return statusOf(s, "a", 0).LastError != nil }))
	require.False(t, statusOf(s, "a", 0).Connected)
	rng := rand.New(rand.NewPCG(9, 9))
	for i := range 3 {
		require.NoError(t, e.Revive())
		traffic(e, rng, 5)
		require.True(t, waitFor(func() bool {
			st := statusOf(s, "a", 0)
			return st.Stats.Restarts == uint64(i) && st.State == kvevents.Live
		}))
		caughtUp(t, s, f, "a", 0, e)
		require.Equal(t, e.Held(), f.of("a", 0))
		e.Kill()
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, e.Held(), f.of("a", 0)) // what is known stays until it is known to be wrong
	}
	require.True(t, s.Restarted("a", time.Now().Add(time.Hour)))
	require.Empty(t, f.of("a", 0))
	require.False(t, s.Restarted("b", time.Now()))
}

func TestSubscriberOptions(t *testing.T) {
	for _, o := range []kvevents.SubscriberOptions{
		{}, {Handler: &fleet{}, SilentAfter: -1}, {Handler: &fleet{}, Hooks: []any{5}}, {Handler: &fleet{}, Stream: kvevents.StreamOptions{Decay: -1}},
	} {
		_, err := kvevents.NewSubscriber(o)
		require.ErrorContains(t, err, "kvevents: ")
	}
	s := subscribe(t, &fleet{}, kvevents.SubscriberOptions{})
	for _, bad := range []kvevents.Target{
		{}, {Worker: "a"}, {Worker: "a", Endpoint: "tcp://*:5557"}, {Worker: "a", Endpoint: "tcp://h:1", Ranks: 2, Endpoints: []string{"tcp://h:1"}},
		{Worker: "a", Endpoints: []string{"tcp://h:1", "tcp://h:1"}, Ranks: 2}, {Worker: "a", Endpoint: "udp://h:1"},
	} {
		require.Error(t, s.Add(bad), "%+v", bad)
	}
	require.Empty(t, s.AppendStatus(nil))
	require.NoError(t, s.Add(kvevents.Target{Worker: "a", Endpoints: []string{"tcp://127.0.0.1:1", "tcp://127.0.0.1:2"}, Ranks: 2}))
}

// TestCustomTransport: sockets that report no connections work too.
func TestCustomTransport(t *testing.T) {
	e := engineOf(t, kveventstest.Options{Replay: true})
	rng := rand.New(rand.NewPCG(10, 10))
	traffic(e, rng, 5)
	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{Transport: blind{zmtp.Native}})
	require.NoError(t, s.Add(targetOf("a", e)))
	require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
	e.Inject(kveventstest.Drop, 2)
	traffic(e, rng, 5)
	require.Equal(t, kvevents.Live, caughtUp(t, s, f, "a", 0, e).State)
	require.Equal(t, e.Held(), f.of("a", 0))

	s = subscribe(t, f, kvevents.SubscriberOptions{Transport: broken{}})
	require.Error(t, s.Add(targetOf("a", e)))
	require.Empty(t, s.AppendStatus(nil))
}

// blind is a transport that tells of no connection.
type blind struct{ zmtp.Transport }

func (b blind) NewSub(o zmtp.Options) (zmtp.SubSocket, error) {
	o.Monitor = nil
	s, err := b.Transport.NewSub(o)
	return blindSub{s}, err
}

type blindSub struct{ zmtp.SubSocket }

func (s blindSub) Recv(ctx context.Context, m *zmtp.Message) error {
	err := s.SubSocket.Recv(ctx, m)
	m.Peer = 0
	return err
}

type broken struct{}

func (broken) NewSub(zmtp.Options) (zmtp.SubSocket, error) { return nil, errors.New("no sockets") }
func (broken) NewDealer(zmtp.Options) (zmtp.DealerSocket, error) {
	return nil, errors.New("no sockets")
}

// TestSubscriberConcurrentSafe calls everything from many goroutines while
// engines publish and restart.
func TestSubscriberConcurrentSafe(t *testing.T) {
	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{SilentAfter: 20 * time.Millisecond})
	var engines []*kveventstest.Engine
	for range 4 {
		engines = append(engines, engineOf(t, kveventstest.Options{Replay: true}))
	}
	stop := time.Now().Add(300 * time.Millisecond)
	var work sync.WaitGroup
	for i, e := range engines {
		name := fmt.Sprint(i)
		target := targetOf(name, e)
		work.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			for time.Now().Before(stop) {
				traffic(e, rng, 3)
				if rng.IntN(50) == 0 {
					require.NoError(t, e.Restart())
				}
			}
		})
		for range 2 {
			work.Go(func() {
				for time.Now().Before(stop) {
					require.NoError(t, s.Add(target))
					s.AppendStatus(nil)
					s.Restarted(name, time.Now())
					s.Unattributed()
					s.Remove(name)
				}
			})
		}
	}
	work.Wait()
	for i, e := range engines {
		require.NoError(t, s.Add(targetOf(fmt.Sprint(i), e)))
		caughtUp(t, s, f, fmt.Sprint(i), 0, e)
		if want := e.Held(); len(want) > 0 {
			require.Equal(t, want, f.of(fmt.Sprint(i), 0))
		} else { // restarted just now
			require.Empty(t, f.of(fmt.Sprint(i), 0))
		}
	}
}

// TestHostilePublisher: a worker that sends what it likes is marked and bounded;
// its neighbour is not touched.
func TestHostilePublisher(t *testing.T) {
	bad := engineOf(t, kveventstest.Options{Replay: true})
	good := engineOf(t, kveventstest.Options{Replay: true})
	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{
		Socket: zmtp.Options{MaxMessageBytes: 4 << 20},
		Stream: kvevents.StreamOptions{PendingBytes: 1 << 20, ReplayTimeout: 100 * time.Millisecond},
	})
	require.NoError(t, s.Add(targetOf("bad", bad)))
	require.NoError(t, s.Add(targetOf("good", good)))
	require.NoError(t, bad.WaitSubscribed(ctxOf(t), 1))
	require.NoError(t, good.WaitSubscribed(ctxOf(t), 1))
	bad.SetReplayFaults(kveventstest.ReplayFaults{Silent: true})
	rng := rand.New(rand.NewPCG(12, 12))
	seq := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	hashes := []byte("\x92\x01\x91\x92\xacBlockRemoved\xdd\x3b\x9a\xca\x00") // 10^9 hashes, it says
	nested := append([]byte("\x92\x01\x91"), make([]byte, 2<<20)...)
	for i := 3; i < len(nested); i++ {
		nested[i] = 0x91
	}
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range 60 {
		switch i % 6 {
		case 0:
			bad.SendRaw(nil, seq(rng.Uint64()>>1), hashes)
		case 1:
			bad.SendRaw(nil, seq(uint64(i)), nested)
		case 2:
			bad.SendRaw(make([][]byte, 500)...)
		case 3:
			bad.SendRaw(nil, seq(1<<62+uint64(i)), make([]byte, 300<<10))
		case 4:
			bad.SendRaw(nil, seq(uint64(i)))
		case 5:
			bad.SendRaw(nil, seq(1<<40+uint64(i)), make([]byte, 5<<20)) // beyond the limit: disconnected
		}
		traffic(good, rng, 2)
	}
	st := caughtUp(t, s, f, "good", 0, good)
	require.Equal(t, kvevents.Live, st.State)
	require.Equal(t, good.Held(), f.of("good", 0))
	require.True(t, waitFor(func() bool {
		st = statusOf(s, "bad", 0)
		return st.State == kvevents.Degraded || st.State == kvevents.Syncing
	}))
	require.LessOrEqual(t, st.WaitingBytes, 1<<20)
	require.Empty(t, f.of("bad", 0))
	var after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, after.HeapAlloc, before.HeapAlloc+64<<20)
}

// TestTrialT155 is the stream's part: pages of one token, with branches, from
// an engine of SGLang; every page is known under its own hash.
func TestTrialT155PagesOfOneToken(t *testing.T) {
	e := engineOf(t, kveventstest.Options{Engine: "sglang", Release: "0.5.23", BlockSize: 1, Replay: true})
	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{})
	require.NoError(t, s.Add(targetOf("a", e)))
	require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
	tokens := make([]uint32, 64)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	branch := append(append([]uint32{}, tokens[:40]...), 7, 7, 7, 7)
	e.Serve(tokens)
	e.Serve(branch)
	caughtUp(t, s, f, "a", 0, e)
	held := f.of("a", 0)
	require.Equal(t, e.Held(), held)
	for _, prompt := range [][]uint32{tokens, branch} {
		for i, h := range e.Hashes(prompt) {
			require.Positive(t, held[kveventstest.Block{Medium: "GPU", Hash: h}], "page %d", i)
		}
	}
}

// TestTrialT158: a worker registered as SGLang that stays silent while requests
// flow is called silent and cold, not healthy with an empty cache.
func TestTrialT158SilentSGLang(t *testing.T) {
	e := engineOf(t, kveventstest.Options{Engine: "sglang", Release: "0.5.20"})
	e.Inject(kveventstest.Drop, 1<<30) // it publishes nothing
	f := &fleet{}
	s := subscribe(t, f, kvevents.SubscriberOptions{SilentAfter: 50 * time.Millisecond})
	require.NoError(t, s.Add(targetOf("a", e)))
	require.NoError(t, e.WaitSubscribed(ctxOf(t), 1))
	traffic(e, rand.New(rand.NewPCG(13, 13)), 20)
	require.True(t, waitFor(func() bool { return statusOf(s, "a", 0).Silent }))
	st := statusOf(s, "a", 0)
	require.True(t, st.Connected)
	require.Equal(t, kvevents.Cold, st.State)
	require.True(t, st.LastArrival.IsZero())
}
