package kvevents

import (
	"encoding/binary"
	"math"
)

// fault is what reading a value can come to: 0 for success, a Reason for a
// well-formed value of the wrong kind (the event is left out, the payload goes
// on), or one of the values below (the payload is unreadable).
type fault = Reason

const (
	faultTruncated fault = 0xf0 + iota
	faultInvalid
)

func fatal(f fault) bool { return f >= faultTruncated }

// cursor reads msgpack from a payload. It is a parser of our own because the
// generic one allocates and pays a reader call for each of the thousand token
// ids of an event; a fuzz test keeps it equal to vmihailenco/msgpack.
//
// Every read method leaves the cursor where it was when it fails with a
// Reason, so that the caller can skip the value instead.
type cursor struct {
	buf []byte
	pos int
}

// peek returns the first byte of the next value.
func (c *cursor) peek() (byte, fault) {
	if c.pos >= len(c.buf) {
		return 0, faultTruncated
	}
	return c.buf[c.pos], 0
}

// takeNil consumes a nil and reports whether there was one.
func (c *cursor) takeNil() bool {
	if c.pos < len(c.buf) && c.buf[c.pos] == 0xc0 {
		c.pos++
		return true
	}
	return false
}

// uintAt reads size bytes (1, 2, 4, 8) at the offset, big-endian.
func (c *cursor) uintAt(at, size int) (uint64, fault) {
	if len(c.buf)-at < size {
		return 0, faultTruncated
	}
	switch b := c.buf[at:]; size {
	case 1:
		return uint64(b[0]), 0
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), 0
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), 0
	default:
		return binary.BigEndian.Uint64(b), 0
	}
}

// listLen reads the header of an array or, with per = 2, of a map, and
// returns its length. A length that cannot fit in the bytes left is a
// truncated payload, so that no caller sizes anything by a mere claim.
func (c *cursor) listLen(per int, fix, fixEnd, code16 byte) (int, fault) {
	h, f := c.peek()
	if f != 0 {
		return 0, f
	}
	n, size := uint64(h-fix), 0
	switch {
	case h >= fix && h <= fixEnd:
	case h == code16:
		size = 2
	case h == code16+1:
		size = 4
	case h == 0xc1:
		return 0, faultInvalid
	default:
		return 0, ReasonFieldType
	}
	if size > 0 {
		if n, f = c.uintAt(c.pos+1, size); f != 0 {
			return 0, f
		}
	}
	rest := len(c.buf) - c.pos - 1 - size
	if n > uint64(rest/per) {
		return 0, faultTruncated
	}
	c.pos += 1 + size
	return int(n), 0
}

func (c *cursor) arrayLen() (int, fault) { return c.listLen(1, 0x90, 0x9f, 0xdc) }
func (c *cursor) mapLen() (int, fault)   { return c.listLen(2, 0x80, 0x8f, 0xde) }

// text reads a str, or with bin also a bin, and returns a view of it.
func (c *cursor) text(bin bool) ([]byte, fault) {
	h, f := c.peek()
	if f != 0 {
		return nil, f
	}
	n, size := uint64(h&0x1f), 0
	switch {
	case h >= 0xa0 && h <= 0xbf:
	case h == 0xd9, bin && h == 0xc4:
		size = 1
	case h == 0xda, bin && h == 0xc5:
		size = 2
	case h == 0xdb, bin && h == 0xc6:
		size = 4
	case h == 0xc1:
		return nil, faultInvalid
	default:
		return nil, ReasonFieldType
	}
	if size > 0 {
		if n, f = c.uintAt(c.pos+1, size); f != 0 {
			return nil, f
		}
	}
	start := c.pos + 1 + size
	if n > uint64(len(c.buf)-start) {
		return nil, faultTruncated
	}
	c.pos = start + int(n)
	return c.buf[start:c.pos:c.pos], 0
}

// integer reads an int of any width and sign. The value is the two's
// complement low 64 bits; negative tells how to read its top bit.
func (c *cursor) integer() (v uint64, negative bool, f fault) {
	h, f := c.peek()
	if f != 0 {
		return 0, false, f
	}
	switch {
	case h <= 0x7f:
		c.pos++
		return uint64(h), false, 0
	case h >= 0xe0:
		c.pos++
		return uint64(int64(int8(h))), true, 0
	case h >= 0xcc && h <= 0xcf:
		size := 1 << (h - 0xcc)
		if v, f = c.uintAt(c.pos+1, size); f == 0 {
			c.pos += 1 + size
		}
		return v, false, f
	case h >= 0xd0 && h <= 0xd3:
		size := 1 << (h - 0xd0)
		if v, f = c.uintAt(c.pos+1, size); f != 0 {
			return 0, false, f
		}
		c.pos += 1 + size
		shift := 64 - 8*size
		v = uint64(int64(v<<shift) >> shift)
		return v, int64(v) < 0, 0
	case h == 0xc1:
		return 0, false, faultInvalid
	}
	return 0, false, ReasonFieldType
}

// int reads an int that lies in [lo, hi].
func (c *cursor) int(lo, hi int64) (int64, fault) {
	start := c.pos
	v, neg, f := c.integer()
	if f != 0 {
		return 0, f
	}
	if !neg && v > math.MaxInt64 || int64(v) < lo || int64(v) > hi {
		c.pos = start
		return 0, ReasonFieldType
	}
	return int64(v), 0
}

// number reads a float or an int as a float.
func (c *cursor) number() (float64, fault) {
	h, f := c.peek()
	if f != 0 {
		return 0, f
	}
	var bits uint64
	switch h {
	case 0xca:
		if bits, f = c.uintAt(c.pos+1, 4); f != 0 {
			return 0, f
		}
		c.pos += 5
		return float64(math.Float32frombits(uint32(bits))), 0
	case 0xcb:
		if bits, f = c.uintAt(c.pos+1, 8); f != 0 {
			return 0, f
		}
		c.pos += 9
		return math.Float64frombits(bits), 0
	}
	v, neg, f := c.integer()
	if neg {
		return float64(int64(v)), f
	}
	return float64(v), f
}

// skip passes one value of any type. It counts what is still to come instead
// of recursing, so nesting costs neither stack nor memory; since every value
// takes a byte at least, the count never exceeds what is left.
func (c *cursor) skip() fault {
	for pending := 1; pending > 0; pending-- {
		h, f := c.peek()
		if f != 0 {
			return f
		}
		lenSize, fixed, children := 0, 0, 0
		switch {
		case h <= 0x7f, h >= 0xe0, h == 0xc0, h == 0xc2, h == 0xc3:
		case h <= 0x8f:
			children = 2 * int(h&0x0f)
		case h <= 0x9f:
			children = int(h & 0x0f)
		case h <= 0xbf:
			fixed = int(h & 0x1f)
		case h == 0xc1:
			return faultInvalid
		case h <= 0xc6: // bin 8, 16, 32
			lenSize = 1 << (h - 0xc4)
		case h <= 0xc9: // ext 8, 16, 32: a type byte follows the length
			lenSize, fixed = 1<<(h-0xc7), 1
		case h <= 0xcb: // float 32, 64
			fixed = 4 << (h - 0xca)
		case h <= 0xcf: // uint 8 to 64
			fixed = 1 << (h - 0xcc)
		case h <= 0xd3: // int 8 to 64
			fixed = 1 << (h - 0xd0)
		case h <= 0xd8: // fixext 1 to 16
			fixed = 1 + 1<<(h-0xd4)
		case h <= 0xdb: // str 8, 16, 32
			lenSize = 1 << (h - 0xd9)
		case h <= 0xdd: // array 16, 32
			lenSize = 2 << (h - 0xdc)
		default: // map 16, 32
			lenSize = 2 << (h - 0xde)
		}
		c.pos++
		if lenSize > 0 {
			n, f := c.uintAt(c.pos, lenSize)
			if f != 0 {
				return f
			}
			c.pos += lenSize
			if n > uint64(len(c.buf)-c.pos) {
				return faultTruncated
			}
			switch {
			case h >= 0xde:
				children = 2 * int(n)
			case h >= 0xdc:
				children = int(n)
			default:
				fixed += int(n)
			}
		}
		rest := len(c.buf) - c.pos
		if fixed > rest || children > rest-fixed || pending-1+children > rest-fixed {
			return faultTruncated
		}
		c.pos += fixed
		pending += children
	}
	return 0
}

// skipAll passes n values.
func (c *cursor) skipAll(n int) fault {
	for range n {
		if f := c.skip(); f != 0 {
			return f
		}
	}
	return 0
}
