package chat

import "strings"

type testFunc func(r *run, v Value, args []Value) (bool, error)

// tests mirror jinja2/tests.py.
var tests map[string]testFunc

func is(f func(v Value) bool) testFunc {
	return func(r *run, v Value, args []Value) (bool, error) {
		if len(args) > 0 {
			return false, failf("test takes no argument")
		}
		return f(v), nil
	}
}

func compareTest(op string) testFunc {
	return func(r *run, v Value, args []Value) (bool, error) {
		if len(args) != 1 {
			return false, failf("test takes one argument")
		}
		return compare(op, v, args[0])
	}
}

func init() {
	isInt := func(v Value) bool { _, ok := v.(int64); return ok }
	tests = map[string]testFunc{
		"defined":   is(func(v Value) bool { _, u := v.(undefined); return !u }),
		"undefined": is(func(v Value) bool { _, u := v.(undefined); return u }),
		"none":      is(func(v Value) bool { return v == nil }),
		"boolean":   is(func(v Value) bool { _, ok := v.(bool); return ok }),
		"true":      is(func(v Value) bool { return v == true }),
		"false":     is(func(v Value) bool { return v == false }),
		"integer":   is(isInt),
		"float":     is(func(v Value) bool { _, ok := v.(float64); return ok }),
		"number":    is(func(v Value) bool { _, ok := asFloat(v); return ok }),
		"string": is(func(v Value) bool {
			switch v.(type) {
			case string, markup:
				return true
			}
			return false
		}),
		"mapping": is(func(v Value) bool { _, ok := v.(*Dict); return ok }),
		"sequence": is(func(v Value) bool {
			switch v := v.(type) {
			case string, markup, *List, *tuple, *Dict, undefined:
				return true
			case *view:
				return v.kind == "range"
			}
			return false
		}),
		"iterable": is(func(v Value) bool {
			switch v.(type) {
			case string, markup, *List, *tuple, *Dict, *view, *generator, undefined:
				return true
			}
			return false
		}),
		"callable": is(func(v Value) bool {
			switch v.(type) {
			case *macro, *function, *method, undefined:
				return true
			}
			return false
		}),
		"even":        parity(0),
		"odd":         parity(1),
		"divisibleby": divisible,
		"in":          func(r *run, v Value, args []Value) (bool, error) { return compareTest("in")(r, v, args) },
		"sameas":      sameAs,
		"lower":       caseTest("islower"),
		"upper":       caseTest("isupper"),
	}
	for op, names := range map[string]string{
		"==": "eq equalto", "!=": "ne", "<": "lt lessthan", "<=": "le", ">": "gt greaterthan", ">=": "ge",
	} {
		for _, n := range strings.Fields(names) {
			tests[n] = compareTest(op)
		}
		tests[op] = compareTest(op)
	}
}

func parity(rest int64) testFunc {
	return func(r *run, v Value, args []Value) (bool, error) {
		i, ok := asInt(v)
		if !ok {
			return false, unsupported("test even or odd on", typeName(v))
		}
		return i&1 == rest, nil
	}
}

func divisible(r *run, v Value, args []Value) (bool, error) {
	if len(args) != 1 {
		return false, failf("test takes one argument")
	}
	m, err := r.math("%", v, args[0])
	return !truth(m) && err == nil, err
}

func sameAs(r *run, v Value, args []Value) (bool, error) {
	if len(args) != 1 {
		return false, failf("test takes one argument")
	}
	for _, x := range []Value{v, args[0]} {
		switch x.(type) {
		case nil, bool: // there is one of each
			return v == args[0], nil
		}
	}
	return false, unsupported("test sameas on", typeName(v))
}

func caseTest(name string) testFunc {
	return func(r *run, v Value, args []Value) (bool, error) {
		s, err := plainStr(v)
		if err != nil {
			return false, err
		}
		b, err := strIs(s, name)
		ok, _ := b.(bool)
		return ok, err
	}
}

func (r *run) test(e *testExpr, a *activation) (Value, error) {
	v, err := r.eval(e.obj, a)
	if err != nil {
		return nil, err
	}
	args, kwargs, err := r.args(e.args, e.kwargs, a)
	if err != nil {
		return nil, err
	}
	if len(kwargs) > 0 {
		return nil, unsupported("keyword arguments of test", e.name)
	}
	ok, err := e.fn(r, v, args)
	return ok, err
}
