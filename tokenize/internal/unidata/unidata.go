// Package unidata holds the character classes, normalization forms and case
// mappings that Hugging Face tokenizers uses.
//
// They are not Go's: its regular expressions have newer tables than package
// unicode (16.0 against 15.0 in Go 1.26), its normalizers older ones (9.0).
// tables.go is generated from answers of the library itself.
package unidata

import "sync"

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

type classRange struct {
	flag   Flags
	ranges []rune // first, last, first, last...
}

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

func build() *Tables {
	t := &Tables{
		class:     make(map[rune]uint8),
		canonical: mapping(decompose),
		compat:    mapping(compat),
		composite: make(map[[2]rune]rune, len(compose)),
		lower:     mapping(lower),
	}
	flags := make([]Flags, 0x110000)
	for _, c := range classRanges {
		for i := 0; i < len(c.ranges); i += 2 {
			for r := c.ranges[i]; r <= c.ranges[i+1]; r++ {
				flags[r] |= c.flag
			}
		}
	}
	for _, c := range combining {
		for r := c[0]; r <= c[1]; r++ {
			t.class[r] = uint8(c[2])
		}
	}
	for _, c := range compose {
		t.composite[[2]rune{c[0], c[1]}] = c[2]
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

// mapping reads runs of (length, code point, mapping...).
func mapping(list []rune) map[rune][]rune {
	m := make(map[rune][]rune)
	for len(list) > 0 {
		n := 2 + list[0]
		m[list[1]] = list[2:n:n]
		list = list[n:]
	}
	return m
}
