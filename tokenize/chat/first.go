package chat

import "errors"

// SystemFirst tells whether the template wants system messages at the
// beginning only, as vLLM finds out for /v1/messages: it does when plain
// Jinja, without the functions and special tokens of transformers, fails to
// render a conversation with a second one (0.32 and 0.33,
// entrypoints/anthropic/serving.py, _detect_merge_inline_system). ok is false
// when that cannot be told here.
func (t *Template) SystemFirst() (first, ok bool) {
	generation := !walk(anyOf(t.body), func(n any) bool {
		c, ok := n.(*callBlock)
		return !ok || c.call != nil
	})
	if generation {
		return true, true // a tag that plain Jinja does not have
	}
	messages := &List{}
	for _, role := range []string{"system", "user", "system", "user"} {
		m := &Dict{}
		m.Set("role", role)
		m.Set("content", "t")
		messages.Items = append(messages.Items, m)
	}
	vars := &Dict{}
	vars.Set("messages", messages)
	vars.Set("add_generation_prompt", false)
	r := &run{t: t, vars: vars, bare: true}
	a := newActivation(t.slots, nil)
	r.enter(t.enter, a)
	err := r.stmts(t.body, a)
	if err == nil {
		return false, true
	}
	_, fails := errors.AsType[*RenderError](err)
	return fails, fails
}
