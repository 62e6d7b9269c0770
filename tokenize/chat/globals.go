package chat

// globals are the functions that templates find without being given them.
var globals map[string]Value

func init() {
	globals = map[string]Value{}
	for name, call := range map[string]func(*run, []Value, []kwarg) (Value, error){
		"raise_exception": raiseException,
		"strftime_now":    strftimeNow,
		"namespace":       newNamespace,
		"dict":            newDict,
		"range":           newRange,
	} {
		globals[name] = &function{name, call}
	}
	for _, name := range []string{"cycler", "joiner", "lipsum"} {
		globals[name] = &function{name, func(*run, []Value, []kwarg) (Value, error) { return nil, unsupported("function", name) }}
	}
}

func raiseException(r *run, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("raise_exception", args, kwargs, "message")
	if err != nil {
		return nil, err
	}
	text, err := str(or(p[0], ""))
	if err != nil {
		return nil, err
	}
	return nil, &RenderError{Reason: text, Raised: true}
}

func newNamespace(r *run, args []Value, kwargs []kwarg) (Value, error) {
	d, err := newDict(r, args, kwargs)
	if err != nil {
		return nil, err
	}
	ns := &namespace{}
	for i, k := range d.(*Dict).keys {
		ns.attrs.put(k, d.(*Dict).vals[i])
	}
	return ns, nil
}

func newDict(r *run, args []Value, kwargs []kwarg) (Value, error) {
	d := &Dict{}
	if len(args) > 1 {
		return nil, failf("dict expected at most 1 argument")
	}
	if len(args) == 1 {
		from, ok := args[0].(*Dict)
		if !ok {
			return nil, unsupported("argument of dict", typeName(args[0]))
		}
		for i, k := range from.keys {
			d.put(k, from.vals[i])
		}
	}
	for _, k := range kwargs {
		d.put(k.name, k.val)
	}
	return d, r.grow(32 * d.Len())
}

// maxRange is the sandbox's limit.
const maxRange = 100_000

func newRange(r *run, args []Value, kwargs []kwarg) (Value, error) {
	if len(args) < 1 || len(args) > 3 || len(kwargs) > 0 {
		return nil, failf("range expected 1 to 3 arguments")
	}
	b := [3]int64{0, 0, 1}
	for i, a := range args {
		n, ok := asInt(a)
		if !ok {
			return nil, failf("range: %s cannot be interpreted as an integer", typeName(a))
		}
		if n > 1<<40 || n < -1<<40 {
			return nil, unsupported("argument of range", "large integer")
		}
		b[i] = n
	}
	if len(args) == 1 {
		b[0], b[1] = 0, b[0]
	}
	if b[2] == 0 {
		return nil, failf("range() arg 3 must not be zero")
	}
	n := (b[1] - b[0] + b[2] - 1) / b[2]
	if b[2] < 0 {
		n = (b[0] - b[1] - b[2] - 1) / -b[2]
	}
	n = max(n, 0)
	if n > maxRange {
		return nil, failf("range too big, the sandbox blocks ranges larger than %d", maxRange)
	}
	items := make([]Value, n)
	for i := range items {
		items[i] = b[0] + int64(i)*b[2]
	}
	return &view{"range", items}, r.grow(16 * int(n))
}
