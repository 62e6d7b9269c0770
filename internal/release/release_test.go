package release

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompare(t *testing.T) {
	want := []string{"0.4.6", "0.4.6.post5", "0.4.7", "0.4.10", "0.10.0", "1.0.0"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Compare)
	require.Equal(t, want, got)
	require.Zero(t, Compare("0.4.7", "0.4.7"))
}
