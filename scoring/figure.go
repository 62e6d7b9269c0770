package scoring

import (
	"fmt"
	"math"
)

// FigureError is a figure of a worker that cannot be: a load or capability out of its
// range, or one that is not a number. It unwraps to [ErrFigure].
type FigureError struct {
	// Worker and ID are the worker's name, which may be empty, and number.
	Worker string
	ID     WorkerID
	// Figure is the field's name, such as "KVUsage"; Value what it was.
	Figure string
	Value  float64

	wants string
}

func (e FigureError) Error() string {
	return fmt.Sprintf("scoring: %s of worker %s is %v; %s is needed", e.Figure, who(e.Worker, e.ID), e.Value, e.wants)
}

// Unwrap returns [ErrFigure].
func (e FigureError) Unwrap() error { return ErrFigure }

const (
	mostFigure  = 1e30 // sums, squares and products of such are finite still
	leastFactor = 1e-30
	wantsFigure = "0 to 1e30"
)

// Validate returns a [*FigureError] for the first figure that cannot be: a known load
// that is negative or above 1e30 (KVUsage: above 1), a capability that is neither 0 nor
// from 1e-30 to 1e30, or one that is not a number. [Policy.Decide] checks by itself.
func (c *Candidate) Validate() error {
	if c.sound() {
		return nil
	}
	mended := *c
	if faults := mended.mend(nil); len(faults) > 0 {
		return &faults[0]
	}
	return nil
}

// sound reports whether all figures can be; false where it takes mend to say. Every
// decision asks this of every candidate, so it looks at each figure once: the bits of
// numbers that are not negative are ordered as they are, those of all others are above.
func (c *Candidate) sound() bool {
	l, bits, most, full := &c.Load, math.Float64bits, math.Float64bits(mostFigure), math.Float64bits(1)
	switch {
	case bits(l.Running.Value) > most, bits(l.Waiting.Value) > most, bits(l.KVUsage.Value) > full,
		bits(l.Requests.Value) > most, bits(l.Peers.Value) > most, bits(l.Queued.Value) > most,
		bits(l.PrefillTokens.Value) > most, bits(l.Unheard.Value) > most, bits(l.PromptTokens.Value) > most,
		bits(l.DecodeBlocks.Value) > most, bits(l.QPS.Value) > most, bits(l.RTT.Value) > most,
		bits(l.CacheSize.Value) > most, c.Capability != 0 && !(c.Capability >= leastFactor && c.Capability <= mostFigure):
		return false
	}
	return true
}

// mend takes the figures away that cannot be and appends them to faults.
func (c *Candidate) mend(faults []FigureError) []FigureError {
	l := &c.Load
	for _, f := range [...]struct {
		name  string
		g     *Gauge
		most  float64
		wants string
	}{
		{"Running", &l.Running, mostFigure, wantsFigure},
		{"Waiting", &l.Waiting, mostFigure, wantsFigure},
		{"KVUsage", &l.KVUsage, 1, "0 to 1"},
		{"Requests", &l.Requests, mostFigure, wantsFigure},
		{"Peers", &l.Peers, mostFigure, wantsFigure},
		{"Queued", &l.Queued, mostFigure, wantsFigure},
		{"PrefillTokens", &l.PrefillTokens, mostFigure, wantsFigure},
		{"Unheard", &l.Unheard, mostFigure, wantsFigure},
		{"PromptTokens", &l.PromptTokens, mostFigure, wantsFigure},
		{"DecodeBlocks", &l.DecodeBlocks, mostFigure, wantsFigure},
		{"QPS", &l.QPS, mostFigure, wantsFigure},
		{"RTT", &l.RTT, mostFigure, wantsFigure},
		{"CacheSize", &l.CacheSize, mostFigure, wantsFigure},
	} {
		if f.g.Known && !(f.g.Value >= 0 && f.g.Value <= f.most) {
			faults = append(faults, FigureError{c.Name, c.ID, f.name, f.g.Value, f.wants})
			*f.g = Gauge{}
		}
	}
	if v := c.Capability; v != 0 && !(v >= leastFactor && v <= mostFigure) {
		faults = append(faults, FigureError{c.Name, c.ID, "Capability", v, "1e-30 to 1e30, or 0 for 1"})
		c.Capability = 0
	}
	return faults
}
