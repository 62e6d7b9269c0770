package scoring

import (
	"fmt"
	"math"
	"unsafe"
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

func (e *FigureError) Error() string {
	return fmt.Sprintf("scoring: %s of worker %s is %v; %s is needed", e.Figure, who(e.Worker, e.ID), e.Value, e.wants)
}

// Unwrap returns [ErrFigure].
func (e *FigureError) Unwrap() error { return ErrFigure }

const (
	mostFigure  = 1e30 // sums, squares and products of such are finite still
	leastFactor = 1e-30
	wantsFigure = "0 to 1e30"
)

// Validate returns a [*FigureError] for the first figure that cannot be: a known load
// that is negative or above 1e30 (KVUsage: above 1), a capability that is neither 0 nor
// from 1e-30 to 1e30, or one that is not a number. [Policy.Decide] checks by itself.
func (c *Candidate) Validate() error {
	mended := *c
	if faults := mended.mend(nil); len(faults) > 0 {
		return &faults[0]
	}
	return nil
}

// sound reports whether all figures can be; false where it takes [Candidate.mend] to
// say. The bits of numbers that are not negative are ordered as they are; those of all
// others are above. Every decision asks, so this is written for what it compiles to.
func sound(candidates []Candidate) bool {
	most, full := math.Float64bits(mostFigure), math.Float64bits(1)
	for i := range candidates {
		c := &candidates[i]
		l := &c.Load
		switch {
		case bits(&l.Running) > most, bits(&l.Waiting) > most, bits(&l.KVUsage) > full, bits(&l.Requests) > most,
			bits(&l.Peers) > most, bits(&l.Queued) > most, bits(&l.PrefillTokens) > most, bits(&l.Unheard) > most,
			bits(&l.PromptTokens) > most, bits(&l.DecodeBlocks) > most, bits(&l.QPS) > most, bits(&l.RTT) > most,
			bits(&l.CacheSize) > most, c.Capability != 0 && !(c.Capability >= leastFactor && c.Capability <= mostFigure):
			return false
		}
	}
	return true
}

// bits is math.Float64bits of a gauge, without a way through a float register.
func bits(g *Gauge) uint64 { return *(*uint64)(unsafe.Pointer(&g.Value)) }

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
