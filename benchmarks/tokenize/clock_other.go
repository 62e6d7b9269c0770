//go:build !linux

package main

import "time"

var started = time.Now()

// cpuTime falls back to time that passed.
func cpuTime() time.Duration { return time.Since(started) }
