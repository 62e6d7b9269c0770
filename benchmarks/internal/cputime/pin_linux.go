package cputime

import (
	"math/bits"
	"syscall"
	"unsafe"
)

// Pin keeps this thread on the i-th of the processors that it may use. Lock
// the goroutine to the thread first, and let both end together.
func Pin(i int) {
	var allowed, one [16]uint64
	_, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, unsafe.Sizeof(allowed), uintptr(unsafe.Pointer(&allowed)))
	for k := range allowed {
		for rest := allowed[k]; rest != 0; rest &= rest - 1 {
			if i--; i < 0 {
				one[k] = 1 << bits.TrailingZeros64(rest)
				_, _, errno = syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(one), uintptr(unsafe.Pointer(&one)))
				if errno != 0 {
					panic(errno)
				}
				return
			}
		}
	}
	panic(errno)
}
