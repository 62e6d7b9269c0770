package zmtptest

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// engine publishes numbered batches and replays them, as engines do.
type engine struct {
	b      *bench
	pub    Publisher
	router Router
	live   string // endpoint
	replay string // endpoint

	mu      sync.Mutex
	batches [][]byte // payloads
}

func newEngine(b *bench, highWater int) *engine {
	b.Helper()
	e := &engine{b: b, pub: b.publisher(highWater), router: b.router(manyMessages)}
	e.live = b.bind(e.pub)
	e.replay = b.bind(e.router)
	ctx, cancel := context.WithCancel(b.ctx)
	var serving sync.WaitGroup
	serving.Go(func() { e.serve(ctx) })
	b.Cleanup(func() {
		cancel()
		serving.Wait()
	})
	return e
}

// publish sends one batch.
func (e *engine) publish(payload []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches = append(e.batches, payload)
	if err := e.pub.Send([]byte("kv"), number(uint64(len(e.batches)-1)), payload); err != nil {
		e.b.Error(err)
	}
}

// publishEvery sends batches until it is stopped.
func (e *engine) publishEvery(d time.Duration) (stop func()) {
	done := make(chan struct{})
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for {
			select {
			case <-time.After(d):
				e.publish(nil)
			case <-done:
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		publishing.Wait()
	})
}

var endMarker = []byte("\xff\xff\xff\xff\xff\xff\xff\xff")

// serve answers replay requests in the layout of vLLM from 0.26 on.
func (e *engine) serve(ctx context.Context) {
	var m zmtp.Message
	for e.router.Recv(ctx, &m) == nil {
		if len(m.Frames) != 3 || len(m.Frames[2]) != 8 {
			e.b.Errorf("request of %d frames: %q", len(m.Frames), m.Frames)
			return
		}
		client, start := m.Frames[0], binary.BigEndian.Uint64(m.Frames[2])
		e.mu.Lock()
		for seq := start; seq < uint64(len(e.batches)); seq++ {
			e.router.Send(client, nil, []byte("kv"), number(seq), e.batches[seq])
		}
		e.mu.Unlock()
		e.router.Send(client, nil, nil, endMarker, nil)
	}
}

// replayInto asks for a replay and marks what it brings.
func (e *engine) replayInto(b *bench, start uint64, got map[uint64]bool) {
	b.Helper()
	d := b.dealer(zmtp.Options{})
	b.must(d.Dial(e.replay))
	b.must(d.Send(b.ctx, nil, number(start)))
	var m zmtp.Message
	for {
		b.recv(d, &m)
		if len(m.Frames) != 4 || len(m.Frames[0]) != 0 || len(m.Frames[2]) != 8 {
			b.Fatalf("reply of %d frames: %.40q", len(m.Frames), m.Frames)
		}
		if string(m.Frames[2]) == string(endMarker) {
			return
		}
		got[binary.BigEndian.Uint64(m.Frames[2])] = true
	}
}
