package scoring

import (
	"cmp"
	"fmt"
	"strconv"
)

// Decision is the result of one call of [Policy.Decide]. The caller owns it and
// should reuse it: it keeps the memory that a decision needs. The zero value is
// ready. It is not safe for concurrent use, and its pointers lead into the
// candidates of the last call.
type Decision struct {
	// Chosen is the worker to send the request to; nil after an error.
	Chosen *Candidate
	// Total is its total; the negative cost for a policy with a [Cost].
	Total float64
	// Fallbacks are further workers, best first, as many as the request asked
	// for and there are.
	Fallbacks []*Candidate
	// Candidates are those that passed the filters, and Totals their totals.
	Candidates []*Candidate
	Totals     []float64
	// Faults are the figures of candidates that cannot be, in the order of the
	// candidates; the decision was made as if they had not been given. Empty where
	// all is well: log them, something measures or is configured wrongly.
	Faults []FigureError

	// Policy, Terms, Dropped and Reason are set only when an explanation was
	// asked for. Reason is a few words of a policy that works in stages; may
	// be empty.
	Policy  string
	Terms   []Term
	Dropped []Drop
	Reason  string

	values  []float64  // of the scorer at work
	subset  []WorkerID // sorted copy of a large subset
	view    []*Candidate
	mended  []Candidate // copies without the figures in Faults
	dropped []int       // by each filter that ran
	ranked  []int32
}

// Term is one scorer's part in a decision.
type Term struct {
	// Name is the scorer's, or "scorer/term" for a part of it that its
	// [Explainer] reported.
	Name string
	// Weight is the factor in the total: negative for a cost, 0 for a part
	// that is shown but already contained in its scorer.
	Weight float64
	// Values has one value for each of the decision's Candidates.
	Values []float64
}

// Drop is a candidate that a filter did not let through.
type Drop struct {
	Candidate *Candidate
	Filter    string
}

// reset forgets the last decision and keeps its memory.
func (d *Decision) reset() {
	d.Chosen, d.Total, d.Policy, d.Reason = nil, 0, "", ""
	d.Fallbacks, d.Candidates, d.Totals = d.Fallbacks[:0], nil, d.Totals[:0]
	d.Terms, d.Dropped = nil, nil
	d.Faults, d.mended, d.view, d.dropped = d.Faults[:0], d.mended[:0], d.view[:0], d.dropped[:0]
}

// mend returns a copy of a candidate without the figures that cannot be, which it
// notes; the candidate itself if there are none after all.
func (d *Decision) mend(c *Candidate) *Candidate {
	n := len(d.Faults)
	d.mended = append(d.mended, *c) // earlier copies stay where they are pointed to
	m := &d.mended[len(d.mended)-1]
	if d.Faults = m.mend(d.Faults); len(d.Faults) == n {
		return c
	}
	m.of = c
	return m
}

// original puts the caller's candidates in the place of mended copies.
func (d *Decision) original() {
	if len(d.Faults) == 0 {
		return
	}
	for i, c := range d.Candidates {
		d.Candidates[i] = cmp.Or(c.of, c)
	}
	for i := range d.Dropped {
		d.Dropped[i].Candidate = cmp.Or(d.Dropped[i].Candidate.of, d.Dropped[i].Candidate)
	}
}

// String returns the choice and its terms in one line, for logs and tables.
func (d *Decision) String() string {
	if d.Chosen == nil {
		return "no choice"
	}
	b := append([]byte(nil), d.Chosen.Name...)
	b = append(b, ": "...)
	b = strconv.AppendFloat(b, d.Total+0, 'g', 4, 64) // +0 makes a negative 0 a plain one
	chosen := 0
	for i, c := range d.Candidates {
		if c == d.Chosen {
			chosen = i
		}
	}
	for i, t := range d.Terms {
		sep := ", "
		if i == 0 {
			sep = " = "
		} else if t.Weight != 0 {
			sep = " + "
		}
		b = append(b, sep...)
		if t.Weight != 0 && t.Weight != 1 {
			b = strconv.AppendFloat(b, t.Weight, 'g', 4, 64)
			b = append(b, '*')
		}
		b = fmt.Appendf(b, "%s(%.4g)", t.Name, t.Values[chosen]+0)
	}
	if d.Reason != "" {
		b = append(b, "; "...)
		b = append(b, d.Reason...)
	}
	if len(d.Faults) > 0 {
		b = fmt.Appendf(b, "; %d faults, first %v", len(d.Faults), d.Faults[0])
	}
	return string(b)
}
