//go:build !amd64 || purego

package radix

// prefetch reads from the cache lines of buckets: the loads do not depend on each
// other, so that their cache misses overlap. Whoever drops the result may lose them.
func prefetch(at []*bucket) (touched uint64) {
	for _, b := range at {
		touched |= b.slots[0]
	}
	return touched
}

func askKeys(*uint64, int) {}

func askPage(*page) {}
