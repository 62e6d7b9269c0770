package trtllm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/kvevents"
)

// engine behaves as the documents say of KVCacheEventManager: each rank counts its
// events from 0, all wait in one buffer that drops its oldest when it is full, and a
// request takes all there are.
type engine struct {
	mu     sync.Mutex
	size   int
	buffer []string
	next   map[int]uint64
	held   map[int]map[uint64]bool // by rank, ground truth
	fail   func(w http.ResponseWriter, answer string) bool
}

func newEngine(size int) *engine { e := &engine{size: size}; e.restart(); return e }

func (e *engine) restart() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.buffer, e.next, e.held = nil, map[int]uint64{}, map[int]map[uint64]bool{}
}

// failing gives answers of another kind from now on; nil ends it.
func (e *engine) failing(f func(w http.ResponseWriter, answer string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail = f
}

func (e *engine) emit(rank int, data string) {
	e.buffer = append(e.buffer, fmt.Sprintf(`{"event_id":%d,"data":%s,"window_size":64,"attention_dp_rank":%d}`, e.next[rank], data, rank))
	e.next[rank]++
	if n := len(e.buffer) - e.size; n > 0 {
		e.buffer = e.buffer[n:]
	}
}

func (e *engine) start(ranks int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for rank := range ranks {
		e.held[rank] = map[uint64]bool{}
		e.emit(rank, `{"type":"created","num_blocks_per_cache_level":[100,0]}`)
	}
}

func (e *engine) change(rank int, hash uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held[rank][hash] {
		delete(e.held[rank], hash)
		e.emit(rank, fmt.Sprintf(`{"type":"removed","block_hashes":[%d]}`, hash))
		return
	}
	e.held[rank][hash] = true
	e.emit(rank, fmt.Sprintf(`{"type":"stored","parent_hash":null,"blocks":[{"block_hash":%d,"tokens":[%s],"cache_level":0}]}`, hash, plain(1, 2)))
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/kv_cache_events" {
		http.NotFound(w, r)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	answer := "[" + strings.Join(e.buffer, ", ") + "]"
	e.buffer = nil
	if e.fail != nil && e.fail(w, answer) {
		return
	}
	w.Write([]byte(answer))
}

// knowledge is a handler that believes what it is told.
type knowledge struct {
	mu     sync.Mutex
	held   map[int32]map[uint64]bool
	losses []kvevents.Loss
	clears []kvevents.ClearCause
	seqs   map[int32][]uint64
}

func (k *knowledge) Apply(src kvevents.Source, seq uint64, b *kvevents.Batch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held == nil {
		k.held, k.seqs = map[int32]map[uint64]bool{}, map[int32][]uint64{}
	}
	if k.held[src.Rank] == nil {
		k.held[src.Rank] = map[uint64]bool{}
	}
	k.seqs[src.Rank] = append(k.seqs[src.Rank], seq)
	for _, e := range b.Events {
		switch e.Kind {
		case kvevents.BlockStored:
			for _, h := range e.Hashes {
				k.held[src.Rank][h] = true
			}
		case kvevents.BlockRemoved:
			for _, h := range e.Hashes {
				delete(k.held[src.Rank], h)
			}
		case kvevents.AllBlocksCleared:
			clear(k.held[src.Rank])
		}
	}
}

func (k *knowledge) Clear(src kvevents.Source, c kvevents.ClearCause) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clears = append(k.clears, c)
	clear(k.held[src.Rank])
}

func (k *knowledge) Lost(l kvevents.Loss) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.losses = append(k.losses, l)
}

func newPoller(t testing.TB, h http.Handler, k kvevents.Handler, more ...func(*PollerOptions)) *Poller {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	o := PollerOptions{URL: srv.URL + "/", Worker: "w", Handler: k, Decoder: Options{BlockSize: 2}, Client: srv.Client()}
	for _, f := range more {
		f(&o)
	}
	p, err := NewPoller(o)
	require.NoError(t, err)
	return p
}

func poll(t testing.TB, p *Poller) int {
	t.Helper()
	n, err := p.Poll(t.Context())
	require.NoError(t, err)
	return n
}

func TestPoll(t *testing.T) {
	e, k := newEngine(100), &knowledge{}
	p := newPoller(t, e, k)
	require.Zero(t, poll(t, p))
	e.start(2)
	e.change(0, 7)
	e.change(1, 8)
	e.change(1, 9)
	require.Equal(t, 5, poll(t, p))
	require.Equal(t, map[int32]map[uint64]bool{0: {7: true}, 1: {8: true, 9: true}}, k.held)
	require.Equal(t, map[int32][]uint64{0: {0, 1}, 1: {0, 1, 2}}, k.seqs)
	e.change(1, 8)
	require.Equal(t, 1, poll(t, p))
	require.Equal(t, map[uint64]bool{9: true}, k.held[1])
	require.Empty(t, k.losses)
	st := p.Status()
	require.Equal(t, Status{Polls: 3, Events: 6, Ranks: []int32{0, 1}}, st)
}

// TestDroppedEventsAreLosses: the server's buffer is smaller than what comes between
// two requests.
func TestDroppedEventsAreLosses(t *testing.T) {
	e, k := newEngine(4), &knowledge{}
	p := newPoller(t, e, k)
	e.start(1)
	e.change(0, 1)
	poll(t, p)
	for h := range uint64(10) {
		e.change(0, 10+h)
	}
	require.Equal(t, 4, poll(t, p))
	require.Equal(t, []kvevents.Loss{{Worker: "w", From: 2, To: 7, Cause: kvevents.LossNoReplay, Removals: true}}, k.losses)
	require.Equal(t, []kvevents.ClearCause{kvevents.ClearLoss}, k.clears)
	require.Equal(t, map[uint64]bool{16: true, 17: true, 18: true, 19: true}, k.held[0])
	require.EqualValues(t, 6, p.Status().Lost)
}

func TestRestart(t *testing.T) {
	e, k := newEngine(100), &knowledge{}
	p := newPoller(t, e, k)
	e.start(1)
	e.change(0, 1)
	poll(t, p)
	e.restart()
	e.start(1)
	poll(t, p)
	require.Equal(t, []kvevents.ClearCause{kvevents.ClearRestart}, k.clears)
	require.Empty(t, k.held[0])
	require.Empty(t, k.losses)
	require.EqualValues(t, 1, p.Status().Restarts)
}

// TestBadEventCostsItself: its neighbours are applied, and a removal that could not
// be read makes everything doubtful.
func TestBadEventCostsItself(t *testing.T) {
	e, k := newEngine(100), &knowledge{}
	p := newPoller(t, e, k)
	e.start(1)
	e.change(0, 1)
	e.mu.Lock()
	e.emit(0, `{"type":"stored","blocks":7}`)
	e.mu.Unlock()
	e.change(0, 2)
	poll(t, p)
	require.Equal(t, map[uint64]bool{1: true, 2: true}, k.held[0])
	require.Equal(t, []kvevents.Loss{{Worker: "w", From: 2, To: 2, Cause: kvevents.LossEvent}}, k.losses)
	e.mu.Lock()
	e.emit(0, `{"type":"removed","block_hashes":7}`)
	e.mu.Unlock()
	poll(t, p)
	require.Empty(t, k.held[0])
	require.EqualValues(t, 2, p.Status().Malformed)
}

// TestBrokenAnswers: what came of an answer is applied, what did not is told with
// the next event.
func TestBrokenAnswers(t *testing.T) {
	e, k := newEngine(100), &knowledge{}
	p := newPoller(t, e, k, func(o *PollerOptions) { o.Timeout = 5 * time.Second })
	e.start(1)
	e.change(0, 1)
	e.change(0, 2)
	e.failing(func(w http.ResponseWriter, answer string) bool {
		w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
		w.Write([]byte(answer[:len(answer)-10]))
		return true
	})
	n, err := p.Poll(t.Context())
	require.Error(t, err)
	require.Equal(t, 2, n)
	require.True(t, p.Status().Unsure)
	require.Equal(t, map[uint64]bool{1: true}, k.held[0])
	e.failing(nil)
	require.Zero(t, poll(t, p))
	require.True(t, p.Status().Unsure, "an answer without events proves nothing")
	e.change(0, 3)
	poll(t, p)
	require.False(t, p.Status().Unsure)
	e.failing(func(http.ResponseWriter, string) bool { panic(http.ErrAbortHandler) })
	_, err = p.Poll(t.Context())
	require.Error(t, err)
	require.True(t, p.Status().Unsure, "it was asked, and did not answer")
	e.failing(nil)
	require.Equal(t, []kvevents.Loss{{Worker: "w", From: 2, To: 2, Cause: kvevents.LossNoReplay, Removals: true}}, k.losses)

	for name, answer := range map[string]string{
		"not JSON": "<html>", "an object": `{"error":1}`, "more text": "[] []", "an event without a number": `[{"data":{"type":"removed","block_hashes":[]}}]`,
	} {
		e.failing(func(w http.ResponseWriter, _ string) bool { w.Write([]byte(answer)); return true })
		_, err := p.Poll(t.Context())
		require.IsType(t, &EventError{}, err, name)
	}
	e.failing(func(w http.ResponseWriter, _ string) bool { w.WriteHeader(404); return true })
	_, err = p.Poll(t.Context())
	require.ErrorContains(t, err, "404 Not Found; trtllm-serve answers there when")
	e.failing(func(w http.ResponseWriter, _ string) bool { w.Write(make([]byte, 100)); return true })
	small := newPoller(t, e, k, func(o *PollerOptions) { o.Decoder.Limits.PayloadBytes = 50 })
	_, err = small.Poll(t.Context())
	require.ErrorContains(t, err, "over the limit of 50 bytes")
}

func TestNothingListens(t *testing.T) {
	p, err := NewPoller(PollerOptions{URL: "http://127.0.0.1:1", Worker: "w", Handler: &knowledge{}, Decoder: Options{BlockSize: 2}})
	require.NoError(t, err)
	_, err = p.Poll(t.Context())
	require.Error(t, err)
	require.False(t, p.Status().Unsure, "the engine gave nothing away")
	for _, o := range []PollerOptions{{}, {URL: "tcp://h:1"}, {URL: "http://h:1", Worker: "w"},
		{URL: "http://h:1", Worker: "w", Handler: &knowledge{}}, {URL: "http://h:1", Worker: "w", Handler: &knowledge{}, Least: -1}} {
		_, err := NewPoller(o)
		require.Error(t, err)
	}
}

// TestPollerModel: requests, failures, restarts and a small buffer at random. After
// each answer that brought an event of a rank, nothing is believed of that rank that
// it does not hold, and each hole is told.
func TestPollerModel(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 4))
		e, k := newEngine(12), &knowledge{}
		p := newPoller(t, e, k)
		e.start(2)
		dropped := 0
		e.failing(func(w http.ResponseWriter, answer string) bool {
			if r.IntN(6) > 0 {
				return false
			}
			dropped++
			w.WriteHeader(502)
			return true
		})
		for range 60 {
			for range r.IntN(12) {
				e.change(r.IntN(2), r.Uint64N(10))
			}
			if r.IntN(20) == 0 {
				e.restart()
				e.start(2)
			}
			before := map[int32]int{0: len(k.seqs[0]), 1: len(k.seqs[1])}
			p.Poll(t.Context())
			for rank := range int32(2) {
				if len(k.seqs[rank]) == before[rank] {
					continue // nothing came: what is known may be old
				}
				for h := range k.held[rank] {
					require.True(t, e.held[int(rank)][h], "seed %d: rank %d does not hold %d", seed, rank, h)
				}
			}
		}
		require.Positive(t, dropped)
		lost := map[int32]uint64{}
		for _, l := range k.losses {
			lost[l.Rank] += l.Batches()
		}
		require.EqualValues(t, lost[0]+lost[1], p.Status().Lost)
	}
}

func TestRun(t *testing.T) {
	e, k := newEngine(1000), &knowledge{}
	e.start(1)
	p := newPoller(t, e, k, func(o *PollerOptions) { o.Least, o.Most = time.Millisecond, 5*time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	for h := range uint64(50) {
		e.change(0, h)
		time.Sleep(100 * time.Microsecond)
	}
	require.Eventually(t, func() bool { return p.Status().Events == 51 }, 30*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Len(t, k.held[0], 50)
	require.Empty(t, k.losses)
}
