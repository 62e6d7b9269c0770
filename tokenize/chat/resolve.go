package chat

// resolver gives every name its variable, as jinja2/compiler.py does while it
// writes Python.
type resolver struct {
	vars    map[string]bool // names that come from outside
	refused error
}

// resolve returns what the root frame needs.
func resolve(body []stmt) (enter []load, slots int, vars map[string]bool, err error) {
	r := &resolver{vars: map[string]bool{}}
	fn := &scope{slots: map[string]int{}}
	sym := newSymbols(nil, fn)
	(&visitor{sym}).stmts(body)
	r.stmts(body, sym)
	enter, _ = r.frame(sym)
	return enter, len(fn.slots), r.vars, r.refused
}

func (r *resolver) frame(sym *symbols) ([]load, []int) {
	enter, leave := sym.enter()
	for _, l := range enter {
		if l.kind == loadResolve {
			r.vars[l.name] = true
		}
	}
	return enter, leave
}

func (r *resolver) stmts(body []stmt, sym *symbols) {
	for _, s := range body {
		r.stmt(s, sym)
	}
}

func (r *resolver) stmt(s stmt, sym *symbols) {
	switch s := s.(type) {
	case *outputStmt:
		r.expr(s.val, sym)
	case *ifStmt:
		r.expr(s.test, sym)
		r.stmts(s.body, sym)
		for _, e := range s.elifs {
			r.stmt(e, sym)
		}
		r.stmts(s.other, sym)
	case *forStmt:
		r.forStmt(s, sym)
	case *setStmt:
		r.expr(s.val, sym)
		r.expr(s.target, sym)
	case *setBlock:
		in := newSymbols(sym, sym.fn)
		(&visitor{in}).stmts(s.body)
		r.stmts(s.body, in)
		r.expr(s.target, sym)
		r.block(s.filter, in)
		s.enter, s.leave = r.frame(in)
	case *withStmt:
		in := newSymbols(sym, sym.fn)
		v := &visitor{in}
		v.exprs(s.targets)
		v.stmts(s.body)
		r.exprs(s.vals, sym)
		r.exprs(s.targets, in)
		r.stmts(s.body, in)
		s.enter, s.leave = r.frame(in)
	case *filterBlock:
		in := newSymbols(sym, sym.fn)
		v := &visitor{in}
		v.stmts(s.body)
		v.expr(s.filter)
		r.stmts(s.body, in)
		r.expr(s.filter, in)
		s.enter, s.leave = r.frame(in)
	case *macroStmt:
		r.macro(s.params, sym)
		r.expr(s.name, sym)
	case *callBlock:
		r.macro(s.params, sym)
		if s.call != nil {
			r.expr(s.call, sym)
		}
	}
}

// block resolves the filter of a set block, in which Jinja knows only names
// that its body has.
func (r *resolver) block(filter expr, sym *symbols) {
	if filter == nil {
		return
	}
	for _, c := range children(filter) {
		if n, ok := c.(*nameExpr); ok {
			if _, known := sym.find(n.name); !known {
				r.refused = &UnsupportedError{Kind: "name in the filter of a set block", Name: n.name, Line: n.at()}
				return
			}
		}
	}
	r.expr(filter, sym)
}

func (r *resolver) forStmt(s *forStmt, sym *symbols) {
	loop := newSymbols(sym, sym.fn)
	if mentions(s.body, "loop") {
		s.loopSlot = loop.param("loop").slot
	}
	v := &visitor{loop}
	v.params(s.target)
	v.stmts(s.body)
	r.expr(s.iter, sym)
	if s.test != nil {
		fn := &scope{outer: sym.fn, slots: map[string]int{}}
		in := newSymbols(sym, fn)
		tv := &visitor{in}
		tv.params(s.target)
		tv.expr(s.test)
		// The target is named twice: in the filter's frame and in the loop's.
		s.testTgt = copyTarget(s.target)
		r.expr(s.testTgt, in)
		r.expr(s.test, in)
		s.testEnter, _ = r.frame(in)
		s.testSlots = len(fn.slots)
	}
	r.expr(s.target, loop)
	r.stmts(s.body, loop)
	s.enter, s.leave = r.frame(loop)
	if s.other != nil {
		other := newSymbols(sym, sym.fn)
		(&visitor{other}).stmts(s.other)
		r.stmts(s.other, other)
		s.elseEnter, s.elseLeave = r.frame(other)
	}
}

func copyTarget(e expr) expr {
	switch e := e.(type) {
	case *nameExpr:
		c := *e
		return &c
	case *tupleExpr:
		c := &tupleExpr{pos: e.pos}
		for _, i := range e.items {
			c.items = append(c.items, copyTarget(i))
		}
		return c
	}
	return e
}

func (r *resolver) macro(m *macroDef, sym *symbols) {
	for _, name := range []string{"varargs", "kwargs"} {
		if mentions(m.body, name) && r.refused == nil {
			r.refused = &UnsupportedError{Kind: "macro variable", Name: name}
		}
	}
	fn := &scope{outer: sym.fn, slots: map[string]int{}}
	in := newSymbols(sym, fn)
	v := &visitor{in}
	for _, a := range m.args {
		v.expr(a)
	}
	v.exprs(m.defaults)
	if mentions(m.body, "caller") {
		m.caller = in.param("caller").slot
	}
	v.stmts(m.body)
	for _, a := range m.args {
		r.expr(a, in)
	}
	r.exprs(m.defaults, in)
	r.stmts(m.body, in)
	m.enter, _ = r.frame(in)
	m.slots = len(fn.slots)
}

func (r *resolver) exprs(list []expr, sym *symbols) {
	for _, e := range list {
		r.expr(e, sym)
	}
}

func (r *resolver) expr(e expr, sym *symbols) {
	switch e := e.(type) {
	case *nameExpr:
		r.name(e, sym)
	case *nsRef:
		r.name(&e.name, sym)
	default:
		for _, c := range children(e) {
			r.expr(c.(expr), sym)
		}
	}
}

func (r *resolver) name(e *nameExpr, sym *symbols) {
	p, ok := sym.find(e.name)
	if !ok {
		// Jinja fails in the same place, with an assertion.
		if r.refused == nil {
			r.refused = &UnsupportedError{Kind: "name", Name: e.name, Line: e.at()}
		}
		return
	}
	e.up, e.slot = hops(sym.fn, p.fn), p.slot
}
