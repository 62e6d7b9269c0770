package kvotel

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/scoring"
)

// match tells what each worker holds.
func (t *Tracer) match(m *kvatlas.Match) []attribute.KeyValue {
	all := m.Workers[:min(len(m.Workers), t.max)]
	names, usable, blocks, unknown := make([]string, len(all)), make([]int, len(all)), make([]int, len(all)), []string{}
	for i := range all {
		w := &all[i]
		names[i], usable[i], blocks[i] = w.Name, w.Usable, w.Combined
		if w.Unknown != "" {
			unknown = append(unknown, w.Name+": "+w.Unknown)
		}
	}
	kvs := []attribute.KeyValue{
		attribute.StringSlice("kvatlas.match.workers", names),
		attribute.IntSlice("kvatlas.match.cached_tokens", usable),
		attribute.IntSlice("kvatlas.match.blocks", blocks),
		attribute.Int("kvatlas.match.worker_count", len(m.Workers)),
	}
	if len(unknown) > 0 {
		kvs = append(kvs, attribute.StringSlice("kvatlas.match.unknown", unknown))
	}
	return kvs
}

// decision tells who was chosen and why.
func (t *Tracer) decision(d *scoring.Decision) []attribute.KeyValue {
	n := min(len(d.Candidates), t.max)
	names := make([]string, n)
	for i := range names {
		names[i] = d.Candidates[i].Name
	}
	kvs := []attribute.KeyValue{
		attribute.String("kvatlas.score.policy", d.Policy),
		attribute.String("kvatlas.score.chosen", d.Chosen.Name),
		attribute.Float64("kvatlas.score.total", d.Total),
		attribute.StringSlice("kvatlas.score.candidates", names),
		attribute.Float64Slice("kvatlas.score.totals", d.Totals[:min(len(d.Totals), n)]),
		attribute.Int("kvatlas.score.candidate_count", len(d.Candidates)),
	}
	if d.Reason != "" {
		kvs = append(kvs, attribute.String("kvatlas.score.reason", d.Reason))
	}
	for _, term := range d.Terms { // as many as the policy has parts
		kvs = append(kvs, attribute.Float64Slice("kvatlas.score.term."+term.Name, term.Values[:min(len(term.Values), n)]),
			attribute.Float64("kvatlas.score.weight."+term.Name, term.Weight))
	}
	if len(d.Dropped) > 0 {
		dropped := make([]string, 0, min(len(d.Dropped), t.max))
		for _, x := range d.Dropped[:cap(dropped)] {
			dropped = append(dropped, x.Candidate.Name+": "+x.Filter)
		}
		kvs = append(kvs, attribute.StringSlice("kvatlas.score.dropped", dropped))
	}
	return kvs
}
