package scoring

import "math/rand/v2"

// Random is a source of uniformly distributed 64-bit numbers. A policy calls it
// from every goroutine that decides, so it must be safe for that; the default,
// [rand.Uint64], is. Replaceable for repeatable tests and simulations.
type Random func() uint64

// Float64 returns a number in [0, 1).
func (r Random) Float64() float64 { return float64(r()>>11) / (1 << 53) }

// IntN returns a number in [0, n); 0 for n < 1. The bias is below n/2^64.
func (r Random) IntN(n int) int {
	if n < 2 {
		return 0
	}
	return int(r() % uint64(n))
}

// Seeded returns a repeatable source. It is NOT safe for concurrent use: give
// each simulated router its own.
func Seeded(seed uint64) Random {
	return rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15)).Uint64
}

var defaultRandom Random = rand.Uint64
