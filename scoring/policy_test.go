package scoring

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// worker makes a candidate with GPU blocks and requests in flight.
func worker(id int, blocks int32, requests float64) Candidate {
	return Candidate{ID: WorkerID(id), Name: fmt.Sprintf("w%d", id),
		Match: Match{Blocks: [NumMedia]int32{GPU: blocks}, Usable: blocks * 16, Score: float64(blocks)},
		Load:  Load{Requests: Known(requests)}}
}

func mustNew(t testing.TB, o Options) *Policy {
	t.Helper()
	p, err := New(o)
	require.NoError(t, err)
	return p
}

func TestPrefixLoad(t *testing.T) {
	p := mustNew(t, PrefixLoad())
	req := &Request{Tokens: 161, BlockSize: 16, Explain: true, Fallbacks: 5}
	var d Decision
	// 3·8/10 + 2·0 = 2.4; 3·2/10 + 2·1 = 2.6; 0 + 2·0.5 = 1.
	require.NoError(t, p.Decide(req, []Candidate{worker(0, 8, 4), worker(1, 2, 0), worker(2, 0, 2)}, &d))
	require.Equal(t, "w1", d.Chosen.Name)
	require.InDeltaSlice(t, []float64{2.4, 2.6, 1}, d.Totals, 1e-12)
	require.Equal(t, []string{"w0", "w2"}, names(d.Fallbacks))
	require.Equal(t, "w1: 2.6 = 3*prefix(0.2) + 2*requests(1)", d.String())
	require.Equal(t, "prefix-load", d.Policy)

	// A load unknown for one worker is the mean of the others, not 0.
	ws := []Candidate{worker(0, 0, 4), worker(1, 0, 0), worker(2, 0, 0)}
	ws[2].Load.Requests = Gauge{}
	require.NoError(t, p.Decide(req, ws, &d))
	require.Equal(t, []float64{0, 2, 1}, d.Totals)
	// Unknown for all: the match decides.
	for i := range ws {
		ws[i].Load.Requests = Gauge{}
		ws[i].Match.Blocks[GPU] = int32(i)
	}
	require.NoError(t, p.Decide(req, ws, &d))
	require.Equal(t, "w2", d.Chosen.Name)
}

func names(cs []*Candidate) (out []string) {
	for _, c := range cs {
		out = append(out, c.Name)
	}
	return out
}

func TestPrefixWeighsMedia(t *testing.T) {
	c := Candidate{Match: Match{Blocks: [NumMedia]int32{4, 5, 6, 7}}}
	got := make([]float64, 1)
	req := &Request{Blocks: 40}
	require.NoError(t, Prefix{}.Score(req, []*Candidate{&c}, got))
	require.InDelta(t, (4+0.8*5)/40, got[0], 1e-12)
	require.NoError(t, Prefix{Weights: [NumMedia]float64{1, 1, 0.5, 0.25}}.Score(req, []*Candidate{&c}, got))
	require.InDelta(t, (4+5+3+1.75)/40, got[0], 1e-12)
	require.NoError(t, Prefix{}.Score(&Request{Tokens: 15, BlockSize: 16}, []*Candidate{&c}, got))
	require.Zero(t, got[0], "a prompt shorter than a block")
}

func TestSubsetAndFilters(t *testing.T) {
	ws := make([]Candidate, 40)
	for i := range ws {
		ws[i] = worker(i, int32(i), 0)
		ws[i].Labels = []Label{{"zone", fmt.Sprint(i % 2)}}
	}
	zone := NewFilter("zone", func(_ *Request, c *Candidate) bool { v, _ := c.Label("zone"); return v == "0" })
	o := PrefixLoad()
	o.Filters = []Filter{zone}
	p := mustNew(t, o)
	var d Decision
	req := &Request{Blocks: 100, Explain: true}
	require.NoError(t, p.Decide(req, ws, &d))
	require.Equal(t, "w38", d.Chosen.Name)
	require.Len(t, d.Dropped, 20)
	require.Equal(t, "zone", d.Dropped[0].Filter)

	for _, size := range []int{3, 30} { // scanned and searched
		req.Subset = nil
		for i := range size {
			req.Subset = append(req.Subset, WorkerID(i))
		}
		require.NoError(t, p.Decide(req, ws, &d))
		require.Equal(t, WorkerID((size-1)&^1), d.Chosen.ID)
	}

	req.Subset = []WorkerID{1, 3, 99}
	err := p.Decide(req, ws, &d)
	require.ErrorIs(t, err, ErrAllFiltered)
	f, ok := errors.AsType[*FilteredError](err)
	require.True(t, ok)
	require.Equal(t, &FilteredError{40, []DropCount{{"subset", 38}, {"zone", 2}}}, f)
	require.EqualError(t, err, "scoring: every candidate was filtered out: of 40, subset dropped 38, zone dropped 2")
	require.Nil(t, d.Chosen)

	req.Subset = []WorkerID{}
	require.ErrorIs(t, p.Decide(req, ws, &d), ErrAllFiltered)
	require.ErrorIs(t, p.Decide(req, nil, &d), ErrNoCandidates)
	require.NoError(t, p.Decide(&Request{}, ws, &d), "reusable after an error")
}

func TestScorerErrorsNameTheScorer(t *testing.T) {
	ws := []Candidate{worker(0, 0, 0), worker(1, 0, 0)}
	var d Decision
	decide := func(s Scorer, weight float64) error {
		p := mustNew(t, Options{Scorers: []WeightedScorer{{s, weight}}})
		return p.Decide(&Request{}, ws, &d)
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		err := decide(NewScorer("odd", func(_ *Request, c *Candidate) float64 {
			if c.ID == 1 {
				return v
			}
			return 0
		}), 1)
		require.ErrorIs(t, err, ErrNotFinite)
		require.ErrorContains(t, err, `scorer "odd" gave`)
		require.ErrorContains(t, err, `worker "w1"`)
		require.Nil(t, d.Chosen)
	}
	require.ErrorContains(t, decide(forgetful{}, 1), `scorer "forgetful" gave NaN`)
	require.EqualError(t, decide(failing{ErrNotFinite}, 1), `scoring: scorer "failing": scoring: value is not a finite number`)
	boom := errors.New("boom")
	err := decide(failing{boom}, 1)
	require.ErrorIs(t, err, boom)
	require.EqualError(t, err, `scoring: scorer "failing": boom`)
	err = decide(NewScorer("huge", func(*Request, *Candidate) float64 { return math.MaxFloat64 }), 2)
	require.ErrorContains(t, err, `scorer "total"`)
	ws[1].Name = ""
	err = decide(NewScorer("odd", func(_ *Request, c *Candidate) float64 { return 1 / (1 - float64(c.ID)) }), 1)
	require.EqualError(t, err, `scoring: scorer "odd" gave +Inf for worker 1; a finite number is needed`)
}

type forgetful struct{}

func (forgetful) Name() string                                  { return "forgetful" }
func (forgetful) Score(*Request, []*Candidate, []float64) error { return nil }

type failing struct{ err error }

func (failing) Name() string                                    { return "failing" }
func (f failing) Score(*Request, []*Candidate, []float64) error { return f.err }

func TestNewRefuses(t *testing.T) {
	ok := []WeightedScorer{{Scorer: Prefix{}}}
	for _, c := range []struct {
		o    Options
		text string
	}{
		{Options{}, "scoring: Scorers: is empty"},
		{Options{Scorers: ok, Cost: flatCost{}}, "scoring: Cost: is given beside Scorers"},
		{Options{Scorers: []WeightedScorer{{nil, 1}}}, "scoring: Scorers[0]: is nil"},
		{Options{Scorers: []WeightedScorer{{Prefix{}, -1}}}, "scoring: Scorers[0].Weight: is -1"},
		{Options{Scorers: []WeightedScorer{{Prefix{}, math.NaN()}}}, "scoring: Scorers[0].Weight: is NaN"},
		{Options{Scorers: []WeightedScorer{{Prefix{}, math.Inf(1)}}}, "scoring: Scorers[0].Weight: is +Inf"},
		{Options{Scorers: []WeightedScorer{{Prefix{Weights: [NumMedia]float64{1, -2}}, 1}}}, "scoring: Scorers[0].Weights[cpu]: is -2"},
		{Options{Scorers: []WeightedScorer{{Idle{Signal: 99}, 1}}}, "scoring: Scorers[0].Signal: is 99"},
		{Options{Scorers: ok, Filters: []Filter{nil}}, "scoring: Filters[0]: is nil"},
		{Options{Scorers: ok, Picker: Argmax{Tolerance: -1}}, "scoring: Picker.Tolerance: is -1"},
		{Options{Scorers: ok, Picker: PowerOfK{K: -1}}, "scoring: Picker.K: is -1"},
		{Options{Scorers: ok, Picker: Softmax{Temperature: math.NaN()}}, "scoring: Picker.Temperature: is NaN"},
	} {
		_, err := New(c.o)
		require.ErrorIs(t, err, ErrOption, c.text)
		require.ErrorContains(t, err, c.text)
	}
	_, err := New(Options{Scorers: ok, Picker: badPicker{}})
	require.NoError(t, err)
}

type flatCost struct{}

func (flatCost) Name() string { return "flat" }
func (flatCost) Cost(_ *Request, _ []*Candidate, dst []float64) error {
	clear(dst)
	return nil
}

type badPicker struct{ index int }

func (p badPicker) Pick([]*Candidate, []float64, Random) int { return p.index }

func TestBrokenPicker(t *testing.T) {
	for _, index := range []int{-1, 1, 7} {
		watch := &watcher{}
		p := mustNew(t, Options{Scorers: []WeightedScorer{{Scorer: watch}}, Picker: badPicker{index}})
		var d Decision
		require.ErrorIs(t, p.Decide(&Request{}, []Candidate{worker(0, 0, 0)}, &d), ErrPick)
		require.Nil(t, d.Chosen)
		require.Len(t, watch.saw, 1, "nobody was chosen")
	}
}

// TestFilteredOut: filters are asked while there is something left, and those that dropped
// something are named.
func TestFilteredOut(t *testing.T) {
	keep := func(name string, all bool) Filter {
		return NewFilter(name, func(*Request, *Candidate) bool { return all })
	}
	p := mustNew(t, Options{Filters: []Filter{keep("all", true), keep("none", false), first{}}, Scorers: []WeightedScorer{{Scorer: Free{}}}})
	var d Decision
	require.EqualError(t, p.Decide(&Request{}, []Candidate{worker(0, 0, 0)}, &d), "scoring: every candidate was filtered out: of 1, none dropped 1")
}

// TestIdleOfParts: loads that are parts of 1 have a range too.
func TestIdleOfParts(t *testing.T) {
	cs := make([]*Candidate, 4)
	for i, usage := range []Gauge{Known(0.5), Known(0.25), {}, Known(0.75)} {
		cs[i] = &Candidate{Load: Load{KVUsage: usage}}
	}
	got := make([]float64, 4)
	require.NoError(t, Idle{Signal: KVUsage}.Score(&Request{}, cs, got))
	require.Equal(t, []float64{0.5, 1, 0.5, 0}, got)
}

// first is a filter that needs a candidate.
type first struct{}

func (first) Name() string { return "first" }

func (first) Filter(_ *Request, candidates []*Candidate) []*Candidate {
	_ = candidates[0]
	return candidates
}

func TestDecideAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ws := make([]Candidate, 64)
	subset := make([]WorkerID, 40)
	for i := range ws {
		ws[i] = worker(i, int32(i), float64(i%7))
	}
	for i := range subset {
		subset[i] = WorkerID(2 * i)
	}
	for _, picker := range []Picker{Argmax{Tolerance: 0.1}, PowerOfK{}, Softmax{Temperature: 1}, Weighted{}} {
		o := PrefixLoad()
		o.Picker = picker
		o.Filters = []Filter{NewFilter("odd", func(_ *Request, c *Candidate) bool { return c.ID%4 != 1 })}
		p := mustNew(t, o)
		var d Decision
		req := &Request{Blocks: 64, Fallbacks: 3, Subset: subset}
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if err := p.Decide(req, ws, &d); err != nil {
				t.Fatal(err)
			}
		}))
	}
}

func TestDecideConcurrentSafe(t *testing.T) {
	p := mustNew(t, PrefixLoad())
	ws := []Candidate{worker(0, 1, 3), worker(1, 9, 1), worker(2, 2, 2)}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var d Decision
			for range 500 {
				if err := p.Decide(&Request{Blocks: 10, Fallbacks: 2}, ws, &d); err != nil || d.Chosen.ID != 1 {
					t.Errorf("got %v, %v", d.Chosen, err)
					return
				}
				clear(d.Totals) // the result is the caller's
			}
		})
	}
	wg.Wait()
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{8, 64, 1024} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			p := mustNew(b, PrefixLoad())
			ws := make([]Candidate, n)
			for i := range ws {
				ws[i] = worker(i, int32(i), float64(i%7))
			}
			var d Decision
			req := &Request{Blocks: n}
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Decide(req, ws, &d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestNoNegativeZero: a load of nobody is 0 in texts, not -0.
func TestNoNegativeZero(t *testing.T) {
	p, err := Preset("least-loaded", Seeded(1))
	require.NoError(t, err)
	var d Decision
	cs := []Candidate{{Name: "a", Load: Load{Requests: Known(0)}}}
	require.NoError(t, p.Decide(&Request{Explain: true}, cs, &d))
	require.Equal(t, "a: 0 = least-requests(0)", d.String())
}

func TestDecideOfNothing(t *testing.T) {
	p, err := Preset("least-loaded", nil)
	require.NoError(t, err)
	s, err := NewShadow(p, p, nil)
	require.NoError(t, err)
	var nobody *Policy
	d := Decision{Chosen: &Candidate{ID: 1}}
	require.ErrorIs(t, p.Decide(nil, []Candidate{{ID: 1}}, &d), ErrNil)
	require.Nil(t, d.Chosen)
	d.Chosen = &Candidate{ID: 1}
	require.ErrorIs(t, (*Shadow)(nil).Decide(&Request{}, []Candidate{{ID: 1}}, &d), ErrNil)
	require.Nil(t, d.Chosen)
	for _, decide := range []func(*Request, []Candidate, *Decision) error{p.Decide, s.Decide} {
		require.ErrorIs(t, decide(nil, []Candidate{{ID: 1}}, &Decision{}), ErrNil)
		require.ErrorIs(t, decide(&Request{}, []Candidate{{ID: 1}}, nil), ErrNil)
	}
	for _, decide := range []func(*Request, []Candidate, *Decision) error{
		nobody.Decide, new(Policy).Decide, (*Shadow)(nil).Decide, new(Shadow).Decide,
	} {
		require.ErrorIs(t, decide(&Request{}, []Candidate{{ID: 1}}, &Decision{}), ErrNil)
	}
}
