package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// isSpace is Python's str.isspace of one code point, which its strip, split
// and the \s of its regular expressions share.
func isSpace(r rune) bool {
	switch {
	case r >= 0x09 && r <= 0x0d, r >= 0x1c && r <= 0x20, r == 0x85, r == 0xa0:
		return true
	case r < 0x1680:
		return false
	}
	return r == 0x1680 || r >= 0x2000 && r <= 0x200a || r == 0x2028 || r == 0x2029 ||
		r == 0x202f || r == 0x205f || r == 0x3000
}

// isLineEnd is a boundary of Python's str.splitlines.
func isLineEnd(r rune) bool {
	return r >= 0x0a && r <= 0x0d || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

func splitLines(s string) []Value {
	var out []Value
	start := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !isLineEnd(r) {
			i += n
			continue
		}
		out = append(out, s[start:i])
		i += n
		if r == '\r' && i < len(s) && s[i] == '\n' {
			i++
		}
		start = i
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// newerThan14 are the code points that Unicode 15.0 added: whether they are
// printable depends on the Python.
var newerThan14 = &unicode.RangeTable{
	R16: []unicode.Range16{{0x0cf3, 0x0cf3, 1}, {0x0ece, 0x0ece, 1}},
	R32: []unicode.Range32{
		{0x10efd, 0x10eff, 1}, {0x1123f, 0x11241, 1}, {0x11b00, 0x11b09, 1}, {0x11f00, 0x11f59, 1},
		{0x1342f, 0x1342f, 1}, {0x13439, 0x13455, 1}, {0x1b132, 0x1b132, 1}, {0x1b155, 0x1b155, 1},
		{0x1d2c0, 0x1d2d3, 1}, {0x1df25, 0x1df2a, 1}, {0x1e030, 0x1e08f, 1}, {0x1e4d0, 0x1e4f9, 1},
		{0x1f6dc, 0x1f6dc, 1}, {0x1f774, 0x1f776, 1}, {0x1f77b, 0x1f77f, 1}, {0x1f7d9, 0x1f7d9, 1},
		{0x1fa75, 0x1fa77, 1}, {0x1fa87, 0x1fa88, 1}, {0x1faad, 0x1faaf, 1}, {0x1fabb, 0x1fabd, 1},
		{0x1fabf, 0x1fabf, 1}, {0x1face, 0x1facf, 1}, {0x1fada, 0x1fadb, 1}, {0x1fae8, 0x1fae8, 1},
		{0x1faf7, 0x1faf8, 1}, {0x31350, 0x323af, 1},
	},
}

// pyPrintable is Python's str.isprintable of a code point beyond ASCII; known
// is false where Pythons differ.
func pyPrintable(r rune) (printable, known bool) {
	switch {
	case unicode.Is(newerThan14, r):
		return false, false
	case unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S):
		return true, true
	case unicode.In(r, unicode.Z, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs):
		return false, true
	}
	// Unassigned here, perhaps not in a newer Python. Noncharacters stay.
	return false, r&0xfffe == 0xfffe || r >= 0xfdd0 && r <= 0xfdef
}

// cased applies f, which is right for ASCII only.
func cased(s string, f func(string) string) (string, error) {
	if !isASCII(s) {
		return "", unsupported("change of case beyond ASCII", s[:min(len(s), 1)])
	}
	return f(s), nil
}

func capitalize(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + strings.ToLower(s[1:])
}

// title is Python's str.title, for ASCII.
func title(s string) string {
	b := []byte(strings.ToLower(s))
	in := false
	for i, c := range b {
		letter := c >= 'a' && c <= 'z'
		if letter && !in {
			b[i] = c - 'a' + 'A'
		}
		in = letter
	}
	return string(b)
}

func stripSet(chars string) func(rune) bool {
	return func(r rune) bool { return strings.ContainsRune(chars, r) }
}

// strip removes from the left, the right or both; chars nil means white
// space.
func strip(s string, chars Value, left, right bool) (string, error) {
	in := isSpace
	switch c := chars.(type) {
	case nil:
	case string:
		in = stripSet(c)
	default:
		return "", failf("strip arg must be None or str")
	}
	if left {
		s = strings.TrimLeftFunc(s, in)
	}
	if right {
		s = strings.TrimRightFunc(s, in)
	}
	return s, nil
}

// splitSpace is str.split and str.rsplit without a separator.
func splitSpace(s string, most int64, fromRight bool) []Value {
	var out []Value
	if fromRight {
		s = strings.TrimRightFunc(s, isSpace)
		for s != "" {
			i := strings.LastIndexFunc(s, isSpace)
			if most >= 0 && int64(len(out)) >= most || i < 0 {
				out = append(out, s)
				break
			}
			_, n := utf8.DecodeRuneInString(s[i:])
			out = append(out, s[i+n:])
			s = strings.TrimRightFunc(s[:i], isSpace)
		}
		reverse(out)
		return out
	}
	s = strings.TrimLeftFunc(s, isSpace)
	for s != "" {
		i := strings.IndexFunc(s, isSpace)
		if most >= 0 && int64(len(out)) >= most || i < 0 {
			// The rest keeps its end only when the splits are used up.
			out = append(out, s)
			break
		}
		out = append(out, s[:i])
		s = strings.TrimLeftFunc(s[i:], isSpace)
	}
	return out
}

func splitBy(s, sep string, most int64, fromRight bool) []Value {
	if most < 0 || most > int64(len(s)) {
		most = int64(len(s)) + 1
	}
	var out []Value
	if fromRight {
		for int64(len(out)) < most {
			i := strings.LastIndex(s, sep)
			if i < 0 {
				break
			}
			out = append(out, s[i+len(sep):])
			s = s[:i]
		}
		out = append(out, s)
		reverse(out)
		return out
	}
	for _, part := range strings.SplitN(s, sep, int(most)+1) {
		out = append(out, part)
	}
	return out
}

func reverse(items []Value) {
	for i, j := 0, len(items)-1; i < j; i, j = i+1, j-1 {
		items[i], items[j] = items[j], items[i]
	}
}
