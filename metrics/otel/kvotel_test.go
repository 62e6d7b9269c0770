package kvotel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	kvotel "github.com/kvatlas/kvatlas/metrics/otel"
	"github.com/kvatlas/kvatlas/scoring"
)

// recorder returns a tracer whose spans can be looked at.
func recorder(t *testing.T, max int) (*kvotel.Tracer, *tracetest.InMemoryExporter) {
	e := tracetest.NewInMemoryExporter()
	p := trace.NewTracerProvider(trace.WithSyncer(e))
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return kvotel.New(kvotel.Options{TracerProvider: p, MaxWorkers: max}), e
}

// attributes are those of the only span of a name.
func attributes(t *testing.T, e *tracetest.InMemoryExporter, name string) (map[attribute.Key]any, tracetest.SpanStub) {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range e.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	require.Len(t, found, 1, name)
	m := map[attribute.Key]any{}
	for _, kv := range found[0].Attributes {
		m[kv.Key] = kv.Value.AsInterface()
	}
	return m, found[0]
}

// fleet is an atlas whose worker b holds the prompt's first two blocks.
func fleet(t *testing.T, workers int) (*kvatlas.Atlas, *kvatlas.Request) {
	policy, err := scoring.New(scoring.PrefixLoad())
	require.NoError(t, err)
	a, err := kvatlas.New(kvatlas.Options{Policy: policy})
	require.NoError(t, err)
	for i := range workers {
		w := kvatlas.Worker{Name: string(rune('a' + i)), Release: "0.33.0", BlockSize: 4, Seed: blockhash.SeedText("0")}
		require.NoError(t, a.AddWorker(w))
	}
	scheme, err := blockhash.SchemeFor("vllm", "0.33.0")
	require.NoError(t, err)
	h, err := blockhash.New(blockhash.Options{Scheme: scheme, BlockSize: 4, Seed: blockhash.SeedText("0")})
	require.NoError(t, err)
	p := blockhash.Prompt{Tokens: []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}, CacheSalt: "secret"}
	keys, err := h.AppendKeys(nil, &p)
	require.NoError(t, err)
	b := kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.BlockStored, Hashes: keys, Tokens: p.Tokens[:8], BlockSize: 4}}}
	require.NoError(t, a.ApplyBatch("b", &b))
	return a, &kvatlas.Request{Prompt: p, Session: "secret"}
}

func TestRoute(t *testing.T) {
	spans, e := recorder(t, 0)
	a, req := fleet(t, 3)
	var c kvatlas.Choice
	require.NoError(t, spans.Route(t.Context(), a, req, &c))
	require.Equal(t, "b", c.Worker)
	require.False(t, req.Explain, "the caller's request is left alone")
	got, route := attributes(t, e, "kvatlas.route")
	require.Equal(t, int64(9), got["kvatlas.prompt.tokens"])
	require.Equal(t, int64(8), got["kvatlas.cached_tokens"])
	require.Equal(t, "b", got["kvatlas.score.chosen"])
	got, match := attributes(t, e, "kvatlas.match")
	require.Equal(t, []string{"a", "b", "c"}, got["kvatlas.match.workers"])
	require.Equal(t, []int64{0, 8, 0}, got["kvatlas.match.cached_tokens"])
	require.Equal(t, []int64{0, 2, 0}, got["kvatlas.match.blocks"])
	got, score := attributes(t, e, "kvatlas.score")
	require.Equal(t, "b", got["kvatlas.score.chosen"])
	require.Len(t, got["kvatlas.score.totals"], 3)
	require.Len(t, e.GetSpans(), 3)
	for _, s := range []tracetest.SpanStub{match, score} {
		require.Equal(t, route.SpanContext.SpanID(), s.Parent.SpanID())
		require.False(t, s.StartTime.Before(route.StartTime) || s.EndTime.After(route.EndTime))
	}
	require.False(t, score.StartTime.Before(match.EndTime))
	require.NotEmpty(t, c.Decision.Terms)
	for _, term := range c.Decision.Terms {
		require.Equal(t, term.Values, got[attribute.Key("kvatlas.score.term."+term.Name)])
		require.Equal(t, term.Weight, got[attribute.Key("kvatlas.score.weight."+term.Name)])
	}
	require.NotContains(t, fmt.Sprint(e.GetSpans()), "secret")

	e.Reset()
	require.ErrorIs(t, spans.Route(t.Context(), a, &kvatlas.Request{Workers: []string{"nobody"}}, &c), kvatlas.ErrNoWorkers)
	require.Empty(t, c.Worker)
	_, route = attributes(t, e, "kvatlas.route")
	require.Equal(t, codes.Error, route.Status.Code)
}

func TestBounded(t *testing.T) {
	spans, e := recorder(t, 2)
	a, req := fleet(t, 20)
	var c kvatlas.Choice
	require.NoError(t, spans.Route(t.Context(), a, req, &c))
	for _, name := range []string{"kvatlas.match", "kvatlas.score"} {
		got, _ := attributes(t, e, name)
		for key, v := range got {
			switch v := v.(type) {
			case []string:
				require.LessOrEqual(t, len(v), 2, key)
			case []float64:
				require.LessOrEqual(t, len(v), 2, key)
			case []int64:
				require.LessOrEqual(t, len(v), 2, key)
			}
		}
	}
	got, _ := attributes(t, e, "kvatlas.match")
	require.Equal(t, int64(20), got["kvatlas.match.worker_count"])
	got, _ = attributes(t, e, "kvatlas.score")
	require.Equal(t, int64(20), got["kvatlas.score.candidate_count"])
	require.Equal(t, "b", got["kvatlas.score.chosen"])
}

func TestMatchAndDecide(t *testing.T) {
	spans, e := recorder(t, 0)
	a, req := fleet(t, 2)
	var m kvatlas.Match
	require.NoError(t, spans.Match(t.Context(), a, req, &m))
	got, span := attributes(t, e, "kvatlas.match")
	require.Equal(t, []int64{0, 8}, got["kvatlas.match.cached_tokens"])
	require.NotEqual(t, codes.Error, span.Status.Code)
	e.Reset()
	bad := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: []uint32{1}, WideTokens: []int64{1}}}
	require.Error(t, spans.Match(t.Context(), a, &bad, &m))
	_, span = attributes(t, e, "kvatlas.match")
	require.Equal(t, codes.Error, span.Status.Code)
	require.Len(t, span.Events, 1)
	e.Reset()

	policy, err := scoring.New(scoring.Options{Filters: []scoring.Filter{scoring.Busy{MaxKVUsage: .5}}, Scorers: scoring.PrefixLoad().Scorers})
	require.NoError(t, err)
	candidates := []scoring.Candidate{{ID: 1, Name: "x", Load: scoring.Load{KVUsage: scoring.Known(.9)}}, {ID: 2, Name: "y"}}
	var d scoring.Decision
	r := scoring.Request{Tokens: 9, BlockSize: 4}
	require.NoError(t, spans.Decide(t.Context(), policy, &r, candidates, &d))
	got, _ = attributes(t, e, "kvatlas.score")
	require.Equal(t, "y", got["kvatlas.score.chosen"])
	require.Equal(t, []string{"x: " + d.Dropped[0].Filter}, got["kvatlas.score.dropped"])
	e.Reset()
	require.Error(t, spans.Decide(t.Context(), policy, &r, nil, &d))
	_, span = attributes(t, e, "kvatlas.score")
	require.Equal(t, codes.Error, span.Status.Code)
}

// TestTokenize: its span is the parent of what f starts.
func TestTokenize(t *testing.T) {
	spans, e := recorder(t, 0)
	a, req := fleet(t, 2)
	tokens, err := spans.Tokenize(t.Context(), func(ctx context.Context) ([]uint32, error) {
		var m kvatlas.Match
		return []uint32{1, 2}, spans.Match(ctx, a, req, &m)
	})
	require.NoError(t, err)
	require.Len(t, tokens, 2)
	all := e.GetSpans()
	require.Len(t, all, 2)
	require.Equal(t, "kvatlas.tokenize", all[1].Name)
	require.Equal(t, all[1].SpanContext.SpanID(), all[0].Parent.SpanID())
	e.Reset()
	_, err = spans.Tokenize(t.Context(), func(context.Context) ([]uint32, error) { return nil, errors.New("no template") })
	require.EqualError(t, err, "no template")
	_, span := attributes(t, e, "kvatlas.tokenize")
	require.Equal(t, "no template", span.Status.Description)
}

// TestNotRecorded: without an SDK, and where spans are not sampled, nothing is
// explained.
// TestNotMade: a tracer that is none makes no span, and calls all the same.
func TestNotMade(t *testing.T) {
	a, req := fleet(t, 2)
	policy, err := scoring.New(scoring.PrefixLoad())
	require.NoError(t, err)
	for _, spans := range []*kvotel.Tracer{nil, new(kvotel.Tracer)} {
		tokens, err := spans.Tokenize(t.Context(), func(context.Context) ([]uint32, error) { return []uint32{1}, nil })
		require.NoError(t, err)
		require.Equal(t, []uint32{1}, tokens)
		var m kvatlas.Match
		require.NoError(t, spans.Match(t.Context(), a, req, &m))
		require.Len(t, m.Workers, 2)
		var c kvatlas.Choice
		require.NoError(t, spans.Route(t.Context(), a, req, &c))
		require.Equal(t, "b", c.Worker)
		var d scoring.Decision
		require.NoError(t, spans.Decide(t.Context(), policy, &scoring.Request{}, []scoring.Candidate{{Name: "a"}}, &d))
		require.Equal(t, "a", d.Chosen.Name)
	}
}

// TestNil: what the Atlas refuses is refused within a span too, which tells of it.
func TestNil(t *testing.T) {
	a, req := fleet(t, 2)
	spans, e := recorder(t, 0)
	require.ErrorIs(t, spans.Match(t.Context(), a, nil, new(kvatlas.Match)), kvatlas.ErrNil)
	_, span := attributes(t, e, "kvatlas.match")
	require.Equal(t, codes.Error, span.Status.Code)
	e.Reset()
	require.ErrorIs(t, spans.Match(t.Context(), a, req, nil), kvatlas.ErrNil)
	require.ErrorIs(t, spans.Route(t.Context(), a, nil, new(kvatlas.Choice)), kvatlas.ErrNil)
	_, span = attributes(t, e, "kvatlas.route")
	require.Equal(t, codes.Error, span.Status.Code)
	require.ErrorIs(t, spans.Route(t.Context(), a, req, nil), kvatlas.ErrNil)
}

func TestNotRecorded(t *testing.T) {
	p := trace.NewTracerProvider(trace.WithSampler(trace.NeverSample()))
	a, req := fleet(t, 2)
	for _, spans := range []*kvotel.Tracer{kvotel.New(kvotel.Options{}), kvotel.New(kvotel.Options{TracerProvider: p})} {
		var c kvatlas.Choice
		require.NoError(t, spans.Route(t.Context(), a, req, &c))
		require.Equal(t, "b", c.Worker)
		require.Empty(t, c.Decision.Terms)
	}
}
