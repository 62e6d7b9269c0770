//go:build amd64 && !purego

package blockhash

import (
	"encoding/binary"
)

// fast is the way of nearly all blocks: no extra keys, ids that fit, whole
// groups of eight of them. All of the message but parent, ids and length stands
// in the buffer before. The result is what the
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

// fastMessage returns the message of the block at start, nil if this is not
// the way to encode it.
func (c *Chain) fastMessage(start int) []byte {
	f, alg := &c.fast, c.h.opt.Algorithm
	if !f.on || start == 0 && (c.prompt.CacheSalt != "" || c.size != alg.Size()) {
		return nil
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
			return nil
		}
		end += n
		binary.LittleEndian.PutUint64(msg[end:], fastTrailer)
		end += fastTrailing
		binary.LittleEndian.PutUint64(msg[firstFrame+1:], uint64(end-firstFrame-frameHeader))
	}
	if alg.xxh() {
		*(*[16]byte)(msg[f.parent:]) = [16]byte(c.digest[:])
	} else {
		*(*[32]byte)(msg[f.parent:]) = c.digest
	}
	return msg[:end]
}
