package chat

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits bound what a template, or one render of it, may take. Zero values
// stand for the defaults.
type Limits struct {
	// Source is the size of a template in bytes, by default 1 MiB.
	Source int
	// Steps are evaluated expressions, statements and rounds of loops, by
	// default 50 million.
	Steps int
	// Output is the size of a render in bytes, by default 64 MiB.
	Output int
	// Work is the size of all text built on the way, by default 256 MiB.
	Work int
}

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.Source, 1<<20)
	def(&l.Steps, 50_000_000)
	def(&l.Output, 64<<20)
	def(&l.Work, 256<<20)
	return l
}

// Options configure [Parse]. The zero value is ready.
type Options struct {
	// SpecialTokens are what the tokenizer gives to every template, such as
	// bos_token. A token that is unset must be left out: it is undefined for
	// the template then, as in transformers. Not changed afterwards.
	SpecialTokens map[string]string
	// Now is the clock of strftime_now, by default [time.Now] in the local
	// time zone, as in the engine. Templates that show the date render as
	// the engine does only while both agree on it.
	Now func() time.Time
	// Era is what the engine's transformers does to messages.
	Era Era
	// Limits bound template and renders.
	Limits Limits
}

// Era names a range of transformers releases that treat messages alike before
// a template sees them. It follows from the transformers that is installed
// beside the engine, not from the engine's own release.
type Era uint8

const (
	// Transformers5_19 leaves messages as they are. Verified with 5.19.0.
	Transformers5_19 Era = iota
	// Transformers5_24 drops keys whose value is null, and gives reasoning
	// under the names reasoning_content and thinking, whichever of these or
	// reasoning it came under. Verified with 5.24.0.
	Transformers5_24
)

// normalize returns messages as a template of the era sees them.
func (e Era) normalize(messages *List) (*List, error) {
	if e == Transformers5_19 {
		return messages, nil
	}
	out := &List{Items: make([]Value, len(messages.Items))}
	for i, m := range messages.Items {
		d, ok := m.(*Dict)
		if !ok {
			return nil, failf("a message is no object")
		}
		plain, reasoning := &Dict{}, Value(nil)
		for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
			if v, _ := d.Get(name); v != nil && reasoning == nil {
				reasoning = v
			}
		}
		if reasoning != nil {
			plain.Set("thinking", reasoning)
		}
		for i, k := range d.keys {
			if d.vals[i] != nil {
				plain.put(k, d.vals[i])
			}
		}
		if reasoning != nil {
			plain.Set("reasoning_content", reasoning)
		}
		out.Items[i] = plain
	}
	return out, nil
}

// Template is a parsed chat template: immutable, safe for concurrent use.
// Only [Parse] makes one that is usable.
type Template struct {
	source  string
	body    []stmt
	enter   []load
	slots   int
	vars    []string
	special *Dict
	now     func() time.Time
	era     Era
	limits  Limits
}

// Parse reads a chat template. The error is an [*UnsupportedError] when the
// template uses what this package does not know, a [*SyntaxError] when Jinja
// refuses it too, [ErrLimit] when it is too large.
func Parse(source string, o Options) (*Template, error) {
	limits := o.Limits.withDefaults()
	if len(source) > limits.Source {
		return nil, limitf("template of more than %d bytes", limits.Source)
	}
	if !utf8.ValidString(source) {
		return nil, &SyntaxError{Line: 1, Reason: "the template is not UTF-8"}
	}
	toks, err := lex(source, limits.Source/4+1000)
	if err != nil {
		return nil, err
	}
	body, err := parse(toks)
	if err != nil {
		return nil, err
	}
	t := &Template{source: source, body: body, special: &Dict{}, now: o.Now, era: o.Era, limits: limits}
	if t.now == nil {
		t.now = time.Now
	}
	for k, v := range o.SpecialTokens {
		t.special.Set(k, v)
	}
	var vars map[string]bool
	if t.enter, t.slots, vars, err = resolve(body); err != nil {
		return nil, err
	}
	for _, n := range []string{"cycler", "joiner", "lipsum"} {
		if vars[n] {
			return nil, unsupported("function", n)
		}
	}
	for v := range vars {
		t.vars = append(t.vars, v)
	}
	slices.Sort(t.vars)
	return t, nil
}

// Source returns the text of the template.
func (t *Template) Source() string { return t.source }

// Uses tells whether the template reads a variable that it is given: kwargs
// that it does not read have no effect. Functions count too: a template for
// which Uses("strftime_now") is true depends on the clock.
func (t *Template) Uses(name string) bool {
	_, ok := slices.BinarySearch(t.vars, name)
	return ok
}

// Input is one conversation. Rendering reads it and keeps no reference.
type Input struct {
	// Messages is the conversation, a list of dicts with the key role.
	Messages *List
	// Tools and Documents are lists, or nil (None).
	Tools, Documents Value
	// AddGenerationPrompt asks for the head of the answer.
	AddGenerationPrompt bool
	// ContinueFinalMessage leaves the last message open.
	ContinueFinalMessage bool
	// Kwargs are further variables, nil for none. They win over special
	// tokens, not over the fields above.
	Kwargs *Dict
}

const continueTag = "CONTINUE_FINAL_MESSAGE_TAG "

// AppendRender appends the render of a conversation to dst, as
// apply_chat_template(tokenize=False) of transformers gives it. The error is
// a [*RenderError] when the engine rejects the conversation too, an
// [*UnsupportedError] when the render must be left to the engine, or
// [ErrLimit]. dst is returned unchanged with an error.
func (t *Template) AppendRender(dst []byte, in *Input) ([]byte, error) {
	vars := &Dict{}
	if in.Kwargs != nil {
		for i, k := range in.Kwargs.keys {
			vars.put(k, in.Kwargs.vals[i])
		}
	}
	messages := in.Messages
	if messages == nil {
		messages = &List{}
	}
	if len(messages.Items) == 0 {
		return dst, failf("there are no messages")
	}
	final := ""
	messages, err := t.era.normalize(messages)
	if err != nil {
		return dst, err
	}
	if in.ContinueFinalMessage {
		if in.AddGenerationPrompt {
			return dst, failf("continue_final_message and add_generation_prompt are not compatible")
		}
		if messages, final, err = t.open(messages); err != nil {
			return dst, err
		}
	}
	vars.Set("messages", messages)
	vars.Set("tools", in.Tools)
	vars.Set("documents", in.Documents)
	vars.Set("add_generation_prompt", in.AddGenerationPrompt)
	r := &run{t: t, vars: vars, out: dst, base: len(dst)}
	a := newActivation(t.slots, nil)
	r.enter(t.enter, a)
	if err := r.stmts(t.body, a); err != nil {
		return dst, err
	}
	if !in.ContinueFinalMessage {
		return r.out, nil
	}
	return cut(r.out, len(dst), final)
}

// open marks the end of the last message's text.
func (t *Template) open(messages *List) (*List, string, error) {
	last, ok := messages.Items[len(messages.Items)-1].(*Dict)
	if !ok {
		return nil, "", failf("a message is no object")
	}
	content, _ := last.Get("content")
	marked := &Dict{}
	for i, k := range last.keys {
		marked.put(k, last.vals[i])
	}
	final := ""
	switch c := content.(type) {
	case nil:
		return nil, "", failf(`continue_final_message is set but the final message has no "content" to continue`)
	case string:
		final = c
		marked.Set("content", c+continueTag)
	case *List:
		parts := slices.Clone(c.Items)
		i := len(parts) - 1
		for ; i >= 0; i-- {
			part, ok := parts[i].(*Dict)
			if !ok {
				return nil, "", unsupported("content part to continue", typeName(parts[i]))
			}
			text, ok := part.Get("text")
			if !ok {
				continue
			}
			if final, ok = text.(string); !ok {
				return nil, "", failf("a text to continue is no string")
			}
			open := &Dict{}
			for i, k := range part.keys {
				open.put(k, part.vals[i])
			}
			open.Set("text", final+continueTag)
			parts[i] = open
			break
		}
		if i < 0 {
			return nil, "", failf("continue_final_message is set but there is no text to continue in the final message")
		}
		marked.Set("content", &List{parts})
	default:
		return nil, "", failf("content to continue is no text")
	}
	if !strings.Contains(t.source, "content") {
		return nil, "", failf("continue_final_message: the template does not read content")
	}
	items := slices.Clone(messages.Items)
	items[len(items)-1] = marked
	return &List{items}, final, nil
}

// cut ends the render where the last message is open.
func cut(out []byte, base int, final string) ([]byte, error) {
	text := string(out[base:])
	tag := strings.TrimSpace(continueTag)
	if !strings.Contains(text, strings.TrimFunc(final, isSpace)) || !strings.Contains(text, tag) {
		return out[:base], failf("continue_final_message is set but the final message does not appear in the render")
	}
	i := strings.LastIndex(text, tag)
	kept := text[:i]
	if !strings.HasPrefix(text[i:], continueTag) {
		kept = strings.TrimRightFunc(kept, isSpace)
	}
	return out[:base+len(kept)], nil
}
