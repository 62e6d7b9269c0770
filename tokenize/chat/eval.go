package chat

import (
	"errors"
	"fmt"
	"strings"
)

// run is one render.
type run struct {
	t     *Template
	vars  *Dict // what the caller gives
	bare  bool  // there is nothing else, as in plain Jinja
	out   []byte
	base  int // bytes of out that were there before
	steps int
	depth int
	extra int // bytes held in strings that were built
}

// activation holds the variables of one call of a Python function.
type activation struct {
	slots []Value
	outer *activation
}

func newActivation(slots int, outer *activation) *activation {
	a := &activation{slots: make([]Value, slots), outer: outer}
	for i := range a.slots {
		a.slots[i] = missing{}
	}
	return a
}

func (a *activation) up(n int) *activation {
	for ; n > 0; n-- {
		a = a.outer
	}
	return a
}

var (
	errBreak    = errors.New("break")
	errContinue = errors.New("continue")
)

func (r *run) step() error {
	if r.steps++; r.steps > r.t.limits.Steps {
		return limitf("more than %d steps", r.t.limits.Steps)
	}
	return nil
}

// grow accounts for n bytes that are about to be built.
func (r *run) grow(n int) error {
	if r.extra += n; r.extra > r.t.limits.Work || n < 0 {
		return limitf("more than %d bytes of intermediate text", r.t.limits.Work)
	}
	return nil
}

func (r *run) write(s string) error {
	if len(r.out)-r.base+len(s) > r.t.limits.Output {
		return limitf("more than %d bytes of output", r.t.limits.Output)
	}
	r.out = append(r.out, s...)
	return nil
}

// writeValue writes v as an expression statement prints it.
func (r *run) writeValue(v Value) error {
	text, err := str(v)
	if err != nil {
		return err
	}
	return r.write(text)
}

// output prints an expression. The texts of a sum, which most of a prompt
// comes from, are written one after another and not put together first.
func (r *run) output(e expr, a *activation) error {
	var room [8]expr
	terms := sumOf(e, room[:0])
	var texts [8]string
	n := 0
	var sum Value
	for i, term := range terms {
		v, err := r.eval(term, a)
		if err != nil {
			return err
		}
		if text, ok := v.(string); ok && n == i && n < len(texts) {
			texts[n] = text
			n++
			continue
		}
		if n == i { // the first that is no text
			if sum = strings.Join(texts[:n], ""); n == 0 {
				sum = v
				continue
			}
			if err := r.grow(len(sum.(string))); err != nil {
				return err
			}
		}
		if sum, err = r.math("+", sum, v); err != nil {
			return err
		}
	}
	if n < len(terms) {
		return r.writeValue(sum)
	}
	for _, text := range texts[:n] {
		if err := r.write(text); err != nil {
			return err
		}
	}
	return nil
}

// sumOf appends the terms of a sum in their order, or e itself.
func sumOf(e expr, dst []expr) []expr {
	if m, ok := e.(*mathExpr); ok && m.op == "+" {
		return append(sumOf(m.left, dst), m.right)
	}
	return append(dst, e)
}

func (r *run) enter(loads []load, a *activation) {
	for i := range loads {
		switch l := &loads[i]; l.kind {
		case loadResolve:
			a.slots[l.slot] = r.resolve(l.name)
		case loadAlias:
			a.slots[l.slot] = a.up(l.up).slots[l.from]
		case loadUndefined:
			a.slots[l.slot] = missing{}
		}
	}
}

func (r *run) resolve(name string) Value {
	if v, ok := r.vars.Get(name); ok {
		return v
	}
	if r.bare && (name == "raise_exception" || name == "strftime_now") {
		return missing{}
	}
	if v, ok := r.t.special.Get(name); ok && !r.bare {
		return v
	}
	if f, ok := globals[name]; ok {
		return f
	}
	return missing{}
}

func leave(slots []int, a *activation) {
	for _, s := range slots {
		a.slots[s] = missing{}
	}
}

func (r *run) stmts(body []stmt, a *activation) error {
	for _, s := range body {
		if err := r.stmt(s, a); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) stmt(s stmt, a *activation) error {
	if err := r.step(); err != nil {
		return err
	}
	switch s := s.(type) {
	case *dataStmt:
		return r.write(s.text)
	case *outputStmt:
		return r.output(s.val, a)
	case *ifStmt:
		return r.ifStmt(s, a)
	case *forStmt:
		return r.forStmt(s, a)
	case *setStmt:
		v, err := r.eval(s.val, a)
		if err != nil {
			return err
		}
		return r.assign(s.target, v, a)
	case *setBlock:
		v, err := r.capture(s.enter, s.leave, s.body, s.filter, a)
		if err != nil {
			return err
		}
		return r.assign(s.target, v, a)
	case *filterBlock:
		v, err := r.capture(s.enter, s.leave, s.body, s.filter, a)
		if err != nil {
			return err
		}
		return r.writeValue(v)
	case *withStmt:
		return r.with(s, a)
	case *macroStmt:
		a.slots[s.name.slot] = &macro{s.params, a}
		return nil
	case *callBlock:
		return r.callBlock(s, a)
	case *loopControl:
		if s.brk {
			return errBreak
		}
		return errContinue
	}
	return unsupported("statement", fmt.Sprintf("%T", s))
}

func (r *run) ifStmt(s *ifStmt, a *activation) error {
	v, err := r.eval(s.test, a)
	if err != nil {
		return err
	}
	if truth(v) {
		return r.stmts(s.body, a)
	}
	for _, e := range s.elifs {
		v, err := r.eval(e.test, a)
		if err != nil {
			return err
		}
		if truth(v) {
			return r.stmts(e.body, a)
		}
	}
	return r.stmts(s.other, a)
}

// capture renders a body aside and passes it through a filter.
func (r *run) capture(enter []load, out []int, body []stmt, filter expr, a *activation) (Value, error) {
	r.enter(enter, a)
	text, err := r.aside(body, a)
	if err != nil {
		return nil, err
	}
	var v Value = text
	if filter != nil {
		v, err = r.filter(filter.(*filterExpr), a, v)
	}
	leave(out, a)
	return v, err
}

func (r *run) aside(body []stmt, a *activation) (string, error) {
	n := len(r.out)
	err := r.stmts(body, a)
	text := string(r.out[n:])
	r.out = r.out[:n] // also when a break leaves the body
	if err != nil {
		return "", err
	}
	return text, r.grow(len(text))
}

func (r *run) with(s *withStmt, a *activation) error {
	vals := make([]Value, len(s.vals))
	for i, e := range s.vals {
		v, err := r.eval(e, a)
		if err != nil {
			return err
		}
		vals[i] = v
	}
	r.enter(s.enter, a)
	for i, t := range s.targets {
		if err := r.assign(t, vals[i], a); err != nil {
			return err
		}
	}
	if err := r.stmts(s.body, a); err != nil {
		return err
	}
	leave(s.leave, a)
	return nil
}

func (r *run) callBlock(s *callBlock, a *activation) error {
	m := &macro{s.params, a}
	if s.call == nil {
		v, err := m.call(r, nil, nil)
		if err != nil {
			return err
		}
		return r.write(v.(string))
	}
	v, err := r.callExpr(s.call, a, m)
	if err != nil {
		return err
	}
	return r.writeValue(v)
}

func (r *run) assign(target expr, v Value, a *activation) error {
	switch t := target.(type) {
	case *nameExpr:
		a.slots[t.slot] = v
	case *nsRef:
		obj := a.up(t.name.up).slots[t.name.slot]
		ns, ok := obj.(*namespace)
		if !ok {
			return failf("cannot assign attribute on non-namespace object")
		}
		if strings.HasPrefix(t.attr, "_") {
			return unsupported("attribute of a namespace", t.attr)
		}
		ns.attrs.put(t.attr, v)
	case *tupleExpr:
		it, err := iterate(v)
		if err != nil {
			return err
		}
		items, err := it.all()
		if err != nil {
			return err
		}
		if len(items) != len(t.items) {
			return failf("cannot unpack %d values into %d names", len(items), len(t.items))
		}
		for i, e := range t.items {
			if err := r.assign(e, items[i], a); err != nil {
				return err
			}
		}
	default:
		return unsupported("target", fmt.Sprintf("%T", t))
	}
	return nil
}

// macro is a macro with the variables around it.
type macro struct {
	def     *macroDef
	closure *activation
}

func (m *macro) call(r *run, args []Value, kwargs []kwarg) (Value, error) {
	if r.depth++; r.depth > maxNesting {
		return nil, limitf("macros nested deeper than %d", maxNesting)
	}
	defer func() { r.depth-- }()
	d := m.def
	a := newActivation(d.slots, m.closure)
	if len(args) > len(d.args) {
		return nil, failf("macro %s takes not more than %d argument(s)", d.name, len(d.args))
	}
	for i, arg := range d.args {
		if i < len(args) {
			a.slots[arg.slot] = args[i]
		}
	}
	if d.caller >= 0 {
		a.slots[d.caller] = undefined{"caller"}
	}
	for _, k := range kwargs {
		slot := -1
		for i, arg := range d.args {
			if arg.name == k.name && i >= len(args) {
				slot = arg.slot
			}
		}
		if k.name == "caller" && d.caller >= 0 {
			slot = d.caller
		}
		if slot < 0 {
			return nil, failf("macro %s takes no keyword argument %s", d.name, k.name)
		}
		a.slots[slot] = k.val
	}
	r.enter(d.enter, a)
	for i, arg := range d.args {
		if _, unset := a.slots[arg.slot].(missing); !unset {
			continue
		}
		j := i - (len(d.args) - len(d.defaults))
		if j < 0 {
			a.slots[arg.slot] = undefined{arg.name}
			continue
		}
		v, err := r.eval(d.defaults[j], a)
		if err != nil {
			return nil, err
		}
		a.slots[arg.slot] = v
	}
	return r.aside(d.body, a)
}
