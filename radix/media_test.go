package radix

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWeightsOnce: a medium has one weight, whatever way it is written.
func TestWeightsOnce(t *testing.T) {
	t.Parallel()
	for _, twice := range []map[string]float64{{"GPU": .2, "gpu": .1}, {"": .2, "GPU": .2}, {"nvme": 0, "NVMe": 1}} {
		_, err := New(Options{Weights: twice})
		require.ErrorIs(t, err, ErrOptions, "%v", twice)
	}
	x, err := New(Options{Weights: map[string]float64{"": .2, "nvme": .4}})
	require.NoError(t, err)
	require.Equal(t, .2, x.Weight(x.Medium("gpu")))
	require.Equal(t, .4, x.Weight(x.Medium("NVME")))
}
