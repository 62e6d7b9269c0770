//go:build amd64 && !purego

package radix

import "golang.org/x/sys/cpu"

var (
	// hasDigest tells whether a digest costs less than reading the keys does.
	hasDigest = cpu.X86.HasAVX2
	hasEqual  = cpu.X86.HasAVX2 && cpu.X86.HasBMI1 && cpu.X86.HasBMI2
)

// unsealed is a page without a digest.
var unsealed page

func digest(keys, seed *[pageKeys]uint64) uint64 {
	_, sum := digestsAVX2(&keys[0], seed, &unsealed, 1)
	return sum
}

// digests returns how many leading pages, of one or more, have the digests of their keys
// in a prompt.
func digests(keys []uint64, seed *[pageKeys]uint64, pages []page) int {
	_ = keys[len(pages)*pageKeys-1]
	same, _ := digestsAVX2(&keys[0], seed, &pages[0], len(pages))
	return same
}

// digestsAVX2 compares the digests of keys with those of n pages, n > 0, up to the first
// that differs or is none. It returns how many are the same, and the last it computed.
//
//go:noescape
func digestsAVX2(keys *uint64, seed *[pageKeys]uint64, pages *page, n int) (same int, last uint64)

// equalRun returns how many leading keys of a, which are at most 64, and b are equal; b
// is not shorter than a. All are compared, whatever is found, so that cache misses overlap.
func equalRun(a, b []uint64) int {
	if !hasEqual {
		return equalRunGo(a, b)
	}
	if len(a) == 0 {
		return 0
	}
	_ = b[len(a)-1]
	return equalAVX2(&a[0], &b[0], len(a))
}

// equalAVX2 is equalRun of n keys, n > 0.
//
//go:noescape
func equalAVX2(a, b *uint64, n int) int
