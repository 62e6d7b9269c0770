//go:build !purego

package blockhash

import (
	"math/rand/v2"
	"testing"
)

// TestWithoutExtensions repeats the comparison with the reference as on a
// processor without SHA and AVX-512 instructions.
func TestWithoutExtensions(t *testing.T) {
	sha, vbmi2 := hasSHA, hasVBMI2
	defer func() { hasSHA, hasVBMI2 = sha, vbmi2 }()
	for _, have := range [][2]bool{{false, false}, {false, true}, {true, false}} {
		hasSHA, hasVBMI2 = sha && have[0], vbmi2 && have[1]
		for seed := range 150 {
			d := rand.New(rand.NewPCG(uint64(seed), 8))
			checkChain(t, randomHasher(t, d), randomPrompt(d), d)
			checkEncoders(t, randomBlock(d))
		}
	}
}
