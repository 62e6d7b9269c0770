//go:build !race

package kvatlas_test

const raceEnabled = false
