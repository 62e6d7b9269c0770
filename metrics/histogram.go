package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bounds are the upper bounds of a histogram's buckets, ascending; at most
// maxBounds.
type bounds []time.Duration

const maxBounds = 19

// latencyBounds go from 1 µs to 1 s: hashing a short prompt takes a few
// microseconds, tokenizing a long one many milliseconds.
var latencyBounds = steps(time.Microsecond, 19)

// lagBounds go from 1 ms to 5 minutes: an event in a quiet network takes less
// than a millisecond, one behind a backlog anything.
var lagBounds = append(steps(time.Millisecond, 16), 5*time.Minute)

// steps are n bounds 1, 2, 5, 10, 20, 50, ... times first.
func steps(first time.Duration, n int) (b bounds) {
	for ; len(b) < n; first *= 10 {
		b = append(b, first, 2*first, 5*first)
	}
	return b[:n]
}

// histogram counts durations with two atomic additions each.
type histogram struct {
	counts [maxBounds + 1]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

func (h *histogram) observe(b bounds, d time.Duration) {
	d = max(d, 0) // clocks go back
	i := 0
	for i < len(b) && d > b[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// metric is what was observed so far. Sum and count are of slightly different
// moments while others observe.
func (h *histogram) metric(d *prometheus.Desc, b bounds, labels ...string) prometheus.Metric {
	count, buckets := uint64(0), make(map[float64]uint64, len(b))
	for i := range b {
		count += h.counts[i].Load()
		buckets[b[i].Seconds()] = count
	}
	count += h.counts[len(b)].Load()
	return prometheus.MustNewConstHistogram(d, count, time.Duration(h.sum.Load()).Seconds(), buckets, labels...)
}
