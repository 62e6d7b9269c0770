package kvotel

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/scoring"
)

const scope = "github.com/kvatlas/kvatlas/metrics/otel"

// Options configures a Tracer. The zero value is usable.
type Options struct {
	// TracerProvider makes the spans; nil means the global one.
	TracerProvider trace.TracerProvider
	// MaxWorkers is how many workers a span tells of; 0 or less means 32. The
	// chosen one is told in any case.
	MaxWorkers int
}

// Tracer makes spans. It is immutable, made by [New], and safe for concurrent
// use. A nil or zero Tracer makes none: its methods are the plain calls.
type Tracer struct {
	tracer trace.Tracer
	max    int
}

// New returns a tracer.
func New(o Options) *Tracer {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MaxWorkers <= 0 {
		o.MaxWorkers = 32
	}
	return &Tracer{o.TracerProvider.Tracer(scope), o.MaxWorkers}
}

// start begins a span; one that records nothing for a Tracer that New did not make.
func (t *Tracer) start(ctx context.Context, name string) (context.Context, trace.Span) {
	if t == nil || t.tracer == nil {
		return ctx, noop.Span{}
	}
	return t.tracer.Start(ctx, name)
}

// Tokenize calls f within a span.
func (t *Tracer) Tokenize(ctx context.Context, f func(context.Context) ([]uint32, error)) ([]uint32, error) {
	ctx, span := t.start(ctx, "kvatlas.tokenize")
	defer span.End()
	tokens, err := f(ctx)
	if span.IsRecording() {
		span.SetAttributes(attribute.Int("kvatlas.prompt.tokens", len(tokens)))
	}
	return tokens, failed(span, err)
}

// Match is [kvatlas.Atlas.Match] within a span.
func (t *Tracer) Match(ctx context.Context, a *kvatlas.Atlas, req *kvatlas.Request, m *kvatlas.Match) error {
	_, span := t.start(ctx, "kvatlas.match")
	defer span.End()
	err := a.Match(req, m)
	if span.IsRecording() && req != nil && m != nil {
		span.SetAttributes(attribute.Int("kvatlas.prompt.tokens", req.Prompt.Len()))
		span.SetAttributes(t.match(m)...)
	}
	return failed(span, err)
}

// Decide is [scoring.Policy.Decide] within a span. A recorded one asks for an
// explanation.
func (t *Tracer) Decide(ctx context.Context, p *scoring.Policy, req *scoring.Request, candidates []scoring.Candidate, d *scoring.Decision) error {
	_, span := t.start(ctx, "kvatlas.score")
	defer span.End()
	if !span.IsRecording() {
		return p.Decide(req, candidates, d)
	}
	r := *req
	r.Explain = true
	err := p.Decide(&r, candidates, d)
	if err == nil {
		span.SetAttributes(t.decision(d)...)
	}
	return failed(span, err)
}

// Route is [kvatlas.Atlas.Route] within a span, and its two halves within spans of
// their own. A recorded one asks for an explanation.
func (t *Tracer) Route(ctx context.Context, a *kvatlas.Atlas, req *kvatlas.Request, c *kvatlas.Choice) error {
	ctx, span := t.start(ctx, "kvatlas.route")
	defer span.End()
	if !span.IsRecording() || req == nil || c == nil {
		return failed(span, a.Route(req, c))
	}
	c.Worker, c.Decision.Chosen = "", nil
	err := t.Match(ctx, a, req, &c.Match)
	if err == nil {
		err = t.choose(ctx, a, req, c)
	}
	span.SetAttributes(attribute.Int("kvatlas.prompt.tokens", req.Prompt.Len()))
	if err == nil {
		span.SetAttributes(attribute.String("kvatlas.score.chosen", c.Worker))
		if i := c.Match.Find(c.Worker); i >= 0 {
			span.SetAttributes(attribute.Int("kvatlas.cached_tokens", c.Match.Workers[i].Usable))
		}
	}
	return failed(span, err)
}

// choose is the half of Route that scores.
func (t *Tracer) choose(ctx context.Context, a *kvatlas.Atlas, req *kvatlas.Request, c *kvatlas.Choice) error {
	_, span := t.start(ctx, "kvatlas.score")
	defer span.End()
	r := *req
	r.Explain = r.Explain || span.IsRecording()
	err := a.Choose(&r, c)
	if err == nil && span.IsRecording() {
		span.SetAttributes(t.decision(&c.Decision)...)
	}
	return failed(span, err)
}

func failed(span trace.Span, err error) error {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}
