package blockhash

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
)

// A slow, obvious pickler and CBOR writer over a tree of values, to hold the
// encoder against. The pickler follows Lib/pickle.py (class _Framer) rather
// than the C code.

// A node is nil (None), int64, []byte, a text or a list (tuple).
type (
	node any
	text struct {
		s     string
		fixed bool // a constant of the program
	}
	list []node
)

type refPickler struct {
	out, frame bytes.Buffer
	memo       int
	strings    map[string]int // of strings that are one object each
	shared     bool           // all equal strings are one object
}

func refPickle(v node, shared bool) []byte {
	p := &refPickler{strings: map[string]int{}, shared: shared}
	p.out.WriteString("\x80\x05")
	p.save(v)
	p.frame.WriteString(".")
	p.commit()
	return p.out.Bytes()
}

func (p *refPickler) commit() {
	if n := p.frame.Len(); n >= 4 {
		p.out.WriteByte(0x95)
		p.out.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
	}
	p.frame.WriteTo(&p.out)
	p.frame.Reset()
}

func (p *refPickler) data(op1, op4 byte, b []byte) {
	head := []byte{op1, byte(len(b))}
	if len(b) > 255 {
		head = binary.LittleEndian.AppendUint32([]byte{op4}, uint32(len(b)))
	}
	if len(b) >= 65536 {
		p.commit()
		p.out.Write(head)
		p.out.Write(b)
	} else {
		p.frame.Write(head)
		p.frame.Write(b)
	}
	p.memoize()
}

func (p *refPickler) memoize() {
	p.frame.WriteByte(0x94)
	p.memo++
}

func (p *refPickler) save(v node) {
	if p.frame.Len() >= 65536 {
		p.commit()
	}
	switch v := v.(type) {
	case nil:
		p.frame.WriteByte('N')
	case int64:
		p.frame.Write(refPickleInt(v))
	case []byte:
		p.data('C', 'B', v)
	case text:
		latin1 := len([]rune(v.s)) == 1 && []rune(v.s)[0] < 256
		if p.shared || v.fixed || v.s == "" || latin1 {
			if memo, ok := p.strings[v.s]; ok {
				if memo < 256 {
					p.frame.Write([]byte{'h', byte(memo)})
				} else {
					p.frame.WriteByte('j')
					p.frame.Write(binary.LittleEndian.AppendUint32(nil, uint32(memo)))
				}
				return
			}
			p.strings[v.s] = p.memo
		}
		p.data(0x8c, 'X', []byte(v.s))
	case list:
		if len(v) == 0 {
			p.frame.WriteByte(')')
			return
		}
		if len(v) > 3 {
			p.frame.WriteByte('(')
		}
		for _, item := range v {
			p.save(item)
		}
		switch len(v) {
		case 1, 2, 3:
			p.frame.WriteByte(0x84 + byte(len(v)))
		default:
			p.frame.WriteByte('t')
		}
		p.memoize()
	default:
		panic(fmt.Sprintf("%T", v))
	}
}

func refPickleInt(v int64) []byte {
	switch {
	case v >= 0 && v < 256:
		return []byte{'K', byte(v)}
	case v >= 0 && v < 65536:
		return []byte{'M', byte(v), byte(v >> 8)}
	case v >= -1<<31 && v < 1<<31:
		return []byte{'J', byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}
	}
	for n := 1; ; n++ { // the fewest bytes that hold the value
		limit := new(big.Int).Lsh(big.NewInt(1), uint(8*n-1))
		if b := big.NewInt(v); b.Cmp(limit) < 0 && b.Cmp(new(big.Int).Neg(limit)) >= 0 {
			out := []byte{0x8a, byte(n)}
			for i := range n {
				out = append(out, byte(v>>(8*i)))
			}
			return out
		}
	}
}

func refCBOR(out *bytes.Buffer, v node) {
	head := func(major byte, n uint64) {
		b := binary.BigEndian.AppendUint64(nil, n)
		switch {
		case n < 24:
			out.WriteByte(major<<5 | byte(n))
		case n < 1<<8:
			out.WriteByte(major<<5 | 24)
			out.Write(b[7:])
		case n < 1<<16:
			out.WriteByte(major<<5 | 25)
			out.Write(b[6:])
		case n < 1<<32:
			out.WriteByte(major<<5 | 26)
			out.Write(b[4:])
		default:
			out.WriteByte(major<<5 | 27)
			out.Write(b)
		}
	}
	switch v := v.(type) {
	case nil:
		out.WriteByte(0xf6)
	case int64:
		if v < 0 {
			head(1, uint64(-(v + 1)))
		} else {
			head(0, uint64(v))
		}
	case []byte:
		head(2, uint64(len(v)))
		out.Write(v)
	case text:
		head(3, uint64(len(v.s)))
		out.WriteString(v.s)
	case list:
		head(4, uint64(len(v)))
		for _, item := range v {
			refCBOR(out, item)
		}
	}
}

// refEncode writes a tree as the hasher's algorithm does.
func refEncode(h *Hasher, v node) []byte {
	if h.opt.Algorithm.cbor() {
		var out bytes.Buffer
		refCBOR(&out, v)
		return out.Bytes()
	}
	return refPickle(v, h.opt.SharedObjects)
}

// encode writes a tree with the encoder; runs of ids go through its bulk path.
func encode(e *encoder, v node) []byte {
	e.begin()
	walk(e, v)
	return e.end()
}

func walk(e *encoder, v node) {
	switch v := v.(type) {
	case nil:
		e.none()
	case int64:
		e.int(v)
	case []byte:
		e.bytes(v)
	case text:
		if v.fixed {
			e.tag(v.s)
		} else {
			e.text(v.s)
		}
	case list:
		e.tuple(len(v))
		var run []uint32
		for _, item := range v {
			if id, ok := item.(int64); ok && id == int64(uint32(id)) {
				run = append(run, uint32(id))
				continue
			}
			e.tokens(run)
			run = run[:0]
			walk(e, item)
		}
		e.tokens(run)
		e.endTuple(len(v))
	}
}

func checkEncoders(t *testing.T, v node) {
	t.Helper()
	for _, shared := range []bool{false, true} {
		want := refPickle(v, shared)
		if got := encode(&encoder{sharing: shared}, v); !bytes.Equal(got, want) {
			t.Fatalf("pickle (shared %v) differs at byte %d of %d and %d: %.300v", shared, firstDiff(got, want), len(got), len(want), v)
		}
	}
	var want bytes.Buffer
	refCBOR(&want, v)
	if got := encode(&encoder{cbor: true}, v); !bytes.Equal(got, want.Bytes()) {
		t.Fatalf("cbor differs at byte %d of %d and %d: %.300v", firstDiff(got, want.Bytes()), len(got), want.Len(), v)
	}
}

func firstDiff(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// dice draws values from random numbers or from fuzz input.
type dice interface{ IntN(n int) int }

// randomInt favours the borders of widths.
func randomInt(d dice) int64 {
	v := int64(1)<<d.IntN(63) + int64(d.IntN(5)) - 2
	if d.IntN(3) == 0 {
		v = -v
	}
	return v
}

// randomLen favours the borders of lengths and of frames.
func randomLen(d dice) int {
	switch d.IntN(12) {
	case 0:
		return 250 + d.IntN(10)
	case 1:
		return 65510 + d.IntN(30)
	case 2:
		return d.IntN(70000)
	}
	return d.IntN(12)
}

func randomText(d dice) text {
	if d.IntN(3) == 0 {
		return text{[]string{"lora", "mm", "cache_salt", "prompt_embeds"}[d.IntN(4)], true}
	}
	chars := []rune("aé\u00ff\u0100\u20ac🧊lora")
	n := randomLen(d)
	if n > 1000 {
		return text{s: string(bytes.Repeat([]byte("z"), n))}
	}
	s := make([]rune, n)
	for i := range s {
		s[i] = chars[d.IntN(len(chars))]
	}
	return text{s: string(s)}
}

func randomList(d dice, depth int) list {
	l := make(list, d.IntN(6))
	for i := range l {
		l[i] = randomNode(d, depth-1)
	}
	return l
}

func randomNode(d dice, depth int) node {
	switch d.IntN(6) {
	case 0:
		return nil
	case 1:
		return randomInt(d)
	case 2:
		return bytes.Repeat([]byte{7}, randomLen(d))
	case 3:
		return randomText(d)
	}
	if depth == 0 {
		return randomInt(d)
	}
	return randomList(d, depth)
}

// randomBlock draws a value of the shape that engines hash.
func randomBlock(d dice) node {
	ids := make(list, 1+d.IntN(40))
	if d.IntN(20) == 0 {
		ids = make(list, 13080+d.IntN(30))
	}
	wide := d.IntN(10) == 0
	for i := range ids {
		if wide {
			ids[i] = randomInt(d)
		} else if d.IntN(200) == 0 {
			ids[i] = int64(uint32(randomInt(d)))
		} else {
			ids[i] = int64(100000 + i)
		}
	}
	return list{bytes.Repeat([]byte{9}, 16+16*d.IntN(2)), ids, randomNode(d, 3)}
}

func TestEncoderAgainstReference(t *testing.T) {
	rounds := 4000
	if testing.Short() || raceEnabled {
		rounds = 400
	}
	for seed := range rounds {
		checkEncoders(t, randomBlock(rand.New(rand.NewPCG(uint64(seed), 1))))
	}
}

// fuzzDice reads choices from fuzz input; past its end everything is 0.
type fuzzDice struct{ data []byte }

func (f *fuzzDice) IntN(n int) int {
	v := 0
	for m := 1; m < n; m <<= 8 {
		if len(f.data) == 0 {
			return v % n
		}
		v = v<<8 | int(f.data[0])
		f.data = f.data[1:]
	}
	return v % n
}

// FuzzEncoder: the encoder writes what the reference writes, for every tree.
func FuzzEncoder(f *testing.F) {
	for _, seed := range []string{"", "\x00\x01\x02\x03", "\x13\x00\x07\x00\xff\xff\x00\x10", "0123456789abcdef0123456789"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 1<<12 {
			checkEncoders(t, randomBlock(&fuzzDice{data}))
		}
	})
}

// TestFrameBorders walks every length around the places where frames end.
func TestFrameBorders(t *testing.T) {
	parent := bytes.Repeat([]byte{1}, 32)
	step := 1
	if raceEnabled {
		step = 9
	}
	for n := 65480; n < 65545; n += step {
		s := text{s: string(bytes.Repeat([]byte("s"), n))}
		checkEncoders(t, list{parent, list{int64(1)}, list{s}})
		checkEncoders(t, list{parent, list{int64(1)}, list{text{"lora", true}, s, text{"lora", true}, text{s: "x"}, text{s: "x"}}})
		checkEncoders(t, list{parent, list{int64(1)}, list{bytes.Repeat([]byte{2}, n), nil, int64(-1)}})
	}
	for n := 13085; n < 13112; n += step {
		ids := make(list, n)
		for i := range ids {
			ids[i] = int64(1 << 20)
		}
		checkEncoders(t, list{parent, ids, nil})
		checkEncoders(t, list{parent, ids, list{list{text{"lora", true}, text{s: "a"}, text{s: "a"}}, text{s: "b"}}})
	}
}

func TestMemoPast255(t *testing.T) {
	items := make(list, 400)
	for i := range items {
		items[i] = list{text{"mm", true}, text{s: fmt.Sprintf("image-%d", i%200)}, int64(i)}
	}
	items[300] = list{text{"lora", true}, text{s: ""}}
	items[301] = list{text{"lora", true}, text{s: ""}}
	checkEncoders(t, list{make([]byte, 32), list{int64(5)}, items})
}
