package chat

import "strings"

// ContentFormat is how an engine gives message contents to a template.
type ContentFormat uint8

const (
	// ContentString joins the texts of a message's parts with newlines.
	ContentString ContentFormat = iota + 1
	// ContentParts gives a list of parts, also where the request has a
	// string: vLLM calls it "openai".
	ContentParts
)

// String returns vLLM's name of the format.
func (f ContentFormat) String() string {
	switch f {
	case ContentString:
		return "string"
	case ContentParts:
		return "openai"
	}
	return "unknown"
}

// ContentFormat returns what vLLM 0.32 and 0.33 choose for the template
// (--chat-template-content-format auto, renderers/hf.py): parts if it loops
// over the contents of a message. ok is false when these releases do not
// agree about it.
func (t *Template) ContentFormat() (format ContentFormat, ok bool) {
	old, fresh := t.detect(false), t.detect(true)
	return old, old == fresh
}

func (t *Template) detect(aliases bool) ContentFormat {
	d := &detector{root: anyOf(t.body), aliases: aliases}
	if d.loopsOverContent() && !d.failed {
		return ContentParts
	}
	return ContentString
}

func anyOf(body []stmt) []any {
	out := make([]any, len(body))
	for i, s := range body {
		out[i] = s
	}
	return out
}

// detector mirrors _iter_nodes_assign_content_item; failed stands for an
// assertion that fails there before anything is found.
type detector struct {
	root    []any
	aliases bool // follow namespaces, from 0.33 on
	failed  bool
}

// walk visits all nodes below, in order, until f returns false.
func walk(nodes []any, f func(n any) bool) bool {
	for _, n := range nodes {
		if !f(n) || !walk(children(n), f) {
			return false
		}
	}
	return true
}

func isVar(e expr, name string) bool {
	if n, ok := e.(*nameExpr); ok {
		return n.ctx == ctxLoad && n.name == name
	}
	if g, ok := e.(*getattrExpr); ok {
		// "ns.rest" is an alias of 0.33.
		if i := strings.LastIndexByte(name, '.'); i >= 0 {
			return g.attr == name[i+1:] && isVar(g.obj, name[:i])
		}
	}
	return false
}

// isVarOrElems tells whether e is the variable, or its key when there is one,
// through filters, tests and slices.
func isVarOrElems(e expr, name, key string) bool {
	switch x := e.(type) {
	case *filterExpr:
		return x.obj != nil && isVarOrElems(x.obj, name, key)
	case *testExpr:
		return isVarOrElems(x.obj, name, key)
	case *sliceExpr:
		return isVarOrElems(x.obj, name, key)
	case *getitemExpr:
		c, ok := x.key.(*constExpr)
		return key != "" && ok && c.val == key && isVar(x.obj, name)
	case *getattrExpr:
		if key != "" {
			return x.attr == key && isVar(x.obj, name)
		}
	}
	return key == "" && isVar(e, name)
}

// assigned returns the variables that hold the messages.
func (d *detector) assigned(start string) []string {
	names := []string{start}
	queue := []string{start}
	seen := map[string]bool{start: true}
	add := func(name string) {
		names = append(names, name)
		if !seen[name] {
			seen[name] = true
			queue = append(queue, name)
		}
	}
	for len(queue) > 0 {
		from := queue[0]
		queue = queue[1:]
		walk(d.root, func(n any) bool {
			s, ok := n.(*setStmt)
			if !ok {
				return true
			}
			d.follow(s, from, add)
			return !d.failed
		})
		if d.failed {
			break
		}
	}
	return names
}

func (d *detector) follow(s *setStmt, from string, add func(string)) {
	hit := isVarOrElems(s.val, from, "")
	switch t := s.target.(type) {
	case *nameExpr:
		if hit {
			add(t.name)
		}
		call, ok := s.val.(*callExpr)
		if !d.aliases || !ok {
			return
		}
		if fn, ok := call.fn.(*nameExpr); ok && fn.name == "namespace" {
			for _, k := range call.kwargs {
				if isVarOrElems(k.val, from, "") {
					add(t.name + "." + k.name)
				}
			}
		}
	case *nsRef:
		if hit && d.aliases {
			add(t.name.name + "." + t.attr)
		}
		d.failed = d.failed || hit && !d.aliases
	default:
		d.failed = d.failed || hit && !d.aliases
	}
}

func (d *detector) loopsOverContent() bool {
	lists := d.assigned("messages")
	if d.failed {
		return false
	}
	var messages []string
	d.loops(d.root, func(f *forStmt) bool {
		for _, name := range lists {
			if isVarOrElems(f.iter, name, "") {
				t, ok := f.target.(*nameExpr)
				if !ok {
					d.failed = true
					return false
				}
				messages = append(messages, t.name)
				break
			}
		}
		return true
	})
	if d.failed {
		return false
	}
	inMacro, params := d.macros(messages)
	found := false
	d.loops(d.root, func(f *forStmt) bool {
		for _, m := range messages {
			found = found || isVarOrElems(f.iter, m, "content")
		}
		if it, ok := f.iter.(*nameExpr); ok && it.ctx == ctxLoad {
			found = found || params[f][it.name] || !inMacro[f] && it.name == "content"
		}
		if _, ok := f.target.(*nameExpr); found && !ok {
			d.failed = true
		}
		return !found
	})
	return found
}

func (d *detector) loops(nodes []any, f func(*forStmt) bool) {
	walk(nodes, func(n any) bool {
		if l, ok := n.(*forStmt); ok {
			return f(l)
		}
		return true
	})
}

// macros returns the loops inside of macros, and for these the parameters
// that are given the content of a message somewhere.
func (d *detector) macros(messages []string) (map[*forStmt]bool, map[*forStmt]map[string]bool) {
	inMacro, params := map[*forStmt]bool{}, map[*forStmt]map[string]bool{}
	isContent := func(e expr) bool {
		for _, m := range messages {
			if isVarOrElems(e, m, "content") {
				return true
			}
		}
		return false
	}
	walk(d.root, func(n any) bool {
		m, ok := n.(*macroStmt)
		if !ok {
			return true
		}
		given := map[string]bool{}
		walk(d.root, func(n any) bool {
			c, ok := n.(*callExpr)
			if !ok {
				return true
			}
			fn, ok := c.fn.(*nameExpr)
			if !ok || fn.name != m.name.name {
				return true
			}
			for i, a := range c.args {
				if i < len(m.params.args) && isContent(a) {
					given[m.params.args[i].name] = true
				}
			}
			for _, k := range c.kwargs {
				for _, a := range m.params.args {
					if a.name == k.name && isContent(k.val) {
						given[k.name] = true
					}
				}
			}
			return true
		})
		d.loops(children(m), func(f *forStmt) bool {
			inMacro[f] = true
			if len(given) > 0 {
				params[f] = given
			}
			return true
		})
		return true
	})
	return inMacro, params
}
