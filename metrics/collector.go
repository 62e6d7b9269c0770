package metrics

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/metrics/scrape"
	"github.com/kvatlas/kvatlas/scoring"
)

type constError string

func (e constError) Error() string { return string(e) }

const (
	// ErrNoInstance is returned by [New] when there is nothing to export.
	ErrNoInstance = constError("metrics: a collector needs at least one instance")
	// ErrInstance is wrapped by the errors of [New] about an instance.
	ErrInstance = constError("metrics: invalid instance")
	// ErrCollector is returned by Register of a nil or zero [Collector].
	ErrCollector = constError("metrics: collector was not made with New")
)

// Instance is one fleet: what is set is exported, the rest is left out. Nothing
// is owned; all of it is read at any time, so it must not be replaced.
type Instance struct {
	// Name is the label "fleet". It tells instances apart and may be empty for
	// one of them.
	Name string
	// Labels are further constant labels, such as the model. All instances of a
	// registry need the same names of labels.
	Labels prometheus.Labels

	Atlas      *kvatlas.Atlas
	Subscriber *kvevents.Subscriber
	// InFlight and Speculation are accounts of the caller's own; those of the Atlas
	// are exported with it.
	InFlight    *scoring.InFlight
	Speculation *scoring.Speculation
	// Scraper's engines are found by the names of the Atlas's workers.
	Scraper *scrape.Scraper
	// Latency is the Observer of the Atlas, Stream a hook of the Subscriber.
	Latency *Latency
	Stream  *StreamHook
}

// Options configures a Collector. The zero value is usable.
type Options struct {
	// MaxWorkers is how many workers of an instance have series of their own, by
	// name; 0 means 512. The others are added up under the worker "other".
	MaxWorkers int
}

// Collector exports instances. It is immutable, made by [New], and safe for
// concurrent use. A nil or zero Collector exports nothing and is not registered
// ([ErrCollector]).
type Collector struct {
	maxWorkers int
	instances  []*instance
}

var _ prometheus.Collector = (*Collector)(nil)

type instance struct {
	Instance
	descs descs
}

// New returns a Collector of instances with different names. Errors wrap
// [ErrInstance] or are [ErrNoInstance].
func New(o Options, instances ...Instance) (*Collector, error) {
	if o.MaxWorkers < 0 {
		return nil, fmt.Errorf("metrics: Options.MaxWorkers is %d, want 0 (the default) or more", o.MaxWorkers)
	}
	if len(instances) == 0 {
		return nil, ErrNoInstance
	}
	c := &Collector{maxWorkers: cmp.Or(o.MaxWorkers, 512)}
	var names []string
	for _, in := range instances {
		labels := prometheus.Labels{fleetLabel: in.Name}
		for k, v := range in.Labels {
			if k == fleetLabel || slices.Contains(variableLabels, k) {
				return nil, fmt.Errorf("%w: %q has label %q, which is one of ours", ErrInstance, in.Name, k)
			}
			labels[k] = v
		}
		if slices.Contains(names, in.Name) {
			return nil, fmt.Errorf("%w: two are named %q", ErrInstance, in.Name)
		}
		names = append(names, in.Name)
		if first := instances[0]; !sameKeys(first.Labels, in.Labels) {
			return nil, fmt.Errorf("%w: %q and %q have labels of different names", ErrInstance, first.Name, in.Name)
		}
		n := &instance{in, newDescs(labels)}
		// A bad label shows in every description, so one tells of all.
		if _, err := prometheus.NewConstMetric(n.descs[workers].desc, prometheus.GaugeValue, 0); err != nil {
			return nil, fmt.Errorf("%w: %q: %v", ErrInstance, in.Name, err)
		}
		c.instances = append(c.instances, n)
	}
	return c, nil
}

func sameKeys(a, b prometheus.Labels) bool {
	return maps.EqualFunc(a, b, func(_, _ string) bool { return true })
}

// Register registers the collector; a nil Registerer does nothing. The error is
// [ErrCollector], or the registry's, for example because a collector of the same
// instance is registered already; nothing panics. To end it use
// [prometheus.Registerer]'s Unregister.
func (c *Collector) Register(r prometheus.Registerer) error {
	if len(c.all()) == 0 {
		return ErrCollector
	}
	if r == nil {
		return nil
	}
	if err := r.Register(c); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// all is every instance, none for a Collector that New did not make.
func (c *Collector) all() []*instance {
	if c == nil {
		return nil
	}
	return c.instances
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, in := range c.all() {
		for _, d := range in.descs {
			ch <- d.desc
		}
	}
}

// Collect implements [prometheus.Collector]. It costs a look at every worker and
// source: about 49 series a worker.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, in := range c.all() {
		s := scan{in: in, sums: make(map[series]float64)}
		s.read(c.maxWorkers)
		s.send(ch)
	}
}
