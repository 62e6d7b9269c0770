package radix

import (
	"syscall"
	"unsafe"
)

// hugeBytes allocates n zero bytes, a multiple of hugePage, aligned to it. They
// are the Go heap's like any others.
func hugeBytes(n int) []byte {
	b := make([]byte, n+hugePage)
	b = b[-uintptr(unsafe.Pointer(&b[0]))%hugePage:][:n:n]
	// The heap may have used the memory before, in small pages: it is zero, so
	// that nothing is lost when they are dropped. Both calls are advice.
	_ = syscall.Madvise(b, syscall.MADV_DONTNEED)
	_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	return b
}
