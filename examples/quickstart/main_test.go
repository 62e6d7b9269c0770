package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRun: every prediction equals what the recorded engines reported, and the
// output is the same on every run.
func TestRun(t *testing.T) {
	var first, second strings.Builder
	require.NoError(t, run(&first, 8))
	require.NoError(t, run(&second, 8))
	require.Equal(t, first.String(), second.String())
	require.Equal(t, 8, strings.Count(first.String(), "\nprompt "))
	require.Contains(t, first.String(), "\nexact: 185 of 185\n")

	var quiet strings.Builder
	require.NoError(t, run(&quiet, 0))
	require.NotContains(t, quiet.String(), "\nprompt ")
}
