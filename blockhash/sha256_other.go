//go:build !amd64 || purego

package blockhash

import "crypto/sha256"

// sumSHA256 writes the SHA-256 of msg to out and returns msg.
func sumSHA256(out *[32]byte, msg []byte) []byte {
	*out = sha256.Sum256(msg)
	return msg
}
