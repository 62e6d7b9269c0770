//go:build amd64 && !purego

package blockhash

import (
	"encoding/binary"
)

// fast is the way of nearly all blocks: no extra keys, ids that fit, whole
// groups of eight of them. All of a message but parent, ids and length stands
// in its buffer before. The result is what the encoder would have written.
type fast struct {
	on     bool
	parent int    // where the parent goes in a message
	tokens int    // where ids go
	room   int    // of one message
	buf    []byte // one message, or as many as are hashed ahead

	ahead   int // so many blocks may be hashed before they are asked for
	lens    [aheadMost]int
	digests [16 * aheadMost]byte
}

// fastMaxBlock keeps ids of five bytes within one frame.
const fastMaxBlock = 8192

// fastTrailer is what follows the ids, fastTrailing bytes of it.
const (
	fastTrailer  = opTuple | opMemoize<<8 | opNone<<16 | (opTuple1+2)<<24 | opMemoize<<32 | opStop<<40
	fastTrailing = 6
)

func (c *Chain) trailer() (bytes uint64, n int) {
	if c.enc.cbor {
		return cborNull, 1
	}
	return fastTrailer, fastTrailing
}

// setFast prepares it, if the prompt allows.
func (c *Chain) setFast() {
	f, o := &c.fast, &c.h.opt
	f.on = hasVBMI2 && c.bare && !c.isWide && o.Lookahead == 0 && o.BlockSize%8 == 0 && o.BlockSize <= fastMaxBlock
	if !f.on {
		return
	}
	// Let the encoder write the start of a message, and find the places in it.
	e, size := &c.enc, c.h.DigestSize()
	var none [len(c.digest)]byte
	e.beginBlock(none[:size], o.BlockSize)
	f.tokens = len(e.buf)
	f.parent = f.tokens - size
	if e.cbor {
		f.parent -= cborHeadLen(o.BlockSize)
	} else {
		f.parent -= 2 // MEMOIZE, MARK
		e.buf[firstFrame] = opFrame
	}
	f.room = f.tokens + o.BlockSize*5 + bulkRoom
	f.ahead = 0
	if c.eager && o.Algorithm.xxh() {
		f.ahead = min(max(aheadBytes/f.room, 1), aheadMost, c.Len()/o.BlockSize)
	}
	messages := max(f.ahead, 1)
	if need := messages * f.room; cap(f.buf) < need {
		f.buf = make([]byte, need)
	}
	f.buf = f.buf[:messages*f.room]
	for at := 0; at < len(f.buf); at += f.room {
		copy(f.buf[at:], e.buf)
	}
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

// plainRoot reports whether the block at start is like those after it: no salt
// is in it, and its parent is as long as theirs.
func (c *Chain) plainRoot(start int) bool {
	return start > 0 || c.prompt.CacheSalt == "" && c.size == c.h.opt.Algorithm.Size()
}

// fastMessage returns the message of the block at start, nil if this is not
// the way to encode it.
func (c *Chain) fastMessage(start int) []byte {
	f, size := &c.fast, c.h.opt.BlockSize
	if !f.on || !c.plainRoot(start) {
		return nil
	}
	trailer, trailing := c.trailer()
	if !c.enc.tokens8(f.buf[f.tokens:], 0, c.narrow.at(start, start+size), size/8, 1, trailer, &f.lens[0]) {
		return nil
	}
	end := f.tokens + f.lens[0] + trailing
	if !c.enc.cbor {
		binary.LittleEndian.PutUint64(f.buf[firstFrame+1:], uint64(end-firstFrame-frameHeader))
	}
	if c.h.opt.Algorithm.xxh() {
		*(*[16]byte)(f.buf[f.parent:]) = [16]byte(c.digest[:])
	} else {
		*(*[32]byte)(f.buf[f.parent:]) = c.digest
	}
	return f.buf[:end]
}

// Blocks hashed ahead are encoded some together: the processor is then done
// with writing a message before it is read. SHA-256 does not gain from that:
// its latency hides the encoding of the next block as it is.
const (
	aheadMost  = MemoSpan // blocks at once
	aheadBytes = 16 << 10 // of messages
)

// hashAhead returns the digests of some blocks from start on, none if this is
// not the way to hash the first of them. The Chain's state stays as it is.
func (c *Chain) hashAhead(start int) []byte {
	f, size := &c.fast, c.h.opt.BlockSize
	if f.ahead == 0 || !f.on || !c.plainRoot(start) {
		return nil
	}
	n := min((c.Len()-start)/size, f.ahead, MemoSpan-c.blocks%MemoSpan)
	trailer, trailing := c.trailer()
	if !c.enc.tokens8(f.buf[f.tokens:], f.room, c.narrow.at(start, start+n*size), size/8, n, trailer, &f.lens[0]) {
		f.ahead = 0
		return nil
	}
	xxh3Chain(&f.digests[0], &f.buf[0], f.room, n, &f.lens[0], f.tokens+trailing, c.enc.cbor,
		(*[16]byte)(c.digest[:]), &xxh3Constants)
	return f.digests[:16*n]
}
