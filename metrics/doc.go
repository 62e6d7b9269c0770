// Package metrics exports what a fleet knows, what it costs and how wrong it is
// to Prometheus.
//
// A [Collector] reads the plain counters of any number of instances when it is
// scraped. Nothing is added to the path of a decision or of an event except,
// where wanted, a [Latency] and a [StreamHook] for what only histograms and
// counts by cause can tell: a few atomic additions each.
//
//	latency, hook := new(metrics.Latency), new(metrics.StreamHook)
//	atlas, err := kvatlas.New(kvatlas.Options{Observer: latency})
//	...
//	sub, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: atlas.Handler(), Hooks: []any{hook}})
//	...
//	c, err := metrics.New(metrics.Options{},
//		metrics.Instance{Name: "chat", Atlas: atlas, Subscriber: sub, Latency: latency, Stream: hook})
//	...
//	err = c.Register(prometheus.DefaultRegisterer)
//
// # Labels
//
// Every series has the label "fleet", the instance's name, and the instance's
// own constant labels. Variable labels are bounded: "worker", of which the first
// [Options.MaxWorkers] by name are told apart, "medium", of which the first
// [MaxMedia] are, and small enumerations. The rest is added up under "other".
// No hash, salt, adapter, topic, endpoint or request is ever a label.
//
// A data-parallel rank beyond 0 is the worker "name/rank" where its stream is
// concerned. Name the worker of the Atlas likewise, and its series share the
// label.
//
// Numbers are those of the workers there are. When one leaves, its series end;
// the counters of the worker "other" then go back, which Prometheus takes for a
// restart: their rates are to be trusted only while nobody comes or goes.
//
// # Dashboards and alerts
//
// Folder dashboards has Grafana dashboards, alerts has alerting rules. Both are
// tested against a real Prometheus that scrapes folder example.
package metrics
