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
			sumSHA256(&got, in)
			require.Equal(t, sha256.Sum256(msg), got, n)
			require.True(t, bytes.Equal(msg, in))
		}
	}
}

// TestSumSHA256Pair: both messages come out right whatever their lengths.
func TestSumSHA256Pair(t *testing.T) {
	message := func(n int) []byte {
		return append(make([]byte, 0, n+shaRoom), bytes.Repeat([]byte{byte(n), 0x80, 3}, n/3+1)[:n]...)
	}
	var a, b [32]byte
	for n := 0; n < 400; n += 7 {
		for m := range 300 {
			x, y := message(n), message(m)
			sumSHA256Pair(&a, &b, x, y)
			require.Equal(t, sha256.Sum256(x), a)
			require.Equal(t, sha256.Sum256(y), b)
		}
	}
}

func FuzzSumSHA256(f *testing.F) {
	f.Add([]byte("abc"))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, msg []byte) {
		var got [32]byte
		sumSHA256(&got, append(make([]byte, 0, len(msg)+shaRoom), msg...))
		require.Equal(t, sha256.Sum256(msg), got)
	})
}
