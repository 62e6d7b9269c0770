package tokenize

import (
	"strings"
	"unicode/utf8"

	"github.com/kvatlas/kvatlas/tokenize/internal/unidata"
)

// A splitFunc is one regular expression of a pre-tokenizer, written by hand.
// It returns the first match in s that begins at i or later, leftmost first
// as the regex engine finds it; start == end == len(s) says that there is
// none. What lies between matches is a piece too. s ends where the piece
// that is being split ends: lookahead sees nothing behind it.
type splitFunc func(u *unidata.Tables, s string, i int) (start, end int)

// patternSplitter is what is known about one way to split.
type patternSplitter struct {
	split splitFunc
	// covers says that every character of any text belongs to a match, so
	// that there is nothing between matches.
	covers bool
	// words says that a match never holds a space behind something that is no
	// white space, nor white space behind a letter or digit, nor punctuation
	// other than ' behind a letter; and that where there is one, what matches
	// on either side does not depend on the other.
	words bool
}

// The regular expressions that are known, by their exact text. Two that
// differ in one character are different patterns: there is no parser to get
// the difference wrong.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternCl100k = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternO200k  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` +
		`|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternDigits3  = `\p{N}{1,3}`
	patternCJK      = `[一-龥぀-ゟ゠-ヿ]+`
	patternDeepSeek = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
		"|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// splitKind names what splits a text. The compact form of a tokenizer holds
// its numbers: new ones go to the end.
type splitKind uint8

const (
	kindGPT2 splitKind = iota
	kindCl100k
	kindQwen
	kindO200k
	kindTekken
	kindDigits3
	kindCJK
	kindDeepSeek
	kindDigit    // pre-tokenizer Digits, individual_digits
	kindDigitRun // the same without
	splitKinds
)

var patterns = map[string]splitKind{
	patternGPT2: kindGPT2, patternCl100k: kindCl100k, patternQwen: kindQwen, patternO200k: kindO200k, patternTekken: kindTekken,
	patternDigits3: kindDigits3, patternCJK: kindCJK, patternDeepSeek: kindDeepSeek,
}

var splitters = [splitKinds]patternSplitter{
	kindGPT2:     {splitGPT2, true, true},
	kindCl100k:   {splitCl100k, true, true},
	kindQwen:     {splitQwen, true, true},
	kindO200k:    {splitO200k, true, true},
	kindTekken:   {splitTekken, true, true},
	kindDigits3:  {splitDigits3, false, false},
	kindCJK:      {splitCJK, false, false},
	kindDeepSeek: {splitDeepSeek, false, true},
	kindDigit:    {splitDigit, false, false},
	kindDigitRun: {splitDigitRun, false, false},
}

// Classes that the patterns tell apart. Each character has exactly one.
const (
	letter  uint8 = 1 << iota // \p{L}
	digit                     // \p{N}
	space                     // \s but not \r and \n
	newline                   // [\r\n]
	other                     // the rest
)

var asciiClass = func() (table [utf8.RuneSelf]uint8) {
	for c := range table {
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
			table[c] = letter
		case '0' <= c && c <= '9':
			table[c] = digit
		case c == '\r' || c == '\n':
			table[c] = newline
		case c == ' ' || '\t' <= c && c <= '\r':
			table[c] = space
		default:
			table[c] = other
		}
	}
	return table
}()

// classAt returns the class and length of the character at i.
func classAt(u *unidata.Tables, s string, i int) (class uint8, size int) {
	if c := s[i]; c < utf8.RuneSelf {
		return asciiClass[c], 1
	}
	return wideClass(u, s[i:])
}

func wideClass(u *unidata.Tables, s string) (class uint8, size int) {
	r, size := utf8.DecodeRuneInString(s)
	switch f := u.Flags(r); {
	case f&unidata.L != 0:
		return letter, size
	case f&unidata.N != 0:
		return digit, size
	case f&unidata.Space != 0:
		return space, size
	default:
		return other, size
	}
}

// run returns where the run of characters of any of the classes ends that
// begins at i.
func run(u *unidata.Tables, s string, i int, classes uint8) int {
	for i < len(s) {
		class, size := classAt(u, s, i)
		if class&classes == 0 {
			break
		}
		i += size
	}
	return i
}

// whiteSpace matches \s*[\r\n]+|\s+(?!\S)|\s+ (without the first when not
// lines) at i, where white space stands.
func whiteSpace(u *unidata.Tables, s string, i int, lines bool) int {
	lastLine, before := -1, i // end of the last newline; start of the last character
	end := i
	for end < len(s) {
		class, size := classAt(u, s, end)
		if class&(space|newline) == 0 {
			break
		}
		before = end
		end += size
		if class == newline {
			lastLine = end
		}
	}
	switch {
	case lines && lastLine >= 0:
		return lastLine
	case end < len(s) && before > i:
		return before // leaves the last one to what follows
	default:
		return end
	}
}

// contraction returns the length of the match of (?i:'s|'t|'re|'ve|'m|'ll|'d)
// at i, 0 if there is none. U+017F folds to s.
func contraction(s string, i int) int {
	if i+1 >= len(s) || s[i] != '\'' {
		return 0
	}
	switch s[i+1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if i+2 < len(s) && s[i+2]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if i+2 < len(s) && s[i+2]|0x20 == 'l' {
			return 3
		}
	}
	if i+2 < len(s) && s[i+1] == "\u017f"[0] && s[i+2] == "\u017f"[1] {
		return 3
	}
	return 0
}

// contractionExact is contraction without the folding of case.
func contractionExact(s string, i int) int {
	n := contraction(s, i)
	for _, c := range []byte(s[i+1 : i+max(n, 1)]) {
		if c < 'a' || 'z' < c {
			return 0
		}
	}
	return n
}

func splitGPT2(u *unidata.Tables, s string, i int) (int, int) {
	if i >= len(s) {
		return len(s), len(s)
	}
	if s[i] == '\'' {
		if n := contractionExact(s, i); n > 0 {
			return i, i + n
		}
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	if j < len(s) {
		class, size := classAt(u, s, j)
		if class&(letter|digit|other) != 0 {
			return i, run(u, s, j+size, class)
		}
	}
	return i, whiteSpace(u, s, i, false)
}

func splitCl100k(u *unidata.Tables, s string, i int) (int, int) { return splitCl(u, s, i, 3) }

func splitQwen(u *unidata.Tables, s string, i int) (int, int) { return splitCl(u, s, i, 1) }

// splitCl is cl100k's pattern with digits in pieces of up to digits.
func splitCl(u *unidata.Tables, s string, i, digits int) (int, int) {
	if i >= len(s) {
		return len(s), len(s)
	}
	if s[i] == '\'' {
		if n := contraction(s, i); n > 0 {
			return i, i + n
		}
	}
	class, size := classAt(u, s, i)
	switch class {
	case letter:
		return i, run(u, s, i+size, letter)
	case digit:
		return i, upTo(u, s, i+size, digits-1)
	case newline:
		return i, whiteSpace(u, s, i, true)
	}
	// Any other character may lead a word.
	j := i + size
	next, nextSize := uint8(0), 0
	if j < len(s) {
		next, nextSize = classAt(u, s, j)
		if next == letter {
			return i, run(u, s, j+nextSize, letter)
		}
	}
	switch {
	case class == other:
		j = run(u, s, j, other)
	case s[i] == ' ' && next == other:
		j = run(u, s, j+nextSize, other)
	default:
		return i, whiteSpace(u, s, i, true)
	}
	return i, newlines(s, j)
}

// upTo returns the end of at most n more digits at i.
func upTo(u *unidata.Tables, s string, i, n int) int {
	for ; n > 0 && i < len(s); n-- {
		class, size := classAt(u, s, i)
		if class != digit {
			break
		}
		i += size
	}
	return i
}

func newlines(s string, i int) int {
	for i < len(s) && (s[i] == '\r' || s[i] == '\n') {
		i++
	}
	return i
}

func splitO200k(u *unidata.Tables, s string, i int) (int, int) {
	return splitO(u, s, i, 3, contraction)
}

func splitTekken(u *unidata.Tables, s string, i int) (int, int) {
	return splitO(u, s, i, 1, func(string, int) int { return 0 })
}

// splitO is o200k's pattern with digits in pieces of up to digits and what
// may be appended to a word.
func splitO(u *unidata.Tables, s string, i, digits int, suffix func(s string, i int) int) (int, int) {
	if i >= len(s) {
		return len(s), len(s)
	}
	class, size := classAt(u, s, i)
	switch class {
	case letter:
		end, _ := o200kMatch(u, s, i)
		return i, end + suffix(s, end)
	case digit:
		return i, upTo(u, s, i+size, digits-1)
	case newline:
		return i, whiteSpace(u, s, i, true)
	}
	// Both alternatives try with the character as a leader before they try
	// without; without, only a combining mark can begin a word. But the
	// first alternative is tried in both ways before the second.
	j := i + size
	lead, leadLower := o200kMatch(u, s, j)
	if leadLower {
		return i, lead + suffix(s, lead)
	}
	if class == other && s[i] >= utf8.RuneSelf {
		if alone, lower := o200kMatch(u, s, i); lower {
			return i, alone + suffix(s, alone)
		}
	}
	if lead > j {
		return i, lead + suffix(s, lead)
	}
	if class == space {
		if s[i] != ' ' || j >= len(s) {
			return i, whiteSpace(u, s, i, true)
		}
		next, nextSize := classAt(u, s, j)
		if next != other {
			return i, whiteSpace(u, s, i, true)
		}
		j += nextSize
	}
	j = run(u, s, j, other)
	for j < len(s) && (s[j] == '\r' || s[j] == '\n' || s[j] == '/') {
		j++
	}
	return i, j
}

// o200kMatch matches U*W+ at i, and when that fails U+W*, where U is
// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and W is [\p{Ll}\p{Lm}\p{Lo}\p{M}]. It
// returns the end of the match, i if there is none, and whether the first
// one matched.
func o200kMatch(u *unidata.Tables, s string, i int) (end int, lower bool) {
	const upper, lowers = unidata.Lu | unidata.Lt | unidata.Lm | unidata.Lo | unidata.M, unidata.Ll | unidata.Lm | unidata.Lo | unidata.M
	both := -1 // end of the last character of the run of U that is a W too
	for i < len(s) {
		var f unidata.Flags
		size := 1
		if c := s[i]; c < utf8.RuneSelf {
			f = asciiFlags[c]
		} else {
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			f = u.Flags(r)
		}
		if f&upper == 0 {
			break
		}
		i += size
		if f&lowers != 0 {
			both = i
		}
	}
	end = i
	for end < len(s) {
		if c := s[end]; c < utf8.RuneSelf {
			if asciiFlags[c]&lowers == 0 {
				break
			}
			end++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[end:])
		if u.Flags(r)&lowers == 0 {
			break
		}
		end += size
	}
	switch {
	case end > i:
		return end, true
	case both >= 0:
		return both, true // U* gives back what follows its last W
	default:
		return i, false
	}
}

// asciiFlags are the flags of ASCII characters that the patterns ask for. A
// test compares them with the tables.
var asciiFlags = func() (table [utf8.RuneSelf]unidata.Flags) {
	for c := range table {
		switch r := rune(c); {
		case 'A' <= r && r <= 'Z':
			table[c] = unidata.Lu
		case 'a' <= r && r <= 'z':
			table[c] = unidata.Ll
		case '0' <= r && r <= '9':
			table[c] = unidata.N
		case strings.ContainsRune("$+<=>^`|~", r):
			table[c] = unidata.S
		case '!' <= r && r <= '~':
			table[c] = unidata.P
		case r == ' ' || '\t' <= r && r <= '\r':
			table[c] = unidata.Space
		}
	}
	return table
}()

func splitDigits3(u *unidata.Tables, s string, i int) (int, int) {
	for i < len(s) {
		if c := s[i]; c < utf8.RuneSelf && c-'0' > 9 {
			i++
			continue
		}
		class, size := classAt(u, s, i)
		if class == digit {
			return i, upTo(u, s, i+size, 2)
		}
		i += size
	}
	return len(s), len(s)
}

// splitDigit and splitDigitRun are the pre-tokenizer Digits with
// individual_digits true and false; its digits are \p{N}.
func splitDigit(u *unidata.Tables, s string, i int) (int, int) {
	start, _ := splitDigits3(u, s, i)
	return start, upTo(u, s, start, 1)
}

func splitDigitRun(u *unidata.Tables, s string, i int) (int, int) {
	start, _ := splitDigits3(u, s, i)
	return start, run(u, s, start, digit)
}

func splitCJK(_ *unidata.Tables, s string, i int) (int, int) {
	start := -1
	for i < len(s) {
		// The first byte of U+3040 is E3. Bytes inside of a character are
		// smaller and may be passed one by one.
		if s[i] < 0xE3 && start < 0 {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		in := '一' <= r && r <= '龥' || '぀' <= r && r <= 'ヿ'
		switch {
		case in && start < 0:
			start = i
		case !in && start >= 0:
			return start, i
		}
		i += size
	}
	if start >= 0 {
		return start, i
	}
	return len(s), len(s)
}

func splitDeepSeek(u *unidata.Tables, s string, i int) (int, int) {
	for i < len(s) {
		end, size := deepSeekAt(u, s, i)
		if end > i {
			return i, end
		}
		i += size
	}
	return len(s), len(s)
}

// deepSeekAt matches at i and returns i when nothing does, with the length
// of the character there.
func deepSeekAt(u *unidata.Tables, s string, i int) (end, size int) {
	const letters, punctuation = unidata.L | unidata.M, unidata.P | unidata.S
	f, size := flagsAt(u, s, i)
	if c := s[i]; c < utf8.RuneSelf && f&punctuation != 0 {
		j := i + 1
		for j < len(s) && s[j] < utf8.RuneSelf && asciiClass[s[j]] == letter {
			j++
		}
		if j > i+1 {
			return j, size
		}
	}
	if f&letters != 0 {
		return runFlags(u, s, i+size, letters), size
	}
	j := i + size
	next, nextSize := unidata.Flags(0), 0
	if j < len(s) {
		next, nextSize = flagsAt(u, s, j)
	}
	if f&punctuation != 0 {
		return newlines(s, runFlags(u, s, j, punctuation)), size
	}
	if next&letters != 0 && s[i] != '\r' && s[i] != '\n' {
		return runFlags(u, s, j+nextSize, letters), size
	}
	if s[i] == ' ' && next&punctuation != 0 {
		return newlines(s, runFlags(u, s, j+nextSize, punctuation)), size
	}
	if f&unidata.Space != 0 {
		return whiteSpace(u, s, i, true), size
	}
	return i, size
}

func flagsAt(u *unidata.Tables, s string, i int) (unidata.Flags, int) {
	if c := s[i]; c < utf8.RuneSelf {
		return asciiFlags[c], 1
	}
	r, size := utf8.DecodeRuneInString(s[i:])
	return u.Flags(r), size
}

func runFlags(u *unidata.Tables, s string, i int, flags unidata.Flags) int {
	for i < len(s) {
		f, size := flagsAt(u, s, i)
		if f&flags == 0 {
			break
		}
		i += size
	}
	return i
}
