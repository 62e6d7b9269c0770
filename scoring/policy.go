package scoring

import (
	"fmt"
	"math"
	"reflect"
	"slices"
)

// Options composes a policy. The zero value is refused by [New]: it neither
// scores nor costs.
type Options struct {
	// Name identifies the policy in explanations; empty means "custom".
	Name string
	// Filters run in order, each on what the ones before it kept.
	Filters []Filter
	// Scorers add up to the total of a candidate. Exactly one of Scorers and
	// Cost must be given.
	Scorers []WeightedScorer
	Cost    Cost
	// Picker takes one of the candidates; nil means [Argmax].
	Picker Picker
	// Random feeds the picker; nil means [rand.Uint64].
	Random Random
}

// WeightedScorer is a scorer and its factor in the total.
type WeightedScorer struct {
	Scorer Scorer
	// Weight must be finite and not negative; 0 means 1. Leave a scorer out to
	// switch it off.
	Weight float64
}

// Policy is a validated composition of filters, scorers or a cost, and a picker.
// It is immutable and safe for concurrent use; parts with a state of their own
// guard it themselves. Make it with [New] or by a preset.
type Policy struct {
	name      string
	filters   []Filter
	scorers   []WeightedScorer
	cost      Cost
	picker    Picker
	random    Random
	observers []Observer
	names     []string // of the scorers, or of the cost
}

// New validates a composition. The error is an [*OptionError] that names the
// option. The slices are copied.
func New(o Options) (*Policy, error) {
	p := &Policy{name: o.Name, filters: slices.Clone(o.Filters), scorers: slices.Clone(o.Scorers),
		cost: o.Cost, picker: o.Picker, random: o.Random}
	if p.name == "" {
		p.name = "custom"
	}
	if p.picker == nil {
		p.picker = Argmax{}
	}
	if p.random == nil {
		p.random = defaultRandom
	}
	if len(p.scorers) == 0 && p.cost == nil {
		return nil, optionErrorf("Scorers", "is empty and there is no Cost; one of the two is needed")
	}
	if len(p.scorers) > 0 && p.cost != nil {
		return nil, optionErrorf("Cost", "is given beside Scorers; only one of the two can decide")
	}
	for i, f := range p.filters {
		if err := p.adopt(fmt.Sprintf("Filters[%d]", i), f); err != nil {
			return nil, err
		}
	}
	for i := range p.scorers {
		w, path := &p.scorers[i], fmt.Sprintf("Scorers[%d]", i)
		if err := nonNegative(path+".Weight", w.Weight); err != nil {
			return nil, err
		}
		if w.Weight == 0 {
			w.Weight = 1
		}
		if err := p.adopt(path, w.Scorer); err != nil {
			return nil, err
		}
		p.names = append(p.names, w.Scorer.Name())
	}
	if p.cost != nil {
		if err := p.adopt("Cost", p.cost); err != nil {
			return nil, err
		}
		p.names = append(p.names, p.cost.Name())
	}
	if err := p.adopt("Picker", p.picker); err != nil {
		return nil, err
	}
	return p, nil
}

// adopt validates a part and remembers it if it wants to observe.
func (p *Policy) adopt(path string, part any) error {
	if v := reflect.ValueOf(part); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return optionErrorf(path, "is nil")
	}
	if v, ok := part.(Validator); ok {
		if err := v.Validate(); err != nil {
			return under(path, err)
		}
	}
	if o, ok := part.(Observer); ok {
		p.observers = append(p.observers, o)
	}
	return nil
}

// Name returns the name of the policy; of none, or one that [New] did not make, "".
func (p *Policy) Name() string {
	if p == nil {
		return ""
	}
	return p.name
}

// Decide chooses one of the candidates for the request and writes the result to
// d, whose former contents are lost. It does not change the request or the
// candidates.
//
// A figure of a candidate that cannot be (see [Candidate.Validate]) counts as not
// given, for every part of the policy: a load as unknown, a capability as 1. So one
// bad measurement stops nothing and attracts nothing, and it is not hidden either:
// d.Faults has each of them.
//
// Errors: [ErrNil]; [ErrNoCandidates]; [*FilteredError] when no candidate is left;
// [*ScorerError] when a scorer failed or gave a value that is not finite;
// [ErrPick] for a broken picker. After an error d.Chosen is nil.
//
// The cost is linear in candidates times parts. It does not allocate once d was
// used with as many candidates, unless the request asks for an explanation.
func (p *Policy) Decide(req *Request, candidates []Candidate, d *Decision) error {
	if d == nil {
		return ErrNil
	}
	d.reset()
	if p.Name() == "" || req == nil {
		return ErrNil
	}
	if len(candidates) == 0 {
		return ErrNoCandidates
	}
	if req.Explain {
		d.Policy = p.name
	}
	i, err := p.decide(req, candidates, d)
	if err == nil && !req.DryRun {
		for _, o := range p.observers {
			o.Chosen(req, d.Candidates[i])
		}
	}
	d.original()
	if err != nil {
		return err
	}
	d.Chosen, d.Total = d.Candidates[i], d.Totals[i]
	if req.Fallbacks > 0 {
		d.rank(i, req.Fallbacks)
	}
	return nil
}

// decide returns the index of the choice in d.Candidates.
func (p *Policy) decide(req *Request, candidates []Candidate, d *Decision) (int, error) {
	if err := p.filter(req, candidates, d); err != nil {
		return 0, err
	}
	n := len(d.Candidates)
	d.Totals = slices.Grow(d.Totals, n)[:n]
	d.values = slices.Grow(d.values[:0], n)[:n]
	if err := p.total(req, d); err != nil {
		return 0, err
	}
	i := p.picker.Pick(d.Candidates, d.Totals, p.random)
	if i < 0 || i >= n {
		return 0, ErrPick
	}
	return i, nil
}

// filter sets d.Candidates to those that may serve the request.
func (p *Policy) filter(req *Request, candidates []Candidate, d *Decision) error {
	if req.Subset != nil {
		d.within(req.Subset)
	}
	view := d.view
	for i := range candidates {
		c := &candidates[i]
		if req.Subset != nil && !d.in(c.ID) {
			if req.Explain {
				d.Dropped = append(d.Dropped, Drop{c, "subset"})
			}
			continue
		}
		if !c.sound() {
			c = d.mend(c)
		}
		view = append(view, c)
	}
	d.view = view
	kept := view
	for _, f := range p.filters {
		if len(kept) == 0 {
			break
		}
		var before []*Candidate
		if req.Explain {
			before = slices.Clone(kept)
		}
		n := len(kept)
		kept = f.Filter(req, kept)
		d.dropped = append(d.dropped, n-len(kept))
		for _, c := range before {
			if !slices.Contains(kept, c) {
				d.Dropped = append(d.Dropped, Drop{c, f.Name()})
			}
		}
	}
	if d.Candidates = kept; len(kept) > 0 {
		return nil
	}
	e := &FilteredError{Candidates: len(candidates)}
	if req.Subset != nil {
		e.Dropped = append(e.Dropped, DropCount{"subset", len(candidates) - len(d.view)})
	}
	for i, n := range d.dropped {
		if n > 0 {
			e.Dropped = append(e.Dropped, DropCount{p.filters[i].Name(), n})
		}
	}
	return e
}

// total fills d.Totals.
func (p *Policy) total(req *Request, d *Decision) error {
	clear(d.Totals)
	for i := range p.scorers {
		s := &p.scorers[i]
		unset(d.values)
		if err := s.Scorer.Score(req, d.Candidates, d.values); err != nil {
			return &ScorerError{Scorer: p.names[i], Err: err}
		}
		if err := d.add(p.names[i], s.Weight); err != nil {
			return err
		}
		if req.Explain {
			d.explain(req, p.names[i], s.Weight, s.Scorer)
		}
	}
	if p.cost != nil {
		unset(d.values)
		if err := p.cost.Cost(req, d.Candidates, d.values); err != nil {
			return &ScorerError{Scorer: p.names[0], Err: err}
		}
		if err := d.add(p.names[0], -1); err != nil {
			return err
		}
		if req.Explain {
			d.explain(req, p.names[0], -1, p.cost)
		}
	}
	return nil
}

// unset makes a value that a scorer forgets to write an error.
func unset(values []float64) {
	for i := range values {
		values[i] = math.NaN()
	}
}

func finite(v float64) bool { return v-v == 0 }

// add adds the weighted values to the totals.
func (d *Decision) add(name string, weight float64) error {
	totals := d.Totals[:len(d.values)]
	for i, v := range d.values {
		if !finite(v) {
			return notFinite(name, d.Candidates[i], v)
		}
		if totals[i] += weight * v; !finite(totals[i]) {
			return notFinite("total", d.Candidates[i], totals[i])
		}
	}
	return nil
}

// explain records the values of a scorer and what it says about them.
func (d *Decision) explain(req *Request, name string, weight float64, part any) {
	d.Terms = append(d.Terms, Term{name, weight, slices.Clone(d.values)})
	e, ok := part.(Explainer)
	if !ok {
		return
	}
	reason := e.Explain(req, d.Candidates, func(term string, values []float64) {
		d.Terms = append(d.Terms, Term{name + "/" + term, 0, values})
	})
	if reason != "" {
		if d.Reason != "" {
			d.Reason += "; "
		}
		d.Reason += reason
	}
}

// smallSubset is where searching a sorted copy beats scanning.
const smallSubset = 16

// within prepares the membership test of a subset.
func (d *Decision) within(subset []WorkerID) {
	d.subset = append(d.subset[:0], subset...)
	if len(subset) > smallSubset {
		slices.Sort(d.subset)
	}
}

func (d *Decision) in(id WorkerID) bool {
	if len(d.subset) <= smallSubset {
		return slices.Contains(d.subset, id)
	}
	_, ok := slices.BinarySearch(d.subset, id)
	return ok
}

// rank names the k best candidates besides the chosen one, by total and then by
// their order.
func (d *Decision) rank(chosen, k int) {
	d.ranked = d.ranked[:0]
	for i := range d.Candidates {
		if i == chosen {
			continue
		}
		// Insertion into a list of at most k: k is small.
		at := len(d.ranked)
		for at > 0 && d.Totals[i] > d.Totals[d.ranked[at-1]] {
			at--
		}
		if at >= k {
			continue
		}
		if len(d.ranked) == k {
			d.ranked = d.ranked[:k-1]
		}
		d.ranked = slices.Insert(d.ranked, at, int32(i))
	}
	for _, i := range d.ranked {
		d.Fallbacks = append(d.Fallbacks, d.Candidates[i])
	}
}
