package kvevents_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/kveventstest"
	"github.com/stretchr/testify/require"
)

// busyPayload is a batch with one event of so many blocks.
func busyPayload(blocks int) []kvevents.Event {
	rng := rand.New(rand.NewPCG(3, 4))
	ev := kvevents.Event{Kind: kvevents.BlockStored, HasParent: true, Parent: rng.Uint64(), BlockSize: 16, Medium: []byte("GPU"),
		HasGroup: true, SpecKind: []byte("full_attention")}
	for range blocks {
		ev.Hashes = append(ev.Hashes, rng.Uint64())
		ev.ExtraKeys = append(ev.ExtraKeys, nil)
	}
	for range 16 * blocks {
		ev.Tokens = append(ev.Tokens, rng.Uint32N(150000))
	}
	return []kvevents.Event{ev}
}

// meter is a Handler that counts, and measures how late batches come.
type meter struct {
	batches, blocks atomic.Int64
	mu              sync.Mutex
	late            []time.Duration
}

func (m *meter) Apply(_ kvevents.Source, _ uint64, b *kvevents.Batch) {
	n := 0
	for i := range b.Events {
		n += len(b.Events[i].Hashes)
	}
	m.blocks.Add(int64(n))
	m.batches.Add(1)
	if m.late != nil {
		late := time.Duration(float64(time.Now().UnixNano()) - b.Timestamp*1e9)
		m.mu.Lock()
		m.late = append(m.late, late)
		m.mu.Unlock()
	}
}
func (m *meter) Clear(kvevents.Source, kvevents.ClearCause) {}
func (m *meter) Lost(kvevents.Loss)                         {}

// BenchmarkStream is one message from frames to sink.
func BenchmarkStream(b *testing.B) {
	s, err := kvevents.NewStream(kvevents.StreamOptions{Replay: true}, sinkOf{&meter{}})
	require.NoError(b, err)
	form, err := kvevents.FormFor("vllm", "0.32.0")
	require.NoError(b, err)
	payload := kvevents.AppendBatch(nil, &kvevents.Batch{Timestamp: 1, Events: busyPayload(64)}, form)
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	now := time.Now()
	seq := uint64(0)
	for b.Loop() {
		s.Message(now, 1, kvevents.Message{Seq: seq, Payload: payload})
		seq++
	}
	b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
}

type sinkOf struct{ m *meter }

func (s sinkOf) Apply(seq uint64, b *kvevents.Batch) { s.m.Apply(kvevents.Source{}, seq, b) }
func (s sinkOf) Clear(kvevents.ClearCause)           {}
func (s sinkOf) Lost(kvevents.Loss)                  {}

// BenchmarkWire is the whole way over loopback TCP, publisher included: blocks
// of 64-block events to the handler.
func BenchmarkWire(b *testing.B) {
	e, err := kveventstest.Start(kveventstest.Options{Replay: true, BufferSteps: 100, Release: "0.32.0"})
	require.NoError(b, err)
	defer e.Close()
	m := &meter{}
	s, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: m})
	require.NoError(b, err)
	defer s.Close()
	require.NoError(b, s.Add(kvevents.Target{Worker: "a", Endpoint: e.Endpoint(), ReplayEndpoint: e.ReplayEndpoint()}))
	require.NoError(b, e.WaitSubscribed(b.Context(), 1))
	events := busyPayload(64)
	b.ReportAllocs()
	for b.Loop() {
		for int64(e.Seq())-m.batches.Load() > 2000 {
			time.Sleep(50 * time.Microsecond) // stay below every high-water mark
		}
		e.Publish(events...)
	}
	for m.batches.Load() < int64(e.Seq()) {
		time.Sleep(50 * time.Microsecond)
	}
	b.ReportMetric(float64(m.blocks.Load())/b.Elapsed().Seconds(), "blocks/s")
}

// BenchmarkLatency is the time from an engine's timestamp to the handler, at
// 10,000 batches a second.
func BenchmarkLatency(b *testing.B) {
	e, err := kveventstest.Start(kveventstest.Options{Release: "0.32.0"})
	require.NoError(b, err)
	defer e.Close()
	m := &meter{late: make([]time.Duration, 0, 1<<20)}
	s, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: m})
	require.NoError(b, err)
	defer s.Close()
	require.NoError(b, s.Add(kvevents.Target{Worker: "a", Endpoint: e.Endpoint()}))
	require.NoError(b, e.WaitSubscribed(b.Context(), 1))
	events := busyPayload(4)
	start := time.Now()
	n := 0
	for b.Loop() {
		n++
		for time.Since(start) < time.Duration(n)*100*time.Microsecond {
		}
		e.Publish(events...)
	}
	for m.batches.Load() < int64(n) {
		time.Sleep(50 * time.Microsecond)
	}
	slices.Sort(m.late)
	b.ReportMetric(float64(m.late[len(m.late)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(m.late[len(m.late)*99/100].Microseconds()), "p99-us")
}

// BenchmarkStartup is the first replay of many workers with full buffers.
func BenchmarkStartup(b *testing.B) {
	const workers, buffer = 100, 10_000
	var engines []*kveventstest.Engine
	for range workers {
		e, err := kveventstest.Start(kveventstest.Options{Replay: true, BufferSteps: buffer, Release: "0.32.0"})
		require.NoError(b, err)
		defer e.Close()
		events := busyPayload(2)
		for range buffer {
			e.Publish(events...)
		}
		engines = append(engines, e)
	}
	for b.Loop() {
		m := &meter{}
		s, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: m})
		require.NoError(b, err)
		for i, e := range engines {
			require.NoError(b, s.Add(kvevents.Target{Worker: fmt.Sprint(i), Endpoint: e.Endpoint(), ReplayEndpoint: e.ReplayEndpoint()}))
		}
		for m.batches.Load() < workers*buffer {
			time.Sleep(time.Millisecond)
		}
		b.StopTimer()
		for _, st := range s.AppendStatus(nil) {
			require.EqualValues(b, buffer, st.Next)
		}
		s.Close()
		b.StartTimer()
	}
	b.ReportMetric(workers*buffer*float64(b.N)/b.Elapsed().Seconds(), "batches/s")
}
