package blockhash

import (
	"encoding/binary"
	"math/bits"
)

// blake3 is BLAKE3's plain hash of 32 bytes, written for the messages of
// LMCache: one or two thousand bytes. It follows section 2 of the BLAKE3
// paper, without its parallel forms.
func blake3(msg []byte) [32]byte {
	var stack [54][8]uint32 // chaining values of complete subtrees, largest first
	depth := 0
	chunk := uint64(0)
	for ; len(msg) > blake3Chunk; chunk++ {
		cv := blake3ChunkCV(msg[:blake3Chunk], chunk, 0)
		msg = msg[blake3Chunk:]
		// As many subtrees end here as the count of chunks has trailing zeros.
		for n := chunk + 1; n&1 == 0; n >>= 1 {
			depth--
			cv = blake3Parent(&stack[depth], &cv, 0)
		}
		stack[depth] = cv
		depth++
	}
	root := uint32(blake3Root)
	if depth > 0 {
		root = 0
	}
	cv := blake3ChunkCV(msg, chunk, root)
	for ; depth > 0; depth-- {
		if depth == 1 {
			root = blake3Root
		}
		cv = blake3Parent(&stack[depth-1], &cv, root)
	}
	var out [32]byte
	for i, w := range cv {
		binary.LittleEndian.PutUint32(out[4*i:], w)
	}
	return out
}

const (
	blake3Chunk  = 1024
	blake3Start  = 1 << 0
	blake3End    = 1 << 1
	blake3Inner  = 1 << 2
	blake3Root   = 1 << 3
	blake3Block  = 64
	blake3Rounds = 7
)

var (
	blake3IV   = [8]uint32{0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19}
	blake3Perm = [16]uint8{2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8}
)

func blake3ChunkCV(msg []byte, counter uint64, flags uint32) [8]uint32 {
	cv := blake3IV
	for first := uint32(blake3Start); ; first = 0 {
		var block [blake3Block]byte
		n := copy(block[:], msg)
		msg = msg[n:]
		last := uint32(0)
		if len(msg) == 0 {
			last = blake3End | flags
		}
		var m [16]uint32
		for i := range m {
			m[i] = binary.LittleEndian.Uint32(block[4*i:])
		}
		cv = blake3Compress(&cv, &m, counter, uint32(n), first|last)
		if last != 0 {
			return cv
		}
	}
}

func blake3Parent(left, right *[8]uint32, flags uint32) [8]uint32 {
	var m [16]uint32
	copy(m[:], left[:])
	copy(m[8:], right[:])
	return blake3Compress(&blake3IV, &m, 0, blake3Block, blake3Inner|flags)
}

func blake3Compress(cv *[8]uint32, m *[16]uint32, counter uint64, n, flags uint32) [8]uint32 {
	v := [16]uint32{cv[0], cv[1], cv[2], cv[3], cv[4], cv[5], cv[6], cv[7],
		blake3IV[0], blake3IV[1], blake3IV[2], blake3IV[3], uint32(counter), uint32(counter >> 32), n, flags}
	words := *m
	g := func(a, b, c, d int, x, y uint32) {
		v[a] += v[b] + x
		v[d] = bits.RotateLeft32(v[d]^v[a], -16)
		v[c] += v[d]
		v[b] = bits.RotateLeft32(v[b]^v[c], -12)
		v[a] += v[b] + y
		v[d] = bits.RotateLeft32(v[d]^v[a], -8)
		v[c] += v[d]
		v[b] = bits.RotateLeft32(v[b]^v[c], -7)
	}
	for range blake3Rounds {
		for i := range 4 { // columns
			g(i, i+4, i+8, i+12, words[2*i], words[2*i+1])
		}
		for i := range 4 { // diagonals
			g(i, (i+1)%4+4, (i+2)%4+8, (i+3)%4+12, words[8+2*i], words[9+2*i])
		}
		old := words
		for i, from := range blake3Perm {
			words[i] = old[from]
		}
	}
	var out [8]uint32
	for i := range out {
		out[i] = v[i] ^ v[i+8]
	}
	return out
}
