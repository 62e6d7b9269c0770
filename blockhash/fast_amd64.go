//go:build amd64 && !purego

package blockhash

import (
	"encoding/binary"
	"unsafe"
)

// fast is the way of nearly all blocks: no extra keys, ids that fit, whole
// groups of eight of them. All of a message but parent, ids and length stands
// in its buffer before. The result is what the encoder would have written.
type fast struct {
	on bool
	fastShape
	parent int    // where the parent goes in a message
	tokens int    // where ids go
	room   int    // of one message
	buf    []byte // one message, or a ring of them

	hashed []byte   // digests of blocks hashed ahead
	keys   []uint64 // and their 64-bit forms
	most   int      // so many of them
	long   bool     // their messages may be long ones for XXH3
	lead   int      // a message is encoded so many before it is hashed
}

// fastShape is what the buffer is prepared for.
type fastShape struct {
	cbor   bool
	ahead  bool // blocks may be hashed before they are asked for
	digest int  // bytes of the parent
	block  int  // ids
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
	e := &c.enc
	shape := fastShape{e.cbor, c.eager && o.Algorithm.xxh(), c.h.DigestSize(), o.BlockSize}
	if f.fastShape == shape {
		return
	}
	f.fastShape = shape
	// Let the encoder write the start of a message, and find the places in it.
	var none [len(c.digest)]byte
	e.beginBlock(none[:f.digest], f.block)
	f.tokens = len(e.buf)
	f.parent = f.tokens - f.digest
	if e.cbor {
		f.parent -= cborHeadLen(f.block)
	} else {
		f.parent -= 2 // MEMOIZE, MARK
		e.buf[firstFrame] = opFrame
	}
	f.room = f.tokens + f.block*idSlot + bulkRoom
	messages, own := 1, 0
	if f.ahead {
		// What is written should have reached the cache when it is read. With
		// long messages one between is enough.
		f.long = f.tokens+f.block*idSlot+fastTrailing > xxh3Long
		f.lead, own = 3, ringOwn
		if f.long {
			f.lead = 1
			f.room += ringShift
		}
		messages = f.lead + 1
		f.room = (f.room + own + cacheLine - 1) &^ (cacheLine - 1)
		f.most = min(aheadMost, aheadIDs/f.block)
		if f.hashed == nil {
			f.hashed, f.keys = make([]byte, 16*aheadMost), make([]uint64, aheadMost)
		}
	}
	if cap(f.buf) < messages*f.room {
		f.buf = aligned(messages * f.room)
	}
	f.buf = f.buf[:messages*f.room]
	for at := 0; at < len(f.buf); at += f.room {
		copy(f.buf[at+own:], e.buf)
	}
}

const cacheLine = 64

// aligned returns n bytes that start on a cache line.
func aligned(n int) []byte {
	buf := make([]byte, n+cacheLine-1)
	off := int(-uintptr(unsafe.Pointer(&buf[0])) % cacheLine)
	return buf[off : off+n]
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
	n, ok := c.enc.bulk(f.buf[f.tokens:], c.narrow.at(start, start+size))
	if !ok {
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
// span; and no more than aheadIDs, so that the runtime never waits for long.
const (
	aheadMost = 256
	aheadIDs  = 64 << 10
)

// hashAhead returns the digests of some blocks from start on and their 64-bit
// forms, none if this is not the way to hash the first of them. The Chain's
// state stays as it is.
//
// Blocks are encoded some before they are hashed, so that the processor is done
// with writing a message before it is read, and encodes while it waits for the
// hash before. SHA-256 does not gain from that: its latency hides the encoding
// of the next block as it is.
func (c *Chain) hashAhead(start int) ([]byte, []uint64) {
	f, size := &c.fast, c.h.opt.BlockSize
	if !f.on || !f.ahead || !c.plainRoot(start) {
		return nil, nil
	}
	n := f.most
	if left := c.Len() - start; left < n*size {
		n = left / size
	}
	if c.h.memo != nil {
		n = min(n, MemoSpan-c.blocks%MemoSpan)
	}
	ids := c.narrow.at(start, start+n*size)
	trailer, trailing := c.trailer()
	// While sixteen ids are left a step may read so many.
	steps := (size - 4) / idStep
	if xxh3Chain(&f.hashed[0], &f.keys[0], &f.buf[ringOwn], f.room, f.lead, &ids[0], steps, size-steps*idStep, n, f.cbor,
		f.tokens, trailer, trailing, f.long, (*[16]byte)(c.digest[:]), c.enc.idTable(), &xxh3Constants) {
		f.on = false // rare enough to go the slow way
		return nil, nil
	}
	return f.hashed[:16*n], f.keys[:n]
}
