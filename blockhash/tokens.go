package blockhash

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// Token ids are nearly all of a block, so they are written without branches:
// eight bytes are stored at once, of which as many count as the id takes. Both
// tables are indexed by the bit length of an id.

// maxPickleToken and maxCBORToken are the most bytes an id of uint32 takes.
const (
	maxPickleToken = 7
	maxCBORToken   = 5
)

// pickleToken: word = head | id<<shift, of which size bytes count.
type pickleToken struct {
	head  uint16
	shift uint8
	size  uint8
}

// cborToken: word = head | bigEndian(id)>>drop<<shift, of which size bytes count.
type cborToken struct {
	head  uint8
	drop  uint8
	shift uint8
	size  uint8
}

// 33 entries are used; 64 make checks of an index below 64 unnecessary.
var pickleTokens, cborTokens = tokenTables()

func tokenTables() (pickle [64]pickleToken, cbor [64]cborToken) {
	for n := range 33 {
		switch {
		case n <= 8:
			pickle[n] = pickleToken{opInt1, 8, 2}
			cbor[n] = cborToken{cborUint | 24, 24, 8, 2}
		case n <= 16:
			pickle[n] = pickleToken{opInt2, 8, 3}
			cbor[n] = cborToken{cborUint | 25, 16, 8, 3}
		case n <= 31:
			pickle[n] = pickleToken{opInt4, 8, 5}
			cbor[n] = cborToken{cborUint | 26, 0, 8, 5}
		default: // would be negative as int32: a long of five bytes
			pickle[n] = pickleToken{opLong1 | 5<<8, 16, 7}
			cbor[n] = cborToken{cborUint | 26, 0, 8, 5}
		}
	}
	cbor[0] = cborToken{0, 24, 0, 1} // ids below 24, see cborInts
	return pickle, cbor
}

// tokens writes ids as items of a tuple.
func (e *encoder) tokens(ids []uint32) {
	if e.cbor {
		e.cborInts(ids)
		return
	}
	for len(ids) > 0 {
		e.boundary()
		e.open()
		// So many ids can be written before any could find the frame full.
		room := frameTarget - 1 - (len(e.buf) - e.frame - frameHeader)
		n := min(room/maxPickleToken+1, len(ids))
		e.pickleInts(ids[:n])
		ids = ids[n:]
	}
}

func (e *encoder) pickleInts(ids []uint32) {
	e.buf = slices.Grow(e.buf, len(ids)*maxPickleToken+bulkRoom)
	at := len(e.buf)
	out := e.buf[:cap(e.buf)]
	if n, ok := e.bulk(out[at:], ids); ok {
		e.buf = out[:at+n]
		return
	}
	for _, id := range ids {
		t := pickleTokens[bits.Len32(id)&63]
		binary.LittleEndian.PutUint64(out[at:], uint64(t.head)|uint64(id)<<(t.shift&63))
		at += int(t.size)
	}
	e.buf = out[:at]
}

func (e *encoder) cborInts(ids []uint32) {
	e.buf = slices.Grow(e.buf, len(ids)*maxCBORToken+bulkRoom)
	at := len(e.buf)
	out := e.buf[:cap(e.buf)]
	if n, ok := e.bulk(out[at:], ids); ok {
		e.buf = out[:at+n]
		return
	}
	for _, id := range ids {
		n := bits.Len32(id)
		if id < 24 {
			n = 0
		}
		t := cborTokens[n&63]
		word := uint64(bits.ReverseBytes32(id)>>(t.drop&31))<<(t.shift&63) | uint64(t.head)
		binary.LittleEndian.PutUint64(out[at:], word)
		at += int(t.size)
	}
	e.buf = out[:at]
}

// wideTokens writes ids as items of a tuple.
func (e *encoder) wideTokens(ids []int64) {
	for _, id := range ids {
		e.int(id)
	}
}
