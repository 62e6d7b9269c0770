//go:build unix

package metrics_test

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/kvatlas/kvatlas/metrics"
)

// quiet is a transport over which nothing comes.
type quiet struct{}

type quietSub struct{ zmtp.SubSocket }

func (quiet) NewSub(zmtp.Options) (zmtp.SubSocket, error)       { return quietSub{}, nil }
func (quiet) NewDealer(zmtp.Options) (zmtp.DealerSocket, error) { return nil, io.EOF }
func (quietSub) Dial(string) error                              { return nil }
func (quietSub) Subscribe(string) error                         { return nil }
func (quietSub) Close() error                                   { return nil }
func (quietSub) Recv(ctx context.Context, _ *zmtp.Message) error {
	<-ctx.Done()
	return ctx.Err()
}

// BenchmarkCollect is the processor time of one scrape of a fleet of 100 workers:
// scraped once a second it is the share of a core times 10 ms. collect is what
// this package does, scrape also sorts and writes the page as a registry and its
// HTTP handler do, without compression.
func BenchmarkCollect(b *testing.B) {
	f := newFleet(b, "chat")
	var targets []kvevents.Target
	for i := range 100 {
		name := fmt.Sprintf("worker-%d", i)
		f.worker(kvatlas.Worker{Name: name})
		require.NoError(b, f.Atlas.Apply(name, payload(b, stored(1, 100))))
		targets = append(targets, kvevents.Target{Worker: name, Endpoint: fmt.Sprintf("tcp://127.0.0.1:%d", 1+i)})
	}
	f.subscribe(kvevents.SubscriberOptions{Transport: quiet{}}, targets...)
	c := collector(b, metrics.Options{}, f)
	series := float64(count(b, c))
	b.Run("collect", func(b *testing.B) {
		b.ReportAllocs()
		start := cpuTime()
		for b.Loop() {
			ch := make(chan prometheus.Metric, 10_000)
			c.Collect(ch)
		}
		reportCPU(b, start)
		b.ReportMetric(series, "series")
	})
	b.Run("scrape", func(b *testing.B) {
		r := prometheus.NewRegistry()
		require.NoError(b, c.Register(r))
		b.ReportAllocs()
		start := cpuTime()
		for b.Loop() {
			families, err := r.Gather()
			require.NoError(b, err)
			e := expfmt.NewEncoder(io.Discard, expfmt.NewFormat(expfmt.TypeTextPlain))
			for _, f := range families {
				require.NoError(b, e.Encode(f))
			}
		}
		reportCPU(b, start)
		b.ReportMetric(series, "series")
	})
}

// BenchmarkLatency is what an Observer adds to a decision, beside two looks at the
// clock.
func BenchmarkLatency(b *testing.B) {
	var l metrics.Latency
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Observe(kvatlas.StageMatch, 30*time.Microsecond)
		}
	})
}

// cpuTime is the processor time that this process has taken.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// reportCPU reports the processor time of an operation, which unlike its duration
// does not depend on what else runs on the machine.
func reportCPU(b *testing.B, since time.Duration) {
	b.ReportMetric(float64((cpuTime()-since).Nanoseconds())/float64(b.N), "cpu-ns/op")
}
