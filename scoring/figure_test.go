package scoring

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// gauges are all of a load, by name.
func gauges(l *Load) (names []string, all []*Gauge) {
	v := reflect.ValueOf(l).Elem()
	for i := range v.NumField() {
		names, all = append(names, v.Type().Field(i).Name), append(all, v.Field(i).Addr().Interface().(*Gauge))
	}
	return names, all
}

// fleet is three workers of which everything is known.
func fleet() []Candidate {
	cs := make([]Candidate, 3)
	for i := range cs {
		cs[i] = worker(i, int32(3*i), 0)
		_, all := gauges(&cs[i].Load)
		for n, g := range all {
			*g = Known(float64((i+1)*(n+2)) / 64)
		}
	}
	return cs
}

// TestFaults: by every policy, a figure that cannot be counts as not given whoever has
// it, is named with its worker, and changes nothing else.
func TestFaults(t *testing.T) {
	policies := map[string]func() *Policy{"kvatlas": func() *Policy {
		k, err := NewKVAtlas(KVAtlasOptions{Random: Seeded(1)})
		require.NoError(t, err)
		return k.Policy()
	}}
	for _, name := range PresetNames() {
		policies[name] = func() *Policy {
			p, err := Preset(name, Seeded(1))
			require.NoError(t, err)
			return p
		}
	}
	req := &Request{Tokens: 200, BlockSize: 16, Novel: 5, Prefix: 7, Session: "s", Fallbacks: 2}
	check := func(at string, make func() *Policy, bad, without []Candidate, faults ...FigureError) {
		t.Helper()
		var got, want Decision
		require.NoError(t, make().Decide(req, without, &want), at)
		require.Empty(t, want.Faults, at)
		require.NoError(t, make().Decide(req, bad, &got), at)
		require.Equal(t, want.Totals, got.Totals, at)
		require.Equal(t, want.Chosen.ID, got.Chosen.ID, at)
		require.Len(t, got.Faults, len(faults), at)
		for i, f := range faults {
			f.wants = got.Faults[i].wants
			require.Equal(t, fmt.Sprint(f), fmt.Sprint(got.Faults[i]), at)
		}
		for _, c := range append(append(slices.Clone(got.Candidates), got.Fallbacks...), got.Chosen) {
			require.Same(t, &bad[c.ID], c, at)
		}
	}
	names, _ := gauges(&Load{})
	for policy, make := range policies {
		for who := range 3 {
			for n, name := range names {
				bads := []float64{math.NaN(), math.Copysign(math.NaN(), -1), math.Inf(1), math.Inf(-1), -1e-9, -1e9, math.MaxFloat64, 1.01e30}
				if name == "KVUsage" {
					bads = append(bads, 1.0001, 37)
				}
				for _, v := range bads {
					bad, without := fleet(), fleet()
					_, all := gauges(&bad[who].Load)
					*all[n] = Known(v)
					_, all = gauges(&without[who].Load)
					*all[n] = Gauge{}
					check(fmt.Sprint(policy, who, name, v), make, bad, without, FigureError{bad[who].Name, WorkerID(who), name, v, ""})
				}
			}
			for _, v := range []float64{math.NaN(), math.Inf(1), -2, -1e-9, 1e-31, 2e30} {
				bad := fleet()
				bad[who].Capability = v
				check(fmt.Sprint(policy, who, v), make, bad, fleet(), FigureError{bad[who].Name, WorkerID(who), "Capability", v, ""})
			}
		}
		bad, without := fleet(), fleet()
		bad[2].Load.RTT, bad[2].Capability, bad[0].Load.Requests = Known(-1), -1, Known(math.Inf(1))
		without[2].Load.RTT, without[0].Load.Requests = Gauge{}, Gauge{}
		check(policy, make, bad, without, FigureError{"w0", 0, "Requests", math.Inf(1), ""},
			FigureError{"w2", 2, "RTT", -1, ""}, FigureError{"w2", 2, "Capability", -1, ""})
		// What is unknown has no value, and no load is none.
		odd, plain := fleet(), fleet()
		odd[1].Load.Waiting, plain[1].Load.Waiting = Gauge{Value: math.NaN()}, Gauge{}
		odd[0].Load.Requests, plain[0].Load.Requests = Known(math.Copysign(0, -1)), Known(0)
		odd[2].Load.KVUsage, plain[2].Load.KVUsage = Known(1), Known(1)
		check(policy, make, odd, plain)
	}
}

// TestFaultsEverywhere: what is given is the caller's in all of a decision, whether
// explained or failed, and only the workers that may be chosen are looked at.
func TestFaultsEverywhere(t *testing.T) {
	cs := fleet()
	cs[0].Load.KVUsage, cs[1].Load.KVUsage, cs[2].Load.KVUsage = Known(-9), Known(0.5), Known(0.9)
	seen := NewFilter("seen", func(_ *Request, c *Candidate) bool { return c.Load.KVUsage.Or(0) < 0.7 })
	last := NewFilter("first", func(_ *Request, c *Candidate) bool { return c.ID != 1 })
	p := mustNew(t, Options{Filters: []Filter{seen, last}, Scorers: []WeightedScorer{{Scorer: Free{}}}})
	var d Decision
	require.NoError(t, p.Decide(&Request{Explain: true}, cs, &d))
	require.Same(t, &cs[0], d.Chosen)
	require.Equal(t, []Drop{{&cs[2], "seen"}, {&cs[1], "first"}}, d.Dropped)
	require.Equal(t, `w0: 1 = kv(1); 1 faults, first scoring: KVUsage of worker "w0" is -9; 0 to 1 is needed`, d.String())
	require.Equal(t, -9.0, cs[0].Load.KVUsage.Value)
	require.ErrorIs(t, d.Faults[0], ErrFigure)
	require.Equal(t, `scoring: KVUsage of worker "w0" is -9; 0 to 1 is needed`, fmt.Sprint(d.Faults[0]), "as it is logged")
	require.NoError(t, p.Decide(&Request{Explain: true}, cs, &d))
	require.Len(t, d.mended, 1, "what is sound is not copied, and nothing is kept of the last one")
	cs[0].Load.KVUsage, cs[2].Load.Queued = Known(0.5), Known(-1)
	require.NoError(t, p.Decide(&Request{Explain: true}, cs, &d))
	require.Same(t, &cs[2], d.Dropped[0].Candidate)
	cs[0].Load.KVUsage, cs[2].Load.Queued = Known(-9), Known(0)
	watch := &watcher{}
	watched := mustNew(t, Options{Scorers: []WeightedScorer{{Scorer: watch}}})
	require.NoError(t, watched.Decide(&Request{Subset: []WorkerID{0}}, cs, &d))
	require.Equal(t, []Gauge{{}, {}}, watch.saw, "whoever is told of the choice sees what was decided by")

	require.NoError(t, p.Decide(&Request{Subset: []WorkerID{2, 1, 0}}, cs, &d))
	require.Same(t, &cs[0], d.Chosen)
	require.Len(t, d.Faults, 1)
	err := p.Decide(&Request{Subset: []WorkerID{1, 2}, Explain: true}, cs, &d)
	require.EqualError(t, err, "scoring: every candidate was filtered out: of 3, subset dropped 1, seen dropped 1, first dropped 1")
	require.Empty(t, d.Faults)

	cs[0].Name = ""
	failing := mustNew(t, Options{Scorers: []WeightedScorer{{Scorer: forgetful{}}}})
	require.ErrorContains(t, failing.Decide(&Request{}, cs, &d), "worker 0;")
	require.Same(t, &cs[0], d.Candidates[0])
	require.ErrorContains(t, &d.Faults[0], "of worker 0 is")

	if !raceEnabled {
		req := &Request{}
		require.NoError(t, p.Decide(req, cs, &d))
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = p.Decide(req, cs, &d) }))
	}
}

// watcher notes the use of the cache that it sees, as a scorer and as an observer.
type watcher struct{ saw []Gauge }

func (w *watcher) Name() string { return "watcher" }

func (w *watcher) Score(_ *Request, candidates []*Candidate, dst []float64) error {
	w.saw = append(w.saw, candidates[0].Load.KVUsage)
	clear(dst)
	return nil
}

func (w *watcher) Chosen(_ *Request, c *Candidate) { w.saw = append(w.saw, c.Load.KVUsage) }

func TestValidate(t *testing.T) {
	c := fleet()[0]
	require.NoError(t, c.Validate())
	require.NoError(t, (&Candidate{Load: Load{RTT: Gauge{Value: -1}}}).Validate())
	require.NoError(t, (&Candidate{Load: Load{KVUsage: Known(1), RTT: Known(1e30)}}).Validate())
	for _, v := range []float64{0, 1e-30, 0.5, 1e30} {
		require.NoError(t, (&Candidate{Capability: v}).Validate())
	}
	c.Name, c.Capability = strings.Repeat("x", 1000), -1
	require.EqualError(t, c.Validate(), `scoring: Capability of worker "`+c.Name[:64]+`" is -1; 1e-30 to 1e30, or 0 for 1 is needed`)
	c.Load.QPS = Known(math.Inf(1))
	require.ErrorIs(t, c.Validate(), ErrFigure)
	require.ErrorContains(t, c.Validate(), "QPS of worker")
	require.Equal(t, math.Inf(1), c.Load.QPS.Value, "it only tells")
}
