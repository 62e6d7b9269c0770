package blockhash

import (
	"math/rand/v2"
	"testing"
)

// TestTokenWidths puts ids from around every border of widths beside each
// other, in runs of every length that the bulk path takes and leaves over.
func TestTokenWidths(t *testing.T) {
	var ids []int64
	for n := range 33 {
		for _, off := range []int64{-1, 0, 1} {
			if id := int64(1)<<n + off; id >= 0 && id < 1<<32 {
				ids = append(ids, id)
			}
		}
	}
	ids = append(ids, 22, 23, 24, 25)
	d := rand.New(rand.NewPCG(1, 1))
	for n := range 140 {
		for range 6 {
			tuple := make(list, n)
			small := d.IntN(2) == 0 // none that only the slow path can write
			for i := range tuple {
				id := ids[d.IntN(len(ids))]
				for small && id >= 1<<31 {
					id = ids[d.IntN(len(ids))]
				}
				tuple[i] = id
			}
			checkEncoders(t, list{make([]byte, 32), tuple, nil})
		}
	}
}
