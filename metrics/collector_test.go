package metrics_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/kveventstest"
	"github.com/kvatlas/kvatlas/metrics"
	"github.com/kvatlas/kvatlas/scoring"
)

var update = flag.Bool("update", false, "write the golden files anew")

// busy is a fleet to which everything happened that metrics tell of.
func busy(t *testing.T) *fleet {
	f := newFleet(t, "chat", "a", "b", "b/1")
	f.Labels = prometheus.Labels{"model": "tiny"}
	a := engine(t, kveventstest.Options{})
	b := engine(t, kveventstest.Options{Replay: true})
	f.subscribe(kvevents.SubscriberOptions{},
		kvevents.Target{Worker: "a", Endpoint: a.Endpoint()},
		kvevents.Target{Worker: "b", Ranks: 2, Endpoints: []string{b.Endpoint(), "tcp://127.0.0.1:1"}, ReplayEndpoints: []string{b.ReplayEndpoint(), "tcp://127.0.0.1:2"}})
	subscribed(t, a)
	subscribed(t, b)

	a.Publish(stored(1, 3))
	a.Publish(kvevents.Event{Kind: kvevents.BlockStored, BlockSize: -1}, stored(4, 1)) // one is malformed
	a.Publish(kvevents.Event{Kind: kvevents.BlockStored, Medium: []byte("cpu"), Hashes: []uint64{1, 2}})
	f.applied("a", 3)
	a.Inject(kveventstest.Drop, 2) // no replay: lost, and all forgotten
	a.Publish(stored(10, 1))
	a.Publish(stored(11, 1))
	a.Publish(stored(12, 2), kvevents.Event{Kind: kvevents.BlockRemoved, Hashes: []uint64{12, 99}})
	f.applied("a", 4)

	b.Publish(stored(20, 1))
	f.applied("b", 1)
	b.Inject(kveventstest.Drop, 1) // replayed
	b.Publish(stored(21, 1))
	b.Inject(kveventstest.Duplicate, 1)
	b.Publish(stored(22, 1))
	f.applied("b", 3)
	require.Eventually(t, func() bool { return f.status("b").Stats.Duplicates >= 1 && f.status("b").State == kvevents.Live }, 10*time.Second, time.Millisecond)

	require.NoError(t, f.Atlas.Reported("a", 64, 64))
	require.NoError(t, f.Atlas.Reported("a", 64, 32))
	require.NoError(t, f.Atlas.Reported("b", 0, 16))
	f.InFlight.Add(1)
	_, err := f.InFlight.Begin(1, scoring.Sent{PromptTokens: 100})
	require.NoError(t, err)
	f.Speculation.Sent(1, []uint64{1, 2, 3})
	f.Speculation.Stored(1, []uint64{1})
	f.Latency.Observe(kvatlas.StageHash, 20*time.Microsecond)
	f.Latency.Observe(kvatlas.StageMatch, 3*time.Microsecond)
	f.Latency.Observe(kvatlas.StageScore, 2*time.Second)
	f.Latency.Observe(255, time.Second) // no such stage
	f.Latency.Tokenized(time.Millisecond)
	f.scrape()
	return f
}

// varying are the series whose values depend on the time or on the index's layout.
var varying = regexp.MustCompile(`(?m)^(kvatlas_(?:stage_duration_seconds_(?:sum|bucket)\{.*stage="apply"|stream_(?:last_message_timestamp_seconds|lag_seconds|batch_lag_seconds_(?:sum|bucket))\{|engine_scrapes_total\{|index_(?:memory_)?bytes\{).*\}) .*$`)

// TestGolden: the whole exposition, apart from values that are times or memory. To
// change it on purpose: go test -run Golden -update
func TestGolden(t *testing.T) {
	const file = "testdata/exposition.txt"
	got := varying.ReplaceAllString(string(exposition(t, collector(t, metrics.Options{}, busy(t)))), "$1 VARIES")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestLint(t *testing.T) {
	problems, err := promlint.NewWithMetricFamilies(gather(t, collector(t, metrics.Options{}, busy(t)))).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}

// TestManyInstances: trial T152, two indexers in one process.
func TestManyInstances(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	two := collector(t, metrics.Options{}, newFleet(t, "one", "a"), newFleet(t, "two", "a"))
	require.NoError(t, two.Register(r))
	three := collector(t, metrics.Options{}, newFleet(t, "three", "a"))
	require.NoError(t, three.Register(r))
	require.NoError(t, three.Register(nil))
	require.NoError(t, two.Register(nil))

	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "kvatlas_workers" {
			require.Len(t, f.Metric, 3)
		}
	}
	require.Error(t, three.Register(r), "the same again: an error, no panic")
	require.Error(t, collector(t, metrics.Options{}, newFleet(t, "one")).Register(r), "another of the same name")
	require.True(t, r.Unregister(three))
	require.NoError(t, collector(t, metrics.Options{}, newFleet(t, "three")).Register(r))
}

func TestNewErrors(t *testing.T) {
	_, err := metrics.New(metrics.Options{})
	require.ErrorIs(t, err, metrics.ErrNoInstance)
	_, err = metrics.New(metrics.Options{MaxWorkers: -1}, metrics.Instance{})
	require.ErrorContains(t, err, "MaxWorkers is -1")
	for what, instances := range map[string][]metrics.Instance{
		"names":         {{Name: "a"}, {Name: "a"}},
		"our label":     {{Labels: prometheus.Labels{"fleet": "x"}}},
		"a variable":    {{Labels: prometheus.Labels{"worker": "x"}}},
		"invalid label": {{Labels: prometheus.Labels{"": "x"}}},
		"invalid value": {{Name: "\xff"}},
		"other keys":    {{Name: "a", Labels: prometheus.Labels{"x": ""}}, {Name: "b"}},
	} {
		_, err = metrics.New(metrics.Options{}, instances...)
		require.ErrorIs(t, err, metrics.ErrInstance, what)
	}
	c, err := metrics.New(metrics.Options{}, metrics.Instance{}) // nothing to tell, nothing wrong
	require.NoError(t, err)
	require.Empty(t, exposition(t, c))
}

// TestNotMade: a collector that is none exports nothing, also to a registry that takes it,
// and says so where it can.
func TestNotMade(t *testing.T) {
	for _, c := range []*metrics.Collector{nil, new(metrics.Collector)} {
		r := prometheus.NewPedanticRegistry()
		require.Equal(t, error(metrics.ErrCollector), c.Register(r))
		require.Equal(t, error(metrics.ErrCollector), c.Register(nil))
		require.NoError(t, r.Register(c))
		families, err := r.Gather()
		require.NoError(t, err)
		require.Empty(t, families)
	}
	var l *metrics.Latency
	var h *metrics.StreamHook
	l.Observe(kvatlas.StageMatch, time.Second)
	l.Tokenized(time.Second)
	h.OnBatch(kvevents.Source{}, &kvevents.Batch{}, time.Second)
	h.OnLoss(kvevents.Loss{})
	h.OnClear(kvevents.Source{}, kvevents.ClearRestart)
}

// TestWorkersAreBounded: beyond the limit workers are added up.
func TestWorkersAreBounded(t *testing.T) {
	f := newFleet(t, "")
	for i := range 20 {
		f.worker(kvatlas.Worker{Name: fmt.Sprintf("w%02d", i)})
		require.NoError(t, f.Atlas.Apply(fmt.Sprintf("w%02d", i), payload(t, stored(1, i))))
	}
	c := collector(t, metrics.Options{MaxWorkers: 18}, f)
	v, ok := value(t, c, "kvatlas_index_blocks", "worker", "w17")
	require.True(t, ok)
	require.Equal(t, 17.0, v)
	_, ok = value(t, c, "kvatlas_index_blocks", "worker", "w18")
	require.False(t, ok)
	v, _ = value(t, c, "kvatlas_index_blocks", "worker", "other")
	require.Equal(t, 18.0+19, v)
	v, _ = value(t, c, "kvatlas_workers")
	require.Equal(t, 20.0, v)
}

// TestIndexBytes: the index's memory is divided among workers and media by the
// blocks they hold, none of it twice and none left over.
func TestIndexBytes(t *testing.T) {
	f := newFleet(t, "", "a", "b", "empty")
	f.worker(kvatlas.Worker{Name: "content", Release: "0.20.2"}) // an index of its own
	onCPU := stored(1, 50)
	onCPU.Medium = []byte("cpu")
	require.NoError(t, f.Atlas.Apply("a", payload(t, stored(1, 100), onCPU)))
	require.NoError(t, f.Atlas.Apply("b", payload(t, stored(1, 50))))
	require.NoError(t, f.Atlas.Apply("content", payload(t, stored(1, 7))))
	c := collector(t, metrics.Options{}, f)
	of := func(worker, medium string) float64 {
		v, ok := value(t, c, "kvatlas_index_bytes", "worker", worker, "medium", medium)
		require.True(t, ok)
		return v
	}
	require.InEpsilon(t, 2*of("b", "GPU"), of("a", "GPU"), 1e-9)
	require.InEpsilon(t, of("b", "GPU"), of("a", "CPU"), 1e-9)
	require.NotZero(t, of("content", "GPU"))
	require.Zero(t, of("empty", "GPU"))
	memory, ok := value(t, c, "kvatlas_index_memory_bytes")
	require.True(t, ok)
	require.Equal(t, float64(f.Atlas.Snapshot().Index.Bytes), memory)
	require.InEpsilon(t, memory, of("a", "GPU")+of("a", "CPU")+of("b", "GPU")+of("content", "GPU"), 1e-9)
}

// TestOwnAccount: what the Atlas knows of requests under way is exported with it.
func TestOwnAccount(t *testing.T) {
	a, err := kvatlas.New(kvatlas.Options{Speculate: true})
	require.NoError(t, err)
	require.NoError(t, a.AddWorker(kvatlas.Worker{Name: "a", Release: "0.33.0", BlockSize: blockSize}))
	c, err := metrics.New(metrics.Options{}, metrics.Instance{Atlas: a})
	require.NoError(t, err)
	req := &kvatlas.Request{Prompt: blockhash.Prompt{Tokens: make([]uint32, 3*blockSize+1)}}
	var choice kvatlas.Choice
	require.NoError(t, a.Route(req, &choice))
	trip, err := a.Begin(req, &choice)
	require.NoError(t, err)
	for name, want := range map[string]float64{"kvatlas_requests_in_flight": 1, "kvatlas_speculative_blocks": 3} {
		v, ok := value(t, c, name)
		require.True(t, ok)
		require.Equal(t, want, v, name)
	}
	trip.Fail()
	v, _ := value(t, c, "kvatlas_requests_in_flight")
	require.Zero(t, v)
	v, _ = value(t, c, "kvatlas_speculation_outcomes_total", "result", "failed")
	require.Equal(t, 3.0, v)
}

// TestHostileNames: names that come from the wire can neither break an
// exposition nor crowd out the media that matter.
func TestHostileNames(t *testing.T) {
	f := newFleet(t, "", "a", "b\xff\n\"")
	event := func(medium string) {
		e := stored(1, 1)
		e.Medium = []byte(medium)
		require.NoError(t, f.Atlas.Apply("a", payload(t, e)))
	}
	for i := range 100 {
		event(fmt.Sprintf("A%d", i))
	}
	event("\xfe\x00")
	event("")
	event("cpu")
	event("STORAGE")
	c := collector(t, metrics.Options{}, f)
	text := string(exposition(t, c))
	require.Equal(t, metrics.MaxMedia+1, strings.Count(text, `kvatlas_index_blocks{fleet="",medium=`)-1) // and GPU of b
	for _, m := range []string{"GPU", "CPU", "STORAGE"} {
		v, _ := value(t, c, "kvatlas_index_blocks", "worker", "a", "medium", m)
		require.Equal(t, 1.0, v, m)
	}
	v, _ := value(t, c, "kvatlas_index_blocks", "worker", "a", "medium", "other")
	require.NotZero(t, v) // an index tells no more than radix.MaxMedia apart
}

// TestAllocations: what is called on hot paths does not allocate.
func TestAllocations(t *testing.T) {
	var l metrics.Latency
	var h metrics.StreamHook
	b := kvevents.Batch{Malformed: []kvevents.Malformed{{Reason: kvevents.ReasonHash}}}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		l.Observe(kvatlas.StageMatch, time.Millisecond)
		l.Tokenized(time.Hour)
		h.OnBatch(kvevents.Source{}, &b, -time.Second)
		h.OnLoss(kvevents.Loss{From: 1, To: 3, Cause: 200})
		h.OnClear(kvevents.Source{}, 200)
	}))
}
