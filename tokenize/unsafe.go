//go:build !purego

package tokenize

import "unsafe"

// view returns b as a string without copying. The caller must not change b
// while the string is in use, nor keep the string longer than b.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// viewCopies says that view allocates.
const viewCopies = false

// near is a number that goroutines seldom share: where the stack is.
func near() uintptr {
	var here byte
	return uintptr(unsafe.Pointer(&here)) >> 11 // no stack is smaller
}
