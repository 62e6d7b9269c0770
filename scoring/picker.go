package scoring

import "math"

// Argmax takes the candidate with the highest total, at random among those
// within Tolerance of it. The zero value breaks only exact ties. An exact argmax
// in every replica of a router picks the same victim at once; a tolerance, or
// [PowerOfK], avoids that.
type Argmax struct {
	// Tolerance is how far below the highest total still counts as equal, in
	// the unit of the totals.
	Tolerance float64
	// First takes the first of equals instead of a random one.
	First bool
}

// Validate refuses a tolerance that is negative or not finite.
func (p Argmax) Validate() error {
	return nonNegative("Tolerance", p.Tolerance)
}

// Pick implements [Picker].
func (p Argmax) Pick(_ []*Candidate, totals []float64, random Random) int {
	best := math.Inf(-1)
	for _, t := range totals {
		if t > best {
			best = t
		}
	}
	floor := best - p.Tolerance
	chosen, ties := 0, 0
	for i, t := range totals {
		if t < floor {
			continue
		}
		// Reservoir sampling: one pass, no list of the equals.
		if ties++; ties == 1 || random.IntN(ties) == 0 {
			chosen = i
		}
		if p.First {
			break
		}
	}
	return chosen
}

// PowerOfK draws K different candidates at random and takes the best of them,
// at random among equals.
type PowerOfK struct {
	// K is the number drawn; 0 means 2.
	K int
	// Tolerance, if positive, draws only among candidates within it of the
	// highest total.
	Tolerance float64
}

// Validate refuses K < 0 and a bad tolerance.
func (p PowerOfK) Validate() error {
	if p.K < 0 {
		return optionErrorf("K", "is %d; at least 1 is needed (0 means 2)", p.K)
	}
	return nonNegative("Tolerance", p.Tolerance)
}

// Pick implements [Picker].
func (p PowerOfK) Pick(_ []*Candidate, totals []float64, random Random) int {
	k := p.K
	if k == 0 {
		k = 2
	}
	floor, eligible := math.Inf(-1), len(totals)
	if p.Tolerance > 0 {
		for _, t := range totals {
			floor = max(floor, t-p.Tolerance)
		}
		eligible = 0
		for _, t := range totals {
			if t >= floor {
				eligible++
			}
		}
	}
	// Selection sampling: each eligible candidate is drawn with the chance
	// (still wanted)/(still left), which draws exactly k different ones.
	chosen, ties, left := -1, 0, eligible
	k = min(k, eligible)
	for i, t := range totals {
		if t < floor {
			continue
		}
		if random.IntN(left) < k {
			k--
			switch {
			case chosen < 0 || t > totals[chosen]:
				chosen, ties = i, 1
			case t == totals[chosen]:
				if ties++; random.IntN(ties) == 0 {
					chosen = i
				}
			}
		}
		left--
	}
	return chosen
}

// Softmax draws a candidate with probability proportional to
// exp(total/Temperature).
type Softmax struct {
	// Temperature in the unit of the totals, or of their spread; 0 is
	// [Argmax].
	Temperature float64
	// Normalize divides the totals by their spread (highest minus lowest)
	// first, so that the temperature has no unit.
	Normalize bool
}

// Validate refuses a temperature that is negative or not finite.
func (p Softmax) Validate() error {
	return nonNegative("Temperature", p.Temperature)
}

// Pick implements [Picker].
func (p Softmax) Pick(c []*Candidate, totals []float64, random Random) int {
	high, low := math.Inf(-1), math.Inf(1)
	for _, t := range totals {
		high, low = max(high, t), min(low, t)
	}
	scale := p.Temperature
	if p.Normalize {
		scale *= high - low
	}
	if p.Temperature == 0 {
		return Argmax{}.Pick(c, totals, random)
	}
	if scale == 0 { // all totals are equal
		return random.IntN(len(totals))
	}
	sum := 0.0
	for _, t := range totals {
		sum += math.Exp((t - high) / scale)
	}
	at := random.Float64() * sum
	for i, t := range totals {
		if at -= math.Exp((t - high) / scale); at < 0 {
			return i
		}
	}
	return Argmax{}.Pick(c, totals, random) // rounding at the far end
}

// Weighted draws a candidate with probability proportional to its total;
// negative totals count as 0, and where all do the draw is uniform.
type Weighted struct{}

// Pick implements [Picker].
func (Weighted) Pick(_ []*Candidate, totals []float64, random Random) int {
	high := 0.0
	for _, t := range totals {
		high = max(high, t)
	}
	if high == 0 {
		return random.IntN(len(totals))
	}
	sum := 0.0
	for _, t := range totals {
		sum += max(0, t/high) // scaled, so that the sum cannot overflow
	}
	at, last := random.Float64()*sum, 0
	for i, t := range totals {
		if t <= 0 {
			continue
		}
		if last = i; at < t/high {
			break
		}
		at -= t / high
	}
	return last
}

func nonNegative(name string, v float64) error {
	if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return optionErrorf(name, "is %v; a finite number of at least 0 is needed", v)
	}
	return nil
}
