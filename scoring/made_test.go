package scoring

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNotMade: of what no constructor made no method panics, whatever it is given, and
// those with an error say so.
func TestNotMade(t *testing.T) {
	cs := []Candidate{worker(1, 5, 2)}
	req := &Request{Tokens: 100, BlockSize: 16, Prefix: 7, Pins: Pins{Session: "s", Response: "r"}}
	given := []any{req, cs, []*Candidate{&cs[0]}, &cs[0], []float64{0}, &Decision{}, WorkerID(1), &Load{}, Load{}, &PeerNote{}, Sent{}, "text",
		[]uint64{1, 2}, time.Second, time.Unix(1, 0), Observation{PromptTokens: 9, TTFT: time.Second}, PinKey{ID: "s"}, 7, uint64(7),
		func(string, []float64) {}, (func(WorkerID, uint64) bool)(nil), Random(Seeded(1))}
	for _, part := range []any{
		&Policy{}, &Shadow{}, &InFlight{}, &Speculation{}, &Peers{}, &Affinity{}, &LocalPins{}, &History{}, &TextTree{}, &KVAtlas{},
		&Burst{}, &GorgoTuner{},
	} {
		zero := reflect.ValueOf(part)
		for _, v := range []reflect.Value{zero, reflect.Zero(zero.Type())} {
			for i := range v.NumMethod() {
				m := v.Type().Method(i)
				args := []reflect.Value{v}
				for n := 1; n < m.Type.NumIn(); n++ {
					arg := reflect.Zero(m.Type.In(n))
					for _, g := range given {
						if reflect.TypeOf(g) == m.Type.In(n) {
							arg = reflect.ValueOf(g)
						}
					}
					args = append(args, arg)
				}
				var got []reflect.Value
				require.NotPanics(t, func() { got = m.Func.Call(args) }, "%v.%s", v.Type(), m.Name)
				for _, r := range got {
					if r.Type() == reflect.TypeFor[error]() && m.Name != "Validate" {
						require.Equal(t, ErrNil, r.Interface(), "%v.%s", v.Type(), m.Name)
					}
				}
			}
		}
	}
	// Nothing is known: what was there is not left as if it were.
	for _, fill := range []func(){
		func() { new(InFlight).Fill(cs) },
		func() { new(History).Match(req, nil, cs) },
		func() { new(TextTree).Match("text", cs) },
	} {
		cs[0] = worker(1, 5, 2)
		cs[0].Load.CacheSize = Known(7)
		fill()
		require.True(t, cs[0].Load == Load{CacheSize: Known(7)} || cs[0].Match == Match{} && cs[0].Load.CacheSize == Gauge{})
	}
	l := Load{RTT: Known(3)}
	require.ErrorIs(t, new(InFlight).Load(1, &l), ErrNil)
	require.Zero(t, l)
	require.Equal(t, "w", new(LocalPins).Claim(PinKey{}, "w", time.Second))
	require.Equal(t, GorgoWeights{1, 1, 1, 1, 1}, new(GorgoCost).Weights())

	a, err := NewInFlight(InFlightOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, a.Load(0, nil), ErrNil)
	h, err := NewHistory(HistoryOptions{})
	require.NoError(t, err)
	spec, err := NewSpeculation(SpeculationOptions{})
	require.NoError(t, err)
	h.Sent(1, []uint64{1, 2})
	spec.Sent(1, []uint64{1, 2, 3})
	h.Match(nil, []uint64{1, 2, 3}, cs)
	spec.Extend(nil, []uint64{1, 2, 3}, cs, nil)
	require.Equal(t, Match{Blocks: [NumMedia]int32{GPU: 3}, Usable: 128, Score: 3, Speculative: 1}, cs[0].Match, "of no request nothing is known")
	p := mustNew(t, PrefixLoad())
	ok := []WeightedScorer{{Scorer: Prefix{}}}
	for text, make := range map[string]func() error{
		"active, shadow: is nil or was not made by New": func() error { _, err := NewShadow(p, new(Policy), nil); return err },
		"active, shadow: is nil or":                     func() error { _, err := NewShadow(new(Policy), p, nil); return err },
		"InFlight: is nil or was not made":              func() error { _, err := NewPeers(PeersOptions{InFlight: &InFlight{}}); return err },
		"Speculation: is nil or was not made":           func() error { _, err := NewPeers(PeersOptions{InFlight: a, Speculation: &Speculation{}}); return err },
		"KVAtlas: is nil or was not made":               func() error { _, err := NewPeers(PeersOptions{InFlight: a, KVAtlas: &KVAtlas{}}); return err },
		"Filters[0].keep: is nil":                       func() error { _, err := New(Options{Filters: []Filter{NewFilter("f", nil)}, Scorers: ok}); return err },
		"Scorers[0].value: is nil": func() error {
			_, err := New(Options{Scorers: []WeightedScorer{{Scorer: NewScorer("s", nil)}}})
			return err
		},
		"Filters[0]: was not made by NewAffinity": func() error { _, err := New(Options{Filters: []Filter{&Affinity{}}, Scorers: ok}); return err },
		"Scorers[0]: was not made by NewAffinity": func() error {
			_, err := New(Options{Scorers: []WeightedScorer{{Scorer: (&Affinity{}).Scorer()}}})
			return err
		},
		"Filters[0]: is nil":                   func() error { _, err := New(Options{Filters: []Filter{(*Affinity)(nil)}, Scorers: ok}); return err },
		"Filters[0]: was not made by NewBurst": func() error { _, err := New(Options{Filters: []Filter{&Burst{}}, Scorers: ok}); return err },
		"Cost: was not made by NewKVAtlas":     func() error { _, err := New(Options{Cost: &KVAtlas{}}); return err },
		"Cost: is nil":                         func() error { _, err := New(Options{Cost: (*GorgoCost)(nil)}); return err },
	} {
		err := make()
		require.ErrorIs(t, err, ErrOption, text)
		require.ErrorContains(t, err, text)
	}
}
