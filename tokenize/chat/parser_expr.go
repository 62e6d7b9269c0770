package chat

func (p *parser) expression(cond bool) expr {
	p.enter()
	defer p.leave()
	e := p.or()
	if !cond {
		return e
	}
	for p.isName("if") {
		at := pos(p.next().line)
		test := p.or()
		c := &condExpr{at, test, e, nil}
		if p.skipName("else") {
			c.other = p.expression(true)
		}
		e = c
	}
	return e
}

func (p *parser) or() expr {
	left := p.and()
	for p.isName("or") {
		at := pos(p.next().line)
		left = &boolExpr{at, false, left, p.and()}
	}
	return left
}

func (p *parser) and() expr {
	left := p.not()
	for p.isName("and") {
		at := pos(p.next().line)
		left = &boolExpr{at, true, left, p.not()}
	}
	return left
}

func (p *parser) not() expr {
	if p.isName("not") {
		p.enter()
		defer p.leave()
		at := pos(p.next().line)
		return &notExpr{at, p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	left := p.math1()
	c := &compareExpr{pos: pos(p.cur().line), left: left}
	for {
		t := p.cur()
		op := ""
		switch {
		case t.kind == tokOp:
			switch t.text {
			case "==", "!=", "<", "<=", ">", ">=":
				op = t.text
			}
		case p.isName("in"):
			op = "in"
		case p.isName("not") && p.look().kind == tokName && p.look().text == "in":
			p.next()
			op = "not in"
		}
		if op == "" {
			break
		}
		p.next()
		c.ops = append(c.ops, op)
		c.args = append(c.args, p.math1())
	}
	if len(c.ops) == 0 {
		return left
	}
	return c
}

func (p *parser) math1() expr {
	left := p.concat()
	for p.isOp("+") || p.isOp("-") {
		t := p.next()
		left = &mathExpr{pos(t.line), t.text, left, p.concat()}
	}
	return left
}

func (p *parser) concat() expr {
	first := p.math2()
	if !p.isOp("~") {
		return first
	}
	c := &concatExpr{pos(p.cur().line), []expr{first}}
	for p.skipOp("~") {
		c.args = append(c.args, p.math2())
	}
	return c
}

func (p *parser) math2() expr {
	left := p.pow()
	for p.isOp("*") || p.isOp("/") || p.isOp("//") || p.isOp("%") {
		t := p.next()
		left = &mathExpr{pos(t.line), t.text, left, p.pow()}
	}
	return left
}

func (p *parser) pow() expr {
	left := p.unary(true)
	for p.isOp("**") {
		t := p.next()
		left = &mathExpr{pos(t.line), "**", left, p.unary(true)}
	}
	return left
}

func (p *parser) unary(filters bool) expr {
	p.enter()
	defer p.leave()
	var e expr
	switch {
	case p.isOp("-"):
		at := pos(p.next().line)
		e = &unaryExpr{at, true, p.unary(false)}
	case p.isOp("+"):
		at := pos(p.next().line)
		e = &unaryExpr{at, false, p.unary(false)}
	default:
		e = p.primary(false)
	}
	e = p.postfix(e)
	if filters {
		e = p.filters(e)
	}
	return e
}

func (p *parser) primary(ns bool) expr {
	t := p.cur()
	at := pos(t.line)
	switch t.kind {
	case tokName:
		p.next()
		switch t.text {
		case "true", "True":
			return &constExpr{at, true}
		case "false", "False":
			return &constExpr{at, false}
		case "none", "None":
			return &constExpr{at, nil}
		}
		if ns && p.isOp(".") {
			p.next()
			return &nsRef{pos: at, name: nameExpr{pos: at, name: t.text}, attr: p.expectName().text}
		}
		return &nameExpr{pos: at, name: t.text}
	case tokString:
		s := ""
		for p.cur().kind == tokString {
			s += p.next().val.(string)
		}
		return &constExpr{at, s}
	case tokInt, tokFloat:
		p.next()
		return &constExpr{at, t.val}
	case tokOp:
		switch t.text {
		case "(":
			p.next()
			e := p.tupleIn(false, true, false, true)
			p.expectOp(")")
			return e
		case "[":
			return p.list(at)
		case "{":
			return p.dict(at)
		}
	}
	p.fail("unexpected %q", t.text)
	return nil
}

func (p *parser) list(at pos) expr {
	p.next()
	l := &listExpr{pos: at}
	for !p.isOp("]") {
		if len(l.items) > 0 {
			p.expectOp(",")
		}
		if p.isOp("]") {
			break
		}
		l.items = append(l.items, p.expression(true))
	}
	p.expectOp("]")
	return l
}

func (p *parser) dict(at pos) expr {
	p.next()
	d := &dictExpr{pos: at}
	for !p.isOp("}") {
		if len(d.keys) > 0 {
			p.expectOp(",")
		}
		if p.isOp("}") {
			break
		}
		d.keys = append(d.keys, p.expression(true))
		p.expectOp(":")
		d.vals = append(d.vals, p.expression(true))
	}
	p.expectOp("}")
	return d
}

func (p *parser) tuple(simplified, cond, ns bool) expr {
	return p.tupleIn(simplified, cond, ns, false)
}

func (p *parser) tupleIn(simplified, cond, ns, parens bool) expr {
	at := pos(p.cur().line)
	var items []expr
	isTuple := false
	for {
		if len(items) > 0 {
			p.expectOp(",")
		}
		k := p.cur().kind
		if k == tokVarEnd || k == tokBlockEnd || p.isOp(")") || simplified && p.isName("in") || !simplified && p.isName("recursive") {
			break
		}
		if simplified {
			items = append(items, p.primary(ns))
		} else {
			items = append(items, p.expression(cond))
		}
		if !p.isOp(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) > 0 {
			return items[0]
		}
		if !parens {
			p.fail("expected an expression, got %q", p.cur().text)
		}
	}
	return &tupleExpr{at, items}
}

func (p *parser) postfix(e expr) expr {
	for {
		switch {
		case p.isOp("."):
			e = p.dot(e)
		case p.isOp("["):
			e = p.subscript(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) filters(e expr) expr {
	for {
		switch {
		case p.isOp("|"):
			e = p.filter(e, false)
		case p.isName("is"):
			e = p.test(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) dot(e expr) expr {
	at := pos(p.next().line)
	t := p.next()
	switch t.kind {
	case tokName:
		return &getattrExpr{at, e, t.text}
	case tokInt:
		return &getitemExpr{at, e, &constExpr{at, t.val}}
	}
	p.fail("expected name or number")
	return nil
}

func (p *parser) subscript(e expr) expr {
	at := pos(p.next().line)
	part := func() expr {
		if p.isOp(":") || p.isOp("]") {
			return nil
		}
		return p.expression(true)
	}
	first := part()
	if !p.isOp(":") {
		if first == nil {
			p.refuse("subscript", "[]")
		}
		if p.isOp(",") {
			p.refuse("subscript", "[a, b]")
		}
		p.expectOp("]")
		return &getitemExpr{at, e, first}
	}
	s := &sliceExpr{pos: at, obj: e, start: first}
	p.next()
	s.end = part()
	if p.skipOp(":") {
		s.step = part()
	}
	p.expectOp("]")
	return s
}

func (p *parser) callArgs() (args []expr, kwargs []keyword) {
	p.expectOp("(")
	for comma := false; !p.isOp(")"); comma = true {
		if comma {
			p.expectOp(",")
			if p.isOp(")") {
				break
			}
		}
		if p.isOp("*") || p.isOp("**") {
			p.refuse("call with", p.cur().text)
		}
		if n := p.look(); p.cur().kind == tokName && n.kind == tokOp && n.text == "=" {
			name := p.next().text
			p.next()
			for _, k := range kwargs {
				if k.name == name {
					p.fail("keyword argument %q repeated", name)
				}
			}
			kwargs = append(kwargs, keyword{name, p.expression(true)})
			continue
		}
		if len(kwargs) > 0 {
			p.fail("invalid syntax for function call expression")
		}
		args = append(args, p.expression(true))
	}
	p.next()
	return args, kwargs
}

func (p *parser) call(fn expr) expr {
	c := &callExpr{pos: pos(p.cur().line), fn: fn}
	if a, ok := fn.(*getattrExpr); ok && !knownMethods[a.attr] {
		p.refuse("method", a.attr)
	}
	c.args, c.kwargs = p.callArgs()
	return c
}

// filter parses one filter after another; inline means that the first has no
// bar before it.
func (p *parser) filter(e expr, inline bool) expr {
	for inline || p.isOp("|") {
		if !inline {
			p.next()
		}
		inline = false
		t := p.expectName()
		f := &filterExpr{pos: pos(t.line), obj: e, name: t.text, fn: filters[t.text]}
		if p.isOp(".") || f.fn == nil {
			p.refuse("filter", t.text)
		}
		if p.isOp("(") {
			f.args, f.kwargs = p.callArgs()
		}
		p.checkNamed(f)
		e = f
	}
	return e
}

// checkNamed refuses, at load, filters and tests that are named by a string.
func (p *parser) checkNamed(f *filterExpr) {
	at := -1
	named := tests
	switch f.name {
	case "select", "reject":
		at = 0
	case "selectattr", "rejectattr":
		at = 1
	case "map":
		if len(f.args) > 0 {
			if c, ok := f.args[0].(*constExpr); ok {
				if s, ok := c.val.(string); ok && filters[s] == nil {
					p.refuse("filter", s)
				}
			}
		}
		return
	}
	if at < 0 || len(f.args) <= at {
		return
	}
	if c, ok := f.args[at].(*constExpr); ok {
		if s, ok := c.val.(string); ok && named[s] == nil {
			p.refuse("test", s)
		}
	}
}

func (p *parser) test(e expr) expr {
	at := pos(p.next().line)
	negated := p.skipName("not")
	t := p.expectName()
	x := &testExpr{pos: at, obj: e, name: t.text, fn: tests[t.text]}
	if p.isOp(".") || x.fn == nil {
		p.refuse("test", t.text)
	}
	k := p.cur().kind
	switch {
	case p.isOp("("):
		x.args, x.kwargs = p.callArgs()
	case (k == tokName || k == tokString || k == tokInt || k == tokFloat || p.isOp("[") || p.isOp("{")) && !p.isName("else", "or", "and"):
		if p.isName("is") {
			p.fail("tests cannot be chained")
		}
		x.args = []expr{p.postfix(p.primary(false))}
	}
	if negated {
		return &notExpr{at, x}
	}
	return x
}
