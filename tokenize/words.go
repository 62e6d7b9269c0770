package tokenize

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"strings"
)

// wordTable maps the texts that are one token by themselves to that token:
// texts of up to 16 bytes by open addressing with the text in the slot,
// longer ones in a Go map.
type wordTable struct {
	slots   []wordSlot
	shift   uint8
	long    map[string]uint32
	longest int
}

// wordSlot is free when size is zero.
type wordSlot struct {
	lo, hi   uint64
	size, id uint32
}

func newWordTable(n int) wordTable {
	size := max(bits.Len(uint(n+n/2)), 4)
	return wordTable{slots: make([]wordSlot, 1<<size), shift: uint8(64 - size), long: make(map[string]uint32)}
}

// put adds text, which is cloned and not empty.
func (t *wordTable) put(text string, id uint32) {
	if len(text) > maxInline {
		t.long[strings.Clone(text)] = id
		t.longest = max(t.longest, len(text))
		return
	}
	lo, hi := inline(text)
	i := hashWord(lo, hi, len(text)) >> t.shift
	for t.slots[i].size != 0 {
		i = (i + 1) & uint64(len(t.slots)-1)
	}
	t.slots[i] = wordSlot{lo, hi, uint32(len(text)), id}
}

// getInline looks a text of 1 to maxInline bytes up by its inline form and
// hash.
func (t *wordTable) getInline(lo, hi, hash uint64, size int) (uint32, bool) {
	for i := hash >> t.shift; ; i++ {
		s := &t.slots[i&uint64(len(t.slots)-1)]
		if s.lo == lo && s.hi == hi && s.size == uint32(size) {
			return s.id, true
		}
		if s.size == 0 {
			return 0, false
		}
	}
}

// getLong looks a text of more than maxInline bytes up.
func (t *wordTable) getLong(text string) (uint32, bool) {
	if len(text) > t.longest {
		return 0, false
	}
	id, ok := t.long[text]
	return id, ok
}

// maxInline is the length of the longest text that inline can hold.
const maxInline = 16

// inline packs a text of 1 to maxInline bytes into two words, which together
// with its length identify it.
func inline(s string) (lo, hi uint64) {
	switch n := len(s); {
	case n >= 8:
		return load64(s), load64(s[n-8:])
	case n >= 4:
		return uint64(load32(s)) | uint64(load32(s[n-4:]))<<32, 0
	default:
		return uint64(s[0]) | uint64(s[n>>1])<<8 | uint64(s[n-1])<<16, 0
	}
}

// all gives the texts and their tokens.
func (t *wordTable) all() map[string]uint32 {
	words := maps.Clone(t.long)
	for _, s := range t.slots {
		if s.size > 0 {
			words[s.text()] = s.id
		}
	}
	return words
}

// text undoes inline.
func (s *wordSlot) text() string {
	var b [maxInline]byte
	n := int(s.size)
	switch {
	case n >= 8:
		binary.LittleEndian.PutUint64(b[n-8:], s.hi)
		binary.LittleEndian.PutUint64(b[:], s.lo)
	case n >= 4:
		binary.LittleEndian.PutUint32(b[n-4:], uint32(s.lo>>32))
		binary.LittleEndian.PutUint32(b[:], uint32(s.lo))
	default:
		b[n-1] = byte(s.lo >> 16)
		b[n>>1] = byte(s.lo >> 8)
		b[0] = byte(s.lo)
	}
	return string(b[:n])
}

func load64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func load32(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// hashWord mixes an inline text. Nothing depends on it being hard to
// predict: the table's content is fixed by the vocabulary.
func hashWord(lo, hi uint64, n int) uint64 {
	a, b := bits.Mul64(lo^0xA0761D6478BD642F, hi^0xE7037ED1A0B428DB^uint64(n)<<56)
	return (a ^ b) * 0x9E3779B97F4A7C15
}
