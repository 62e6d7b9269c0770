package scoring

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// shares picks many times and returns how often each index was taken.
func shares(p Picker, totals ...float64) []float64 {
	const rounds = 40000
	out, random := make([]float64, len(totals)), Seeded(1)
	for range rounds {
		out[p.Pick(nil, totals, random)] += 1.0 / rounds
	}
	return out
}

func TestPickers(t *testing.T) {
	e := math.Exp(1)
	for name, c := range map[string]struct {
		picker Picker
		totals []float64
		want   []float64
	}{
		"argmax":               {Argmax{}, []float64{1, 3, 2}, []float64{0, 1, 0}},
		"argmax of negatives":  {Argmax{}, []float64{-1, -3}, []float64{1, 0}},
		"argmax ties":          {Argmax{}, []float64{3, 3, 2, 3}, []float64{1. / 3, 1. / 3, 0, 1. / 3}},
		"argmax near ties":     {Argmax{Tolerance: 0.5}, []float64{3, 2.5, 2.4}, []float64{0.5, 0.5, 0}},
		"argmax first":         {Argmax{First: true}, []float64{1, 3, 3}, []float64{0, 1, 0}},
		"power of 2 of 3":      {PowerOfK{}, []float64{1, 2, 3}, []float64{0, 1. / 3, 2. / 3}},
		"power of 1 is random": {PowerOfK{K: 1}, []float64{1, 2}, []float64{0.5, 0.5}},
		"power of many":        {PowerOfK{K: 9}, []float64{1, 2, 2}, []float64{0, 0.5, 0.5}},
		"power within":         {PowerOfK{K: 1, Tolerance: 1}, []float64{1, 2, 3}, []float64{0, 0.5, 0.5}},
		"softmax":              {Softmax{Temperature: 2}, []float64{0, 2}, []float64{1 / (1 + e), e / (1 + e)}},
		"softmax by spread":    {Softmax{Temperature: 1, Normalize: true}, []float64{0, 1e6}, []float64{1 / (1 + e), e / (1 + e)}},
		"softmax cold":         {Softmax{}, []float64{0, 1, 1}, []float64{0, 0.5, 0.5}},
		"softmax equal":        {Softmax{Temperature: 1, Normalize: true}, []float64{7, 7}, []float64{0.5, 0.5}},
		"softmax far":          {Softmax{Temperature: 1e-9}, []float64{-1e9, 1e9}, []float64{0, 1}},
		"weighted":             {Weighted{}, []float64{1, 3, -5, 0}, []float64{0.25, 0.75, 0, 0}},
		"weighted none":        {Weighted{}, []float64{0, -1}, []float64{0.5, 0.5}},
		"weighted huge":        {Weighted{}, []float64{math.MaxFloat64, math.MaxFloat64}, []float64{0.5, 0.5}},
		"one":                  {PowerOfK{}, []float64{-4}, []float64{1}},
	} {
		require.InDeltaSlice(t, c.want, shares(c.picker, c.totals...), 0.012, name)
	}
}

func TestSeededRepeats(t *testing.T) {
	a, b := Seeded(7), Seeded(7)
	for range 100 {
		require.Equal(t, a(), b())
	}
	require.Zero(t, a.IntN(1))
	require.Zero(t, a.IntN(-3))
}

func FuzzPickers(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, 0.5, uint64(1))
	f.Add(-1e308, 1e308, 0.0, 0.0, uint64(2))
	f.Add(5e-324, 0.0, -5e-324, 1e300, uint64(3))
	f.Fuzz(func(t *testing.T, a, b, c, knob float64, seed uint64) {
		totals := []float64{a, b, c}
		for _, v := range totals {
			if !finite(v) {
				t.Skip()
			}
		}
		random := Seeded(seed)
		for _, p := range []Picker{Argmax{Tolerance: knob}, PowerOfK{K: int(seed % 5), Tolerance: knob},
			Softmax{Temperature: knob}, Softmax{Temperature: knob, Normalize: true}, Weighted{}} {
			if invalid(p) {
				continue
			}
			if i := p.Pick(nil, totals, random); i < 0 || i > 2 {
				t.Fatalf("%#v picked %d of %v", p, i, totals)
			}
		}
	})
}

func invalid(p Picker) bool {
	v, ok := p.(Validator)
	return ok && v.Validate() != nil
}
