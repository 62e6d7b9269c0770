//go:build amd64 && !purego

package blockhash

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// sha256Padded is the whole of SHA-256 for a message that is padded already,
// with the SHA extensions. crypto/sha256 has the same instructions, but copies
// every message's end into a state, pads it there and converts the state in
// and out, which for messages of two or three blocks costs a third on top.
//
//go:noescape
func sha256Padded(out *[32]byte, message *byte, blocks int)

// sumSHA256 writes the SHA-256 of msg to out. It may write to the spare
// capacity of msg, and returns msg, moved if that was too small.
func sumSHA256(out *[32]byte, msg []byte) []byte {
	if !hasSHA {
		*out = sha256.Sum256(msg)
		return msg
	}
	n := len(msg)
	blocks := (n + 8 + 64) / 64 // the end takes nine bytes at least
	msg = slices.Grow(msg, blocks*64-n)
	padded := msg[:blocks*64]
	clear(padded[n:])
	padded[n] = 0x80
	binary.BigEndian.PutUint64(padded[len(padded)-8:], uint64(n)*8)
	sha256Padded(out, &padded[0], blocks)
	return msg
}
