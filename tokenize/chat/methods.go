package chat

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// knownMethods are the names that a template may call; others are refused at
// load.
var knownMethods = set("get items keys values copy index count find rfind split rsplit strip lstrip rstrip " +
	"startswith endswith replace lower upper title capitalize join format splitlines isdigit isdecimal isnumeric " +
	"isalpha isalnum isspace isupper islower zfill removeprefix removesuffix partition rpartition " +
	"cycle changed append extend insert pop remove clear update setdefault popitem sort reverse add discard")

var (
	strMethods  = set("capitalize count endswith find format index isalnum isalpha isdecimal isdigit islower isnumeric isspace isupper join lower lstrip partition removeprefix removesuffix replace rfind rpartition rsplit rstrip split splitlines startswith strip title upper zfill")
	strOthers   = set("casefold center encode expandtabs format_map isascii isidentifier isprintable istitle ljust maketrans rindex rjust swapcase translate")
	dictMethods = set("get items keys values copy")
	dictMutates = set("clear pop popitem setdefault update")
	dictOthers  = set("fromkeys")
	listMethods = set("index count copy")
	listMutates = set("append clear extend insert pop remove reverse sort")
	numOthers   = set("as_integer_ratio bit_count bit_length conjugate denominator from_bytes fromhex hex imag is_integer numerator real to_bytes")
)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// attribute returns what Python's getattr finds on a value; nil when there is
// nothing.
func attribute(obj Value, name string) (Value, error) {
	if strings.HasPrefix(name, "_") {
		if strings.HasPrefix(name, "__") {
			return nil, unsupported("attribute", name)
		}
		return nil, nil
	}
	bound := &method{obj, name}
	switch obj.(type) {
	case string:
		switch {
		case strMethods[name]:
			return bound, nil
		case strOthers[name]:
			return nil, unsupported("method", name)
		}
	case *Dict:
		switch {
		case dictMethods[name], dictMutates[name]:
			return bound, nil
		case dictOthers[name]:
			return nil, unsupported("method", name)
		}
	case *List:
		if listMethods[name] || listMutates[name] {
			return bound, nil
		}
	case bool, int64, float64:
		if numOthers[name] {
			return nil, unsupported("method", name)
		}
	case *tuple:
		if name == "index" || name == "count" {
			return nil, unsupported("method", name)
		}
	case nil:
	default:
		// Macros, functions, views and the like have attributes that no
		// template should need.
		return nil, unsupported("attribute of a "+typeName(obj), name)
	}
	return nil, nil
}

func (r *run) method(m *method, args []Value, kwargs []kwarg) (Value, error) {
	switch self := m.self.(type) {
	case *Dict:
		if dictMutates[m.name] {
			return nil, failf("access to attribute %s of dict object is unsafe", m.name)
		}
		return dictMethod(self, m.name, args, kwargs)
	case *List:
		if listMutates[m.name] {
			return nil, failf("access to attribute %s of list object is unsafe", m.name)
		}
		return listMethod(self, m.name, args, kwargs)
	case string:
		return r.strMethod(self, m.name, args, kwargs)
	}
	return nil, unsupported("method", m.name)
}

func dictMethod(d *Dict, name string, args []Value, kwargs []kwarg) (Value, error) {
	if len(kwargs) > 0 {
		return nil, failf("%s takes no keyword arguments", name)
	}
	if name == "get" {
		if len(args) < 1 || len(args) > 2 {
			return nil, failf("get expected 1 or 2 arguments, got %d", len(args))
		}
		if _, ok := hashable(args[0]); !ok {
			if _, tup := args[0].(*tuple); tup {
				return nil, unsupported("key of a dict", "tuple")
			}
			if _, undef := args[0].(undefined); !undef {
				return nil, failf("unhashable type: %s", typeName(args[0]))
			}
		}
		if v, ok := d.lookup(args[0]); ok {
			return v, nil
		}
		if len(args) == 2 {
			return args[1], nil
		}
		return nil, nil
	}
	if len(args) > 0 {
		return nil, failf("%s takes no arguments", name)
	}
	switch name {
	case "keys":
		return &view{"dict_keys", d.keys}, nil
	case "values":
		return &view{"dict_values", d.vals}, nil
	case "copy":
		return d, nil // nothing can change either
	}
	return &view{"dict_items", pairs(d)}, nil
}

func pairs(d *Dict) []Value {
	out := make([]Value, len(d.keys))
	for i, k := range d.keys {
		out[i] = &tuple{[]Value{k, d.vals[i]}}
	}
	return out
}

func listMethod(l *List, name string, args []Value, kwargs []kwarg) (Value, error) {
	if name == "copy" && len(args) == 0 {
		return l, nil
	}
	if len(args) != 1 || len(kwargs) > 0 {
		return nil, unsupported("arguments of", name)
	}
	n := int64(0)
	for i, v := range l.Items {
		eq, err := equal(v, args[0], 0)
		if err != nil {
			return nil, err
		}
		if eq && name == "index" {
			return int64(i), nil
		}
		if eq {
			n++
		}
	}
	if name == "index" {
		return nil, failf("value is not in list")
	}
	return n, nil
}

// stringArgs returns the arguments, which must be strings.
func stringArgs(name string, args []Value, least, most int) ([]string, error) {
	if len(args) < least || len(args) > most {
		return nil, unsupported("arguments of", name)
	}
	out := make([]string, len(args))
	for i, a := range args {
		switch s := a.(type) {
		case string:
			out[i] = s
		case markup:
			return nil, unsupported("value", "Markup")
		default:
			return nil, failf("%s: argument must be str, not %s", name, typeName(a))
		}
	}
	return out, nil
}

func (r *run) strMethod(s, name string, args []Value, kwargs []kwarg) (Value, error) {
	if name == "format" {
		return r.format(s, args, kwargs)
	}
	if name == "split" || name == "rsplit" {
		return strSplit(s, name, args, kwargs)
	}
	if len(kwargs) > 0 {
		return nil, unsupported("keyword arguments of", name)
	}
	switch name {
	case "strip", "lstrip", "rstrip":
		var chars Value
		if len(args) > 1 {
			return nil, failf("%s expected at most 1 argument", name)
		}
		if len(args) == 1 {
			chars = args[0]
		}
		return strip(s, chars, name != "rstrip", name != "lstrip")
	case "startswith", "endswith":
		return affix(s, name, args)
	case "join":
		if len(args) != 1 {
			return nil, failf("join takes one argument")
		}
		return r.join(args[0], s, true)
	case "replace":
		return r.strReplace(s, args)
	case "find", "rfind", "index", "count":
		return strFind(s, name, args)
	case "removeprefix", "removesuffix", "partition", "rpartition":
		return strCut(s, name, args)
	case "zfill":
		if len(args) == 1 {
			if n, ok := asInt(args[0]); ok && n <= 1000 && isASCII(s) && !strings.HasPrefix(s, "+") && !strings.HasPrefix(s, "-") {
				return strings.Repeat("0", max(0, int(n)-len(s))) + s, nil
			}
		}
		return nil, unsupported("arguments of", name)
	}
	if len(args) > 0 {
		return nil, unsupported("arguments of", name)
	}
	switch name {
	case "lower":
		return cased(s, strings.ToLower)
	case "upper":
		return cased(s, strings.ToUpper)
	case "title":
		return cased(s, title)
	case "capitalize":
		return cased(s, capitalize)
	case "splitlines":
		return &List{splitLines(s)}, nil
	case "isspace":
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !isSpace(c) }) < 0, nil
	}
	return strIs(s, name)
}

func strIs(s, name string) (Value, error) {
	if !isASCII(s) {
		return nil, unsupported("beyond ASCII, method", name)
	}
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	lower := func(c byte) bool { return c >= 'a' && c <= 'z' }
	upper := func(c byte) bool { return c >= 'A' && c <= 'Z' }
	all := func(f func(byte) bool) bool {
		for i := range len(s) {
			if !f(s[i]) {
				return false
			}
		}
		return s != ""
	}
	some := func(f func(byte) bool) bool { return slices.ContainsFunc([]byte(s), f) }
	switch name {
	case "isdigit", "isdecimal", "isnumeric":
		return all(digit), nil
	case "isalpha":
		return all(func(c byte) bool { return lower(c) || upper(c) }), nil
	case "isalnum":
		return all(func(c byte) bool { return lower(c) || upper(c) || digit(c) }), nil
	case "isupper":
		return some(upper) && !some(lower), nil
	case "islower":
		return some(lower) && !some(upper), nil
	}
	return nil, unsupported("method", name)
}

func strSplit(s, name string, args []Value, kwargs []kwarg) (Value, error) {
	var sep Value
	most := Value(int64(-1))
	for i, a := range args {
		switch i {
		case 0:
			sep = a
		case 1:
			most = a
		default:
			return nil, failf("%s takes at most 2 arguments", name)
		}
	}
	for _, k := range kwargs {
		switch k.name {
		case "sep":
			sep = k.val
		case "maxsplit":
			most = k.val
		default:
			return nil, failf("%s has no argument %s", name, k.name)
		}
	}
	n, ok := asInt(most)
	if !ok {
		return nil, failf("%s: maxsplit must be an integer", name)
	}
	switch sep := sep.(type) {
	case nil:
		return &List{splitSpace(s, n, name == "rsplit")}, nil
	case string:
		if sep == "" {
			return nil, failf("empty separator")
		}
		return &List{splitBy(s, sep, n, name == "rsplit")}, nil
	}
	return nil, failf("%s: must be str or None, not %s", name, typeName(sep))
}

func affix(s, name string, args []Value) (Value, error) {
	if len(args) != 1 {
		return nil, unsupported("arguments of", name)
	}
	options := args
	if t, ok := args[0].(*tuple); ok {
		options = t.items
	}
	for _, o := range options {
		p, ok := o.(string)
		if !ok {
			return nil, failf("%s first arg must be str or a tuple of str, not %s", name, typeName(o))
		}
		if name == "startswith" && strings.HasPrefix(s, p) || name == "endswith" && strings.HasSuffix(s, p) {
			return true, nil
		}
	}
	return false, nil
}

func (r *run) strReplace(s string, args []Value) (Value, error) {
	n := int64(-1)
	if len(args) == 3 {
		var ok bool
		if n, ok = asInt(args[2]); !ok {
			return nil, failf("replace: count must be an integer")
		}
		args = args[:2]
	}
	p, err := stringArgs("replace", args, 2, 2)
	if err != nil {
		return nil, err
	}
	return r.replace(s, p[0], p[1], n)
}

func (r *run) replace(s, old, new string, n int64) (Value, error) {
	if len(new) > len(old) {
		if err := r.grow((strings.Count(s, old) + 1) * len(new)); err != nil {
			return nil, err
		}
	}
	n = max(-1, min(n, int64(len(s))+1))
	return strings.Replace(s, old, new, int(n)), r.grow(len(s))
}

func strFind(s, name string, args []Value) (Value, error) {
	p, err := stringArgs(name, args, 1, 1)
	if err != nil {
		return nil, err
	}
	i := 0
	switch name {
	case "count":
		return int64(strings.Count(s, p[0])), nil
	case "rfind":
		i = strings.LastIndex(s, p[0])
	default:
		i = strings.Index(s, p[0])
	}
	if i >= 0 {
		i = utf8.RuneCountInString(s[:i])
	} else if name == "index" {
		return nil, failf("substring not found")
	}
	return int64(i), nil
}

func strCut(s, name string, args []Value) (Value, error) {
	p, err := stringArgs(name, args, 1, 1)
	if err != nil {
		return nil, err
	}
	switch name {
	case "removeprefix":
		return strings.TrimPrefix(s, p[0]), nil
	case "removesuffix":
		return strings.TrimSuffix(s, p[0]), nil
	}
	if p[0] == "" {
		return nil, failf("empty separator")
	}
	i := strings.Index(s, p[0])
	if name == "rpartition" {
		i = strings.LastIndex(s, p[0])
	}
	switch {
	case i >= 0:
		return &tuple{[]Value{s[:i], p[0], s[i+len(p[0]):]}}, nil
	case name == "partition":
		return &tuple{[]Value{s, "", ""}}, nil
	}
	return &tuple{[]Value{"", "", s}}, nil
}

// format is str.format with plain fields: {}, {0} and {name}.
func (r *run) format(s string, args []Value, kwargs []kwarg) (Value, error) {
	var b strings.Builder
	auto := 0
	for {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			b.WriteString(s)
			return b.String(), r.grow(b.Len())
		}
		b.WriteString(s[:i])
		if i+1 < len(s) && s[i+1] == s[i] {
			b.WriteByte(s[i])
			s = s[i+2:]
			continue
		}
		end := strings.IndexByte(s[i:], '}')
		if s[i] == '}' || end < 0 {
			return nil, failf("format: unbalanced brace")
		}
		field := s[i+1 : i+end]
		s = s[i+end+1:]
		var v Value = missing{}
		switch {
		case field == "":
			if auto < len(args) {
				v = args[auto]
			}
			auto++
		case len(field) == 1 && field[0] >= '0' && field[0] <= '9':
			if n := int(field[0] - '0'); n < len(args) {
				v = args[n]
			}
		case strings.IndexFunc(field, func(c rune) bool { return c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') }) < 0:
			for _, k := range kwargs {
				if k.name == field {
					v = k.val
				}
			}
		default:
			return nil, unsupported("format field", field)
		}
		if _, none := v.(missing); none {
			return nil, failf("format: no argument for {%s}", field)
		}
		text, err := str(v)
		if err != nil {
			return nil, err
		}
		b.WriteString(text)
	}
}
