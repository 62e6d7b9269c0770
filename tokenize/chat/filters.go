package chat

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

type filterFunc func(r *run, v Value, args []Value, kwargs []kwarg) (Value, error)

// filters mirror jinja2/filters.py, tojson transformers'. Filled by init:
// map names filters itself.
var filters map[string]filterFunc

func init() {
	filters = map[string]filterFunc{
		"abs": absFilter, "batch": batchFilter, "capitalize": caseFilter(capitalize), "count": lengthFilter,
		"d": defaultFilter, "default": defaultFilter, "dictsort": dictsortFilter, "first": firstFilter,
		"float": floatFilter, "indent": indentFilter, "int": intFilter, "items": itemsFilter, "join": joinFilter,
		"last": lastFilter, "length": lengthFilter, "list": listFilter, "lower": caseFilter(strings.ToLower),
		"map": mapFilter, "max": extremeFilter(1), "min": extremeFilter(-1), "reject": selectFilter(false, false),
		"rejectattr": selectFilter(false, true), "replace": replaceFilter, "reverse": reverseFilter,
		"round": roundFilter, "safe": safeFilter, "select": selectFilter(true, false),
		"selectattr": selectFilter(true, true), "sort": sortFilter, "string": stringFilter, "sum": sumFilter,
		"title": caseFilter(jinjaTitle), "tojson": tojsonFilter, "trim": trimFilter, "unique": uniqueFilter,
		"upper": caseFilter(strings.ToUpper),
	}
}

func (r *run) filter(e *filterExpr, a *activation, v Value) (Value, error) {
	// In the chain of a block the innermost filter gets the text.
	if inner, ok := e.obj.(*filterExpr); ok && rootless(inner) {
		var err error
		if v, err = r.filter(inner, a, v); err != nil {
			return nil, err
		}
	}
	args, kwargs, err := r.args(e.args, e.kwargs, a)
	if err != nil {
		return nil, err
	}
	return e.fn(r, v, args, kwargs)
}

// rootless tells whether a chain of filters begins with the text of a block.
func rootless(f *filterExpr) bool {
	for {
		if f.obj == nil {
			return true
		}
		in, ok := f.obj.(*filterExpr)
		if !ok {
			return false
		}
		f = in
	}
}

// params puts positional and named arguments into one row; missing{} stands
// for those not given.
func params(name string, args []Value, kwargs []kwarg, names ...string) ([]Value, error) {
	if len(args) > len(names) {
		return nil, failf("%s takes at most %d argument(s)", name, len(names))
	}
	out := make([]Value, len(names))
	for i := range out {
		out[i] = missing{}
		if i < len(args) {
			out[i] = args[i]
		}
	}
	for _, k := range kwargs {
		i := slices.Index(names, k.name)
		if i < 0 {
			return nil, failf("%s has no argument %s", name, k.name)
		}
		if i < len(args) {
			return nil, failf("%s got multiple values for argument %s", name, k.name)
		}
		out[i] = k.val
	}
	return out, nil
}

func or(v, def Value) Value {
	if _, unset := v.(missing); unset {
		return def
	}
	return v
}

func plainStr(v Value) (string, error) {
	if _, ok := v.(markup); ok {
		return "", unsupported("value", "Markup")
	}
	return str(v)
}

func listOf(v Value) ([]Value, error) {
	it, err := iterate(v)
	if err != nil {
		return nil, err
	}
	return it.all()
}

func caseFilter(f func(string) string) filterFunc {
	return func(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
		s, err := plainStr(v)
		if err != nil {
			return nil, err
		}
		if _, err := params("filter", args, kwargs); err != nil {
			return nil, err
		}
		return cased(s, f)
	}
}

// jinjaTitle begins words behind white space, hyphens and opening brackets.
func jinjaTitle(s string) string {
	b := []byte(strings.ToLower(s))
	start := true
	for i, c := range b {
		sep := strings.IndexByte("-({[<", c) >= 0 || isSpace(rune(c))
		if start && !sep && c >= 'a' && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
		start = sep
	}
	return string(b)
}

func absFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	if i, ok := asInt(v); ok && i != math.MinInt64 {
		return max(i, -i), nil
	}
	if f, ok := v.(float64); ok {
		return math.Abs(f), nil
	}
	return nil, failf("bad operand type for abs(): %s", typeName(v))
}

func lengthFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	switch v := v.(type) {
	case string:
		return int64(utf8.RuneCountInString(v)), nil
	case markup:
		return int64(utf8.RuneCountInString(string(v))), nil
	case *List:
		return int64(len(v.Items)), nil
	case *tuple:
		return int64(len(v.items)), nil
	case *Dict:
		return int64(v.Len()), nil
	case *view:
		return int64(len(v.items)), nil
	case undefined:
		return int64(0), nil
	}
	return nil, failf("object of type %s has no len()", typeName(v))
}

func defaultFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("default", args, kwargs, "default_value", "boolean")
	if err != nil {
		return nil, err
	}
	_, undef := v.(undefined)
	if undef || truth(or(p[1], false)) && !truth(v) {
		return or(p[0], ""), nil
	}
	return v, nil
}

func stringFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	if _, ok := v.(markup); ok {
		return v, nil
	}
	s, err := str(v)
	if err != nil {
		return nil, err
	}
	return s, r.grow(len(s))
}

func safeFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	s, err := str(v)
	return markup(s), err
}

func trimFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("trim", args, kwargs, "chars")
	if err != nil {
		return nil, err
	}
	s, err := plainStr(v)
	if err != nil {
		return nil, err
	}
	return strip(s, or(p[0], nil), true, true)
}

func replaceFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("replace", args, kwargs, "old", "new", "count")
	if err != nil {
		return nil, err
	}
	s, err := plainStr(v)
	if err != nil {
		return nil, err
	}
	var texts [2]string
	for i := range texts {
		if _, unset := p[i].(missing); unset {
			return nil, failf("replace misses an argument")
		}
		if texts[i], err = plainStr(p[i]); err != nil {
			return nil, err
		}
	}
	n := int64(-1)
	if c := or(p[2], nil); c != nil {
		var ok bool
		if n, ok = asInt(c); !ok {
			return nil, failf("replace: count must be an integer")
		}
	}
	return r.replace(s, texts[0], texts[1], n)
}

func (r *run) join(list Value, sep string, strict bool) (Value, error) {
	items, err := listOf(list)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for i, v := range items {
		if i > 0 {
			b.WriteString(sep)
		}
		s, isStr := v.(string)
		if !isStr {
			if strict {
				return nil, failf("join: expected str instance, %s found", typeName(v))
			}
			if s, err = plainStr(v); err != nil {
				return nil, err
			}
		}
		if err := r.grow(len(s) + len(sep)); err != nil {
			return nil, err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

func joinFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("join", args, kwargs, "d", "attribute")
	if err != nil {
		return nil, err
	}
	sep, err := plainStr(or(p[0], ""))
	if err != nil {
		return nil, err
	}
	if attr := or(p[1], nil); attr != nil {
		items, err := listOf(v)
		if err != nil {
			return nil, err
		}
		if items, err = attrs(items, attr); err != nil {
			return nil, err
		}
		v = &List{items}
	}
	return r.join(v, sep, false)
}

// attrOf follows a dotted path as make_attrgetter does.
func attrOf(v Value, path Value) (Value, error) {
	var parts []Value
	switch p := path.(type) {
	case string:
		for _, part := range strings.Split(p, ".") {
			if n, err := strconv.ParseInt(part, 10, 64); err == nil && part[0] != '-' && part[0] != '+' {
				parts = append(parts, n)
			} else {
				parts = append(parts, part)
			}
		}
	case int64:
		parts = []Value{p}
	case nil:
	default:
		return nil, unsupported("attribute path", typeName(path))
	}
	for _, part := range parts {
		var err error
		if v, err = getitem(v, part); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func attrs(items []Value, path Value) ([]Value, error) {
	out := make([]Value, len(items))
	for i, v := range items {
		var err error
		if out[i], err = attrOf(v, path); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func listFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	items, err := listOf(v)
	if err != nil {
		return nil, err
	}
	return &List{items}, r.grow(16 * len(items))
}

func firstFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	if s, ok := v.(string); ok {
		if s == "" {
			return undefined{"No first item, sequence was empty."}, nil
		}
		return charAt(s, 0), nil
	}
	it, err := iterate(v)
	if err != nil {
		return nil, err
	}
	first, ok, err := it.next()
	if err == nil && !ok {
		return undefined{"No first item, sequence was empty."}, nil
	}
	return first, err
}

func lastFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	switch v := v.(type) {
	case string:
		if v == "" {
			return undefined{"No last item, sequence was empty."}, nil
		}
		return charAt(v, -1), nil
	case *generator:
		return nil, failf("generator object is not reversible")
	case undefined:
		return nil, unsupported("filter last on", "Undefined")
	}
	items, err := listOf(v)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return undefined{"No last item, sequence was empty."}, nil
	}
	return items[len(items)-1], nil
}

func reverseFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	if s, ok := v.(string); ok {
		chars := []rune(s)
		slices.Reverse(chars)
		return string(chars), r.grow(len(s))
	}
	if _, ok := v.(undefined); ok {
		return nil, unsupported("filter reverse on", "Undefined")
	}
	items, err := listOf(v)
	if err != nil {
		return nil, err
	}
	items = slices.Clone(items)
	reverse(items)
	return &generator{items: items}, r.grow(16 * len(items))
}

func itemsFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	switch d := v.(type) {
	case undefined:
		return &generator{}, nil
	case *Dict:
		return &generator{items: pairs(d)}, nil
	}
	return &generator{err: failf("can only get item pairs from a mapping")}, nil
}

func intFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("int", args, kwargs, "default", "base")
	if err != nil {
		return nil, err
	}
	if b, ok := or(p[1], int64(10)).(int64); !ok || b != 10 {
		return nil, unsupported("argument of int", "base")
	}
	if i, ok := asInt(v); ok {
		return i, nil
	}
	if s, ok := v.(string); ok {
		t := strings.TrimFunc(s, isSpace)
		if i, err := strconv.ParseInt(t, 10, 64); err == nil {
			return i, nil
		}
		if t == "" || strings.Trim(t, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ,.:;!?#/") == "" && !strings.ContainsAny(t, "iInN") {
			return or(p[0], int64(0)), nil
		}
		return nil, unsupported("filter int on", t[:min(len(t), 20)])
	}
	if f, ok := v.(float64); ok && math.Abs(f) < 1<<53 {
		return int64(f), nil
	}
	switch v.(type) {
	case float64, markup:
		return nil, unsupported("filter int on", typeName(v))
	}
	return or(p[0], int64(0)), nil
}

func floatFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	if f, ok := asFloat(v); ok {
		if i, isInt := asInt(v); isInt && max(i, -i) > 1<<53 {
			return nil, unsupported("filter float on", "a large integer")
		}
		return f, nil
	}
	return nil, unsupported("filter float on", typeName(v))
}

func roundFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("round", args, kwargs, "precision", "method")
	if err != nil {
		return nil, err
	}
	prec, ok := or(p[0], int64(0)).(int64)
	if m, isStr := or(p[1], "common").(string); !ok || prec < 0 || prec > 15 || !isStr || m != "common" {
		return nil, unsupported("arguments of", "round")
	}
	if i, ok := v.(int64); ok {
		return i, nil
	}
	f, ok := v.(float64)
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, unsupported("filter round on", typeName(v))
	}
	f, err = strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(prec), 64), 64)
	return f, err
}

func indentFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("indent", args, kwargs, "width", "first", "blank")
	if err != nil {
		return nil, err
	}
	s, ok := v.(string)
	if !ok {
		return nil, unsupported("filter indent on", typeName(v))
	}
	var by string
	switch w := or(p[0], int64(4)).(type) {
	case string:
		by = w
	case int64:
		by = strings.Repeat(" ", int(max(0, min(w, 1000))))
	default:
		return nil, failf("indent: width must be an integer or a string")
	}
	lines := splitLines(s + "\n")
	blank := truth(or(p[2], false))
	var b strings.Builder
	for i, l := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		if l := l.(string); i == 0 && truth(or(p[1], false)) || i > 0 && (l != "" || blank) {
			b.WriteString(by)
		}
		b.WriteString(l.(string))
		if err := r.grow(len(by) + len(l.(string))); err != nil {
			return nil, err
		}
	}
	return b.String(), nil
}

func batchFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	if len(args) != 1 || len(kwargs) > 0 {
		return nil, unsupported("arguments of", "batch")
	}
	n, ok := args[0].(int64)
	if !ok || n < 1 {
		return nil, unsupported("arguments of", "batch")
	}
	items, err := listOf(v)
	if err != nil {
		return nil, err
	}
	var out []Value
	for part := range slices.Chunk(items, int(min(n, int64(len(items)+1)))) {
		out = append(out, &List{part})
	}
	return &generator{items: out}, nil
}

func sumFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("sum", args, kwargs, "attribute", "start")
	if err != nil {
		return nil, err
	}
	items, err := listOf(v)
	if err != nil {
		return nil, err
	}
	if attr := or(p[0], nil); attr != nil {
		if items, err = attrs(items, attr); err != nil {
			return nil, err
		}
	}
	total := or(p[1], int64(0))
	if _, ok := total.(string); ok {
		return nil, failf("sum() can't sum strings")
	}
	for _, x := range items {
		if total, err = r.math("+", total, x); err != nil {
			return nil, err
		}
	}
	return total, nil
}
