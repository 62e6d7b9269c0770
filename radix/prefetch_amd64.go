//go:build amd64 && !purego

package radix

// prefetch asks for the cache lines of buckets, to write them, and waits for none.
//
//go:noescape
func prefetch(at []*bucket) (touched uint64)

// askKeys asks for cache lines of keys, to read them; lines > 0.
//
//go:noescape
func askKeys(first *uint64, lines int)

// askPage asks for the cache line of a page, to read it.
//
//go:noescape
func askPage(pg *page)
