//go:build !amd64 || purego

package blockhash

import "crypto/sha256"

// sumSHA256 writes the SHA-256 of msg to out.
func sumSHA256(out *[32]byte, msg []byte) { *out = sha256.Sum256(msg) }

// sumSHA256Pair does that for two messages.
func sumSHA256Pair(outA, outB *[32]byte, a, b []byte) {
	*outA, *outB = sha256.Sum256(a), sha256.Sum256(b)
}
