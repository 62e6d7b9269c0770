package unidata

import (
	"slices"
	"unicode/utf8"
)

// Form is a Unicode normalization form.
type Form uint8

// The four forms.
const (
	NFC Form = iota
	NFD
	NFKC
	NFKD
)

func (f Form) changes() Flags { return notNFC << f }

// Hangul syllables compose and decompose by arithmetic (Unicode 3.12).
const (
	hangulS, hangulL, hangulV, hangulT = 0xAC00, 0x1100, 0x1161, 0x11A7
	countL, countV, countT             = 19, 21, 28
	countS                             = countL * countV * countT
)

// markNormalForms sets notNFC and its siblings on every code point that is
// not sure to stay as it is, whatever stands around it. All others are
// starters that nothing before them joins: a text may be cut in front of one
// and its parts normalized alone.
func (t *Tables) markNormalForms(flags []Flags) {
	joins := make(map[rune]bool) // joins a starter before it
	stays := make(map[rune]bool) // decomposes, and composes again
	for pair, c := range t.composite {
		joins[pair[1]] = true
		stays[c] = true
	}
	for r := rune(hangulV); r < hangulV+countV; r++ {
		joins[r] = true
	}
	for r := rune(hangulT + 1); r < hangulT+countT; r++ {
		joins[r] = true
	}
	composed := notNFC | notNFKC
	decomposed := notNFD | notNFKD
	for r := range joins {
		flags[r] |= composed
	}
	for r := range t.class {
		flags[r] |= composed | decomposed
	}
	for r, d := range t.canonical {
		flags[r] |= decomposed
		if !stays[r] || t.class[d[0]] != 0 || joins[d[0]] {
			flags[r] |= composed
		}
	}
	for r := range t.compat {
		flags[r] |= notNFKC | notNFKD
	}
	for r := hangulS; r < hangulS+countS; r++ {
		flags[r] |= decomposed
	}
}

// Normal reports whether s is sure to be in form f, reading it once and
// allocating nothing. False means that only [Tables.AppendNormal] can tell.
func (t *Tables) Normal(f Form, s string) bool {
	_, found := t.nextChange(f.changes(), s, 0)
	return !found
}

// nextChange finds the first code point at or after i that has a flag of
// changes.
func (t *Tables) nextChange(changes Flags, s string, i int) (int, bool) {
	for i < len(s) {
		if s[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if t.Flags(r)&changes != 0 {
			return i, true
		}
		i += n
	}
	return len(s), false
}

// NextStretch returns the end of the stretch of s that begins at i. Each
// stretch normalizes by itself: it is sure to stay as it is, or holds what
// one change reaches.
func (t *Tables) NextStretch(f Form, s string, i int) int {
	changes := f.changes()
	at, found := t.nextChange(changes, s, i)
	if !found {
		return len(s)
	}
	start := at
	if start > i {
		_, n := utf8.DecodeLastRuneInString(s[i:at])
		start -= n
	}
	if start > i {
		return start
	}
	return t.stretchEnd(changes, s, at)
}

// stretchEnd returns where the next code point without a flag of changes
// stands at or after i.
func (t *Tables) stretchEnd(changes Flags, s string, i int) int {
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if t.Flags(r)&changes == 0 {
			break
		}
		i += n
	}
	return i
}

// AppendNormal appends s, which must be valid UTF-8, in form f to dst. It
// allocates nothing when dst and *work have room. It never inserts anything
// into long runs of combining marks, as the library doesn't.
func (t *Tables) AppendNormal(dst []byte, f Form, s string, work *[]rune) []byte {
	changes := f.changes()
	for done := 0; ; {
		at, found := t.nextChange(changes, s, done)
		if !found {
			return append(dst, s[done:]...)
		}
		// The stretch begins with the character before, which what
		// follows may join, and ends before the next sure one.
		start := at
		if start > done {
			_, n := utf8.DecodeLastRuneInString(s[done:at])
			start -= n
		}
		end := t.stretchEnd(changes, s, at)
		dst = append(dst, s[done:start]...)
		dst = t.appendStretch(dst, f, s[start:end], work)
		done = end
	}
}

func (t *Tables) appendStretch(dst []byte, f Form, s string, work *[]rune) []byte {
	runes := (*work)[:0]
	for _, r := range s {
		runes = t.appendDecomposed(runes, f, r)
	}
	t.order(runes)
	if f == NFC || f == NFKC {
		runes = t.compose(runes)
	}
	for _, r := range runes {
		dst = utf8.AppendRune(dst, r)
	}
	*work = runes
	return dst
}

func (t *Tables) appendDecomposed(dst []rune, f Form, r rune) []rune {
	if f >= NFKC {
		if d, ok := t.compat[r]; ok {
			return append(dst, d...)
		}
	}
	if d, ok := t.canonical[r]; ok {
		return append(dst, d...)
	}
	if n := r - hangulS; 0 <= n && n < countS {
		dst = append(dst, hangulL+n/(countV*countT), hangulV+n%(countV*countT)/countT)
		if n%countT != 0 {
			dst = append(dst, hangulT+n%countT)
		}
		return dst
	}
	return append(dst, r)
}

// order sorts each run of non-starters by class, keeping equals in place.
func (t *Tables) order(runes []rune) {
	for i := 0; i < len(runes); i++ {
		if t.class[runes[i]] == 0 {
			continue
		}
		end := i + 1
		for end < len(runes) && t.class[runes[end]] != 0 {
			end++
		}
		slices.SortStableFunc(runes[i:end], func(a, b rune) int { return int(t.class[a]) - int(t.class[b]) })
		i = end
	}
}

// compose joins pairs in place (Unicode 3.11, definition D117).
func (t *Tables) compose(runes []rune) []rune {
	out := runes[:0]
	starter, last := -1, uint8(0)
	for _, r := range runes {
		class := t.class[r]
		if starter >= 0 && (starter == len(out)-1 || last < class) {
			if c, ok := t.join(out[starter], r); ok {
				out[starter] = c
				continue
			}
		}
		if class == 0 {
			starter = len(out)
		}
		last = class
		out = append(out, r)
	}
	return out
}

func (t *Tables) join(a, b rune) (rune, bool) {
	if l, v := a-hangulL, b-hangulV; 0 <= l && l < countL && 0 <= v && v < countV {
		return hangulS + (l*countV+v)*countT, true
	}
	if s, n := a-hangulS, b-hangulT; 0 <= s && s < countS && s%countT == 0 && 0 < n && n < countT {
		return a + n, true
	}
	c, ok := t.composite[[2]rune{a, b}]
	return c, ok
}

// AppendLower appends s with each code point in lower case, without looking
// at what stands around it.
func (t *Tables) AppendLower(dst []byte, s string) []byte {
	for _, r := range s {
		if l, ok := t.lower[r]; ok {
			for _, r := range l {
				dst = utf8.AppendRune(dst, r)
			}
			continue
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}
