//go:build race

package kvatlas_test

// raceEnabled is set when the race detector is on: it allocates by itself, so
// that counts of allocations say nothing.
const raceEnabled = true
