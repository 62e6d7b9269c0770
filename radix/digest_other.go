//go:build !amd64 || purego

package radix

const hasDigest = false

func digest(keys, seed *[pageKeys]uint64) uint64 { return digestGo(keys, seed) }
