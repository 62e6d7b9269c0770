package radix

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestEqualRunReadsNoFurther: nothing beyond the keys is read, which may be where a
// program has no memory.
func TestEqualRunReadsNoFurther(t *testing.T) {
	size := syscall.Getpagesize()
	mem, err := syscall.Mmap(-1, 0, 2*size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Munmap(mem)) }()
	require.NoError(t, syscall.Mprotect(mem[size:], syscall.PROT_NONE))
	keys := unsafe.Slice((*uint64)(unsafe.Pointer(&mem[0])), size/8)
	for i := range keys {
		keys[i] = uint64(i)
	}
	for n := range pageKeys + 1 {
		end := keys[len(keys)-n:]
		require.Equal(t, n, equalRun(end, append([]uint64(nil), end...)))
		require.Equal(t, n, equalRun(append([]uint64(nil), end...), end))
	}
}
