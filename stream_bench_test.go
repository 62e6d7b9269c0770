package kvatlas_test

import (
	"encoding/binary"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// publisher is a socket that sends messages made beforehand, so that what is measured is
// the receiving side's.
type publisher struct {
	socket *zmtp.Pub
	frames [3][]byte
	seq    uint64
}

// followed starts a publisher, and an atlas that follows it through a subscriber.
func followed(b *testing.B, w kvatlas.Worker, handler func(kvevents.Handler) kvevents.Handler) (*publisher, *kvatlas.Atlas) {
	b.Helper()
	socket, err := zmtp.NewPub(zmtp.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { socket.Close() })
	endpoint, err := socket.Bind("tcp://127.0.0.1:0")
	require.NoError(b, err)
	a := newAtlas(b, w)
	sub, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: handler(a.Handler())})
	require.NoError(b, err)
	b.Cleanup(func() { sub.Close() })
	require.NoError(b, sub.Add(kvevents.Target{Worker: w.Name, Endpoint: endpoint}))
	for socket.Subscriptions() == 0 {
		time.Sleep(time.Millisecond)
	}
	return &publisher{socket: socket, frames: [3][]byte{nil, make([]byte, 8)}}, a
}

// send publishes a payload, stamped with the time.
func (p *publisher) send(payload []byte) {
	binary.BigEndian.PutUint64(p.frames[1], p.seq)
	p.seq++
	// A batch is an array of the time, a float, and more.
	binary.BigEndian.PutUint64(payload[2:], math.Float64bits(float64(time.Now().UnixNano())/1e9))
	p.frames[2] = payload
	p.socket.Send(p.frames[:]...)
}

// blocksOf makes messages that store and remove the blocks of prompts in turn.
func blocksOf(b *testing.B, w kvatlas.Worker, prompts, blocks int) (all [][]byte) {
	for i := range prompts {
		p := blockhash.Prompt{Tokens: tokens(i + 1 + blocks*w.BlockSize)[i+1:]}
		all = append(all, announced(b, w, p), payload(b, w.Release, removed(keysOf(b, w, p)...)))
	}
	return all
}

// arrivals notes when each batch has been applied: from then on a match sees it.
type arrivals struct {
	kvevents.Handler
	mu   sync.Mutex
	late []time.Duration
	n    int
}

func (h *arrivals) Apply(src kvevents.Source, seq uint64, b *kvevents.Batch) {
	h.Handler.Apply(src, seq, b)
	late := time.Duration(float64(time.Now().UnixNano()) - b.Timestamp*1e9)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n++; cap(h.late) > len(h.late) {
		h.late = append(h.late, late)
	}
}

func (h *arrivals) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// BenchmarkVisible is the time from an engine's timestamp until a match sees the blocks,
// over loopback TCP, at 10,000 events a second; and what the whole way allocates an
// event, the publisher's side included.
func BenchmarkVisible(b *testing.B) {
	w := kvatlas.Worker{Name: "w", Release: "0.32.0", BlockSize: 16, Seed: blockhash.SeedText("0")}
	h := &arrivals{late: make([]time.Duration, 0, 1<<20)}
	pub, _ := followed(b, w, func(next kvevents.Handler) kvevents.Handler { h.Handler = next; return h })
	messages := blocksOf(b, w, 500, 4)
	for _, m := range messages { // what is allocated once
		pub.send(m)
	}
	for h.count() < len(messages) {
		time.Sleep(time.Millisecond)
	}
	h.late = h.late[:0]
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start, n := time.Now(), 0
	for b.Loop() {
		for time.Since(start) < time.Duration(n)*100*time.Microsecond {
			time.Sleep(20 * time.Microsecond)
		}
		pub.send(messages[n%len(messages)])
		n++
	}
	for h.count() < len(messages)+n {
		time.Sleep(time.Millisecond)
	}
	runtime.ReadMemStats(&after)
	slices.Sort(h.late)
	b.ReportMetric(float64(h.late[len(h.late)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(h.late[len(h.late)*99/100].Microseconds()), "p99-us")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(n), "allocs/event")
	b.ReportMetric(float64(n)/time.Since(start).Seconds(), "events/s")
}

// BenchmarkWireToIndex is the way of 64-block events from the socket into the index, of
// stores alone (128,000 blocks, then a clear) and of stores and removals in turn; the
// publisher shares the machine.
func BenchmarkWireToIndex(b *testing.B) {
	w := kvatlas.Worker{Name: "w", Release: "0.32.0", BlockSize: 16, Seed: blockhash.SeedText("0")}
	churn := blocksOf(b, w, 2000, 64)
	var stores [][]byte
	for i := 0; i < len(churn); i += 2 {
		stores = append(stores, churn[i])
	}
	stores = append(stores, payload(b, w.Release, kvevents.Event{Kind: kvevents.AllBlocksCleared}))
	b.Run("stores", func(b *testing.B) { wireToIndex(b, w, stores) })
	b.Run("churn", func(b *testing.B) { wireToIndex(b, w, churn[:400]) })
}

func wireToIndex(b *testing.B, w kvatlas.Worker, messages [][]byte) {
	h := &arrivals{}
	pub, a := followed(b, w, func(next kvevents.Handler) kvevents.Handler { h.Handler = next; return h })
	n := 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		for n-h.count() > 500 {
			time.Sleep(20 * time.Microsecond) // below every high-water mark
		}
		pub.send(messages[n%len(messages)])
		n++
	}
	for h.count() < n {
		time.Sleep(20 * time.Microsecond)
	}
	runtime.ReadMemStats(&after)
	stats, _, err := a.Stats(w.Name)
	require.NoError(b, err)
	require.EqualValues(b, n, stats.Batches)
	require.Empty(b, stats.Contradiction)
	b.ReportMetric(64*float64(n)/b.Elapsed().Seconds(), "blocks/s")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(n), "allocs/event")
}
