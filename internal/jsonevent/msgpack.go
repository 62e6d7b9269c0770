package jsonevent

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/kvatlas/kvatlas/internal/jsonscan"
)

// ErrMsgpack is returned for bytes that are no msgpack, that end inside a value or
// go on after it, that nest more deeply than JSON is read, or whose JSON is too long.
var ErrMsgpack = errors.New("not msgpack of one value, nested too deeply, or too long")

// IsMsgpack tells whether a payload is a map or a list in msgpack rather than JSON.
func IsMsgpack(payload []byte) bool { return len(payload) > 0 && payload[0] >= 0x80 }

// FromMsgpack appends the JSON that a msgpack value stands for: binary as base64, as
// encoding/json has it, and what JSON cannot say (extensions, numbers that are none)
// as null. Keys of maps become texts; a list or a map as a key is an error. The
// result is at most eight times as long; no value begins beyond most bytes.
func FromMsgpack(dst, payload []byte, most int) ([]byte, error) {
	t := transcoder{in: payload, out: dst, most: len(dst) + most}
	if !t.value(0) || len(t.in) > 0 {
		return dst, ErrMsgpack
	}
	return t.out, nil
}

type transcoder struct {
	in, out []byte
	most    int
}

// take returns the next n bytes.
func (t *transcoder) take(n int) ([]byte, bool) {
	if n < 0 || n > len(t.in) {
		return nil, false
	}
	b := t.in[:n]
	t.in = t.in[n:]
	return b, true
}

// number reads an unsigned number of n bytes.
func (t *transcoder) number(n int) (v uint64, ok bool) {
	b, ok := t.take(n)
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v, ok
}

func (t *transcoder) value(depth int) bool {
	head, ok := t.take(1)
	if !ok || depth > jsonscan.MaxDepth || len(t.out) > t.most {
		return false
	}
	switch c := head[0]; {
	case c <= 0x7f:
		t.out = strconv.AppendUint(t.out, uint64(c), 10)
		return true
	case c <= 0x8f:
		return t.object(int(c&0xf), depth)
	case c <= 0x9f:
		return t.list(int(c&0xf), depth)
	case c <= 0xbf:
		return t.text(int(c & 0x1f))
	case c >= 0xe0:
		t.out = strconv.AppendInt(t.out, int64(int8(c)), 10)
		return true
	default:
		return t.wide(c, depth)
	}
}

// sizes are how many bytes say how long a value is.
var sizes = map[byte]int{0xc4: 1, 0xc5: 2, 0xc6: 4, 0xc7: 1, 0xc8: 2, 0xc9: 4, 0xd9: 1, 0xda: 2, 0xdb: 4, 0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4}

// wide reads a value whose size stands in bytes of its own.
func (t *transcoder) wide(c byte, depth int) bool {
	switch c {
	case 0xc0:
		t.out = append(t.out, "null"...)
		return true
	case 0xc2, 0xc3:
		t.out = strconv.AppendBool(t.out, c == 0xc3)
		return true
	case 0xca, 0xcb:
		return t.float(c)
	case 0xcc, 0xcd, 0xce, 0xcf:
		v, ok := t.number(1 << (c - 0xcc))
		t.out = strconv.AppendUint(t.out, v, 10)
		return ok
	case 0xd0, 0xd1, 0xd2, 0xd3:
		n := 1 << (c - 0xd0)
		v, ok := t.number(n)
		t.out = strconv.AppendInt(t.out, int64(v)<<(64-8*n)>>(64-8*n), 10)
		return ok
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return t.extension(1 << (c - 0xd4))
	}
	size, known := sizes[c]
	v, ok := t.number(size)
	if !known || !ok || v > math.MaxInt32 {
		return false
	}
	n := int(v)
	switch c {
	case 0xc4, 0xc5, 0xc6:
		return t.binary(n)
	case 0xc7, 0xc8, 0xc9:
		return t.extension(n)
	case 0xd9, 0xda, 0xdb:
		return t.text(n)
	case 0xdc, 0xdd:
		return t.list(n, depth)
	}
	return t.object(n, depth)
}

func (t *transcoder) float(c byte) bool {
	size := 4
	if c == 0xcb {
		size = 8
	}
	b, ok := t.take(size)
	if !ok {
		return false
	}
	var v float64
	if size == 4 {
		v = float64(math.Float32frombits(binary.BigEndian.Uint32(b)))
	} else {
		v = math.Float64frombits(binary.BigEndian.Uint64(b))
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		t.out = append(t.out, "null"...)
	} else {
		t.out = strconv.AppendFloat(t.out, v, 'g', -1, 64)
	}
	return true
}

func (t *transcoder) extension(n int) bool {
	_, ok := t.take(n + 1)
	t.out = append(t.out, "null"...)
	return ok
}

func (t *transcoder) binary(n int) bool {
	b, ok := t.take(n)
	t.out = append(t.out, '"')
	t.out = base64.StdEncoding.AppendEncode(t.out, b)
	t.out = append(t.out, '"')
	return ok
}

// text writes a string; bytes that are no UTF-8 become U+FFFD.
func (t *transcoder) text(n int) bool {
	b, ok := t.take(n)
	if !ok {
		return false
	}
	const hex = "0123456789abcdef"
	t.out = append(t.out, '"')
	plain := 0
	for plain < len(b) && ' ' <= b[plain] && b[plain] < utf8.RuneSelf && b[plain] != '"' && b[plain] != '\\' {
		plain++
	}
	t.out = append(t.out, b[:plain]...)
	b = b[plain:]
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		switch {
		case r == '"' || r == '\\':
			t.out = append(t.out, '\\', byte(r))
		case r < ' ':
			t.out = append(t.out, '\\', 'u', '0', '0', hex[r>>4], hex[r&0xf])
		default:
			t.out = utf8.AppendRune(t.out, r)
		}
		b = b[size:]
	}
	t.out = append(t.out, '"')
	return true
}

func (t *transcoder) list(n, depth int) bool {
	if n > len(t.in) { // each value has at least a byte
		return false
	}
	t.out = append(t.out, '[')
	for i := range n {
		if i > 0 {
			t.out = append(t.out, ',')
		}
		if !t.value(depth + 1) {
			return false
		}
	}
	t.out = append(t.out, ']')
	return true
}

func (t *transcoder) object(n, depth int) bool {
	if n > len(t.in)/2 {
		return false
	}
	t.out = append(t.out, '{')
	for i := range n {
		if i > 0 {
			t.out = append(t.out, ',')
		}
		at := len(t.out)
		if !t.value(depth + 1) {
			return false
		}
		switch t.out[at] {
		case '"':
		case '[', '{':
			return false
		default: // a number or a word
			t.out = append(slices.Insert(t.out, at, '"'), '"')
		}
		t.out = append(t.out, ':')
		if !t.value(depth + 1) {
			return false
		}
	}
	t.out = append(t.out, '}')
	return true
}
