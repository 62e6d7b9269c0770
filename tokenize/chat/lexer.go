package chat

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokData
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
)

type token struct {
	kind tokenKind
	text string
	val  Value
	line int
}

// lexer mirrors jinja2/lexer.py with trim_blocks and lstrip_blocks set and
// keep_trailing_newline unset.
type lexer struct {
	src  string
	pos  int
	line int
	out  []token
	max  int
}

func lex(src string, max int) ([]token, error) {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	src = strings.TrimSuffix(src, "\n")
	l := &lexer{src: src, line: 1, max: max}
	if err := l.root(); err != nil {
		return nil, err
	}
	l.emit(tokEOF, "", nil)
	return l.out, nil
}

func (l *lexer) emit(kind tokenKind, text string, val Value) {
	l.out = append(l.out, token{kind: kind, text: text, val: val, line: l.line})
}

func (l *lexer) fail(format string, args ...any) error {
	return &SyntaxError{Line: l.line, Reason: fmt.Sprintf(format, args...)}
}

func (l *lexer) advance(to int) {
	l.line += strings.Count(l.src[l.pos:to], "\n")
	l.pos = to
}

func (l *lexer) root() error {
	lineStart := true
	for {
		i := l.pos
		for {
			j := strings.IndexByte(l.src[i:], '{')
			if j < 0 || i+j+1 >= len(l.src) {
				i = -1
				break
			}
			i += j
			if c := l.src[i+1]; c == '%' || c == '{' || c == '#' {
				break
			}
			i++
		}
		if i < 0 {
			if l.pos < len(l.src) {
				l.emit(tokData, l.src[l.pos:], nil)
			}
			return nil
		}
		text := l.src[l.pos:i]
		kind := l.src[i+1]
		after := i + 2
		sign := byte(0)
		if after < len(l.src) && (l.src[after] == '-' || l.src[after] == '+') {
			sign = l.src[after]
			after++
		}
		switch {
		case sign == '-':
			text = strings.TrimRightFunc(text, isSpace)
		case sign != '+' && kind != '{':
			nl := strings.LastIndexByte(text, '\n') + 1
			if (nl > 0 || lineStart) && strings.TrimLeftFunc(text[nl:], isSpace) == "" && text[nl:] != "" {
				text = text[:nl]
			}
		}
		if text != "" {
			l.emit(tokData, text, nil)
		}
		l.advance(after)
		if len(l.out) > l.max {
			return limitf("template of more than %d tokens", l.max)
		}
		var err error
		switch kind {
		case '#':
			err = l.comment()
		case '{':
			l.emit(tokVarBegin, "{{", nil)
			err = l.tag("}}", tokVarEnd, false)
		default:
			if body, ok := l.isRaw(); ok {
				l.advance(body)
				err = l.raw()
				break
			}
			l.emit(tokBlockBegin, "{%", nil)
			err = l.tag("%}", tokBlockEnd, true)
		}
		if err != nil {
			return err
		}
		lineStart = l.pos > 0 && l.src[l.pos-1] == '\n'
	}
}

// end consumes the closing of a tag at i: an optional sign, the delimiter,
// and the white space or newline that goes with it. It reports whether there
// is one.
func (l *lexer) end(i int, delim string, trim, plus bool) (int, bool) {
	rest := l.src[i:]
	if strings.HasPrefix(rest, "-"+delim) {
		rest = strings.TrimLeftFunc(rest[1+len(delim):], isSpace)
		return len(l.src) - len(rest), true
	}
	if plus && strings.HasPrefix(rest, "+"+delim) {
		return i + 1 + len(delim), true
	}
	if !strings.HasPrefix(rest, delim) {
		return 0, false
	}
	i += len(delim)
	if trim && i < len(l.src) && l.src[i] == '\n' {
		i++
	}
	return i, true
}

func (l *lexer) comment() error {
	for i := l.pos; i < len(l.src); i++ {
		if c := l.src[i]; c == '#' || c == '-' || c == '+' {
			if to, ok := l.end(i, "#}", true, true); ok {
				l.advance(to)
				return nil
			}
		}
	}
	return l.fail("missing end of comment tag")
}

func (l *lexer) isRaw() (int, bool) {
	rest := strings.TrimLeftFunc(l.src[l.pos:], isSpace)
	if !strings.HasPrefix(rest, "raw") {
		return 0, false
	}
	rest = strings.TrimLeftFunc(rest[3:], isSpace)
	i := len(l.src) - len(rest)
	return l.end(i, "%}", false, false)
}

func (l *lexer) raw() error {
	for i := l.pos; ; i++ {
		j := strings.Index(l.src[i:], "{%")
		if j < 0 {
			return l.fail("missing end of raw directive")
		}
		i += j
		k := i + 2
		sign := byte(0)
		if k < len(l.src) && (l.src[k] == '-' || l.src[k] == '+') {
			sign = l.src[k]
			k++
		}
		rest := strings.TrimLeftFunc(l.src[k:], isSpace)
		if !strings.HasPrefix(rest, "endraw") {
			continue
		}
		rest = strings.TrimLeftFunc(rest[6:], isSpace)
		to, ok := l.end(len(l.src)-len(rest), "%}", true, true)
		if !ok {
			continue
		}
		text := l.src[l.pos:i]
		if sign == '-' {
			text = strings.TrimRightFunc(text, isSpace)
		} else if nl := strings.LastIndexByte(text, '\n') + 1; sign == 0 && nl > 0 && strings.TrimLeftFunc(text[nl:], isSpace) == "" {
			text = text[:nl]
		}
		if text != "" {
			l.emit(tokData, text, nil)
		}
		l.advance(to)
		return nil
	}
}

var operators = []string{
	"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
	">", "<", "=", ".", ":", "|", ",", ";",
}

// tag reads tokens up to the closing delimiter.
func (l *lexer) tag(delim string, endKind tokenKind, block bool) error {
	var open []byte
	for {
		for l.pos < len(l.src) {
			r, n := utf8.DecodeRuneInString(l.src[l.pos:])
			if !isSpace(r) {
				break
			}
			l.advance(l.pos + n)
		}
		if l.pos >= len(l.src) {
			return l.fail("unexpected end of template inside a tag")
		}
		if len(open) == 0 {
			if to, ok := l.end(l.pos, delim, block, block); ok {
				l.emit(endKind, delim, nil)
				l.advance(to)
				return nil
			}
		}
		c := l.src[l.pos]
		var err error
		switch {
		case c >= '0' && c <= '9':
			err = l.number()
		case c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z':
			i := l.pos + 1
			for i < len(l.src) && (l.src[i] == '_' || l.src[i]|0x20 >= 'a' && l.src[i]|0x20 <= 'z' || l.src[i] >= '0' && l.src[i] <= '9') {
				i++
			}
			if i < len(l.src) && l.src[i] >= utf8.RuneSelf {
				return &UnsupportedError{Kind: "name", Name: l.src[l.pos:i] + "...", Line: l.line}
			}
			l.emit(tokName, l.src[l.pos:i], nil)
			l.pos = i
		case c == '\'' || c == '"':
			err = l.str(c)
		default:
			err = l.operator(&open)
		}
		if err != nil {
			return err
		}
	}
}

func (l *lexer) operator(open *[]byte) error {
	for _, op := range operators {
		if !strings.HasPrefix(l.src[l.pos:], op) {
			continue
		}
		switch op {
		case "{":
			*open = append(*open, '}')
		case "(":
			*open = append(*open, ')')
		case "[":
			*open = append(*open, ']')
		case "}", ")", "]":
			n := len(*open)
			if n == 0 || (*open)[n-1] != op[0] {
				return l.fail("unexpected %q", op)
			}
			*open = (*open)[:n-1]
		}
		if len(*open) > maxNesting {
			return limitf("more than %d nested brackets", maxNesting)
		}
		l.emit(tokOp, op, nil)
		l.pos += len(op)
		return nil
	}
	r, _ := utf8.DecodeRuneInString(l.src[l.pos:])
	return l.fail("unexpected character %q", r)
}

// number reads decimal integers and floats; other bases are refused.
func (l *lexer) number() error {
	i := l.pos
	digits := func() {
		for i < len(l.src) && (l.src[i] >= '0' && l.src[i] <= '9' || l.src[i] == '_') {
			i++
		}
	}
	digits()
	float := false
	// In "a.0.b" the dot of an attribute is no fraction: Jinja's expression
	// has a lookbehind for it.
	afterDot := l.pos > 0 && l.src[l.pos-1] == '.'
	if !afterDot && i+1 < len(l.src) && l.src[i] == '.' && l.src[i+1] >= '0' && l.src[i+1] <= '9' {
		float = true
		i++
		digits()
	}
	if !afterDot && i < len(l.src) && l.src[i]|0x20 == 'e' {
		j := i + 1
		if j < len(l.src) && (l.src[j] == '+' || l.src[j] == '-') {
			j++
		}
		if j < len(l.src) && l.src[j] >= '0' && l.src[j] <= '9' {
			float = true
			i = j
			digits()
		}
	}
	if i < len(l.src) && l.src[i]|0x20 >= 'a' && l.src[i]|0x20 <= 'z' {
		return &UnsupportedError{Kind: "number", Name: l.src[l.pos : i+1], Line: l.line}
	}
	text := strings.ReplaceAll(l.src[l.pos:i], "_", "")
	if float {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return l.fail("number %s is out of range", text)
		}
		l.emit(tokFloat, text, f)
	} else {
		n, ok := new(big.Int).SetString(text, 10)
		if !ok || !n.IsInt64() || len(text) > 1 && text[0] == '0' {
			return &UnsupportedError{Kind: "number", Name: text, Line: l.line}
		}
		l.emit(tokInt, text, n.Int64())
	}
	l.pos = i
	return nil
}

// str reads a string literal and resolves its escapes as Python's
// unicode-escape codec does.
func (l *lexer) str(quote byte) error {
	var b []byte
	for i := l.pos + 1; i < len(l.src); {
		c := l.src[i]
		if c == quote {
			if !utf8.Valid(b) {
				return &UnsupportedError{Kind: "escape", Name: "lone surrogate", Line: l.line}
			}
			l.emit(tokString, "", string(b))
			l.advance(i + 1)
			return nil
		}
		if c != '\\' {
			b = append(b, c)
			i++
			continue
		}
		if i+1 >= len(l.src) {
			break
		}
		i += 2
		hex := 0
		switch e := l.src[i-1]; e {
		case '\n':
		case '\\', '\'', '"':
			b = append(b, e)
		case 'a', 'b', 'f', 'n', 'r', 't', 'v':
			b = append(b, "\a\b\f\n\r\t\v"[strings.IndexByte("abfnrtv", e)])
		case 'x':
			hex = 2
		case 'u':
			hex = 4
		case 'U':
			hex = 8
		case 'N', '0', '1', '2', '3', '4', '5', '6', '7':
			return &UnsupportedError{Kind: "escape", Name: "\\" + string(e), Line: l.line}
		default:
			b = append(b, '\\')
			i-- // the character itself is read next, whatever it is
		}
		if hex == 0 {
			continue
		}
		if i+hex > len(l.src) {
			break
		}
		n, err := strconv.ParseUint(l.src[i:i+hex], 16, 32)
		if err != nil || n > utf8.MaxRune {
			return l.fail("bad escape in a string")
		}
		if n >= 0xd800 && n < 0xe000 {
			return &UnsupportedError{Kind: "escape", Name: "lone surrogate", Line: l.line}
		}
		b = utf8.AppendRune(b, rune(n))
		i += hex
	}
	return l.fail("string without end")
}
