package metrics_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/kveventstest"
	"github.com/kvatlas/kvatlas/metrics"
	"github.com/kvatlas/kvatlas/metrics/scrape"
	"github.com/kvatlas/kvatlas/scoring"
)

const blockSize = 16

// fleet is an instance with all its parts.
type fleet struct {
	metrics.Instance
	t testing.TB
}

// newFleet makes an instance whose workers are known by hash.
func newFleet(t testing.TB, name string, workers ...string) *fleet {
	t.Helper()
	f := &fleet{t: t}
	f.Name, f.Latency, f.Stream = name, new(metrics.Latency), new(metrics.StreamHook)
	var err error
	f.Atlas, err = kvatlas.New(kvatlas.Options{Observer: f.Latency, MemoBytes: 1 << 20})
	require.NoError(t, err)
	for _, w := range workers {
		f.worker(kvatlas.Worker{Name: w, Seed: blockhash.SeedText("0")})
	}
	f.InFlight, err = scoring.NewInFlight(scoring.InFlightOptions{})
	require.NoError(t, err)
	f.Speculation, err = scoring.NewSpeculation(scoring.SpeculationOptions{})
	require.NoError(t, err)
	return f
}

func (f *fleet) worker(w kvatlas.Worker) {
	f.t.Helper()
	w.Release, w.BlockSize = cmp.Or(w.Release, "0.33.0"), blockSize
	require.NoError(f.t, f.Atlas.AddWorker(w))
}

// subscribe follows engines over real sockets; o.Handler and o.Hooks are set.
func (f *fleet) subscribe(o kvevents.SubscriberOptions, targets ...kvevents.Target) {
	f.t.Helper()
	o.Handler, o.Hooks = f.Atlas.Handler(), []any{f.Stream}
	var err error
	f.Subscriber, err = kvevents.NewSubscriber(o)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { f.Subscriber.Close() })
	for _, target := range targets {
		require.NoError(f.t, f.Subscriber.Add(target))
	}
}

// scrape asks engine a for its load, and engine b, which has none.
func (f *fleet) scrape() {
	f.t.Helper()
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			fmt.Fprintln(w, "vllm:num_requests_running 3")
		}
	}))
	f.t.Cleanup(engine.Close)
	var err error
	f.Scraper, err = scrape.New(scrape.Options{Period: 10 * time.Millisecond, Timeout: 10 * time.Second})
	require.NoError(f.t, err)
	f.t.Cleanup(f.Scraper.Close)
	for _, name := range []string{"a", "b"} {
		require.NoError(f.t, f.Scraper.Add(name, engine.URL+"/"+name))
	}
	require.Eventually(f.t, func() bool {
		a, _ := f.Scraper.Status("a")
		b, _ := f.Scraper.Status("b")
		return a.Pages > 0 && b.Failures > 0
	}, 20*time.Second, time.Millisecond)
}

// status returns the status of a worker's rank 0.
func (f *fleet) status(worker string) kvevents.SourceStatus {
	for _, st := range f.Subscriber.AppendStatus(nil) {
		if st.Worker == worker && st.Rank == 0 {
			return st
		}
	}
	return kvevents.SourceStatus{}
}

// applied waits until so many batches of a worker were.
func (f *fleet) applied(worker string, n uint64) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.status(worker).Stats.Applied >= n }, 20*time.Second, time.Millisecond)
}

func engine(t testing.TB, o kveventstest.Options) *kveventstest.Engine {
	t.Helper()
	e, err := kveventstest.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

func subscribed(t testing.TB, e *kveventstest.Engine) {
	t.Helper()
	require.NoError(t, e.WaitSubscribed(t.Context(), 1))
}

func collector(t testing.TB, o metrics.Options, all ...*fleet) *metrics.Collector {
	t.Helper()
	var instances []metrics.Instance
	for _, f := range all {
		instances = append(instances, f.Instance)
	}
	c, err := metrics.New(o, instances...)
	require.NoError(t, err)
	return c
}

// gather is what a registry with the collector has.
func gather(t testing.TB, c prometheus.Collector) []*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(c))
	families, err := r.Gather()
	require.NoError(t, err)
	return families
}

// exposition is what a registry with the collector serves.
func exposition(t testing.TB, c prometheus.Collector) []byte {
	t.Helper()
	var b bytes.Buffer
	e := expfmt.NewEncoder(&b, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range gather(t, c) {
		require.NoError(t, e.Encode(f))
	}
	return b.Bytes()
}

// count returns the number of series.
func count(t testing.TB, c prometheus.Collector) (n int) {
	t.Helper()
	for _, f := range gather(t, c) {
		n += len(f.Metric)
	}
	return n
}

// value returns the value of a series, by name and "label", "value" pairs that it
// must have, and whether there is exactly one.
func value(t testing.TB, c prometheus.Collector, name string, labels ...string) (v float64, one bool) {
	t.Helper()
	found := 0
	for _, f := range gather(t, c) {
		for _, m := range f.Metric {
			if f.GetName() == name && has(m, labels) {
				found++
				v = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return v, found == 1
}

func has(m *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		if !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == labels[i] && l.GetValue() == labels[i+1] }) {
			return false
		}
	}
	return true
}

// payload encodes events as an engine of release 0.33.0 does.
func payload(t testing.TB, events ...kvevents.Event) []byte {
	t.Helper()
	form, err := kvevents.FormFor("vllm", "0.33.0")
	require.NoError(t, err)
	return kvevents.AppendBatch(nil, &kvevents.Batch{Timestamp: 1, Events: events}, form)
}

// stored is an event that stores n blocks with hashes from first on.
func stored(first uint64, n int) kvevents.Event {
	e := kvevents.Event{Kind: kvevents.BlockStored, BlockSize: blockSize, Tokens: make([]uint32, n*blockSize)}
	for i := range n {
		e.Hashes = append(e.Hashes, first+uint64(i))
	}
	return e
}
