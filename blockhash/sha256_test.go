package blockhash

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSumSHA256 compares with crypto/sha256 at every length of a few blocks.
func TestSumSHA256(t *testing.T) {
	var got [32]byte
	for n := range 1200 {
		msg := bytes.Repeat([]byte{byte(n), 0xff, 7}, n/3+1)[:n]
		for _, room := range []int{0, 1, 60, 200} {
			in := append(make([]byte, 0, n+room), msg...)
			spare := in[n:cap(in)]
			for i := range spare {
				spare[i] = 0xee // leftovers must not be hashed
			}
			in = sumSHA256(&got, in)
			require.Equal(t, sha256.Sum256(msg), got, n)
			require.True(t, bytes.Equal(msg, in))
		}
	}
}

func FuzzSumSHA256(f *testing.F) {
	f.Add([]byte("abc"))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, msg []byte) {
		var got [32]byte
		sumSHA256(&got, bytes.Clone(msg))
		require.Equal(t, sha256.Sum256(msg), got)
	})
}
