package blockhash

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// An encoder writes the value (parent, tokens, extra) of a block as pickle
// protocol 5, exactly as CPython's C pickler does, or as canonical CBOR. It is
// reused from block to block and keeps its buffer.
//
// Pickle in short (Modules/_pickle.c): opcodes live in frames, each with a
// header of 9 bytes that holds its length. Before a value is saved, a frame of
// frameTarget bytes or more is closed; the next byte written opens another. A
// bytes or str value of frameTarget bytes or more is written outside frames.
// Every bytes, str and non-empty tuple is numbered when it is written
// (MEMOIZE), and an object that was numbered before is written as its number.
type encoder struct {
	buf  []byte
	cbor bool

	frame int    // where the open frame's header starts, or noFrame
	memo  uint32 // objects numbered so far

	sharing bool              // equal strings are one object
	few     []memoString      // strings that may come again, when few
	many    map[string]uint32 // the same, when sharing
}

type memoString struct {
	text string
	memo uint32
}

const (
	frameHeader = 9
	frameTarget = 64 << 10
	frameMin    = 4
	firstFrame  = 2 // after opProto
	noFrame     = -1
)

// Pickle opcodes.
const (
	opProto      = 0x80
	opFrame      = 0x95
	opStop       = '.'
	opNone       = 'N'
	opMark       = '('
	opTuple      = 't'
	opEmptyTuple = ')'
	opTuple1     = 0x85 // opTuple2 and opTuple3 follow
	opMemoize    = 0x94
	opGet1       = 'h'
	opGet4       = 'j'
	opInt1       = 'K'
	opInt2       = 'M'
	opInt4       = 'J'
	opLong1      = 0x8a
	opBytes1     = 'C'
	opBytes4     = 'B'
	opStr1       = 0x8c
	opStr4       = 'X'
)

// CBOR major types, shifted into place.
const (
	cborUint  = 0 << 5
	cborNeg   = 1 << 5
	cborBytes = 2 << 5
	cborText  = 3 << 5
	cborArray = 4 << 5
	cborNull  = 0xf6
)

// begin starts a new message.
func (e *encoder) begin() {
	e.buf = e.buf[:0]
	if e.cbor {
		return
	}
	e.buf = append(e.buf, opProto, 5)
	e.frame = noFrame
	e.memo = 0
	e.few = e.few[:0]
	if len(e.many) > 0 {
		clear(e.many)
	}
}

// beginBlock starts the message of a block of n tokens: what begin, tuple(3),
// bytes(parent), tuple(n) write, of which all but the parent is known.
func (e *encoder) beginBlock(parent []byte, n int) {
	size := byte(len(parent))
	if e.cbor || len(parent) > len(Chain{}.digest) {
		e.begin()
		e.tuple(3)
		e.bytes(parent)
		e.tuple(n)
		return
	}
	e.few = e.few[:0]
	if len(e.many) > 0 {
		clear(e.many)
	}
	e.frame = firstFrame
	e.memo = 1
	e.buf = append(e.buf[:0], opProto, 5, opFrame, 0, 0, 0, 0, 0, 0, 0, 0, opBytes1, size)
	e.buf = append(e.buf, parent...)
	if n > 3 {
		e.buf = append(e.buf, opMemoize, opMark)
	} else {
		e.buf = append(e.buf, opMemoize)
	}
}

// end finishes the message and returns it, with room for shaRoom bytes. It is
// valid until the next begin.
func (e *encoder) end() []byte {
	if !e.cbor {
		e.op(opStop)
		e.closeFrame()
	}
	e.buf = slices.Grow(e.buf, shaRoom)
	return e.buf
}

// shaRoom is what SHA-256's padding takes at most.
const shaRoom = 72

// boundary is called before every value: the only place where a frame that
// has become long enough ends.
func (e *encoder) boundary() {
	if e.frame != noFrame && len(e.buf)-e.frame-frameHeader >= frameTarget {
		e.closeFrame()
	}
}

func (e *encoder) closeFrame() {
	if e.frame == noFrame {
		return
	}
	n := len(e.buf) - e.frame - frameHeader
	if n >= frameMin {
		e.buf[e.frame] = opFrame
		binary.LittleEndian.PutUint64(e.buf[e.frame+1:], uint64(n))
	} else { // too short to be worth a header
		copy(e.buf[e.frame:], e.buf[e.frame+frameHeader:])
		e.buf = e.buf[:e.frame+n]
	}
	e.frame = noFrame
}

// open makes sure that the next byte is inside a frame.
func (e *encoder) open() {
	if e.frame == noFrame {
		e.frame = len(e.buf)
		e.buf = append(e.buf, make([]byte, frameHeader)...)
	}
}

func (e *encoder) op(code byte) {
	e.open()
	e.buf = append(e.buf, code)
}

// memoize numbers the value just written.
func (e *encoder) memoize() {
	e.op(opMemoize)
	e.memo++
}

// none writes None.
func (e *encoder) none() {
	if e.cbor {
		e.buf = append(e.buf, cborNull)
		return
	}
	e.boundary()
	e.op(opNone)
}

// tuple starts a tuple of n items; write them, then call endTuple.
func (e *encoder) tuple(n int) {
	if e.cbor {
		e.head(cborArray, uint64(n))
		return
	}
	e.boundary()
	if n > 3 {
		e.op(opMark)
	}
}

func (e *encoder) endTuple(n int) {
	switch {
	case e.cbor:
	case n == 0:
		e.op(opEmptyTuple)
	case n <= 3:
		e.op(opTuple1 - 1 + byte(n))
		e.memoize()
	default:
		e.op(opTuple)
		e.memoize()
	}
}

// bytes writes a bytes object that occurs once.
func (e *encoder) bytes(b []byte) {
	if e.cbor {
		e.head(cborBytes, uint64(len(b)))
		e.buf = append(e.buf, b...)
		return
	}
	e.boundary()
	e.sized(len(b), opBytes1, opBytes4)
	e.buf = append(e.buf, b...)
	e.memoize()
}

// sized writes the opcode and length of a bytes or str value. A long one
// leaves the frame: its data follow outside, and its memoize opens the next.
func (e *encoder) sized(n int, op1, op4 byte) {
	if n >= frameTarget {
		e.closeFrame()
	} else {
		e.open()
	}
	if n < 256 {
		e.buf = append(e.buf, op1, byte(n))
		return
	}
	e.buf = append(e.buf, op4)
	e.buf = binary.LittleEndian.AppendUint32(e.buf, uint32(n))
}

// tag writes a string that is a constant of the engine's program and so one
// object wherever it occurs.
func (e *encoder) tag(s string) { e.str(s, true) }

// text writes a string that came with the request. Two of them are two
// objects even when equal, but for those that CPython keeps only once: the
// empty string and single Latin-1 characters.
func (e *encoder) text(s string) {
	e.str(s, e.sharing || s == "" || len(s) == 1 || len(s) == 2 && (s[0] == 0xc2 || s[0] == 0xc3))
}

func (e *encoder) str(s string, shared bool) {
	if e.cbor {
		e.head(cborText, uint64(len(s)))
		e.buf = append(e.buf, s...)
		return
	}
	e.boundary()
	if shared {
		if memo, ok := e.seen(s); ok {
			e.get(memo)
			return
		}
	}
	e.sized(len(s), opStr1, opStr4)
	e.buf = append(e.buf, s...)
	e.memoize()
}

// seen returns the number of a string written before, or notes that it is
// about to get the next one. Without sharing the strings asked for are four
// tags and at most 257 others, in practice one or two.
func (e *encoder) seen(s string) (memo uint32, ok bool) {
	if e.sharing {
		if memo, ok = e.many[s]; !ok {
			if e.many == nil {
				e.many = make(map[string]uint32)
			}
			e.many[s] = e.memo
		}
		return memo, ok
	}
	for i := range e.few {
		if e.few[i].text == s {
			return e.few[i].memo, true
		}
	}
	e.few = append(e.few, memoString{s, e.memo})
	return 0, false
}

// get writes a reference to a numbered object.
func (e *encoder) get(memo uint32) {
	if memo < 256 {
		e.op(opGet1)
		e.buf = append(e.buf, byte(memo))
		return
	}
	e.op(opGet4)
	e.buf = binary.LittleEndian.AppendUint32(e.buf, memo)
}

// int writes an integer.
func (e *encoder) int(v int64) {
	if e.cbor {
		if v < 0 {
			e.head(cborNeg, ^uint64(v))
		} else {
			e.head(cborUint, uint64(v))
		}
		return
	}
	e.boundary()
	e.open()
	switch {
	case v < math.MinInt32 || v > math.MaxInt32:
		// Two's complement in as few bytes as hold value and sign.
		n := bits.Len64(uint64(v^v>>63))/8 + 1
		e.buf = append(e.buf, opLong1, byte(n))
		e.buf = binary.LittleEndian.AppendUint64(e.buf, uint64(v))
		e.buf = e.buf[:len(e.buf)-8+n]
	case v < 0 || v > math.MaxUint16:
		e.buf = append(e.buf, opInt4)
		e.buf = binary.LittleEndian.AppendUint32(e.buf, uint32(v))
	case v > math.MaxUint8:
		e.buf = append(e.buf, opInt2)
		e.buf = binary.LittleEndian.AppendUint16(e.buf, uint16(v))
	default:
		e.buf = append(e.buf, opInt1, byte(v))
	}
}

// uint writes an integer that may need all of 64 bits.
func (e *encoder) uint(v uint64) {
	switch {
	case v <= math.MaxInt64:
		e.int(int64(v))
	case e.cbor:
		e.head(cborUint, v)
	default:
		e.boundary()
		e.open()
		e.buf = append(e.buf, opLong1, 9) // a ninth byte for the sign
		e.buf = append(binary.LittleEndian.AppendUint64(e.buf, v), 0)
	}
}

// head writes a CBOR head: the major type with its argument, shortest form.
func (e *encoder) head(major byte, n uint64) {
	switch {
	case n < 24:
		e.buf = append(e.buf, major|byte(n))
	case n <= math.MaxUint8:
		e.buf = append(e.buf, major|24, byte(n))
	case n <= math.MaxUint16:
		e.buf = binary.BigEndian.AppendUint16(append(e.buf, major|25), uint16(n))
	case n <= math.MaxUint32:
		e.buf = binary.BigEndian.AppendUint32(append(e.buf, major|26), uint32(n))
	default:
		e.buf = binary.BigEndian.AppendUint64(append(e.buf, major|27), n)
	}
}
