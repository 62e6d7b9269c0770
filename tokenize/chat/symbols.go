package chat

import (
	"slices"
	"strconv"
)

// symbols mirrors the class of the same name in jinja2/idtracking.py: what
// the names of one frame refer to. Jinja compiles a name to a local variable
// of a Python function; here it is a slot of that function's activation.
// Frames on one level of one function share the variables of equal names, as
// there.
type symbols struct {
	parent *symbols
	fn     *scope
	level  int
	refs   map[string]place
	loads  map[place]load
	stores map[string]bool
}

// scope is a Python function of Jinja's output.
type scope struct {
	outer *scope
	slots map[string]int
}

// place is a variable.
type place struct {
	fn   *scope
	slot int
}

func newSymbols(parent *symbols, fn *scope) *symbols {
	s := &symbols{parent: parent, fn: fn, refs: map[string]place{}, loads: map[place]load{}, stores: map[string]bool{}}
	if parent != nil {
		s.level = parent.level + 1
	}
	return s
}

func (s *symbols) define(name string, kind loadKind, from place) place {
	ident := strconv.Itoa(s.level) + name
	slot, ok := s.fn.slots[ident]
	if !ok {
		slot = len(s.fn.slots)
		s.fn.slots[ident] = slot
	}
	p := place{s.fn, slot}
	s.refs[name] = p
	s.loads[p] = s.loadOf(p, name, kind, from)
	return p
}

func (s *symbols) loadOf(p place, name string, kind loadKind, from place) load {
	l := load{slot: p.slot, kind: kind, name: name}
	if kind == loadAlias {
		l.up, l.from = hops(s.fn, from.fn), from.slot
	}
	return l
}

func hops(from, to *scope) int {
	n := 0
	for ; from != to; from = from.outer {
		n++
	}
	return n
}

func (s *symbols) find(name string) (place, bool) {
	for ; s != nil; s = s.parent {
		if p, ok := s.refs[name]; ok {
			return p, true
		}
	}
	return place{}, false
}

func (s *symbols) copy() *symbols {
	c := *s
	c.refs, c.loads, c.stores = cloneMap(s.refs), cloneMap(s.loads), cloneMap(s.stores)
	return &c
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if _, ok := s.refs[name]; ok {
		return
	}
	if s.parent != nil {
		if outer, ok := s.parent.find(name); ok {
			s.define(name, loadAlias, outer)
			return
		}
	}
	s.define(name, loadUndefined, place{})
}

func (s *symbols) param(name string) place {
	s.stores[name] = true
	return s.define(name, loadParam, place{})
}

func (s *symbols) load(name string) {
	if _, ok := s.find(name); !ok {
		s.define(name, loadResolve, place{})
	}
}

func (s *symbols) branches(all ...*symbols) {
	stored := map[string]bool{}
	for _, b := range all {
		for name := range b.stores {
			if !s.stores[name] {
				stored[name] = true
			}
		}
	}
	for _, b := range all {
		for k, v := range b.refs {
			s.refs[k] = v
		}
		for k, v := range b.loads {
			s.loads[k] = v
		}
		for k := range b.stores {
			s.stores[k] = true
		}
	}
	for name := range stored {
		target, _ := s.find(name)
		if s.parent != nil {
			if outer, ok := s.parent.find(name); ok {
				s.loads[target] = s.loadOf(target, name, loadAlias, outer)
				continue
			}
		}
		s.loads[target] = s.loadOf(target, name, loadResolve, place{})
	}
}

// enter returns what happens when the frame begins, and the slots that are
// cleared when it ends.
func (s *symbols) enter() (enter []load, leave []int) {
	for _, l := range s.loads {
		leave = append(leave, l.slot)
		if l.kind != loadParam {
			enter = append(enter, l)
		}
	}
	slices.SortFunc(enter, func(a, b load) int { return a.slot - b.slot })
	slices.Sort(leave)
	return enter, leave
}

// visitor mirrors FrameSymbolVisitor: what a frame loads and stores, without
// what is inside of its inner frames.
type visitor struct{ sym *symbols }

func (v *visitor) stmts(body []stmt) {
	for _, s := range body {
		v.stmt(s)
	}
}

func (v *visitor) stmt(s stmt) {
	switch s := s.(type) {
	case *outputStmt:
		v.expr(s.val)
	case *ifStmt:
		v.ifStmt(s)
	case *forStmt:
		v.expr(s.iter)
	case *setStmt:
		v.expr(s.val)
		v.expr(s.target)
	case *setBlock:
		v.expr(s.target)
	case *withStmt:
		v.exprs(s.vals)
	case *filterBlock:
		v.expr(s.filter)
	case *macroStmt:
		v.sym.store(s.name.name)
	case *callBlock:
		if s.call != nil {
			v.expr(s.call)
		}
	}
}

func (v *visitor) ifStmt(s *ifStmt) {
	v.expr(s.test)
	orig := v.sym
	branch := func(visit func()) *symbols {
		v.sym = orig.copy()
		visit()
		b := v.sym
		v.sym = orig
		return b
	}
	body := branch(func() { v.stmts(s.body) })
	elifs := branch(func() {
		for _, e := range s.elifs {
			v.ifStmt(e)
		}
	})
	other := branch(func() { v.stmts(s.other) })
	orig.branches(body, elifs, other)
}

func (v *visitor) exprs(list []expr) {
	for _, e := range list {
		v.expr(e)
	}
}

func (v *visitor) expr(e expr) {
	switch e := e.(type) {
	case *nameExpr:
		switch e.ctx {
		case ctxParam:
			v.sym.param(e.name)
		case ctxStore:
			v.sym.store(e.name)
		default:
			v.sym.load(e.name)
		}
	case *nsRef:
		v.sym.load(e.name.name)
	default:
		for _, c := range children(e) {
			v.expr(c.(expr))
		}
	}
}

// params declares the names of a loop's target.
func (v *visitor) params(target expr) {
	switch t := target.(type) {
	case *nameExpr:
		v.sym.param(t.name)
	case *tupleExpr:
		for _, i := range t.items {
			v.params(i)
		}
	}
}

// children returns the direct children of a node, in the order of Jinja's
// fields.
func children(n any) []any {
	var out []any
	add := func(e expr) {
		if e != nil {
			out = append(out, e)
		}
	}
	exprs := func(list []expr) {
		for _, e := range list {
			out = append(out, e)
		}
	}
	kws := func(list []keyword) {
		for _, k := range list {
			out = append(out, k.val)
		}
	}
	stmts := func(list []stmt) {
		for _, s := range list {
			out = append(out, s)
		}
	}
	def := func(m *macroDef) {
		for _, a := range m.args {
			out = append(out, a)
		}
		exprs(m.defaults)
		stmts(m.body)
	}
	switch n := n.(type) {
	case *tupleExpr:
		exprs(n.items)
	case *listExpr:
		exprs(n.items)
	case *dictExpr:
		for i, k := range n.keys {
			out = append(out, k, n.vals[i])
		}
	case *condExpr:
		add(n.test)
		add(n.then)
		add(n.other)
	case *boolExpr:
		out = append(out, n.left, n.right)
	case *notExpr:
		add(n.arg)
	case *compareExpr:
		add(n.left)
		exprs(n.args)
	case *mathExpr:
		out = append(out, n.left, n.right)
	case *unaryExpr:
		add(n.arg)
	case *concatExpr:
		exprs(n.args)
	case *getattrExpr:
		add(n.obj)
	case *getitemExpr:
		out = append(out, n.obj, n.key)
	case *sliceExpr:
		add(n.obj)
		add(n.start)
		add(n.end)
		add(n.step)
	case *callExpr:
		add(n.fn)
		exprs(n.args)
		kws(n.kwargs)
	case *filterExpr:
		add(n.obj)
		exprs(n.args)
		kws(n.kwargs)
	case *testExpr:
		add(n.obj)
		exprs(n.args)
		kws(n.kwargs)
	case *outputStmt:
		add(n.val)
	case *ifStmt:
		add(n.test)
		stmts(n.body)
		for _, e := range n.elifs {
			out = append(out, e)
		}
		stmts(n.other)
	case *forStmt:
		out = append(out, n.target, n.iter)
		stmts(n.body)
		stmts(n.other)
		add(n.test)
	case *setStmt:
		out = append(out, n.target, n.val)
	case *setBlock:
		add(n.target)
		add(n.filter)
		stmts(n.body)
	case *withStmt:
		exprs(n.targets)
		exprs(n.vals)
		stmts(n.body)
	case *filterBlock:
		stmts(n.body)
		add(n.filter)
	case *macroStmt:
		def(n.params)
	case *callBlock:
		if n.call != nil {
			out = append(out, n.call)
		}
		def(n.params)
	}
	return out
}

// mentions tells whether a name is read anywhere below.
func mentions[T any](nodes []T, name string) bool {
	for _, n := range nodes {
		if x, ok := any(n).(*nameExpr); ok && x.name == name && x.ctx == ctxLoad {
			return true
		}
		if mentions(children(any(n)), name) {
			return true
		}
	}
	return false
}
