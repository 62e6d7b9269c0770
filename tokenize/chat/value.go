package chat

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Value is a Python value: nil (None), bool, int64, float64, string, *[List]
// or *[Dict]; templates know more, which are of no use outside. A string is
// valid UTF-8.
type Value any

// List is a Python list. Rendering does not change it.
type List struct{ Items []Value }

// Dict is a Python dict: keys in the order of their first insertion. The zero
// value is empty and ready. Reading is safe for concurrent use.
type Dict struct {
	keys []Value
	vals []Value
	at   map[Value]int // only once there are many keys
}

type (
	undefined struct{ what string }
	tuple     struct{ items []Value }
	markup    string // what the filter safe makes; only output is supported
	missing   struct{}
	namespace struct{ attrs Dict }
	// view is an iterable that is no list: dict views and ranges.
	view struct {
		kind  string
		items []Value
	}
	// generator can be read once; err stands behind its last item.
	generator struct {
		items []Value
		err   error
	}
	function struct {
		name string
		call func(r *run, args []Value, kwargs []kwarg) (Value, error)
	}
	method struct {
		self Value
		name string
	}
	kwarg struct {
		name string
		val  Value
	}
)

const manyKeys = 12

// hashable returns the form under which equal keys are the same, as 1, True
// and 1.0 are in Python.
func hashable(key Value) (Value, bool) {
	switch k := key.(type) {
	case string, int64, nil:
		return k, true
	case bool:
		if k {
			return int64(1), true
		}
		return int64(0), true
	case float64:
		if k == math.Trunc(k) && math.Abs(k) < 1<<53 {
			return int64(k), true
		}
		return k, true
	}
	return nil, false
}

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// Get returns the value of a key.
func (d *Dict) Get(key string) (Value, bool) { return d.lookup(key) }

// Set sets the value of a key; a new key goes to the end.
func (d *Dict) Set(key string, v Value) { d.put(key, v) }

// At returns the i-th key and value. A key that is no string becomes "".
func (d *Dict) At(i int) (string, Value) {
	k, _ := d.keys[i].(string)
	return k, d.vals[i]
}

// Delete removes a key. Its cost is linear.
func (d *Dict) Delete(key string) {
	i := d.index(key)
	if i < 0 {
		return
	}
	d.keys = append(d.keys[:i], d.keys[i+1:]...)
	d.vals = append(d.vals[:i], d.vals[i+1:]...)
	d.at = nil
}

func (d *Dict) index(key Value) int {
	if d.at != nil {
		if i, ok := d.at[key]; ok {
			return i
		}
		return -1
	}
	for i, k := range d.keys {
		if n, _ := hashable(k); n == key {
			return i
		}
	}
	return -1
}

func (d *Dict) lookup(key Value) (Value, bool) {
	n, ok := hashable(key)
	if !ok {
		return nil, false
	}
	if i := d.index(n); i >= 0 {
		return d.vals[i], true
	}
	return nil, false
}

func (d *Dict) put(key, v Value) bool {
	n, ok := hashable(key)
	if !ok {
		return false
	}
	if i := d.index(n); i >= 0 {
		d.vals[i] = v
		return true
	}
	d.keys = append(d.keys, key)
	d.vals = append(d.vals, v)
	switch {
	case d.at != nil:
		d.at[n] = len(d.keys) - 1
	case len(d.keys) > manyKeys:
		d.at = make(map[Value]int, 2*len(d.keys))
		for i, k := range d.keys {
			k, _ = hashable(k)
			d.at[k] = i
		}
	}
	return true
}

func truth(v Value) bool {
	switch v := v.(type) {
	case nil, undefined, missing:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case *List:
		return len(v.Items) > 0
	case *tuple:
		return len(v.items) > 0
	case *Dict:
		return v.Len() > 0
	case *view:
		return len(v.items) > 0
	}
	return true
}

func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case undefined:
		return "Undefined"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *List:
		return "list"
	case *tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *view:
		return v.kind
	case *generator:
		return "generator"
	case *namespace:
		return "Namespace"
	}
	return "function"
}

// isNumber tells ints, bools among them, and floats.
func asInt(v Value) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func asFloat(v Value) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	i, ok := asInt(v)
	return float64(i), ok
}

// str is Python's str().
func str(v Value) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case markup:
		return string(v), nil
	case undefined:
		return "", nil
	}
	return repr(v)
}

// repr is Python's repr().
func repr(v Value) (string, error) {
	var b []byte
	b, err := appendRepr(b, v, 0)
	return string(b), err
}

const maxNesting = 200

func appendRepr(b []byte, v Value, depth int) ([]byte, error) {
	if depth > maxNesting {
		return b, limitf("more than %d nested values", maxNesting)
	}
	switch v := v.(type) {
	case nil:
		return append(b, "None"...), nil
	case bool:
		if v {
			return append(b, "True"...), nil
		}
		return append(b, "False"...), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case float64:
		return appendFloat(b, v), nil
	case string:
		return appendStrRepr(b, v)
	case undefined:
		return append(b, "Undefined"...), nil
	case *List:
		return appendReprs(append(b, '['), v.Items, "]", depth)
	case *tuple:
		end := ")"
		if len(v.items) == 1 {
			end = ",)"
		}
		return appendReprs(append(b, '('), v.items, end, depth)
	case *view:
		if v.kind != "dict_keys" && v.kind != "dict_values" && v.kind != "dict_items" {
			break
		}
		return appendReprs(append(append(b, v.kind...), "(["...), v.items, "])", depth)
	case *Dict:
		b = append(b, '{')
		for i, k := range v.keys {
			if i > 0 {
				b = append(b, ", "...)
			}
			var err error
			if b, err = appendRepr(b, k, depth+1); err != nil {
				return b, err
			}
			b = append(b, ": "...)
			if b, err = appendRepr(b, v.vals[i], depth+1); err != nil {
				return b, err
			}
		}
		return append(b, '}'), nil
	}
	return b, unsupported("text of a", typeName(v))
}

func appendReprs(b []byte, items []Value, end string, depth int) ([]byte, error) {
	for i, item := range items {
		if i > 0 {
			b = append(b, ", "...)
		}
		var err error
		if b, err = appendRepr(b, item, depth+1); err != nil {
			return b, err
		}
	}
	return append(b, end...), nil
}

// appendFloat is Python's repr of a float: the shortest digits, an exponent
// from 1e16 on and below 1e-4.
func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	case math.IsNaN(f):
		return append(b, "nan"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	n := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	if !strings.Contains(string(b[n:]), ".") {
		b = append(b, ".0"...)
	}
	return b
}

func appendStrRepr(b []byte, s string) ([]byte, error) {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b = append(b, quote)
	const hex = "0123456789abcdef"
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r < 0x20 || r == 0x7f:
			b = append(b, '\\', 'x', hex[r>>4], hex[r&15])
		case r < 0x7f:
			b = append(b, byte(r))
		default:
			printable, known := pyPrintable(r)
			if !known {
				// It depends on the Unicode release of the engine's Python.
				return b, unsupported("text of a string with", strconv.QuoteRuneToASCII(r))
			}
			switch {
			case printable:
				b = utf8.AppendRune(b, r)
			case r <= 0xff:
				b = append(b, '\\', 'x', hex[r>>4], hex[r&15])
			case r <= 0xffff:
				b = append(b, '\\', 'u', hex[r>>12], hex[r>>8&15], hex[r>>4&15], hex[r&15])
			default:
				b = append(b, '\\', 'U')
				for shift := 28; shift >= 0; shift -= 4 {
					b = append(b, hex[r>>shift&15])
				}
			}
		}
	}
	return append(b, quote), nil
}
