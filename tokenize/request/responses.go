package request

import "github.com/kvatlas/kvatlas/tokenize/chat"

// fromResponses makes a chat of a body of /v1/responses as
// construct_input_messages and construct_tool_dicts do
// (entrypoints/openai/responses/utils.py of the releases that VLLMRelease
// knows; types of the package openai 3.57.0).
func (c *conversation) fromResponses() (*Chat, error) {
	s := &responses{conversation: c, out: &Chat{AddGenerationPrompt: true, Kwargs: c.r.Chat.Kwargs, Messages: &chat.List{}}}
	c.unchecked = true
	instructions, err := c.text(c.r.root, "instructions")
	if err != nil {
		return nil, err
	}
	if instructions != "" {
		s.add(newMessage("system", instructions))
	}
	if err := s.input(c.r.get("input")); err != nil {
		return nil, err
	}
	if err := s.tools(); err != nil {
		return nil, err
	}
	return s.out, s.effort()
}

// responses is the conversion of one body.
type responses struct {
	*conversation
	out  *Chat
	last *chat.Dict // the last message, when an assistant's
}

func (s *responses) add(d *chat.Dict) {
	s.out.Messages.Items = append(s.out.Messages.Items, d)
	s.last = nil
	if role, _ := d.Get("role"); role == "assistant" {
		s.last = d
	}
}

// assistant adds a field to the assistant's message before, or a message.
func (s *responses) assistant(field string, v chat.Value) {
	if s.last != nil {
		if before, _ := s.last.Get(field); before == nil {
			s.last.Set(field, v)
			return
		}
	}
	d := newMessage("assistant", nil)
	d.Set(field, v)
	s.add(d)
}

func (s *responses) input(v chat.Value) error {
	if text, ok := v.(string); ok {
		s.add(newMessage("user", text))
		return nil
	}
	list, ok := v.(*chat.List)
	if !ok {
		return s.r.cannot(ReasonBody, "input is neither text nor list", nil)
	}
	for i, item := range list.Items {
		open, err := s.item(item)
		if err != nil {
			return err
		}
		if open && i == len(list.Items)-1 {
			s.out.AddGenerationPrompt, s.out.ContinueFinalMessage = false, true
		}
	}
	return nil
}

// item mirrors _construct_message_from_response_item, and tells whether the
// item is one to be continued when it is the last.
func (s *responses) item(v chat.Value) (open bool, err error) {
	kind, d := block(v)
	role, err := s.text(d, "role")
	if err != nil {
		return false, err
	}
	status, _ := d.Get("status")
	open = status == "in_progress" || status == "incomplete"
	if status != nil && status != "completed" && !open {
		return false, s.field("input: status of an item")
	}
	switch {
	case kind == "function_call":
		return false, s.call(d)
	case kind == "function_call_output":
		return false, s.output(d)
	case kind == "reasoning":
		return open, s.reasoning(d)
	case kind != "" && kind != "message":
		return false, s.field("input: item of type " + kind)
	}
	for i := range d.Len() {
		// Templates see further fields of these, but not of an assistant's.
		if k, _ := d.At(i); role != "assistant" && k != "role" && k != "content" && k != "type" && k != "status" && k != "id" {
			return false, s.field("input: " + k + " of a message")
		}
	}
	content, _ := d.Get("content")
	text, isText := content.(string)
	list, isList := content.(*chat.List)
	switch role {
	case "assistant":
		switch {
		case isText && status == nil:
			s.assistant("content", text)
		case isList && kind == "message":
			return open, s.outputText(list)
		default:
			return false, s.field("input: a message of the assistant of another shape than text or type message with output_text")
		}
	case "user", "system", "developer":
		switch {
		case isText && status == nil:
			s.add(newMessage(role, text))
		case isList:
			parts, err := s.inputParts(list)
			if err != nil {
				return false, err
			}
			if open || len(parts.Items) == 0 {
				return false, s.field("input: a message of role " + role + " without parts, or to be continued")
			}
			s.add(newMessage(role, parts))
		default:
			return false, s.field("input: content of a message")
		}
	default:
		return false, s.field("input: role " + role)
	}
	return false, nil
}

// outputText takes the first part alone, as the engine does.
func (s *responses) outputText(list *chat.List) error {
	first := ""
	for i, p := range list.Items {
		kind, d := block(p)
		v, _ := d.Get("text")
		text, ok := v.(string)
		annotations, has := d.Get("annotations")
		if l, isList := annotations.(*chat.List); has && (!isList || len(l.Items) > 0) {
			ok = false
		}
		if kind != "output_text" || !ok {
			return s.field("input: part of the assistant of type " + kind)
		}
		if i == 0 {
			first = text
		}
	}
	if len(list.Items) == 0 {
		return s.field("input: a message of the assistant without parts")
	}
	s.assistant("content", first)
	return nil
}

func (s *responses) inputParts(list *chat.List) (*chat.List, error) {
	out := &chat.List{}
	for _, p := range list.Items {
		kind, d := block(p)
		v, _ := d.Get("text")
		text, ok := v.(string)
		if kind != "input_text" || !ok || d.Len() != 2 {
			return nil, s.field("input: part of type " + kind)
		}
		out.Items = append(out.Items, textPart(text))
	}
	return out, nil
}

func (s *responses) call(d *chat.Dict) error {
	for i := range d.Len() {
		switch k, v := d.At(i); k {
		case "type", "status":
		case "id", "call_id", "name", "arguments":
			if !isString(v) {
				return s.field("input: " + k + " of a function_call is no text")
			}
		default:
			if v != nil {
				return s.field("input: " + k + " of a function_call")
			}
		}
	}
	id, _ := d.Get("call_id")
	name, _ := d.Get("name")
	arguments, _ := d.Get("arguments")
	if id == nil || name == nil || arguments == nil {
		return s.field("input: a function_call without call_id, name or arguments")
	}
	call := newCall(id.(string), name.(string), arguments)
	if s.last != nil {
		if calls, ok := s.last.Get("tool_calls"); ok {
			calls.(*chat.List).Items = append(calls.(*chat.List).Items, call)
			return nil
		}
	}
	s.assistant("tool_calls", &chat.List{Items: []chat.Value{call}})
	return nil
}

func (s *responses) output(d *chat.Dict) error {
	id, _ := d.Get("call_id")
	out, _ := d.Get("output")
	if !isString(id) || !isString(out) {
		return s.field("input: a function_call_output whose call_id or output is no text")
	}
	m := newMessage("tool", out)
	m.Set("tool_call_id", id)
	s.add(m)
	return nil
}

func (s *responses) reasoning(d *chat.Dict) error {
	summary, _ := d.Get("summary")
	summaries, ok := summary.(*chat.List)
	if secret, _ := d.Get("encrypted_content"); !ok || secret != nil {
		return s.field("input: reasoning without summary, or encrypted")
	}
	id, _ := d.Get("id")
	if _, has := d.Get("id"); has && !isString(id) {
		return s.field("input: id of reasoning")
	}
	content, _ := d.Get("content")
	contents, ok := content.(*chat.List)
	if content != nil && !ok {
		return s.field("input: content of reasoning")
	}
	texts := map[string]*chat.List{"summary_text": summaries, "reasoning_text": contents}
	text := ""
	for _, kind := range []string{"summary_text", "reasoning_text"} { // the second wins
		if texts[kind] == nil {
			continue
		}
		for i, p := range texts[kind].Items {
			k, d := block(p)
			v, _ := d.Get("text")
			t, ok := v.(string)
			if k != kind || !ok {
				return s.field("input: a part of reasoning that is no " + kind)
			}
			if i == 0 {
				text = t
			}
		}
	}
	s.assistant("reasoning", text)
	return nil
}

func (s *responses) tools() error {
	v := s.r.get("tools")
	list, ok := v.(*chat.List)
	switch {
	case v == nil && !s.has("tools"):
		return nil
	case !ok:
		return s.r.cannot(ReasonBody, "tools is no list", nil)
	case len(list.Items) == 0:
		return nil
	case s.r.get("tool_choice") == "none":
		return s.field(`tool_choice: whether "none" hides the tools is a setting of the engine`)
	}
	tools := &chat.List{}
	for _, t := range list.Items {
		kind, d := block(t)
		if kind != "function" {
			return s.field("tools: a tool is no function")
		}
		fn, tool := &chat.Dict{}, &chat.Dict{}
		for i := range d.Len() {
			switch k, v := d.At(i); {
			case k == "type" || k == "description" && v == nil || k == "strict" && v == nil || k == "parameters" && v == nil:
			case k == "name" || k == "description" || k == "parameters" || k == "strict":
				fn.Set(k, v)
			default:
				return s.field("tools: " + k)
			}
		}
		tool.Set("type", "function")
		tool.Set("function", fn)
		tools.Items = append(tools.Items, tool)
	}
	s.out.Tools = tools
	return nil
}

// has tells that the body has a field, null too.
func (c *conversation) has(name string) bool { _, ok := c.r.root.Get(name); return ok }

func (s *responses) effort() error {
	v := s.r.get("reasoning")
	if v == nil {
		return nil
	}
	d, ok := v.(*chat.Dict)
	if !ok {
		return s.r.cannot(ReasonBody, "reasoning is no object", nil)
	}
	s.out.ReasoningEffort, _ = d.Get("effort")
	return nil
}
