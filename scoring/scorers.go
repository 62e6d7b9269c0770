package scoring

import "math"

// Prefix scores a candidate by the part of the prompt's blocks that it holds,
// each block weighted by its medium: 0 for a cold worker, 1 for one that holds
// all of them on the GPU. A prompt without a whole block scores 0 everywhere.
type Prefix struct {
	// Weights of the media. The zero array means 1 for GPU, 0.8 for CPU and
	// 0 for the others, as llm-d has it.
	Weights [NumMedia]float64
	// LengthWeight w, 0 to 1, changes the value into
	// w·min(1, tokens/8192)² + (1-w)·ratio, where tokens is the (weighted)
	// matched length: llm-d's match length score. It needs [Request.BlockSize].
	LengthWeight float64
}

// fullLength is the match length at which llm-d's length score is 1.
const fullLength = 8192

// Name implements [Scorer].
func (Prefix) Name() string { return "prefix" }

// Validate refuses weights that are negative or not finite.
func (s Prefix) Validate() error {
	if !(s.LengthWeight >= 0 && s.LengthWeight <= 1) {
		return optionErrorf("LengthWeight", "is %v; 0 to 1 is needed", s.LengthWeight)
	}
	return validMedia("Weights", s.Weights)
}

// Score implements [Scorer].
func (s Prefix) Score(req *Request, candidates []*Candidate, dst []float64) error {
	w := s.Weights
	if w == ([NumMedia]float64{}) {
		w = [NumMedia]float64{GPU: 1, CPU: 0.8}
	}
	total := float64(req.blocks())
	for i, c := range candidates {
		dst[i] = 0
		if total > 0 {
			matched := weighted(&c.Match.Blocks, &w)
			dst[i] = (1 - s.LengthWeight) * matched / total
			if s.LengthWeight > 0 {
				length := min(1, matched*float64(req.BlockSize)/fullLength)
				dst[i] += s.LengthWeight * length * length
			}
		}
	}
	return nil
}

func weighted(blocks *[NumMedia]int32, w *[NumMedia]float64) float64 {
	return w[GPU]*float64(blocks[GPU]) + w[CPU]*float64(blocks[CPU]) +
		w[Storage]*float64(blocks[Storage]) + w[Remote]*float64(blocks[Remote])
}

func validMedia(name string, w [NumMedia]float64) error {
	for m, v := range w {
		if err := nonNegative(name+"["+Medium(m).String()+"]", v); err != nil {
			return err
		}
	}
	return nil
}

// Signal selects one gauge of a load.
type Signal uint8

// The gauges of [Load].
const (
	Running Signal = iota
	Waiting
	KVUsage
	Requests
	Queued
	PrefillTokens
	PromptTokens
	DecodeBlocks
	QPS
	RTT
	CacheSize
	numSignals
)

var signalNames = [numSignals]string{"running", "waiting", "kv-usage", "requests", "queued",
	"prefill-tokens", "prompt-tokens", "decode-blocks", "qps", "rtt", "cache-size"}

// String returns the name of the signal.
func (s Signal) String() string {
	if s < numSignals {
		return signalNames[s]
	}
	return "unknown"
}

// Of returns the gauge; unknown for a signal that does not exist.
func (s Signal) Of(l *Load) Gauge {
	switch s {
	case Running:
		return l.Running
	case Waiting:
		return l.Waiting
	case KVUsage:
		return l.KVUsage
	case Requests:
		return l.Requests
	case Queued:
		return l.Queued
	case PrefillTokens:
		return l.PrefillTokens
	case PromptTokens:
		return l.PromptTokens
	case DecodeBlocks:
		return l.DecodeBlocks
	case QPS:
		return l.QPS
	case RTT:
		return l.RTT
	case CacheSize:
		return l.CacheSize
	}
	return Gauge{}
}

// fill sets dst to a signal, unknown ones to the mean of the known, and returns
// the lowest and highest; all 0 if none is known.
func fill(s Signal, candidates []*Candidate, dst []float64) (low, high float64) {
	sum, known := 0.0, 0
	low, high = math.Inf(1), math.Inf(-1)
	for i, c := range candidates {
		g := s.Of(&c.Load)
		dst[i] = g.Value
		if g.Known {
			sum, known = sum+g.Value, known+1
			if g.Value < low {
				low = g.Value
			}
			if g.Value > high {
				high = g.Value
			}
		}
	}
	if known == len(candidates) {
		return low, high
	}
	if known == 0 {
		clear(dst)
		return 0, 0
	}
	for i, c := range candidates {
		if !s.Of(&c.Load).Known {
			dst[i] = sum / float64(known)
		}
	}
	return low, high
}

// Idle scores a candidate by how low a load is among the candidates: 1 for the
// lowest, 0 for the highest, linear between, 1 for all where they are equal. It
// is the min-max inversion of llm-d's queue and running scorers.
type Idle struct {
	Signal Signal
}

// Name implements [Scorer].
func (s Idle) Name() string { return s.Signal.String() }

// Validate refuses a signal that does not exist.
func (s Idle) Validate() error { return validSignal(s.Signal) }

// Score implements [Scorer].
func (s Idle) Score(_ *Request, candidates []*Candidate, dst []float64) error {
	low, high := fill(s.Signal, candidates, dst)
	for i, v := range dst {
		if high > low {
			dst[i] = (high - v) / (high - low)
		} else if finite(v) {
			dst[i] = 1
		}
	}
	return nil
}

// Least scores a candidate by the negative of a load, so that the least loaded
// wins whatever the spread.
type Least struct {
	Signal Signal
}

// Name implements [Scorer].
func (s Least) Name() string { return "least-" + s.Signal.String() }

// Validate refuses a signal that does not exist.
func (s Least) Validate() error { return validSignal(s.Signal) }

// Score implements [Scorer].
func (s Least) Score(_ *Request, candidates []*Candidate, dst []float64) error {
	fill(s.Signal, candidates, dst)
	for i := range dst {
		dst[i] = -dst[i]
	}
	return nil
}

// Free scores a candidate by the part of its KV cache that is not in use.
type Free struct{}

// Name implements [Scorer].
func (Free) Name() string { return "kv" }

// Score implements [Scorer].
func (Free) Score(_ *Request, candidates []*Candidate, dst []float64) error {
	fill(KVUsage, candidates, dst)
	for i := range dst {
		dst[i] = 1 - dst[i]
	}
	return nil
}

func validSignal(s Signal) error {
	if s >= numSignals {
		return optionErrorf("Signal", "is %d; there are signals 0 to %d", s, numSignals-1)
	}
	return nil
}
