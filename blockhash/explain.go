package blockhash

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// Explanation shows what one block's hash is made of: what a person needs when
// two hashes differ. Its String is a listing of the encoded bytes, opcode by
// opcode.
type Explanation struct {
	Scheme    Scheme
	Algorithm Algorithm
	Block     int    // index in the prompt
	Parent    []byte // digest of the block before, or the root
	Message   []byte // the bytes that are hashed
	Parts     []Part // what Message consists of, in order
	Digest    []byte // the hash of Message
	Key       uint64 // its 64-bit form
}

// Part is one element of a message.
type Part struct {
	Offset int    // in Message
	Bytes  []byte // a part of Message
	Text   string // what it says
}

// Explain shows how the hash of one block of p comes about, the first being 0.
// It hashes the blocks before. The error is a [PromptError], or wraps
// [ErrOptions] when p has no such block or the scheme is not vLLM's.
func (h *Hasher) Explain(p *Prompt, block int) (*Explanation, error) {
	var c Chain
	if err := h.Start(&c, p); err != nil {
		return nil, err
	}
	for h.era.family == familyVLLM && c.blocks < block && c.step() {
	}
	x := &Explanation{Scheme: h.opt.Scheme, Algorithm: h.opt.Algorithm, Block: block}
	x.Parent = append([]byte(nil), c.Digest()...)
	var err error
	if x.Message, err = h.AppendMessage(nil, p, block, x.Parent); err != nil {
		return nil, err
	}
	c.sum(append([]byte(nil), x.Message...))
	x.Digest, x.Key = append([]byte(nil), c.Digest()...), c.key
	x.Parts = Disassemble(x.Message, h.opt.Algorithm)
	return x, nil
}

// String returns a listing of the message, one part a line, with a last line
// for the hash. Long parts are cut.
func (x *Explanation) String() string {
	if x == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "block %d, %s of %v, message of %d bytes\n", x.Block, x.Algorithm, x.Scheme, len(x.Message))
	for _, p := range x.Parts {
		digits := hex.EncodeToString(p.Bytes)
		if len(digits) > 80 {
			digits = digits[:76] + "..."
		}
		fmt.Fprintf(&b, "%6d  %-24s  %s\n", p.Offset, digits, p.Text)
	}
	fmt.Fprintf(&b, "digest %x, key %d\n", x.Digest, x.Key)
	return b.String()
}

// Disassemble takes a message apart into the elements that the algorithm's
// encoding has. It reads what [Hasher.AppendMessage] writes and likewise what
// an engine was seen to hash; from where it cannot be read on, one part with
// the text "unreadable" holds the rest. It is safe on any bytes.
func Disassemble(message []byte, algorithm Algorithm) []Part {
	d := disassembler{msg: message}
	for d.at < len(d.msg) {
		before := d.at
		n, text := 0, ""
		if algorithm.cbor() {
			n, text = d.cborPart()
		} else {
			n, text = d.picklePart()
		}
		if n <= 0 || n > len(d.msg)-before {
			n, text = len(d.msg)-before, "unreadable"
		}
		d.parts = append(d.parts, Part{before, d.msg[before : before+n], text})
		d.at = before + n
	}
	return d.parts
}

type disassembler struct {
	msg   []byte
	at    int
	parts []Part
	memo  int
}

// arg reads an unsigned little-endian argument of the opcode, 0 when missing.
func (d *disassembler) arg(size int) uint64 {
	var b [8]byte
	copy(b[:size], d.msg[min(d.at+1, len(d.msg)):])
	return binary.LittleEndian.Uint64(b[:])
}

// picklePart returns the length of the next part and what it is.
func (d *disassembler) picklePart() (int, string) {
	switch op := d.msg[d.at]; op {
	case opProto:
		return 2, fmt.Sprintf("PROTO %d", d.arg(1))
	case opFrame:
		return 9, fmt.Sprintf("FRAME of %d bytes", d.arg(8))
	case opStop:
		return 1, "STOP"
	case opNone:
		return 1, "NONE"
	case opMark:
		return 1, "MARK"
	case opTuple:
		return 1, "TUPLE of all since MARK"
	case opEmptyTuple:
		return 1, "EMPTY_TUPLE"
	case opTuple1, opTuple1 + 1, opTuple1 + 2:
		return 1, fmt.Sprintf("TUPLE%d", op-opTuple1+1)
	case opMemoize:
		d.memo++
		return 1, fmt.Sprintf("MEMOIZE as %d", d.memo-1)
	case opGet1:
		return 2, fmt.Sprintf("GET %d: the object memoized so", d.arg(1))
	case opGet4:
		return 5, fmt.Sprintf("GET %d: the object memoized so", d.arg(4))
	case opInt1:
		return 2, fmt.Sprintf("INT %d", d.arg(1))
	case opInt2:
		return 3, fmt.Sprintf("INT %d", d.arg(2))
	case opInt4:
		return 5, fmt.Sprintf("INT %d", int32(d.arg(4)))
	case opLong1:
		n := int(d.arg(1))
		return 2 + n, "LONG " + d.long(n)
	case opBytes1:
		return d.sized(1, "BYTES")
	case opBytes4:
		return d.sized(4, "BYTES")
	case opStr1:
		return d.sized(1, "STR")
	case opStr4:
		return d.sized(4, "STR")
	}
	return 0, ""
}

// long formats a little-endian two's complement number of n bytes.
func (d *disassembler) long(n int) string {
	if d.at+2+n > len(d.msg) || n < 1 || n > 9 {
		return fmt.Sprintf("of %d bytes", n)
	}
	b := d.msg[d.at+2 : d.at+2+n]
	if n == 9 && b[8] == 0 {
		return fmt.Sprint(binary.LittleEndian.Uint64(b))
	}
	v := int64(0)
	for i := n - 1; i >= 0; i-- {
		v = v<<8 | int64(b[i])
	}
	if shift := 64 - 8*n; shift > 0 {
		v = v << shift >> shift
	}
	return fmt.Sprint(v)
}

func (d *disassembler) sized(width int, what string) (int, string) {
	n := int(d.arg(width))
	return 1 + width + n, d.describe(what, d.at+1+width, n)
}

// describe names a bytes or str value.
func (d *disassembler) describe(what string, from, n int) string {
	if n < 0 || from > len(d.msg) || n > len(d.msg)-from {
		return what
	}
	if data := d.msg[from : from+n]; what == "STR" {
		return fmt.Sprintf("STR %.60q, %d bytes", data, n)
	}
	if from < 16 {
		return fmt.Sprintf("BYTES, %d: the parent digest", n)
	}
	return fmt.Sprintf("BYTES, %d", n)
}

func (d *disassembler) cborPart() (int, string) {
	lead := d.msg[d.at]
	if lead == cborNull {
		return 1, "null"
	}
	head, n := 1, uint64(lead&31)
	if n >= 24 {
		if n > 27 {
			return 0, ""
		}
		size := 1 << (n - 24)
		head += size
		if d.at+head > len(d.msg) {
			return 0, ""
		}
		var b [8]byte
		copy(b[8-size:], d.msg[d.at+1:])
		n = binary.BigEndian.Uint64(b[:])
	}
	switch lead & 0xe0 {
	case cborUint:
		return head, fmt.Sprintf("unsigned %d", n)
	case cborNeg:
		return head, fmt.Sprintf("negative %d", ^int64(n))
	case cborArray:
		return head, fmt.Sprintf("array of %d", n)
	case cborBytes, cborText:
		if n > uint64(len(d.msg)) {
			return 0, ""
		}
		what := "BYTES"
		if lead&0xe0 == cborText {
			what = "STR"
		}
		return head + int(n), d.describe(what, d.at+head, int(n))
	}
	return 0, ""
}
