//go:build amd64 && !purego

package radix

// prefetch asks for the cache lines of buckets, to write them, and waits for none.
//
//go:noescape
func prefetch(at []*bucket) (touched uint64)
