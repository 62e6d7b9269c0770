package metrics

import (
	"sync/atomic"
	"time"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/kvevents"
)

// Latency is a [kvatlas.Observer] that keeps a histogram of each stage of a
// decision, from 1 µs to 1 s. The zero value is ready, nil counts nothing. It must not
// be copied, is safe for concurrent use and does not allocate. Give it to the Atlas and
// to its [Instance].
type Latency struct {
	stages   [kvatlas.NumStages]histogram
	tokenize histogram
}

var _ kvatlas.Observer = (*Latency)(nil)

// Observe implements [kvatlas.Observer].
func (l *Latency) Observe(s kvatlas.Stage, d time.Duration) {
	if l != nil && int(s) < len(l.stages) {
		l.stages[s].observe(latencyBounds, d)
	}
}

// Tokenized tells how long it took to turn a request into tokens, which the
// Atlas has no part in. Call it yourself:
//
//	defer func(start time.Time) { latency.Tokenized(time.Since(start)) }(time.Now())
func (l *Latency) Tokenized(d time.Duration) {
	if l != nil {
		l.tokenize.observe(latencyBounds, d)
	}
}

// StreamHook counts what happens to event streams by cause, over all workers.
// The zero value is ready, nil counts nothing. It must not be copied, is safe for
// concurrent use and does not allocate. Give it to one Subscriber, in
// SubscriberOptions.Hooks, and to its [Instance].
type StreamHook struct {
	malformed    [len(reasons)]atomic.Uint64
	losses, lost [len(losses)]atomic.Uint64
	clears       [len(clears)]atomic.Uint64
	lag          histogram
}

var (
	_ kvevents.BatchHook = (*StreamHook)(nil)
	_ kvevents.LossHook  = (*StreamHook)(nil)
	_ kvevents.ClearHook = (*StreamHook)(nil)
)

// OnBatch implements [kvevents.BatchHook].
func (h *StreamHook) OnBatch(_ kvevents.Source, b *kvevents.Batch, lag time.Duration) {
	if h == nil {
		return
	}
	h.lag.observe(lagBounds, lag)
	for i := range b.Malformed {
		h.malformed[index(len(h.malformed), b.Malformed[i].Reason)].Add(1)
	}
}

// OnLoss implements [kvevents.LossHook].
func (h *StreamHook) OnLoss(l kvevents.Loss) {
	if h == nil {
		return
	}
	i := index(len(h.losses), l.Cause)
	h.losses[i].Add(1)
	h.lost[i].Add(l.Batches())
}

// OnClear implements [kvevents.ClearHook].
func (h *StreamHook) OnClear(_ kvevents.Source, c kvevents.ClearCause) {
	if h != nil {
		h.clears[index(len(h.clears), c)].Add(1)
	}
}

// index is where a value of an enumeration is counted: at 0 if it is not known.
func index[T ~uint8](n int, v T) int {
	if int(v) < n {
		return int(v)
	}
	return 0
}
