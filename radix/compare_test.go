package radix

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEqualRun(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	a := make([]uint64, 80)
	for i := range a {
		a[i] = r.Uint64()
	}
	for n := range pageKeys + 1 {
		for from := range 8 {
			require.Equal(t, n, equalRun(a[from:from+n], append([]uint64(nil), a[from:from+n]...)))
			for at := range n {
				b := append([]uint64(nil), a[from:from+n]...)
				b[at] ^= 1 << r.IntN(64)
				if r.IntN(2) == 0 {
					b[r.IntN(n-at)+at] ^= 1
				}
				want := 0
				for want < n && a[from+want] == b[want] {
					want++
				}
				require.Equal(t, want, equalRun(a[from:from+n], b))
				require.Equal(t, want, equalRunGo(a[from:from+n], b))
			}
		}
	}
	require.Panics(t, func() { equalRun(a[:3], make([]uint64, 2)) }, "reads no further than keys go")
}

// TestDigests: as many pages are the same as come before the first that has no digest, or
// one of other keys.
func TestDigests(t *testing.T) {
	t.Parallel()
	if !hasDigest {
		t.Skip("keys are compared here")
	}
	r := rand.New(rand.NewPCG(3, 4))
	var seed [pageKeys]uint64
	for i := range seed {
		seed[i] = r.Uint64()
	}
	const most = 5
	keys := make([]uint64, most*pageKeys)
	for i := range keys {
		keys[i] = r.Uint64()
	}
	for n := 1; n <= most; n++ {
		for bad := range n + 1 {
			for _, none := range []bool{false, true} {
				pages := make([]page, n)
				for k := range pages {
					pages[k].digest.Store(digestGo((*[pageKeys]uint64)(keys[k*pageKeys:]), &seed))
				}
				if bad < n && none {
					pages[bad].digest.Store(0)
				} else if bad < n {
					pages[bad].digest.Add(1 << r.IntN(64))
				}
				require.Equal(t, bad, digests(keys, &seed, pages))
			}
		}
	}
	// Keys whose digest is 0 have none.
	for i := range seed {
		keys[i] = -seed[i]&(1<<32-1) | keys[i]&^(1<<32-1)
	}
	pages := make([]page, 1)
	require.Zero(t, digestGo((*[pageKeys]uint64)(keys), &seed))
	require.Zero(t, digests(keys, &seed, pages))
	require.Panics(t, func() { digests(keys[:pageKeys-1], &seed, pages) }, "reads no further than keys go")
}
