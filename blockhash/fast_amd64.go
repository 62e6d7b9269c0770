//go:build amd64 && !purego

package blockhash

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// fast is the way of nearly all blocks: no extra keys, ids that fit, whole
// groups of eight of them. All of the message but parent, ids and length stands
// in the buffer before, and it is padded where it is. The result is what the
// encoder would have written.
//
// Encoding some blocks ahead of hashing was tried: it makes XXH3 8 % faster (a
// read of what was just written in other pieces has to wait) and SHA-256 8 %
// slower (whose latency hides the encoding of the next block), so it is not
// done.
type fast struct {
	on     bool
	parent int // where the parent goes
	tokens int // where ids go
	buf    []byte
}

const (
	fastMaxBlock = 8192 // with ids of five bytes within one frame
	fastTrailer  = opTuple | opMemoize<<8 | opNone<<16 | (opTuple1+2)<<24 | opMemoize<<32 | opStop<<40
	fastTrailing = 6
)

// setFast prepares it, if the prompt allows.
func (c *Chain) setFast() {
	f, o := &c.fast, &c.h.opt
	f.on = hasVBMI2 && c.bare && !c.isWide && o.Lookahead == 0 && o.BlockSize%8 == 0 && o.BlockSize <= fastMaxBlock
	if !f.on {
		return
	}
	// Let the encoder write the start of a message, and find the places in it.
	e, size := &c.enc, c.h.DigestSize()
	e.beginBlock(c.scratch[:size], o.BlockSize)
	f.tokens = len(e.buf)
	f.parent = f.tokens - size
	if e.cbor {
		f.parent -= cborHeadLen(o.BlockSize)
	} else {
		f.parent -= 2 // MEMOIZE, MARK
		e.buf[firstFrame] = opFrame
	}
	if need := f.tokens + o.BlockSize*5 + bulkRoom; len(f.buf) < need {
		f.buf = make([]byte, need)
	}
	copy(f.buf, e.buf)
}

func cborHeadLen(n int) int {
	switch {
	case n < 24:
		return 1
	case n < 256:
		return 2
	}
	return 3
}

// stepFast hashes the block at start, and reports whether it could.
func (c *Chain) stepFast(start int) bool {
	f := &c.fast
	alg := c.h.opt.Algorithm
	if !f.on || start == 0 && (c.prompt.CacheSalt != "" || c.size != alg.Size()) {
		return false
	}
	size := c.h.opt.BlockSize
	ids, msg, end := c.narrow.at(start, start+size), f.buf, f.tokens
	if alg.cbor() {
		end += cborTokens8(&msg[end], &ids[0], size/8, cborTable)
		msg[end] = cborNull
		end++
	} else {
		n, big := pickleTokens8(&msg[end], &ids[0], size/8, pickleTable)
		if big {
			return false
		}
		end += n
		binary.LittleEndian.PutUint64(msg[end:], fastTrailer)
		end += fastTrailing
		binary.LittleEndian.PutUint64(msg[firstFrame+1:], uint64(end-firstFrame-frameHeader))
	}
	if alg.xxh() {
		*(*[16]byte)(msg[f.parent:]) = [16]byte(c.digest[:])
		sum := xxh3.Hash128(msg[:end])
		binary.BigEndian.PutUint64(c.digest[0:], sum.Hi)
		binary.BigEndian.PutUint64(c.digest[8:], sum.Lo)
		c.key, c.size = sum.Lo, 16
		return true
	}
	*(*[32]byte)(msg[f.parent:]) = c.digest
	if hasSHA { // zeros follow the ids
		blocks := (end + 8 + 64) / 64
		msg[end] = 0x80
		binary.BigEndian.PutUint64(msg[blocks*64-8:], uint64(end)*8)
		sha256Padded(&c.digest, &msg[0], blocks)
	} else {
		c.digest = sha256.Sum256(msg[:end])
	}
	c.key, c.size = binary.BigEndian.Uint64(c.digest[24:]), 32
	return true
}
