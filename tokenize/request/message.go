package request

import (
	"slices"
	"strings"

	"github.com/kvatlas/kvatlas/tokenize/chat"
)

// roleFields are the fields of a message that are read, by role; that a
// message has others is refused where vLLM's validation may depend on it.
var roleFields = map[string]string{
	"system":    " role content name ",
	"user":      " role content name ",
	"developer": " role content name ",
	"assistant": " role content name tool_calls reasoning reasoning_content ",
	"tool":      " role content name tool_call_id ",
}

// message mirrors _parse_chat_message_content and _postprocess_messages.
func (c *conversation) message(d *chat.Dict) (chat.Value, error) {
	role, _ := d.Get("role")
	name, _ := role.(string)
	fields := roleFields[name]
	if fields == "" {
		return nil, c.field("messages: role " + name)
	}
	for i := range d.Len() {
		if k, _ := d.At(i); !strings.Contains(fields, " "+k+" ") {
			return nil, c.field("messages: " + k + " of role " + name)
		}
	}
	content, err := c.content(name, d)
	if err != nil {
		return nil, err
	}
	out := &chat.Dict{}
	out.Set("role", name)
	out.Set("content", content)
	switch name {
	case "assistant":
		if err := c.assistant(d, out); err != nil {
			return nil, err
		}
	case "tool":
		if id, ok := d.Get("tool_call_id"); ok {
			if !isString(id) {
				return nil, c.field("messages: tool_call_id")
			}
			out.Set("tool_call_id", id)
		}
	}
	if n, ok := d.Get("name"); ok {
		if !isString(n) {
			return nil, c.field("messages: name")
		}
		out.Set("name", n)
	}
	if name == "developer" {
		out.Set("tools", nil)
	}
	return out, nil
}

// content returns what the template sees: a text, or a list of parts.
func (c *conversation) content(role string, d *chat.Dict) (chat.Value, error) {
	v, _ := d.Get("content")
	var texts []string
	switch v := v.(type) {
	case string:
		texts = []string{v}
	case *chat.List:
		for _, p := range v.Items {
			t, err := c.part(role, p)
			if err != nil {
				return nil, err
			}
			texts = append(texts, t)
		}
	case nil:
		if role != "assistant" {
			return nil, c.field("messages: null content of role " + role)
		}
	default:
		return nil, c.r.cannot(ReasonBody, "content is neither text nor list", nil)
	}
	if role == "system" {
		var err error
		if texts, err = c.billing(texts); err != nil {
			return nil, err
		}
	}
	if !c.parts || role == "tool" {
		return strings.Join(texts, "\n"), nil
	}
	out := &chat.List{Items: make([]chat.Value, len(texts))}
	for i, t := range texts {
		p := &chat.Dict{}
		p.Set("type", "text")
		p.Set("text", t)
		out.Items[i] = p
	}
	return out, nil
}

var partText = map[string]string{"text": "text", "refusal": "refusal"}

// part returns the text of a content part. A part with more than its type and
// text is refused for templates that see parts: these get the rest, too.
func (c *conversation) part(role string, p chat.Value) (string, error) {
	if s, ok := p.(string); ok && role == "user" {
		return s, nil
	}
	d, ok := p.(*chat.Dict)
	if !ok {
		return "", c.field("messages: a content part is no object")
	}
	kind, _ := d.Get("type")
	name, _ := kind.(string)
	key := partText[name]
	if key == "" || key == "refusal" && role != "assistant" {
		return "", c.field("messages: content part of type " + name)
	}
	v, _ := d.Get(key)
	text, ok := v.(string)
	if !ok {
		return "", c.field("messages: a content part has no text")
	}
	if d.Len() != 2 && (c.parts || role != "user") {
		return "", c.field("messages: a content part with further fields")
	}
	if _, ok := d.Get("uuid"); ok {
		return "", c.field("messages: uuid of a content part")
	}
	return text, nil
}

const billingHeader = "x-anthropic-billing-header"

// billing drops a line that Claude Code puts before the system prompt, as
// vLLM does from a release between 0.29 and 0.32 on.
func (c *conversation) billing(texts []string) ([]string, error) {
	if c.m.Engine < VLLM0_32 {
		return texts, nil
	}
	var out []string
	for _, t := range texts {
		if strings.HasPrefix(t, billingHeader) {
			_, rest, _ := strings.Cut(t, "\n")
			if rest == "" {
				continue
			}
			t = rest
		}
		out = append(out, t)
	}
	return out, nil
}

func (c *conversation) assistant(d, out *chat.Dict) error {
	if v, _ := d.Get("tool_calls"); v != nil {
		list, ok := v.(*chat.List)
		if !ok {
			return c.r.cannot(ReasonBody, "tool_calls is no list", nil)
		}
		calls := &chat.List{}
		for _, t := range list.Items {
			call, err := c.toolCall(t)
			if err != nil {
				return err
			}
			calls.Items = append(calls.Items, call)
		}
		if len(calls.Items) > 0 {
			out.Set("tool_calls", calls)
		}
	}
	reasoning, _ := d.Get("reasoning")
	if reasoning == nil {
		reasoning, _ = d.Get("reasoning_content")
	}
	if reasoning == nil {
		return nil
	}
	if !isString(reasoning) {
		return c.field("messages: reasoning is no text")
	}
	out.Set("reasoning", reasoning)
	out.Set("reasoning_content", reasoning)
	return nil
}

// toolCall orders the fields as vLLM's validation does, and parses the
// arguments.
func (c *conversation) toolCall(v chat.Value) (*chat.Dict, error) {
	d, ok := v.(*chat.Dict)
	if !ok {
		return nil, c.r.cannot(ReasonBody, "a tool call is no object", nil)
	}
	id, _ := d.Get("id")
	kind, _ := d.Get("type")
	f, _ := d.Get("function")
	fn, ok := f.(*chat.Dict)
	if !ok || !isString(id) || kind != "function" || d.Len() != 3 || fn.Len() != 2 {
		return nil, c.field("messages: tool call of another shape than id, type, function with name and arguments")
	}
	name, _ := fn.Get("name")
	if !isString(name) {
		return nil, c.field("messages: a tool call has no name")
	}
	args, err := c.arguments(fn)
	if err != nil {
		return nil, err
	}
	fnOut, out := &chat.Dict{}, &chat.Dict{}
	if c.unchecked {
		fnOut.Set("name", name)
	}
	fnOut.Set("arguments", args)
	fnOut.Set("name", name)
	out.Set("id", id)
	out.Set("function", fnOut)
	out.Set("type", "function")
	return out, nil
}

func (c *conversation) arguments(fn *chat.Dict) (chat.Value, error) {
	raw, _ := fn.Get("arguments")
	if p, ok := raw.(parsed); ok {
		return p.Dict, nil
	}
	text, ok := raw.(string)
	switch {
	case !ok:
		return nil, c.field("messages: arguments of a tool call are no text")
	case text == "":
		return &chat.Dict{}, nil
	}
	args, err := chat.ParseJSON([]byte(text))
	if err != nil {
		return nil, c.r.cannot(ReasonField, "messages: arguments of a tool call", err)
	}
	if _, ok := args.(*chat.Dict); !ok {
		return nil, c.field("messages: arguments of a tool call are no object")
	}
	return args, nil
}

// developers mirrors _convert_developer_to_system and
// _consolidate_system_messages: for templates without that role.
func (c *conversation) developers(list *chat.List) {
	src := c.t.Source()
	if strings.Contains(src, `"developer"`) || strings.Contains(src, "'developer'") {
		return
	}
	role := func(m chat.Value) chat.Value { v, _ := m.(*chat.Dict).Get("role"); return v }
	if !slices.ContainsFunc(list.Items, func(m chat.Value) bool { return role(m) == "developer" }) {
		return
	}
	var texts []string
	var rest []chat.Value
	late := false
	for i, m := range list.Items {
		d := m.(*chat.Dict)
		if role(m) == "developer" {
			d.Set("role", "system")
			d.Delete("tools")
		}
		if role(m) != "system" {
			rest = append(rest, m)
			continue
		}
		late = late || i > 0 || len(texts) > 0
		if t := contentText(d); t != "" {
			texts = append(texts, t)
		}
	}
	if !late {
		return
	}
	merged := &chat.Dict{}
	merged.Set("role", "system")
	merged.Set("content", strings.Join(texts, "\n\n"))
	list.Items = append([]chat.Value{merged}, rest...)
}

func contentText(d *chat.Dict) string {
	v, _ := d.Get("content")
	switch v := v.(type) {
	case string:
		return v
	case *chat.List:
		var texts []string
		for _, p := range v.Items {
			t, _ := p.(*chat.Dict).Get("text")
			s, _ := t.(string)
			texts = append(texts, s)
		}
		return strings.Join(texts, "\n")
	}
	return ""
}
