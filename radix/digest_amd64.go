//go:build amd64 && !purego

package radix

import "golang.org/x/sys/cpu"

// hasDigest tells whether a digest costs less than reading the keys does.
var hasDigest = cpu.X86.HasAVX2

func digest(keys, seed *[pageKeys]uint64) uint64 { return digestAVX2(keys, seed) }

//go:noescape
func digestAVX2(keys, seed *[pageKeys]uint64) (sum uint64)
