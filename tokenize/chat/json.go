package chat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// JSONError is returned by [ParseJSON] for what is not JSON, or is more than
// its limits allow.
type JSONError struct {
	// Offset is the byte where reading stopped.
	Offset int
	Reason string
}

// Error says what is wrong, and where.
func (e *JSONError) Error() string { return fmt.Sprintf("chat: JSON, byte %d: %s", e.Offset, e.Reason) }

// MaxDepth is how deep arrays and objects may be nested in JSON.
const MaxDepth = 100

// ParseJSON reads one JSON value as Python's json module does: the order of
// keys is kept, of equal keys the last one counts, integers stay integers.
// Integers beyond 64 bits, numbers that are not finite and strings that are
// not valid Unicode are refused. Nesting is limited to [MaxDepth]. It is safe
// on untrusted input; memory is at most proportional to it.
func ParseJSON(data []byte) (Value, error) {
	p := &jsonParser{src: string(data)}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.pos != len(p.src) {
		return nil, p.fail("something follows the value")
	}
	return v, nil
}

type jsonParser struct {
	src string
	pos int
}

func (p *jsonParser) fail(reason string) error { return &JSONError{p.pos, reason} }

func (p *jsonParser) space() {
	for p.pos < len(p.src) && strings.IndexByte(" \t\n\r", p.src[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *jsonParser) value(depth int) (Value, error) {
	p.space()
	if p.pos >= len(p.src) {
		return nil, p.fail("a value is missing")
	}
	if depth > MaxDepth {
		return nil, p.fail("nested too deep")
	}
	switch c := p.src[p.pos]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		return p.str()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	for word, v := range map[string]Value{"true": true, "false": false, "null": nil} {
		if strings.HasPrefix(p.src[p.pos:], word) {
			p.pos += len(word)
			return v, nil
		}
	}
	return nil, p.fail("no value begins like this")
}

func (p *jsonParser) object(depth int) (Value, error) {
	p.pos++
	d := &Dict{}
	for {
		p.space()
		if p.pos < len(p.src) && p.src[p.pos] == '}' && d.Len() == 0 {
			p.pos++
			return d, nil
		}
		if p.pos >= len(p.src) || p.src[p.pos] != '"' {
			return nil, p.fail("a key is missing")
		}
		key, err := p.str()
		if err != nil {
			return nil, err
		}
		p.space()
		if p.pos >= len(p.src) || p.src[p.pos] != ':' {
			return nil, p.fail("a colon is missing")
		}
		p.pos++
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		d.put(key, v)
		more, err := p.more('}')
		if err != nil || !more {
			return d, err
		}
	}
}

func (p *jsonParser) array(depth int) (Value, error) {
	p.pos++
	l := &List{}
	p.space()
	if p.pos < len(p.src) && p.src[p.pos] == ']' {
		p.pos++
		return l, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		l.Items = append(l.Items, v)
		more, err := p.more(']')
		if err != nil || !more {
			return l, err
		}
	}
}

// more consumes a comma, or the end.
func (p *jsonParser) more(end byte) (bool, error) {
	p.space()
	if p.pos < len(p.src) {
		c := p.src[p.pos]
		if c == ',' || c == end {
			p.pos++
			return c == ',', nil
		}
	}
	return false, p.fail("a comma or the end is missing")
}

func (p *jsonParser) number() (Value, error) {
	start := p.pos
	digits := func() bool {
		n := p.pos
		for p.pos < len(p.src) && p.src[p.pos] >= '0' && p.src[p.pos] <= '9' {
			p.pos++
		}
		return p.pos > n
	}
	if p.src[p.pos] == '-' {
		p.pos++
	}
	zero := p.pos < len(p.src) && p.src[p.pos] == '0'
	first := p.pos
	if !digits() || zero && p.pos > first+1 {
		return nil, p.fail("not a number")
	}
	float := false
	if p.pos < len(p.src) && p.src[p.pos] == '.' {
		float = true
		p.pos++
		if !digits() {
			return nil, p.fail("not a number")
		}
	}
	if p.pos < len(p.src) && p.src[p.pos]|0x20 == 'e' {
		float = true
		p.pos++
		if p.pos < len(p.src) && (p.src[p.pos] == '+' || p.src[p.pos] == '-') {
			p.pos++
		}
		if !digits() {
			return nil, p.fail("not a number")
		}
	}
	text := p.src[start:p.pos]
	if !float {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return i, nil
		}
		return nil, p.fail("integer beyond 64 bits")
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return nil, p.fail("number out of range")
	}
	return f, nil
}

func (p *jsonParser) str() (string, error) {
	start := p.pos + 1
	for i := start; i < len(p.src); i++ {
		switch c := p.src[i]; {
		case c == '"':
			s := p.src[start:i]
			if !utf8.ValidString(s) {
				return "", p.fail("a string is not UTF-8")
			}
			p.pos = i + 1
			return s, nil
		case c == '\\':
			return p.escaped(start, i)
		case c < 0x20:
			p.pos = i
			return "", p.fail("control character in a string")
		}
	}
	return "", p.fail("a string has no end")
}

// escaped reads a string from the first escape on.
func (p *jsonParser) escaped(start, i int) (string, error) {
	b := append(make([]byte, 0, i-start+32), p.src[start:i]...)
	for i < len(p.src) {
		c := p.src[i]
		i++
		switch {
		case c == '"':
			if !utf8.Valid(b) {
				return "", p.fail("a string is not UTF-8")
			}
			p.pos = i
			return string(b), nil
		case c < 0x20:
			p.pos = i
			return "", p.fail("control character in a string")
		case c != '\\':
			b = append(b, c)
			continue
		}
		if i >= len(p.src) {
			break
		}
		c = p.src[i]
		i++
		if j := strings.IndexByte(`"\/bfnrt`, c); j >= 0 {
			b = append(b, "\"\\/\b\f\n\r\t"[j])
			continue
		}
		r, ok := hex4(p.src, i)
		if c != 'u' || !ok {
			p.pos = i
			return "", p.fail("bad escape")
		}
		i += 4
		if utf16.IsSurrogate(r) {
			low, ok := rune(0), false
			if strings.HasPrefix(p.src[i:], `\u`) {
				low, ok = hex4(p.src, i+2)
			}
			if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
				p.pos = i
				return "", p.fail("half of a surrogate pair")
			}
			i += 6
		}
		b = utf8.AppendRune(b, r)
	}
	return "", p.fail("a string has no end")
}

func hex4(s string, i int) (rune, bool) {
	if i+4 > len(s) {
		return 0, false
	}
	n, err := strconv.ParseUint(s[i:i+4], 16, 32)
	return rune(n), err == nil && s[i] != '+' && s[i] != '-'
}

// dumper is json.dumps.
type dumper struct {
	ascii     bool
	sortKeys  bool
	indent    string
	multiline bool
	item, key string
}

func tojsonFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("tojson", args, kwargs, "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return nil, err
	}
	d := dumper{ascii: truth(or(p[0], false)), sortKeys: truth(or(p[3], false)), item: ", ", key: ": "}
	switch n := or(p[1], nil).(type) {
	case nil:
	case int64:
		d.multiline, d.indent, d.item = true, strings.Repeat(" ", int(max(0, min(n, 64)))), ","
	case string:
		d.multiline, d.indent, d.item = true, n, ","
	default:
		return nil, unsupported("indent of tojson", typeName(n))
	}
	if s := or(p[2], nil); s != nil {
		items, err := listOf(s)
		if err != nil {
			return nil, err
		}
		parts, err := stringArgs("tojson", items, 2, 2)
		if err != nil {
			return nil, err
		}
		d.item, d.key = parts[0], parts[1]
	}
	b, err := d.append(r, nil, v, 0)
	if err != nil {
		return nil, err
	}
	return string(b), r.grow(len(b))
}

func (d *dumper) newline(b []byte, depth int) []byte {
	if !d.multiline {
		return b
	}
	b = append(b, '\n')
	for range depth {
		b = append(b, d.indent...)
	}
	return b
}

func (d *dumper) append(r *run, b []byte, v Value, depth int) ([]byte, error) {
	if depth > maxNesting {
		return b, limitf("more than %d nested values", maxNesting)
	}
	if err := r.step(); err != nil {
		return b, err
	}
	if len(b) > r.t.limits.Work {
		return b, limitf("more than %d bytes of intermediate text", r.t.limits.Work)
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case float64:
		return appendFloat(b, v), nil
	case string:
		return d.str(b, v), nil
	case *List:
		return d.list(r, b, v.Items, depth)
	case *tuple:
		return d.list(r, b, v.items, depth)
	case *Dict:
		return d.dict(r, b, v, depth)
	case markup, *namespace, *loopVar:
		return b, unsupported("tojson of", typeName(v))
	}
	return b, failf("object of type %s is not JSON serializable", typeName(v))
}

func (d *dumper) list(r *run, b []byte, items []Value, depth int) ([]byte, error) {
	if len(items) == 0 {
		return append(b, "[]"...), nil
	}
	b = append(b, '[')
	for i, v := range items {
		if i > 0 {
			b = append(b, d.item...)
		}
		var err error
		if b, err = d.append(r, d.newline(b, depth+1), v, depth+1); err != nil {
			return b, err
		}
	}
	return append(d.newline(b, depth), ']'), nil
}

func (d *dumper) dict(r *run, b []byte, m *Dict, depth int) ([]byte, error) {
	if m.Len() == 0 {
		return append(b, "{}"...), nil
	}
	keys, vals := m.keys, m.vals
	if d.sortKeys {
		sorted, err := sortBy(pairs(m), keys, false)
		if err != nil {
			return b, err
		}
		keys, vals = make([]Value, len(sorted)), make([]Value, len(sorted))
		for i, p := range sorted {
			keys[i], vals[i] = p.(*tuple).items[0], p.(*tuple).items[1]
		}
	}
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, d.item...)
		}
		b = d.newline(b, depth+1)
		switch k := k.(type) {
		case string:
			b = d.str(b, k)
		case nil:
			b = append(b, `"null"`...)
		case bool:
			b = append(strconv.AppendBool(append(b, '"'), k), '"')
		case int64:
			b = append(strconv.AppendInt(append(b, '"'), k, 10), '"')
		case float64:
			b = append(appendFloat(append(b, '"'), k), '"')
		default:
			return b, failf("keys must be str, int, float, bool or None")
		}
		b = append(b, d.key...)
		var err error
		if b, err = d.append(r, b, vals[i], depth+1); err != nil {
			return b, err
		}
	}
	return append(d.newline(b, depth), '}'), nil
}

func (d *dumper) str(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	u := func(c rune) {
		b = append(b, '\\', 'u', hex[c>>12&15], hex[c>>8&15], hex[c>>4&15], hex[c&15])
	}
	b = append(b, '"')
	start := 0
	for i, c := range s {
		if c >= 0x20 && c != '"' && c != '\\' && (c < 0x7f || !d.ascii || c == 0x7f) {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + utf8.RuneLen(c)
		switch c {
		case '"', '\\':
			b = append(b, '\\', byte(c))
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		default:
			if c > 0xffff {
				hi, lo := utf16.EncodeRune(c)
				u(hi)
				u(lo)
			} else {
				u(c)
			}
		}
	}
	return append(append(b, s[start:]...), '"')
}
