//go:build amd64 && !purego

package blockhash

import (
	"crypto/sha256"
	"encoding/binary"
)

// sha256Padded is the whole of SHA-256 for a message that is padded already,
// with the SHA extensions. crypto/sha256 has the same instructions, but copies
// every message's end into a state, pads it there and converts the state in
// and out, which for messages of two or three blocks costs a third on top.
//
//go:noescape
func sha256Padded(out *[32]byte, message *byte, blocks int)

// sha256PaddedPair hashes two messages side by side, the first of which has
// more blocks: each instruction waits for the one before it of its own message,
// so two of them take little longer than one.
//
//go:noescape
func sha256PaddedPair(outA, outB *[32]byte, a, b *byte, blocks, more int)

// sumSHA256 writes the SHA-256 of msg to out, and to the spare capacity of msg
// if that has shaRoom bytes.
func sumSHA256(out *[32]byte, msg []byte) {
	if padded, ok := pad(msg); ok {
		sha256Padded(out, &padded[0], len(padded)/64)
		return
	}
	*out = sha256.Sum256(msg)
}

// sumSHA256Pair does that for two messages.
func sumSHA256Pair(outA, outB *[32]byte, a, b []byte) {
	pa, okA := pad(a)
	pb, okB := pad(b)
	switch {
	case !okA || !okB:
		*outA, *outB = sha256.Sum256(a), sha256.Sum256(b)
	case len(pa) >= len(pb):
		sha256PaddedPair(outA, outB, &pa[0], &pb[0], len(pb)/64, (len(pa)-len(pb))/64)
	default:
		sha256PaddedPair(outB, outA, &pb[0], &pa[0], len(pa)/64, (len(pb)-len(pa))/64)
	}
}

// pad pads a message where it is, if it has room and it makes sense.
func pad(msg []byte) ([]byte, bool) {
	n := len(msg)
	if !hasSHA || cap(msg)-n < shaRoom {
		return nil, false
	}
	padded := msg[:(n+8+64)/64*64] // the end takes nine bytes at least
	clear(padded[n:])
	padded[n] = 0x80
	binary.BigEndian.PutUint64(padded[len(padded)-8:], uint64(n)*8)
	return padded, true
}
