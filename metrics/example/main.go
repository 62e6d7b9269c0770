// Command example shows the metrics of a fleet at work. It brings recorded vLLM
// servers of three releases back to life: they publish their recorded events over
// real sockets, their prompts are routed, and what they reported is compared with
// what was predicted. Its metrics are at /metrics:
//
//	go run ./example -listen 127.0.0.1:9464
//
// With -trouble messages get lost, one engine has no replay endpoint, and another
// never publishes, so that dashboards and alerts have something to show.
//
// It needs a checkout: the recordings are in its testdata folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/metrics"
	"github.com/kvatlas/kvatlas/metrics/scrape"
	"github.com/kvatlas/kvatlas/scoring"
)

// servers are the recordings that play the fleet, with a page of their own
// metrics.
var servers = []struct{ worker, session, page string }{
	{"a", "vllm/server/0.32.0/truth-main.jsonl", "vllm/server/0.32.0/metrics-after.txt"},
	{"b", "vllm/server/0.29.0/truth-main.jsonl", "vllm/server/0.29.0/metrics-after.txt"},
	{"c", "vllm/server/0.20.2/truth-evict.jsonl", "vllm/server/0.20.2/metrics-evict-after.txt"},
}

type options struct {
	data    string
	pace    time.Duration
	laps    int
	silent  time.Duration
	trouble bool
}

func main() {
	var o options
	listen := flag.String("listen", "127.0.0.1:9464", "where to serve /metrics")
	flag.StringVar(&o.data, "data", "../testdata", "folder of the recordings")
	flag.DurationVar(&o.pace, "pace", 100*time.Millisecond, "pause after each prompt of each engine")
	flag.IntVar(&o.laps, "laps", 0, "how often each engine lives; 0 is for ever")
	flag.DurationVar(&o.silent, "silent", 10*time.Second, "after how long an engine without events is silent")
	flag.BoolVar(&o.trouble, "trouble", false, "lose messages, and add an engine that never publishes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l, err := net.Listen("tcp", *listen)
	if err == nil {
		fmt.Printf("metrics at http://%s/metrics\n", l.Addr())
		err = run(ctx, o, l)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, l net.Listener) error {
	f, err := newFleet(o, l)
	if err != nil {
		return err
	}
	if err = f.serve(ctx); err == nil && ctx.Err() == nil {
		fmt.Println(f.summary())
	}
	return err
}

// fleet is what is to be watched, and the server that shows it.
type fleet struct {
	o        options
	atlas    *kvatlas.Atlas
	sub      *kvevents.Subscriber
	scraper  *scrape.Scraper
	replicas []*replica

	listener net.Listener
	mux      *http.ServeMux
}

func newFleet(o options, l net.Listener) (*fleet, error) {
	f := &fleet{o: o, listener: l, mux: http.NewServeMux()}
	if err := f.open(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *fleet) open() (err error) {
	latency, hook := new(metrics.Latency), new(metrics.StreamHook)
	// A recorded prompt has one candidate, so that the shadow always agrees.
	shadow, err := scoring.Preset("llm-d", nil)
	if err != nil {
		return err
	}
	if f.atlas, err = kvatlas.New(kvatlas.Options{Observer: latency, MemoBytes: 8 << 20, Speculate: true, Shadow: shadow}); err != nil {
		return err
	}
	if f.sub, err = kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: f.atlas.Handler(), Hooks: []any{hook}, SilentAfter: f.o.silent}); err != nil {
		return err
	}
	if f.scraper, err = scrape.New(scrape.Options{}); err != nil {
		return err
	}
	for i := range servers {
		if err := f.add(i); err != nil {
			return err
		}
	}
	c, err := metrics.New(metrics.Options{}, metrics.Instance{
		Name: "example", Atlas: f.atlas, Subscriber: f.sub, Scraper: f.scraper, Latency: latency, Stream: hook,
	})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := c.Register(registry); err != nil {
		return err
	}
	f.mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return nil
}

func (f *fleet) close() {
	if f.sub != nil {
		f.sub.Close()
	}
	if f.scraper != nil {
		f.scraper.Close()
	}
	for _, r := range f.replicas {
		r.engine.close()
	}
	f.listener.Close()
}

// add brings a recorded engine to life. In trouble the first never publishes, and
// the last has no replay endpoint.
func (f *fleet) add(i int) error {
	server := servers[i]
	ops, w, err := readSession(f.o.data, server.session)
	if err != nil {
		return err
	}
	page, err := unzip(f.o.data, server.page)
	if err != nil {
		return err
	}
	w.Name = server.worker
	r := &replica{f: f, name: w.Name, ops: ops, replay: !f.o.trouble || i < len(servers)-1}
	f.replicas = append(f.replicas, r)
	if err := r.engine.open(r.replay); err != nil {
		return err
	}
	if err := f.atlas.AddWorker(w); err != nil {
		return err
	}
	path := "/engine/" + w.Name
	f.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })
	if err := f.scraper.Add(w.Name, "http://"+f.listener.Addr().String()+path); err != nil {
		return err
	}
	if f.o.trouble && i == 0 {
		if err := f.mute(w); err != nil {
			return err
		}
	}
	return f.sub.Add(kvevents.Target{Worker: w.Name, Endpoint: r.engine.endpoint, ReplayEndpoint: r.engine.replay})
}

// mute adds a worker like another one whose engine runs and never publishes.
func (f *fleet) mute(like kvatlas.Worker) error {
	r := &replica{f: f, name: "mute"}
	f.replicas = append(f.replicas, r)
	if err := r.engine.open(false); err != nil {
		return err
	}
	like.Name = r.name
	if err := f.atlas.AddWorker(like); err != nil {
		return err
	}
	return f.sub.Add(kvevents.Target{Worker: like.Name, Endpoint: r.engine.endpoint})
}

// serve serves until the context ends or the engines have lived their laps, and
// closes the fleet.
func (f *fleet) serve(ctx context.Context) error {
	defer f.close()
	s := &http.Server{Handler: f.mux}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1+len(f.replicas))
	go func() { ended <- s.Serve(f.listener) }()
	defer s.Close()
	var living sync.WaitGroup
	for _, r := range f.replicas {
		if len(r.ops) == 0 {
			continue
		}
		living.Go(func() {
			if err := r.live(ctx, f.o.laps); err != nil {
				ended <- fmt.Errorf("engine %s: %w", r.name, err)
			}
		})
	}
	lived := make(chan struct{})
	go func() { living.Wait(); close(lived) }()
	var err error
	select {
	case err = <-ended:
	case <-lived:
	}
	cancel()
	<-lived
	return err
}

// summary tells how good predictions were.
func (f *fleet) summary() string {
	var text strings.Builder
	for _, w := range f.atlas.Snapshot().Workers {
		p := w.Prediction
		fmt.Fprintf(&text, "worker %s: %d predictions exact, %d over, %d under\n", w.Name, p.Exact, p.Over, p.Under)
	}
	return strings.TrimSuffix(text.String(), "\n")
}
