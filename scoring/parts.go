package scoring

// Filter drops candidates that must not serve a request.
//
// Implementations must be safe for concurrent use.
type Filter interface {
	// Name identifies the filter in errors and explanations.
	Name() string
	// Filter returns the candidates to keep, in order. It may reorder and
	// overwrite the slice it is given, and usually returns a prefix of it; it
	// must not keep it.
	Filter(req *Request, candidates []*Candidate) []*Candidate
}

// Scorer says how good candidates are: the higher the better.
//
// Implementations must be safe for concurrent use, must not keep the slices and
// should not allocate.
type Scorer interface {
	// Name identifies the scorer in errors and explanations.
	Name() string
	// Score sets dst[i] for every candidates[i]; both have the same length.
	// A value that is not finite, or not set, fails the decision.
	Score(req *Request, candidates []*Candidate, dst []float64) error
}

// Cost says how expensive candidates are: the lower the better. It takes the
// place of the scorers of a policy, and its negative is the total. The rules of
// [Scorer] apply.
type Cost interface {
	Name() string
	Cost(req *Request, candidates []*Candidate, dst []float64) error
}

// Picker takes one of the candidates by their totals: the higher the better.
//
// Implementations must be safe for concurrent use and must not keep the slices.
type Picker interface {
	// Pick returns an index into totals, which has at least one element, all
	// finite. It takes randomness only from random.
	Pick(candidates []*Candidate, totals []float64, random Random) int
}

// Observer is implemented by parts of a policy that want to know what was
// decided: round robin, affinity, least recently used. It is called once for
// each decision that is not a dry run, after the pick, with the candidate as the other
// parts see it, and must not keep that.
type Observer interface {
	Chosen(req *Request, c *Candidate)
}

// Explainer is implemented by scorers and costs with a structure of their own.
// It is called only when an explanation was asked for.
type Explainer interface {
	// Explain reports the terms that make up the values, each with one value
	// per candidate, and in a few words what the candidates as a whole led
	// to ("imbalanced: shortest queue"), or "". The values belong to the
	// caller of Explain.
	Explain(req *Request, candidates []*Candidate, term func(name string, values []float64)) (reason string)
}

// Validator is implemented by parts with options that can be wrong. [New] calls
// it once.
type Validator interface {
	Validate() error
}

// NewFilter returns a filter that keeps the candidates for which keep answers
// true. [New] refuses one without keep.
func NewFilter(name string, keep func(*Request, *Candidate) bool) Filter {
	return &filterFunc{name, keep}
}

type filterFunc struct {
	name string
	keep func(*Request, *Candidate) bool
}

func (f *filterFunc) Name() string { return f.name }

func (f *filterFunc) Validate() error {
	if f.keep == nil {
		return optionErrorf("keep", "is nil")
	}
	return nil
}

func (f *filterFunc) Filter(req *Request, candidates []*Candidate) []*Candidate {
	kept := candidates[:0]
	for _, c := range candidates {
		if f.keep(req, c) {
			kept = append(kept, c)
		}
	}
	return kept
}

// NewScorer returns a scorer that values each candidate by itself. [New] refuses one
// without value.
func NewScorer(name string, value func(*Request, *Candidate) float64) Scorer {
	return &scorerFunc{name, value}
}

type scorerFunc struct {
	name  string
	value func(*Request, *Candidate) float64
}

func (s *scorerFunc) Name() string { return s.name }

func (s *scorerFunc) Validate() error {
	if s.value == nil {
		return optionErrorf("value", "is nil")
	}
	return nil
}

func (s *scorerFunc) Score(req *Request, candidates []*Candidate, dst []float64) error {
	for i, c := range candidates {
		dst[i] = s.value(req, c)
	}
	return nil
}
