package scoring

// staged is a scorer that looks at all candidates first and then values them by
// the stage that this leads to, as the rule-based routers do ("imbalanced: the
// shortest queue; else the best match").
//
// fill sets dst and says in a few words which stage it was. Where a stage orders
// by a whole number first and by load second, the value is number + tie(load):
// exact as long as the number is a count and the load below 2^26.
type staged struct {
	name string
	fill func(req *Request, candidates []*Candidate, dst []float64) (reason string)
}

func (s *staged) Name() string { return s.name }

func (s *staged) Score(req *Request, candidates []*Candidate, dst []float64) error {
	s.fill(req, candidates, dst)
	return nil
}

func (s *staged) Explain(req *Request, candidates []*Candidate, _ func(string, []float64)) string {
	return s.fill(req, candidates, make([]float64, len(candidates)))
}

// tie maps a load to (0, 0.5], the lower the higher, to break ties between whole
// numbers.
func tie(load float64) float64 { return 1 / (2 + max(0, load)) }

// negate makes loads into scores: the least loaded wins.
func negate(dst []float64) {
	for i := range dst {
		dst[i] = -dst[i]
	}
}

// matchedTokens returns the matched part of the prompt in tokens, whatever its
// medium; in blocks where the size of a block is not known.
func matchedTokens(req *Request, c *Candidate) float64 {
	if req.BlockSize > 0 {
		return float64(c.Match.Total()) * float64(req.BlockSize)
	}
	return float64(c.Match.Total())
}

// promptTokens is what matchedTokens is a part of.
func promptTokens(req *Request) float64 {
	if req.BlockSize > 0 && req.Tokens > 0 {
		return float64(req.Tokens)
	}
	return float64(req.blocks())
}

// matchRate returns the matched part of the prompt, 0 to 1.
func matchRate(req *Request, c *Candidate) float64 {
	if total := promptTokens(req); total > 0 {
		return min(1, matchedTokens(req, c)/total)
	}
	return 0
}

func bestMatch(candidates []*Candidate) (best int32) {
	for _, c := range candidates {
		best = max(best, c.Match.Total())
	}
	return best
}

// orDefault returns the default for an option that is 0.
func orDefault(v, fallback float64) float64 {
	if v == 0 {
		return fallback
	}
	return v
}

// scorePolicy makes the policy of a preset with one scorer.
func scorePolicy(name string, s Scorer, p Picker, random Random, filters ...Filter) (*Policy, error) {
	return New(Options{Name: name, Filters: filters, Scorers: []WeightedScorer{{Scorer: s}}, Picker: p, Random: random})
}

// checks validates several options that must be finite and not negative.
func checks(named ...any) error {
	for i := 0; i+1 < len(named); i += 2 {
		if err := nonNegative(named[i].(string), named[i+1].(float64)); err != nil {
			return err
		}
	}
	return nil
}
