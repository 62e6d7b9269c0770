package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/blockhash"
)

// TestReadmeIsCurrent fails when the table says another thing than the schemes and the
// recordings: run make support.
func TestReadmeIsCurrent(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	want, err := update(readme)
	require.NoError(t, err)
	require.Equal(t, string(want), string(readme))

	// What is verified has recordings, and nothing else says so.
	rows := 0
	for line := range strings.SplitSeq(string(readme), "\n") {
		if strings.HasPrefix(line, "| ") && strings.Contains(line, "**from documents**") {
			require.NotContains(t, line, "](testdata")
			rows++
		}
	}
	documents := 0
	for _, s := range blockhash.Schemes() {
		if s.FromDocuments() {
			documents++
		}
	}
	require.Equal(t, documents, rows)
}

func TestStaleReadmeIsFound(t *testing.T) {
	_, err := update([]byte("no marks"))
	require.Error(t, err)
	stale := begin + "| old |\n" + end
	got, err := update([]byte(stale))
	require.NoError(t, err)
	require.NotEqual(t, stale, string(got))
	require.Contains(t, string(got), "| vLLM | 0.10.2 to 0.11.0 |")
}
