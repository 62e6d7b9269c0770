package chat

// iter walks a value as Python's iter does. A generator goes on where it
// stands.
type iter struct {
	items []Value
	pos   int
	err   error // behind the last item
	gen   *generator
}

func (it *iter) next() (Value, bool, error) {
	if it.gen != nil {
		return it.gen.next()
	}
	if it.pos >= len(it.items) {
		return nil, false, it.err
	}
	it.pos++
	return it.items[it.pos-1], true, nil
}

func (g *generator) next() (Value, bool, error) {
	if len(g.items) == 0 {
		err := g.err
		g.err = nil
		return nil, false, err
	}
	v := g.items[0]
	g.items = g.items[1:]
	return v, true, nil
}

// all returns what is left.
func (it *iter) all() ([]Value, error) {
	if it.gen == nil && it.pos == 0 && it.err == nil {
		return it.items, nil
	}
	var out []Value
	for {
		v, ok, err := it.next()
		if err != nil || !ok {
			return out, err
		}
		out = append(out, v)
	}
}

func iterate(v Value) (*iter, error) {
	switch v := v.(type) {
	case *List:
		return &iter{items: v.Items}, nil
	case *tuple:
		return &iter{items: v.items}, nil
	case *Dict:
		return &iter{items: v.keys}, nil
	case *view:
		return &iter{items: v.items}, nil
	case *generator:
		return &iter{gen: v}, nil
	case undefined:
		return &iter{}, nil
	case string:
		out := make([]Value, 0, len(v))
		for _, c := range v {
			out = append(out, string(c))
		}
		return &iter{items: out}, nil
	case markup:
		return nil, unsupported("value", "Markup")
	}
	return nil, failf("%s object is not iterable", typeName(v))
}

// loopVar is the special variable loop: jinja2/runtime.py's LoopContext.
type loopVar struct {
	src    func() (Value, bool, error)
	size   int // -1 when not known
	index0 int

	prev  Value
	cur   Value
	ahead []Value // what was looked at too early
	last  []Value // of changed
}

func (l *loopVar) next() (Value, bool, error) {
	if len(l.ahead) > 0 {
		v := l.ahead[0]
		l.ahead = l.ahead[1:]
		return v, true, nil
	}
	return l.src()
}

// peek makes sure that there are n items ahead, all of them for n < 0.
func (l *loopVar) peek(n int) error {
	for n < 0 || len(l.ahead) < n {
		v, ok, err := l.src()
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		l.ahead = append(l.ahead, v)
	}
	return nil
}

func (l *loopVar) length() (int, error) {
	if l.size < 0 {
		if err := l.peek(-1); err != nil {
			return 0, err
		}
		l.size = l.index0 + 1 + len(l.ahead)
	}
	return l.size, nil
}

func (l *loopVar) attr(name string) (Value, error) {
	switch name {
	case "index":
		return int64(l.index0 + 1), nil
	case "index0":
		return int64(l.index0), nil
	case "first":
		return l.index0 == 0, nil
	case "depth":
		return int64(1), nil
	case "depth0":
		return int64(0), nil
	case "last":
		err := l.peek(1)
		return len(l.ahead) == 0, err
	case "nextitem":
		if err := l.peek(1); err != nil {
			return nil, err
		}
		if len(l.ahead) == 0 {
			return undefined{"there is no next item"}, nil
		}
		return l.ahead[0], nil
	case "previtem":
		if l.index0 == 0 {
			return undefined{"there is no previous item"}, nil
		}
		return l.prev, nil
	case "length", "revindex", "revindex0":
		n, err := l.length()
		switch name {
		case "revindex":
			n -= l.index0
		case "revindex0":
			n -= l.index0 + 1
		}
		return int64(n), err
	case "cycle", "changed":
		return &method{l, name}, nil
	}
	return nil, unsupported("attribute of loop", name)
}

func (l *loopVar) call(name string, args []Value) (Value, error) {
	if name == "cycle" {
		if len(args) == 0 {
			return nil, failf("no items for cycling given")
		}
		return args[l.index0%len(args)], nil
	}
	if l.last != nil && len(l.last) == len(args) {
		same := true
		for i, v := range args {
			eq, err := equal(v, l.last[i], 0)
			if err != nil {
				return nil, err
			}
			same = same && eq
		}
		if same {
			return false, nil
		}
	}
	l.last = append(make([]Value, 0, len(args)+1), args...)
	return true, nil
}

func (r *run) forStmt(s *forStmt, a *activation) error {
	v, err := r.eval(s.iter, a)
	if err != nil {
		return err
	}
	it, err := iterate(v)
	if err != nil {
		return err
	}
	l := &loopVar{src: it.next, size: -1}
	if s.test != nil {
		l.src = r.filtered(s, it, a)
	} else if it.gen == nil {
		l.size = len(it.items)
	}
	looped := false
	for l.index0 = 0; ; l.index0++ {
		if err := r.step(); err != nil {
			return err
		}
		v, ok, err := l.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		l.prev, l.cur = l.cur, v
		if s.loopSlot >= 0 {
			a.slots[s.loopSlot] = l
		}
		if err := r.assign(s.target, v, a); err != nil {
			return err
		}
		r.enter(s.enter, a)
		err = r.stmts(s.body, a)
		if err == errBreak {
			break
		}
		if err != nil && err != errContinue {
			return err
		}
		// A round that was cut short does not count, as in Jinja's output.
		looped = looped || err == nil
	}
	leave(s.leave, a)
	if s.other == nil || looped {
		return nil
	}
	r.enter(s.elseEnter, a)
	if err := r.stmts(s.other, a); err != nil {
		return err
	}
	leave(s.elseLeave, a)
	return nil
}

// filtered is the source of a loop with a condition, which is asked only as
// items are needed.
func (r *run) filtered(s *forStmt, it *iter, a *activation) func() (Value, bool, error) {
	in := newActivation(s.testSlots, a)
	r.enter(s.testEnter, in)
	return func() (Value, bool, error) {
		for {
			if err := r.step(); err != nil {
				return nil, false, err
			}
			v, ok, err := it.next()
			if err != nil || !ok {
				return nil, false, err
			}
			if err := r.assign(s.testTgt, v, in); err != nil {
				return nil, false, err
			}
			c, err := r.eval(s.test, in)
			if err != nil {
				return nil, false, err
			}
			if truth(c) {
				return v, true, nil
			}
		}
	}
}
