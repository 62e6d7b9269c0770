//go:build !amd64 || purego

package radix

const hasDigest = false

func digest(keys, seed *[pageKeys]uint64) uint64 { return digestGo(keys, seed) }

func digests([]uint64, *[pageKeys]uint64, []page) int { return 0 }

func equalRun(a, b []uint64) int { return equalRunGo(a, b) }
