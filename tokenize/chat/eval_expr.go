package chat

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"unicode/utf8"
)

func (r *run) eval(e expr, a *activation) (Value, error) {
	if err := r.step(); err != nil {
		return nil, err
	}
	switch e := e.(type) {
	case *constExpr:
		return e.val, nil
	case *nameExpr:
		v := a.up(e.up).slots[e.slot]
		if _, unset := v.(missing); unset {
			return undefined{e.name}, nil
		}
		return v, nil
	case *getattrExpr:
		obj, err := r.eval(e.obj, a)
		if err != nil {
			return nil, err
		}
		return getattr(obj, e.attr)
	case *getitemExpr:
		obj, key, err := r.eval2(e.obj, e.key, a)
		if err != nil {
			return nil, err
		}
		return getitem(obj, key)
	case *filterExpr:
		v, err := r.eval(e.obj, a)
		if err != nil {
			return nil, err
		}
		return r.filter(e, a, v)
	case *testExpr:
		return r.test(e, a)
	case *callExpr:
		return r.callExpr(e, a, nil)
	case *compareExpr:
		return r.compare(e, a)
	case *boolExpr:
		v, err := r.eval(e.left, a)
		if err != nil || truth(v) != e.and {
			return v, err
		}
		return r.eval(e.right, a)
	case *notExpr:
		v, err := r.eval(e.arg, a)
		return !truth(v), err
	case *condExpr:
		v, err := r.eval(e.test, a)
		switch {
		case err != nil:
			return nil, err
		case truth(v):
			return r.eval(e.then, a)
		case e.other == nil:
			return undefined{"the inline if-expression evaluated to false and no else section was defined."}, nil
		}
		return r.eval(e.other, a)
	case *mathExpr:
		x, y, err := r.eval2(e.left, e.right, a)
		if err != nil {
			return nil, err
		}
		return r.math(e.op, x, y)
	case *concatExpr:
		return r.concat(e, a)
	case *unaryExpr:
		return r.unary(e, a)
	case *sliceExpr:
		return r.slice(e, a)
	case *listExpr:
		items, err := r.evals(e.items, a)
		return &List{items}, err
	case *tupleExpr:
		items, err := r.evals(e.items, a)
		return &tuple{items}, err
	case *dictExpr:
		d := &Dict{}
		for i, k := range e.keys {
			k, v, err := r.eval2(k, e.vals[i], a)
			if err != nil {
				return nil, err
			}
			if !d.put(k, v) {
				if _, ok := k.(*tuple); ok {
					return nil, unsupported("key of a dict", "tuple")
				}
				return nil, failf("unhashable type: %s", typeName(k))
			}
		}
		return d, nil
	}
	return nil, unsupported("expression", fmt.Sprintf("%T", e))
}

func (r *run) eval2(x, y expr, a *activation) (Value, Value, error) {
	v, err := r.eval(x, a)
	if err != nil {
		return nil, nil, err
	}
	w, err := r.eval(y, a)
	return v, w, err
}

func (r *run) evals(list []expr, a *activation) ([]Value, error) {
	out := make([]Value, len(list))
	for i, e := range list {
		v, err := r.eval(e, a)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

func (r *run) args(args []expr, kwargs []keyword, a *activation) ([]Value, []kwarg, error) {
	pos, err := r.evals(args, a)
	if err != nil {
		return nil, nil, err
	}
	named := make([]kwarg, len(kwargs))
	for i, k := range kwargs {
		v, err := r.eval(k.val, a)
		if err != nil {
			return nil, nil, err
		}
		named[i] = kwarg{k.name, v}
	}
	return pos, named, nil
}

func (r *run) callExpr(e *callExpr, a *activation, caller *macro) (Value, error) {
	fn, err := r.eval(e.fn, a)
	if err != nil {
		return nil, err
	}
	args, kwargs, err := r.args(e.args, e.kwargs, a)
	if err != nil {
		return nil, err
	}
	if caller != nil {
		kwargs = append(kwargs, kwarg{"caller", caller})
	}
	switch f := fn.(type) {
	case *macro:
		return f.call(r, args, kwargs)
	case *function:
		return f.call(r, args, kwargs)
	case *method:
		if l, ok := f.self.(*loopVar); ok {
			return l.call(f.name, args)
		}
		return r.method(f, args, kwargs)
	case *loopVar:
		return nil, unsupported("function", "loop")
	case undefined:
		return nil, failf("%s is undefined", f.what)
	}
	return nil, failf("%s object is not callable", typeName(fn))
}

func (r *run) concat(e *concatExpr, a *activation) (Value, error) {
	var b strings.Builder
	for _, arg := range e.args {
		v, err := r.eval(arg, a)
		if err != nil {
			return nil, err
		}
		s, err := str(v)
		if err != nil {
			return nil, err
		}
		if err := r.grow(len(s)); err != nil {
			return nil, err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// getattr is the sandbox's: an attribute of the object first, a key second.
func getattr(obj Value, name string) (Value, error) {
	switch o := obj.(type) {
	case undefined:
		return nil, failf("%s is undefined", o.what)
	case *namespace:
		if strings.HasPrefix(name, "_") {
			return nil, unsupported("attribute", name)
		}
		if v, ok := o.attrs.Get(name); ok {
			return v, nil
		}
		return undefined{name}, nil
	case *loopVar:
		return o.attr(name)
	}
	if m, err := attribute(obj, name); m != nil || err != nil {
		return m, err
	}
	if d, ok := obj.(*Dict); ok {
		if v, ok := d.Get(name); ok {
			return v, nil
		}
	}
	return undefined{name}, nil
}

// getitem is the sandbox's: a key or an index first, an attribute second.
func getitem(obj, key Value) (Value, error) {
	var items []Value
	switch o := obj.(type) {
	case undefined:
		return nil, failf("%s is undefined", o.what)
	case *Dict:
		if v, ok := o.lookup(key); ok {
			return v, nil
		}
		if _, ok := key.(*tuple); ok {
			return nil, unsupported("key of a dict", "tuple")
		}
	case *List:
		items = o.Items
	case *tuple:
		items = o.items
	case string:
		if i, ok := asInt(key); ok {
			return charAt(o, i), nil
		}
	case markup:
		return nil, unsupported("value", "Markup")
	case *view:
		if o.kind == "range" {
			items = o.items
		}
	case *namespace:
		if s, ok := key.(string); ok {
			return getattr(obj, s)
		}
	}
	if i, ok := asInt(key); ok {
		if i < 0 {
			i += int64(len(items))
		}
		if i >= 0 && i < int64(len(items)) {
			return items[i], nil
		}
		return undefined{"an element"}, nil
	}
	if s, ok := key.(string); ok {
		if m, err := attribute(obj, s); m != nil || err != nil {
			return m, err
		}
		return undefined{s}, nil
	}
	return undefined{"an element"}, nil
}

func charAt(s string, i int64) Value {
	if i < 0 {
		i += int64(utf8.RuneCountInString(s))
	}
	if i >= 0 {
		for _, c := range s {
			if i == 0 {
				return string(c)
			}
			i--
		}
	}
	return undefined{"an element"}
}

func (r *run) slice(e *sliceExpr, a *activation) (Value, error) {
	obj, err := r.eval(e.obj, a)
	if err != nil {
		return nil, err
	}
	bound := [3]*int64{}
	for i, b := range []expr{e.start, e.end, e.step} {
		if b == nil {
			continue
		}
		v, err := r.eval(b, a)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		n, ok := asInt(v)
		if !ok {
			return nil, failf("slice indices must be integers or None")
		}
		bound[i] = &n
	}
	switch o := obj.(type) {
	case string:
		return sliceString(o, bound)
	case *List:
		items, err := sliceItems(o.Items, bound)
		return &List{items}, err
	case *tuple:
		items, err := sliceItems(o.items, bound)
		return &tuple{items}, err
	case undefined:
		return nil, failf("%s is undefined", o.what)
	case markup, *view:
		return nil, unsupported("slice of a", typeName(obj))
	}
	return nil, failf("%s object is not subscriptable", typeName(obj))
}

func sliceString(s string, bound [3]*int64) (Value, error) {
	if isASCII(s) && (bound[2] == nil || *bound[2] == 1) {
		from, to, _, err := sliceRange(len(s), bound)
		if err != nil || from >= to {
			return "", err
		}
		return s[from:to], nil
	}
	var chars []Value
	for _, c := range s {
		chars = append(chars, c)
	}
	chars, err := sliceItems(chars, bound)
	var b strings.Builder
	for _, c := range chars {
		b.WriteRune(c.(rune))
	}
	return b.String(), err
}

func sliceRange(n int, bound [3]*int64) (from, to, step int, err error) {
	step = 1
	if bound[2] != nil {
		if *bound[2] == 0 {
			return 0, 0, 0, failf("slice step cannot be zero")
		}
		step = int(max(min(*bound[2], int64(n)+1), -int64(n)-1))
	}
	lo, hi := 0, n
	from, to = 0, n
	if step < 0 {
		lo, hi = -1, n-1
		from, to = n-1, -1
	}
	clamp := func(i int64) int {
		if i < 0 {
			i = max(i, -int64(n)-1) + int64(n)
		}
		return int(max(int64(lo), min(i, int64(hi))))
	}
	if bound[0] != nil {
		from = clamp(*bound[0])
	}
	if bound[1] != nil {
		to = clamp(*bound[1])
	}
	return from, to, step, nil
}

func sliceItems(items []Value, bound [3]*int64) ([]Value, error) {
	from, to, step, err := sliceRange(len(items), bound)
	if err != nil {
		return nil, err
	}
	if step == 1 {
		if from >= to {
			return nil, nil
		}
		return items[from:to:to], nil
	}
	var out []Value
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		out = append(out, items[i])
	}
	return out, nil
}

func (r *run) unary(e *unaryExpr, a *activation) (Value, error) {
	v, err := r.eval(e.arg, a)
	if err != nil {
		return nil, err
	}
	if f, ok := v.(float64); ok {
		if e.neg {
			f = -f
		}
		return f, nil
	}
	i, ok := asInt(v)
	if !ok {
		return nil, failf("bad operand type for unary operator: %s", typeName(v))
	}
	if e.neg {
		return r.math("-", int64(0), i)
	}
	return i, nil
}

func (r *run) math(op string, x, y Value) (Value, error) {
	i, xi := asInt(x)
	j, yj := asInt(y)
	if xi && yj {
		return intMath(op, i, j)
	}
	f, xf := asFloat(x)
	g, yg := asFloat(y)
	if xf && yg {
		return floatMath(op, f, g)
	}
	switch op {
	case "+":
		switch p := x.(type) {
		case string:
			if q, ok := y.(string); ok {
				return p + q, r.grow(len(p) + len(q))
			}
		case *List:
			if q, ok := y.(*List); ok {
				return &List{append(p.Items[:len(p.Items):len(p.Items)], q.Items...)}, r.grow(16 * (len(p.Items) + len(q.Items)))
			}
		case *tuple:
			if q, ok := y.(*tuple); ok {
				return &tuple{append(p.items[:len(p.items):len(p.items)], q.items...)}, r.grow(16 * (len(p.items) + len(q.items)))
			}
		}
	case "*":
		if xi {
			x, y, j, yj = y, x, i, true
		}
		if s, ok := x.(string); ok && yj {
			return repeat(r, s, j)
		}
		if yj {
			if t := typeName(x); t == "list" || t == "tuple" {
				return nil, unsupported("repetition of a", t)
			}
		}
	case "%":
		if s, ok := x.(string); ok {
			return nil, unsupported("operator % on", s)
		}
	}
	if u, ok := x.(undefined); ok {
		return nil, failf("%s is undefined", u.what)
	}
	if u, ok := y.(undefined); ok {
		return nil, failf("%s is undefined", u.what)
	}
	if typeName(x) == "Markup" || typeName(y) == "Markup" {
		return nil, unsupported("operator "+op+" on", "Markup")
	}
	return nil, failf("unsupported operand type(s) for %s: %s and %s", op, typeName(x), typeName(y))
}

func repeat(r *run, s string, n int64) (Value, error) {
	if n <= 0 || s == "" {
		return "", nil
	}
	if n > int64(r.t.limits.Work)/int64(len(s)) {
		return nil, limitf("repeated string is too long")
	}
	return strings.Repeat(s, int(n)), r.grow(len(s) * int(n))
}

// intMath is exact or refuses: Python's integers have no bounds.
func intMath(op string, x, y int64) (Value, error) {
	a, b, c := big.NewInt(x), big.NewInt(y), new(big.Int)
	switch op {
	case "+":
		c.Add(a, b)
	case "-":
		c.Sub(a, b)
	case "*":
		c.Mul(a, b)
	case "//", "%", "/":
		if y == 0 {
			return nil, failf("division by zero")
		}
		if op == "/" {
			if max(x, -x) > 1<<53 || max(y, -y) > 1<<53 {
				return nil, unsupported("division of", "large integers")
			}
			return float64(x) / float64(y), nil
		}
		m := new(big.Int)
		c.DivMod(a, b, m) // Euclidean; Python's is floored
		if m.Sign() != 0 && y < 0 {
			c.Sub(c, big.NewInt(1))
			m.Add(m, b)
		}
		if op == "%" {
			c = m
		}
	case "**":
		if y < 0 || y > 64 {
			return nil, unsupported("operator", "**")
		}
		c.Exp(a, b, nil)
	default:
		return nil, unsupported("operator", op)
	}
	if !c.IsInt64() {
		return nil, unsupported("value", "integer beyond 64 bits")
	}
	return c.Int64(), nil
}

func floatMath(op string, x, y float64) (Value, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "/":
		if y == 0 {
			return nil, failf("float division by zero")
		}
		return x / y, nil
	}
	return nil, unsupported("operator on floats", op)
}

func (r *run) compare(e *compareExpr, a *activation) (Value, error) {
	x, err := r.eval(e.left, a)
	if err != nil {
		return nil, err
	}
	for i, op := range e.ops {
		y, err := r.eval(e.args[i], a)
		if err != nil {
			return nil, err
		}
		ok, err := compare(op, x, y)
		if err != nil || !ok {
			return false, err
		}
		x = y
	}
	return true, nil
}

func compare(op string, x, y Value) (bool, error) {
	switch op {
	case "==":
		return equal(x, y, 0)
	case "!=":
		eq, err := equal(x, y, 0)
		return !eq, err
	case "in":
		return contains(y, x)
	case "not in":
		in, err := contains(y, x)
		return !in, err
	}
	c, ok, err := order(x, y, 0)
	if err != nil {
		return false, err
	}
	if !ok { // NaN
		return false, nil
	}
	switch op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	}
	return c >= 0, nil
}

func equal(x, y Value, depth int) (bool, error) {
	if depth > maxNesting {
		return false, limitf("more than %d nested values", maxNesting)
	}
	if f, ok := asFloat(x); ok {
		if g, ok := asFloat(y); ok {
			i, xi := asInt(x)
			j, yj := asInt(y)
			if xi && yj {
				return i == j, nil
			}
			if xi && max(i, -i) > 1<<53 || yj && max(j, -j) > 1<<53 {
				return false, unsupported("comparison of", "large integers with floats")
			}
			return f == g, nil
		}
		return false, nil
	}
	switch x := x.(type) {
	case nil:
		return y == nil, nil
	case string:
		if m, ok := y.(markup); ok {
			return x == string(m), nil
		}
		s, ok := y.(string)
		return ok && x == s, nil
	case markup:
		switch y := y.(type) {
		case string:
			return string(x) == y, nil
		case markup:
			return x == y, nil
		}
		return false, nil
	case undefined:
		_, ok := y.(undefined)
		return ok, nil
	case *List:
		if z, ok := y.(*List); ok {
			return equalItems(x.Items, z.Items, depth)
		}
		return false, nil
	case *tuple:
		if z, ok := y.(*tuple); ok {
			return equalItems(x.items, z.items, depth)
		}
		return false, nil
	case *Dict:
		z, ok := y.(*Dict)
		if !ok || x.Len() != z.Len() {
			return false, nil
		}
		for i, k := range x.keys {
			w, ok := z.lookup(k)
			if !ok {
				return false, nil
			}
			if eq, err := equal(x.vals[i], w, depth+1); err != nil || !eq {
				return false, err
			}
		}
		return true, nil
	case *view:
		if _, ok := y.(*view); ok {
			return false, unsupported("comparison of", x.kind)
		}
		return false, nil
	}
	return x == y, nil
}

func equalItems(x, y []Value, depth int) (bool, error) {
	if len(x) != len(y) {
		return false, nil
	}
	for i := range x {
		if eq, err := equal(x[i], y[i], depth+1); err != nil || !eq {
			return false, err
		}
	}
	return true, nil
}

// order compares as Python's < does; ok is false when one is NaN.
func order(x, y Value, depth int) (c int, ok bool, err error) {
	if depth > maxNesting {
		return 0, false, limitf("more than %d nested values", maxNesting)
	}
	i, xi := asInt(x)
	j, yj := asInt(y)
	if xi && yj {
		return compareOrdered(i, j), true, nil
	}
	if f, ok := asFloat(x); ok {
		if g, ok := asFloat(y); ok {
			if math.IsNaN(f) || math.IsNaN(g) {
				return 0, false, nil
			}
			return compareOrdered(f, g), true, nil
		}
	}
	switch p := x.(type) {
	case string:
		if q, ok := y.(string); ok {
			return strings.Compare(p, q), true, nil
		}
	case *List:
		if q, ok := y.(*List); ok {
			return orderItems(p.Items, q.Items, depth)
		}
	case *tuple:
		if q, ok := y.(*tuple); ok {
			return orderItems(p.items, q.items, depth)
		}
	case undefined:
		return 0, false, failf("%s is undefined", p.what)
	case markup:
		return 0, false, unsupported("value", "Markup")
	}
	return 0, false, failf("comparison not supported between %s and %s", typeName(x), typeName(y))
}

func orderItems(x, y []Value, depth int) (int, bool, error) {
	for i := range min(len(x), len(y)) {
		eq, err := equal(x[i], y[i], depth+1)
		if err != nil {
			return 0, false, err
		}
		if !eq {
			return order(x[i], y[i], depth+1)
		}
	}
	return compareOrdered(len(x), len(y)), true, nil
}

func compareOrdered[T int | int64 | float64](x, y T) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func contains(in, x Value) (bool, error) {
	switch c := in.(type) {
	case string:
		switch s := x.(type) {
		case string:
			return strings.Contains(c, s), nil
		case markup:
			return strings.Contains(c, string(s)), nil
		}
		return false, failf("'in <string>' requires string as left operand, not %s", typeName(x))
	case *Dict:
		if _, ok := hashable(x); !ok {
			switch x.(type) {
			case *List, *Dict:
				return false, failf("unhashable type: %s", typeName(x))
			}
			return false, unsupported("key of a dict", typeName(x))
		}
		_, ok := c.lookup(x)
		return ok, nil
	case markup, *generator, *namespace, *loopVar:
		return false, unsupported("operator in on", typeName(in))
	}
	it, err := iterate(in)
	if err != nil {
		return false, err
	}
	for _, v := range it.items {
		if eq, err := equal(v, x, 0); err != nil || eq {
			return eq, err
		}
	}
	return false, nil
}
