package chat

import (
	"fmt"
	"slices"
)

// parser mirrors jinja2/parser.py.
type parser struct {
	toks  []token
	pos   int
	depth int
	loops int // in how many loops of the present function
}

func (p *parser) cur() *token { return &p.toks[p.pos] }

func (p *parser) next() *token {
	t := &p.toks[p.pos]
	if p.pos < len(p.toks)-1 {
		p.pos++
	}
	return t
}

func (p *parser) look() *token { return &p.toks[min(p.pos+1, len(p.toks)-1)] }

func (p *parser) isOp(op string) bool { t := p.cur(); return t.kind == tokOp && t.text == op }

func (p *parser) isName(names ...string) bool {
	t := p.cur()
	return t.kind == tokName && slices.Contains(names, t.text)
}

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.next()
		return true
	}
	return false
}

// The parser unwinds by panic with an error value; parse recovers it.
func (p *parser) fail(format string, args ...any) {
	panic(parseFailure{&SyntaxError{Line: p.cur().line, Reason: fmt.Sprintf(format, args...)}})
}

func (p *parser) refuse(kind, name string) {
	panic(parseFailure{&UnsupportedError{Kind: kind, Name: name, Line: p.cur().line}})
}

type parseFailure struct{ err error }

func (p *parser) enter() {
	if p.depth++; p.depth > maxNesting {
		panic(parseFailure{limitf("template nested deeper than %d", maxNesting)})
	}
}

func (p *parser) leave() { p.depth-- }

func (p *parser) expectOp(op string) *token {
	if !p.isOp(op) {
		p.fail("expected %q, got %q", op, p.cur().text)
	}
	return p.next()
}

func (p *parser) expectName() *token {
	if p.cur().kind != tokName {
		p.fail("expected a name, got %q", p.cur().text)
	}
	return p.next()
}

func (p *parser) expect(kind tokenKind) {
	if p.cur().kind != kind {
		p.fail("unexpected %q", p.cur().text)
	}
	p.next()
}

func parse(toks []token) (body []stmt, err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(parseFailure)
			if !ok {
				panic(r)
			}
			err = f.err
		}
	}()
	p := &parser{toks: toks}
	return p.subparse(), nil
}

func (p *parser) subparse(ends ...string) []stmt {
	p.enter()
	defer p.leave()
	var body []stmt
	for {
		t := p.cur()
		switch t.kind {
		case tokEOF:
			if len(ends) > 0 {
				p.fail("unexpected end of template, looking for %q", ends[0])
			}
			return body
		case tokData:
			body = append(body, &dataStmt{pos(t.line), t.text})
			p.next()
		case tokVarBegin:
			p.next()
			e := p.tuple(false, true, false)
			body = append(body, &outputStmt{pos(t.line), e})
			p.expect(tokVarEnd)
		case tokBlockBegin:
			p.next()
			if len(ends) > 0 && p.isName(ends...) {
				return body
			}
			body = append(body, p.statement())
			p.expect(tokBlockEnd)
		default:
			p.fail("unexpected %q", t.text)
		}
	}
}

// statements parses a body up to one of ends, which stays current.
func (p *parser) statements(ends ...string) []stmt {
	p.skipOp(":")
	p.expect(tokBlockEnd)
	return p.subparse(ends...)
}

func (p *parser) statement() stmt {
	t := p.cur()
	if t.kind != tokName {
		p.fail("tag name expected")
	}
	at := pos(t.line)
	switch t.text {
	case "set":
		return p.set(at)
	case "if":
		return p.ifTag(at)
	case "for":
		return p.forTag(at)
	case "macro":
		p.next()
		name := p.target(true, false).(*nameExpr)
		m := &macroDef{name: name.name, caller: -1}
		p.signature(m)
		m.body = p.function("endmacro")
		return &macroStmt{at, name, m}
	case "call":
		p.next()
		m := &macroDef{name: "caller", caller: -1}
		if p.isOp("(") {
			p.signature(m)
		}
		call, ok := p.expression(true).(*callExpr)
		if !ok {
			p.fail("expected a call")
		}
		m.body = p.function("endcall")
		return &callBlock{at, call, m}
	case "generation":
		p.next()
		m := &macroDef{name: "caller", caller: -1}
		m.body = p.function("endgeneration")
		return &callBlock{at, nil, m}
	case "filter":
		p.next()
		f := p.filter(nil, true)
		b := p.statements("endfilter")
		p.next()
		return &filterBlock{pos: at, filter: f, body: b}
	case "with":
		return p.with(at)
	case "break", "continue":
		p.next()
		if p.loops == 0 {
			p.fail("%s outside of a loop", t.text)
		}
		return &loopControl{at, t.text == "break"}
	}
	p.refuse("statement", t.text)
	return nil
}

// function parses a body that is a function of its own in Jinja, to which
// outer loops do not reach.
func (p *parser) function(end string) []stmt {
	loops := p.loops
	p.loops = 0
	body := p.statements(end)
	p.loops = loops
	p.next()
	return body
}

func (p *parser) set(at pos) stmt {
	p.next()
	target := p.target(false, true)
	if p.skipOp("=") {
		return &setStmt{at, target, p.tuple(false, true, false)}
	}
	s := &setBlock{pos: at, target: target, filter: p.filter(nil, false)}
	s.body = p.statements("endset")
	p.next()
	return s
}

func (p *parser) ifTag(at pos) stmt {
	p.next()
	top := &ifStmt{pos: at}
	node := top
	for {
		node.test = p.tuple(false, false, false)
		node.body = p.statements("elif", "else", "endif")
		switch p.next().text {
		case "elif":
			node = &ifStmt{pos: pos(p.cur().line)}
			top.elifs = append(top.elifs, node)
			continue
		case "else":
			top.other = p.statements("endif")
			p.next()
		}
		return top
	}
}

func (p *parser) forTag(at pos) stmt {
	p.next()
	f := &forStmt{pos: at, loopSlot: -1}
	f.target = p.target(false, false)
	if !p.skipName("in") {
		p.fail("expected in")
	}
	f.iter = p.tuple(false, false, false)
	if p.skipName("if") {
		f.test = p.expression(true)
	}
	if p.isName("recursive") {
		p.refuse("statement", "for ... recursive")
	}
	p.loops++
	f.body = p.statements("endfor", "else")
	p.loops--
	if p.next().text == "else" {
		f.other = p.statements("endfor")
		p.next()
	}
	return f
}

func (p *parser) with(at pos) stmt {
	p.next()
	w := &withStmt{pos: at}
	for p.cur().kind != tokBlockEnd {
		if len(w.targets) > 0 {
			p.expectOp(",")
		}
		t := p.target(false, false)
		setCtx(p, t, ctxParam)
		w.targets = append(w.targets, t)
		p.expectOp("=")
		w.vals = append(w.vals, p.expression(true))
	}
	w.body = p.statements("endwith")
	p.next()
	return w
}

func (p *parser) signature(m *macroDef) {
	p.expectOp("(")
	for !p.isOp(")") {
		if len(m.args) > 0 {
			p.expectOp(",")
		}
		arg := p.target(true, false).(*nameExpr)
		if arg.name == "caller" || arg.name == "varargs" || arg.name == "kwargs" {
			p.refuse("macro argument", arg.name)
		}
		arg.ctx = ctxParam
		if p.skipOp("=") {
			m.defaults = append(m.defaults, p.expression(true))
		} else if len(m.defaults) > 0 {
			p.fail("non-default argument follows default argument")
		}
		m.args = append(m.args, arg)
	}
	p.next()
}

// target parses what can be assigned to.
func (p *parser) target(nameOnly, ns bool) expr {
	if nameOnly {
		t := p.expectName()
		return &nameExpr{pos: pos(t.line), name: t.text, ctx: ctxStore}
	}
	e := p.tuple(true, true, ns)
	setCtx(p, e, ctxStore)
	return e
}

func setCtx(p *parser, e expr, ctx nameCtx) {
	switch e := e.(type) {
	case *nameExpr:
		e.ctx = ctx
	case *nsRef:
	case *tupleExpr:
		for _, i := range e.items {
			setCtx(p, i, ctx)
		}
	default:
		p.fail("cannot assign to this")
	}
}
