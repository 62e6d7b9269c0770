// Package jsonscan reads JSON in one pass, without building a tree.
package jsonscan

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Scanner reads JSON in one pass. A vocabulary of 30 MB takes it a tenth of the
// time that encoding/json takes. Strings that it returns share the memory of
// the text where they hold no escapes.
type Scanner struct {
	data string
	pos  int
}

// New returns a scanner at the beginning of data.
func New(data string) *Scanner { return &Scanner{data: data} }

// Pos returns how far the scanner is, in bytes.
func (s *Scanner) Pos() int { return s.pos }

// Seek puts the scanner back to a place that Pos returned.
func (s *Scanner) Seek(pos int) { s.pos = pos }

// From returns the text from a position that Pos returned to this one.
func (s *Scanner) From(pos int) string { return s.data[pos:s.pos] }

// Len returns the length of the text.
func (s *Scanner) Len() int { return len(s.data) }

// MaxDepth is how deep arrays and objects may nest.
const MaxDepth = 64

// SyntaxError is what a Scanner returns; who uses one makes an error of its
// own of it.
type SyntaxError struct {
	Offset int
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.Offset, e.Reason) }

func (s *Scanner) Fail(reason string) error { return &SyntaxError{s.pos, reason} }

// Peek skips white space and returns the next byte, 0 at the end.
func (s *Scanner) Peek() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\n', '\t', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// End reports that nothing but white space is left.
func (s *Scanner) End() bool { return s.Peek() == 0 && s.pos == len(s.data) }

func (s *Scanner) Expect(c byte) error {
	if s.Peek() != c {
		return s.Fail("expected " + strconv.QuoteRune(rune(c)))
	}
	s.pos++
	return nil
}

// Object calls field for each key, with the scanner before its value, which
// field must read.
func (s *Scanner) Object(field func(key string) error) error {
	if err := s.Expect('{'); err != nil {
		return err
	}
	if s.Peek() == '}' {
		s.pos++
		return nil
	}
	for {
		key, err := s.Str()
		if err != nil {
			return err
		}
		if err := s.Expect(':'); err != nil {
			return err
		}
		if err := field(key); err != nil {
			return err
		}
		switch s.Peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return nil
		default:
			return s.Fail("expected ',' or '}'")
		}
	}
}

// Array calls item with the scanner before each value, which item must read.
func (s *Scanner) Array(item func() error) error {
	if err := s.Expect('['); err != nil {
		return err
	}
	if s.Peek() == ']' {
		s.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch s.Peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return nil
		default:
			return s.Fail("expected ',' or ']'")
		}
	}
}

// Str reads a string. The result shares the scanner's memory when it holds
// no escapes.
func (s *Scanner) Str() (string, error) {
	if err := s.Expect('"'); err != nil {
		return "", err
	}
	text := s.plain()
	if s.pos < len(s.data) && s.data[s.pos] == '"' {
		s.pos++
		return text, nil
	}
	b := []byte(text)
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return string(b), nil
		case c != '\\':
			return "", s.Fail("control character in a string")
		}
		r, err := s.escape()
		if err != nil {
			return "", err
		}
		b = append(utf8.AppendRune(b, r), s.plain()...)
	}
	return "", s.Fail("string without end")
}

// skipStr is str without its result.
func (s *Scanner) skipStr() error {
	if err := s.Expect('"'); err != nil {
		return err
	}
	for {
		s.plain()
		switch {
		case s.pos >= len(s.data):
			return s.Fail("string without end")
		case s.data[s.pos] == '"':
			s.pos++
			return nil
		case s.data[s.pos] != '\\':
			return s.Fail("control character in a string")
		}
		if _, err := s.escape(); err != nil {
			return err
		}
	}
}

// plain passes what needs no attention in a string, and returns it.
func (s *Scanner) plain() string {
	start := s.pos
	for s.pos < len(s.data) && !needsAttention[s.data[s.pos]] {
		s.pos++
	}
	return s.data[start:s.pos]
}

var needsAttention = func() (table [256]bool) {
	for c := range ' ' {
		table[c] = true
	}
	table['"'], table['\\'] = true, true
	return table
}()

// escape reads what begins with a backslash.
func (s *Scanner) escape() (rune, error) {
	if s.pos+1 >= len(s.data) {
		return 0, s.Fail("string without end")
	}
	c := s.data[s.pos+1]
	if c == 'u' {
		return s.unicodeEscape()
	}
	const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	i := strings.IndexByte(from, c)
	if i < 0 {
		return 0, s.Fail("unknown escape")
	}
	s.pos += 2
	return rune(to[i]), nil
}

// unicodeEscape reads one \uXXXX or a pair of surrogates.
func (s *Scanner) unicodeEscape() (rune, error) {
	hex := func() (rune, bool) {
		if s.pos+6 > len(s.data) || s.data[s.pos] != '\\' || s.data[s.pos+1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(s.data[s.pos+2:s.pos+6], 16, 32)
		if err != nil {
			return 0, false
		}
		s.pos += 6
		return rune(n), true
	}
	r, ok := hex()
	if !ok {
		return 0, s.Fail("malformed \\u escape")
	}
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	low, ok := hex()
	r = utf16.DecodeRune(r, low)
	if !ok || r == utf8.RuneError {
		return 0, s.Fail("lone surrogate")
	}
	return r, nil
}

// Number reads a non-negative whole number below 2^32.
func (s *Scanner) Number() (uint32, error) {
	s.Peek()
	start := s.pos
	for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
		s.pos++
	}
	n, err := strconv.ParseUint(s.data[start:s.pos], 10, 32)
	if err != nil || s.data[start] == '0' && s.pos > start+1 {
		s.pos = start
		return 0, s.Fail("expected a number from 0 to 4294967295")
	}
	return uint32(n), nil
}

// Raw reads one value of any kind, checks all of it, and returns its text.
func (s *Scanner) Raw() (string, error) {
	s.Peek()
	start := s.pos
	if err := s.skip(0); err != nil {
		return "", err
	}
	return s.data[start:s.pos], nil
}

func (s *Scanner) skip(depth int) error {
	if depth > MaxDepth {
		return s.Fail("nested too deeply")
	}
	switch c := s.Peek(); c {
	case '"':
		return s.skipStr()
	case '[':
		return s.Array(func() error { return s.skip(depth + 1) })
	case '{':
		return s.Object(func(string) error { return s.skip(depth + 1) })
	case 't', 'f', 'n':
		for _, word := range []string{"true", "false", "null"} {
			if strings.HasPrefix(s.data[s.pos:], word) {
				s.pos += len(word)
				return nil
			}
		}
		return s.Fail("expected a value")
	}
	return s.skipNumber()
}

// skipNumber passes a number as JSON has it, which Python's NaN and Infinity
// are not.
func (s *Scanner) skipNumber() error {
	digits := func() bool {
		start := s.pos
		for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
			s.pos++
		}
		return s.pos > start
	}
	next := func(c string) bool {
		if s.pos < len(s.data) && strings.IndexByte(c, s.data[s.pos]) >= 0 {
			s.pos++
			return true
		}
		return false
	}
	next("-")
	if next("0") || digits() {
		if next(".") && !digits() {
			return s.Fail("expected a digit")
		}
		if next("eE") {
			next("+-")
			if !digits() {
				return s.Fail("expected a digit")
			}
		}
		return nil
	}
	return s.Fail("expected a value")
}
