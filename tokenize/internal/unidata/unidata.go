// Package unidata holds the character classes, normalization forms and case
// mappings that Hugging Face tokenizers uses.
//
// They are not Go's: its regular expressions have newer tables than package
// unicode (16.0 against 15.0 in Go 1.26), its normalizers older ones (9.0).
// tables.bin is generated from answers of the library itself.
package unidata

import (
	_ "embed"
	"encoding/binary"
	"sync"
)

//go:generate go run ./gen

// Flags says what a code point is.
type Flags uint16

// General categories, then the classes that patterns and flags of added
// tokens need.
const (
	Lu Flags = 1 << iota
	Ll
	Lt
	Lm
	Lo
	N
	M
	P
	S
	Han
	Space // \s of the patterns, and what lstrip and rstrip take
	Word  // \w, which single_word looks for
	notNFC
	notNFD
	notNFKC
	notNFKD

	// L is any letter.
	L = Lu | Ll | Lt | Lm | Lo
)

// classes are the flags in the order of tables.bin.
var classes = [...]Flags{Lu, Ll, Lt, Lm, Lo, N, M, P, S, Han, Space, Word}

const (
	blockBits = 7
	blockSize = 1 << blockBits
)

// Tables answers questions about code points. It is immutable and safe for
// concurrent use.
type Tables struct {
	index  [0x110000 >> blockBits]uint16
	blocks [][blockSize]Flags

	class     map[rune]uint8
	canonical map[rune][]rune
	compat    map[rune][]rune
	composite map[[2]rune]rune
	lower     map[rune][]rune
}

// Load returns the tables, built by the first call in about 5 ms.
var Load = sync.OnceValue(build)

// Flags returns the flags of r, which may be any number.
func (t *Tables) Flags(r rune) Flags {
	if uint32(r) > 0x10FFFF {
		return 0
	}
	return t.blocks[t.index[r>>blockBits]][r&(blockSize-1)]
}

//go:embed tables.bin
var tables string

// sections reads tables.bin: each section is the number of its values, then
// each value's difference from the one before, as varints.
type sections struct{ rest []byte }

func (s *sections) next() []rune {
	count, n := binary.Uvarint(s.rest)
	s.rest = s.rest[n:]
	values := make([]rune, count)
	before := rune(0)
	for i := range values {
		difference, n := binary.Varint(s.rest)
		s.rest = s.rest[n:]
		before += rune(difference)
		values[i] = before
	}
	return values
}

// mapping reads code points, lengths, and what they map to.
func (s *sections) mapping() map[rune][]rune {
	points, lengths, to := s.next(), s.next(), s.next()
	m := make(map[rune][]rune, len(points))
	for i, r := range points {
		n := lengths[i]
		m[r], to = to[:n:n], to[n:]
	}
	return m
}

func build() *Tables {
	s := sections{[]byte(tables)}
	flags := make([]Flags, 0x110000)
	for _, flag := range classes {
		ranges := s.next()
		for i := 0; i < len(ranges); i += 2 {
			for r := ranges[i]; r <= ranges[i+1]; r++ {
				flags[r] |= flag
			}
		}
	}
	t := &Tables{
		canonical: s.mapping(),
		compat:    s.mapping(),
		lower:     s.mapping(),
		composite: make(map[[2]rune]rune),
		class:     make(map[rune]uint8),
	}
	first, second, joined := s.next(), s.next(), s.next()
	for i := range first {
		t.composite[[2]rune{first[i], second[i]}] = joined[i]
	}
	from, to, class := s.next(), s.next(), s.next()
	for i := range from {
		for r := from[i]; r <= to[i]; r++ {
			t.class[r] = uint8(class[i])
		}
	}
	t.markNormalForms(flags)

	seen := make(map[[blockSize]Flags]uint16)
	for i := range t.index {
		block := [blockSize]Flags(flags[i*blockSize:])
		n, ok := seen[block]
		if !ok {
			n = uint16(len(t.blocks))
			seen[block] = n
			t.blocks = append(t.blocks, block)
		}
		t.index[i] = n
	}
	return t
}
