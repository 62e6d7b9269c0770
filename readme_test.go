package kvatlas_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadmeProgram keeps the program of the README equal to Example, which is
// compiled and run.
func TestReadmeProgram(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(readme), "```go\n")
	require.True(t, ok, "README.md has no Go program")
	program, _, _ := strings.Cut(rest, "```")
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	want := strings.NewReplacer("package kvatlas_test", "package main", "func Example()", "func main()", "// Output:", "// Prints:").Replace(string(example))
	require.Equal(t, want, program)
}
