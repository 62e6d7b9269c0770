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
	buf    []byte // one message, or a ring of them

	ahead   bool // blocks may be hashed before they are asked for
	room    int  // of one message in the ring
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
	f.ahead = c.eager && o.Algorithm.xxh()
	room, messages := f.tokens+o.BlockSize*5+bulkRoom, 1
	if f.ahead {
		room, messages = room+8, ringSlots
	}
	if cap(f.buf) < messages*room {
		f.buf = make([]byte, messages*room)
	}
	f.buf = f.buf[:messages*room]
	copy(f.buf, e.buf)
	if f.ahead {
		f.room = room
		for at := 0; at < len(f.buf); at += room {
			copy(f.buf[at+8:], e.buf)
		}
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
	done, n := c.enc.bulk(f.buf[f.tokens:], c.narrow.at(start, start+size))
	if done < size {
		return nil
	}
	trailer, trailing := c.trailer()
	end := f.tokens + n
	binary.LittleEndian.PutUint64(f.buf[end:], trailer)
	end += trailing
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

// aheadMost is how many blocks are hashed ahead, but with a memo no more than a
// span.
const aheadMost = 256

// hashAhead returns the digests of some blocks from start on, none if this is
// not the way to hash the first of them. The Chain's state stays as it is.
//
// Blocks are encoded some before they are hashed, so that the processor is done
// with writing a message before it is read, and can encode while it waits for
// the hash before. SHA-256 does not gain from that: its latency hides the
// encoding of the next block as it is.
func (c *Chain) hashAhead(start int) []byte {
	f, size := &c.fast, c.h.opt.BlockSize
	if !f.on || !f.ahead || !c.plainRoot(start) {
		return nil
	}
	n := min((c.Len()-start)/size, aheadMost)
	if c.h.memo != nil {
		n = min(n, MemoSpan-c.blocks%MemoSpan)
	}
	ids := c.narrow.at(start, start+n*size)
	trailer, trailing := c.trailer()
	if xxh3Chain(&f.digests[0], &f.buf[0], f.room, &ids[0], size/8, n, c.enc.cbor, 8+f.tokens, trailer, trailing-8,
		(*[16]byte)(c.digest[:]), c.enc.idTable(), &xxh3Constants) {
		f.ahead = false
		copy(f.buf, f.buf[8:8+f.tokens])
		return nil
	}
	return f.digests[:16*n]
}
