//go:build !linux

package radix

// hugeBytes allocates n zero bytes.
func hugeBytes(n int) []byte { return make([]byte, n) }
