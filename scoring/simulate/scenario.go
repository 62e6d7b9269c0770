package simulate

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Scenario is a generator of a trace and what belongs to it.
type Scenario struct {
	// Name and About say what it is.
	Name, About string
	// Loads are the factors to try, from what eight workers do with ease to
	// more than they can do.
	Loads []float64
	// Configure sets what the scenario needs of the fleet; may be nil.
	Configure func(*Config)
	// Make builds the trace from a seed; nil for a recorded trace.
	Make func(seed uint64) *Trace
}

// Scenarios returns the generated scenarios: the five ways in which policies
// fail, and loads that people have.
func Scenarios() []Scenario {
	return []Scenario{
		{"hotspot", "six requests in ten share one prompt of 8,192 tokens, the rest 100 others by Zipf", []float64{0.8, 1.2, 1.5}, nil, hotspot},
		{"fresh", "tenants by Zipf; a ninth worker joins after 60 s", []float64{0.8, 1, 1.2, 1.4}, func(c *Config) { c.Joins = []float64{60} }, zipf},
		{"unique", "prompts of 1,024 to 12,288 tokens that share nothing", []float64{0.8, 1, 1.2, 1.4}, nil, unique},
		{"burst", "32 siblings of a new prompt of 8,192 tokens within 50 ms, every 4 s, over unique prompts", []float64{1, 2, 2.5, 3}, nil, burst},
		{"zipf", "400 tenants by Zipf with system prompts of 2,048 to 16,384 tokens and questions of 128 to 1,024", []float64{0.8, 1, 1.2, 1.4}, nil, zipf},
		{"agents", "agents whose context grows by 256 to 2,048 tokens a turn, with branches of two to four", []float64{1, 1.4, 1.8, 2.2}, nil, agents},
		{"bestofn", "eight samples of each prompt at once", []float64{0.4, 0.7, 0.9}, nil, bestOfN},
	}
}

// FindScenario returns a generated scenario by its name.
func FindScenario(name string) (Scenario, error) {
	all := Scenarios()
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return Scenario{}, fmt.Errorf("simulate: scenario %q is not known; there are %q", name, names)
}

const (
	genBlock   = 128
	genSeconds = 120
)

// maker builds traces of prompts made of whole blocks and a short tail.
type maker struct {
	rng  *rand.Rand
	next uint64
	t    *Trace
}

func newMaker(seed uint64) *maker {
	return &maker{rng: rand.New(rand.NewPCG(seed, 0x7ace)), t: &Trace{BlockSize: genBlock}}
}

// fresh returns n new blocks.
func (m *maker) fresh(n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		m.next++
		out[i] = m.next
	}
	return out
}

// between draws a number of blocks for low to high tokens, evenly in the
// logarithm.
func (m *maker) between(low, high float64) int {
	return max(1, int(math.Round(math.Exp(math.Log(low)+m.rng.Float64()*math.Log(high/low))/genBlock)))
}

// request appends a request: blocks and a partial block.
func (m *maker) request(at float64, session string, output int, parts ...[]uint64) {
	blocks := slices.Concat(parts...)
	m.t.Arrivals = append(m.t.Arrivals, Arrival{At: at, Tokens: len(blocks)*genBlock + 1 + m.rng.IntN(genBlock-1),
		Output: output, Blocks: blocks, Session: session})
}

func (m *maker) output() int { return m.between(40*genBlock, 400*genBlock) }

// poisson calls do at random times with a rate a second.
func (m *maker) poisson(rate float64, do func(at float64)) {
	for at := m.rng.ExpFloat64() / rate; at < genSeconds; at += m.rng.ExpFloat64() / rate {
		do(at)
	}
}

// done sorts by time and returns the trace.
func (m *maker) done() *Trace {
	slices.SortStableFunc(m.t.Arrivals, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	return m.t
}

// zipfian draws 0 to n-1 with weight 1/(i+1)^s.
func (m *maker) zipfian(n int, s float64) func() int {
	sums := make([]float64, n)
	total := 0.0
	for i := range sums {
		total += math.Pow(float64(i+1), -s)
		sums[i] = total
	}
	return func() int {
		i, _ := slices.BinarySearch(sums, m.rng.Float64()*total)
		return min(i, n-1)
	}
}

func hotspot(seed uint64) *Trace {
	m := newMaker(seed)
	hot := m.fresh(8192 / genBlock)
	others := make([][]uint64, 100)
	for i := range others {
		others[i] = m.fresh(m.between(2048, 8192))
	}
	pick := m.zipfian(len(others), 1)
	m.poisson(100, func(at float64) {
		if m.rng.Float64() < 0.6 {
			m.request(at, "", m.output(), hot, m.fresh(m.between(128, 2048)))
			return
		}
		i := pick()
		m.request(at, fmt.Sprint("tenant-", i), m.output(), others[i], m.fresh(m.between(128, 2048)))
	})
	return m.done()
}

func zipf(seed uint64) *Trace {
	m := newMaker(seed)
	tenants := make([][]uint64, 400)
	for i := range tenants {
		tenants[i] = m.fresh(m.between(2048, 16384))
	}
	pick := m.zipfian(len(tenants), 0.9)
	m.poisson(70, func(at float64) {
		i := pick()
		m.request(at, fmt.Sprint("tenant-", i), m.output(), tenants[i], m.fresh(m.between(128, 1024)))
	})
	return m.done()
}

func unique(seed uint64) *Trace {
	m := newMaker(seed)
	m.poisson(34, func(at float64) { m.request(at, "", m.output(), m.fresh(m.between(1024, 12288))) })
	return m.done()
}

func burst(seed uint64) *Trace {
	m := newMaker(seed)
	for at := 2.0; at < genSeconds; at += 4 {
		shared := m.fresh(8192 / genBlock)
		for range 32 {
			m.request(at+0.05*m.rng.Float64(), "", m.output(), shared, m.fresh(1))
		}
	}
	m.poisson(20, func(at float64) { m.request(at, "", m.output(), m.fresh(m.between(1024, 8192))) })
	return m.done()
}

func bestOfN(seed uint64) *Trace {
	m := newMaker(seed)
	m.poisson(16, func(at float64) {
		prompt := m.fresh(m.between(2048, 16384))
		for range 8 {
			m.request(at, "", m.output(), prompt)
		}
	})
	return m.done()
}

func agents(seed uint64) *Trace {
	m := newMaker(seed)
	system := m.fresh(4096 / genBlock)
	n := 0
	var run func(at float64, session string, context []uint64, turns, depth int)
	run = func(at float64, session string, context []uint64, turns, depth int) {
		for range turns {
			if at >= genSeconds {
				return
			}
			context = slices.Concat(context, m.fresh(m.between(256, 2048)))
			m.request(at, session, m.between(20*genBlock, 200*genBlock), context)
			at += 1.5 + 3*m.rng.ExpFloat64() // answer and tool
			if depth == 0 && m.rng.Float64() < 0.08 {
				for b := range 2 + m.rng.IntN(3) {
					run(at, fmt.Sprint(session, "-", b), context, 4, 1)
				}
			}
		}
	}
	m.poisson(2.6, func(at float64) {
		n++
		run(at, fmt.Sprint("agent-", n), slices.Concat(system, m.fresh(m.between(512, 4096))), 8+m.rng.IntN(16), 0)
	})
	return m.done()
}
