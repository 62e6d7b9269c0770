package chat

import (
	"slices"
	"strings"
)

// fold is what sorting and comparing filters do to a key unless they are
// told to mind the case.
func fold(v Value, caseSensitive bool) (Value, error) {
	s, ok := v.(string)
	if !ok || caseSensitive {
		return v, nil
	}
	return cased(s, strings.ToLower)
}

// sortBy sorts stably by keys, as Python does: reverse keeps the order of
// equals.
func sortBy(items, keys []Value, reversed bool) ([]Value, error) {
	at := make([]int, len(items))
	for i := range at {
		at[i] = i
	}
	var failed error
	slices.SortStableFunc(at, func(i, j int) int {
		if failed != nil {
			return 0
		}
		eq, err := equal(keys[i], keys[j], 0)
		if err != nil {
			failed = err
		}
		if eq || err != nil {
			return 0
		}
		c, ok, err := order(keys[i], keys[j], 0)
		if err == nil && !ok {
			err = unsupported("sorting of", "NaN")
		}
		if err != nil {
			failed = err
			return 0
		}
		if reversed {
			c = -c
		}
		return c
	})
	out := make([]Value, len(items))
	for i, j := range at {
		out[i] = items[j]
	}
	return out, failed
}

func sortFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("sort", args, kwargs, "reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := listOf(v)
	if err != nil {
		return nil, err
	}
	paths := []Value{or(p[2], nil)}
	if s, ok := paths[0].(string); ok && strings.Contains(s, ",") {
		return nil, unsupported("attribute path", s)
	}
	keys, err := foldedKeys(items, paths[0], truth(or(p[1], false)))
	if err != nil {
		return nil, err
	}
	out, err := sortBy(items, keys, truth(or(p[0], false)))
	return &List{out}, err
}

func foldedKeys(items []Value, path Value, caseSensitive bool) ([]Value, error) {
	keys := make([]Value, len(items))
	for i, v := range items {
		k, err := attrOf(v, path)
		if err != nil {
			return nil, err
		}
		if keys[i], err = fold(k, caseSensitive); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func dictsortFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("dictsort", args, kwargs, "case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	d, ok := v.(*Dict)
	if !ok {
		if _, undef := v.(undefined); undef {
			return nil, failf("%s is undefined", v.(undefined).what)
		}
		return nil, failf("%s object has no attribute items", typeName(v))
	}
	by := d.keys
	switch or(p[1], "key") {
	case "key":
	case "value":
		by = d.vals
	default:
		return nil, failf(`you can only sort by either "key" or "value"`)
	}
	keys := make([]Value, len(by))
	for i, k := range by {
		if keys[i], err = fold(k, truth(or(p[0], false))); err != nil {
			return nil, err
		}
	}
	out, err := sortBy(pairs(d), keys, truth(or(p[2], false)))
	return &List{out}, err
}

func uniqueFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("unique", args, kwargs, "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := listOf(v)
	if err != nil {
		return nil, err
	}
	keys, err := foldedKeys(items, or(p[1], nil), truth(or(p[0], false)))
	if err != nil {
		return nil, err
	}
	seen := &Dict{}
	var out []Value
	for i, k := range keys {
		if _, ok := hashable(k); !ok {
			return nil, unsupported("filter unique on", typeName(k))
		}
		if _, dup := seen.lookup(k); !dup {
			seen.put(k, true)
			out = append(out, items[i])
		}
	}
	return &generator{items: out}, nil
}

func extremeFilter(sign int) filterFunc {
	return func(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
		p, err := params("min or max", args, kwargs, "case_sensitive", "attribute")
		if err != nil {
			return nil, err
		}
		items, err := listOf(v)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return undefined{"No aggregated item, sequence was empty."}, nil
		}
		keys, err := foldedKeys(items, or(p[1], nil), truth(or(p[0], false)))
		if err != nil {
			return nil, err
		}
		best := 0
		for i := 1; i < len(items); i++ {
			c, _, err := order(keys[i], keys[best], 0)
			if err != nil {
				return nil, err
			}
			if c*sign > 0 {
				best = i
			}
		}
		return items[best], nil
	}
}

func mapFilter(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
	if !truth(v) { // as there, None among them
		return &generator{}, nil
	}
	items, err := listOf(v)
	if err != nil {
		return nil, err
	}
	g := &generator{}
	var each func(x Value) (Value, error)
	if len(args) == 0 {
		var attr, def Value
		for _, k := range kwargs {
			switch k.name {
			case "attribute":
				attr = k.val
			case "default":
				def = k.val
			default:
				return nil, failf("map: unexpected keyword argument %s", k.name)
			}
		}
		if len(kwargs) == 0 || def != nil && strings.Contains(textOf(attr), ".") {
			return nil, unsupported("arguments of", "map")
		}
		each = func(x Value) (Value, error) {
			y, err := attrOf(x, attr)
			if _, undef := y.(undefined); undef && def != nil {
				y = def
			}
			return y, err
		}
	} else {
		f := filters[textOf(args[0])]
		if f == nil {
			return nil, unsupported("filter", textOf(args[0]))
		}
		each = func(x Value) (Value, error) { return f(r, x, args[1:], kwargs) }
	}
	for _, x := range items {
		if err := r.step(); err != nil {
			return nil, err
		}
		y, err := each(x)
		if err != nil {
			g.err = err
			break
		}
		g.items = append(g.items, y)
	}
	return g, nil
}

func textOf(v Value) string { s, _ := v.(string); return s }

func selectFilter(keep, byAttr bool) filterFunc {
	return func(r *run, v Value, args []Value, kwargs []kwarg) (Value, error) {
		if !truth(v) { // as there, None among them
			return &generator{}, nil
		}
		items, err := listOf(v)
		if err != nil {
			return nil, err
		}
		var attr Value
		if byAttr {
			if len(args) == 0 {
				return nil, failf("missing parameter for attribute name")
			}
			attr, args = args[0], args[1:]
		}
		var test testFunc
		if len(args) > 0 {
			name := textOf(args[0])
			if test = tests[name]; test == nil {
				return nil, unsupported("test", name)
			}
			args = args[1:]
		}
		g := &generator{}
		for _, x := range items {
			if err := r.step(); err != nil {
				return nil, err
			}
			y, err := attrOf(x, attr)
			ok := truth(y)
			if err == nil && test != nil {
				ok, err = test(r, y, args)
			}
			if err != nil {
				g.err = err
				break
			}
			if ok == keep {
				g.items = append(g.items, x)
			}
		}
		return g, nil
	}
}
