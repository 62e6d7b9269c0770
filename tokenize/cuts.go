package tokenize

import "unicode/utf8"

// cutTable knows between which characters a text without pre-tokenizer may
// be cut: where no token of the vocabulary holds the two side by side, no
// merge can ever join what stands left and right. It makes short words of a
// long text, which are found in tables, and is exact.
type cutTable struct {
	// joined has a bit for each pair of ASCII characters that must stay
	// together, and pair 0 set when nothing may be cut.
	joined [utf8.RuneSelf][2]uint64
	// wide has a bit for each ASCII character that must stay with a
	// character before it that is not ASCII.
	wide [2]uint64
}

// init allows every cut, or none.
func (c *cutTable) init(allowed bool) {
	if allowed {
		return
	}
	all := [2]uint64{1<<64 - 1, 1<<64 - 1}
	c.wide = all
	for i := range c.joined {
		c.joined[i] = all
	}
}

// keep forbids the cuts inside of text.
func (c *cutTable) keep(text string) {
	for i := 1; i < len(text); i++ {
		a, b := text[i-1], text[i]
		switch {
		case b >= utf8.RuneSelf:
		case a < utf8.RuneSelf:
			c.joined[a][b>>6] |= 1 << (b & 63)
		default:
			c.wide[b>>6] |= 1 << (b & 63)
		}
	}
}

// between tells whether a word ends between the bytes a and b that stand side
// by side. marks says that each space begins a word whatever tokens there are.
func (c *cutTable) between(a, b byte, marks bool) bool {
	if b >= utf8.RuneSelf {
		return false
	}
	stay := &c.wide
	if a < utf8.RuneSelf {
		stay = &c.joined[a]
	}
	return stay[b>>6]&(1<<(b&63)) == 0 || marks && b == ' '
}

// next returns the end of the word that begins at i.
func (c *cutTable) next(s string, i int, marks bool) int {
	for i++; i < len(s) && !c.between(s[i-1], s[i], marks); i++ {
	}
	return i
}
