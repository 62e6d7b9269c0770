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
	// wideSpace says that some token has a space behind a character that
	// is not ASCII.
	wideSpace bool
}

// init allows every cut, or none.
func (c *cutTable) init(allowed bool) {
	if allowed {
		return
	}
	c.wideSpace = true
	for i := range c.joined {
		c.joined[i] = [2]uint64{1<<64 - 1, 1<<64 - 1}
	}
}

// keep forbids the cuts inside of text.
func (c *cutTable) keep(text string) {
	for i := 1; i < len(text); i++ {
		a, b := text[i-1], text[i]
		if a < utf8.RuneSelf && b < utf8.RuneSelf {
			c.joined[a][b>>6] |= 1 << (b & 63)
		} else if b == ' ' {
			c.wideSpace = true
		}
	}
}

// next returns the end of the word that begins at i. marks says that each
// space begins a word whatever tokens there are.
func (c *cutTable) next(s string, i int, marks bool) int {
	a := s[i]
	for i++; i < len(s); i++ {
		b := s[i]
		switch {
		case b >= utf8.RuneSelf:
		case a < utf8.RuneSelf:
			if c.joined[a][b>>6]&(1<<(b&63)) == 0 || marks && b == ' ' {
				return i
			}
		case b == ' ' && (!c.wideSpace || marks):
			return i
		}
		a = b
	}
	return i
}
