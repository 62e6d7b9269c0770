package request

import (
	"strings"

	"github.com/kvatlas/kvatlas/tokenize/chat"
)

// fromMessages makes a chat of a body of /v1/messages as
// AnthropicServingMessages.to_chat_completion_request does
// (entrypoints/anthropic/serving.py of the releases that VLLMRelease knows).
func (c *conversation) fromMessages() (*Chat, error) {
	if n, ok := c.r.get("max_tokens").(int64); c.r.Model == "" || !ok || n <= 0 {
		return nil, c.r.cannot(ReasonBody, "model and max_tokens are required", nil)
	}
	m := &messages{conversation: c, out: &Chat{AddGenerationPrompt: true, Kwargs: c.r.Chat.Kwargs, Messages: &chat.List{}}}
	for _, step := range []func() error{m.systemFirst, m.system, m.turns, m.tools, m.effort} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return m.out, nil
}

// messages is the conversion of one body.
type messages struct {
	*conversation
	out   *Chat
	merge bool // system messages among the others go to the first
}

func (m *messages) add(role string, content chat.Value) *chat.Dict {
	d := newMessage(role, content)
	m.out.Messages.Items = append(m.out.Messages.Items, d)
	return d
}

func newMessage(role string, content chat.Value) *chat.Dict {
	d := &chat.Dict{}
	d.Set("role", role)
	if content != nil {
		d.Set("content", content)
	}
	return d
}

// systemFirst finds out where system messages among the others go, if there
// are any.
func (m *messages) systemFirst() error {
	inline := false
	for _, item := range m.r.Chat.Messages.Items {
		role, _ := item.(*chat.Dict).Get("role")
		inline = inline || role == "system"
	}
	if !inline {
		return nil
	}
	if m.m.Engine < VLLM0_32 {
		return m.field("messages: where this release puts system messages depends on the option --chat-template")
	}
	for _, t := range []*chat.Template{m.m.Template, m.m.ToolTemplate} {
		if t == nil {
			continue
		}
		first, ok := t.SystemFirst()
		if !ok {
			return m.field("messages: whether the template takes system messages among the others is not known")
		}
		m.merge = m.merge || first
	}
	return nil
}

// system mirrors _convert_system_message.
func (m *messages) system() error {
	text, err := "", error(nil)
	if v := m.r.get("system"); v != nil {
		// Here a text is not looked at for the billing header.
		if s, ok := v.(string); ok {
			text = s
		} else if text, err = m.systemText(v); err != nil {
			return err
		}
	}
	for _, item := range m.r.Chat.Messages.Items {
		d := item.(*chat.Dict)
		if role, _ := d.Get("role"); !m.merge || role != "system" {
			continue
		}
		v, _ := d.Get("content")
		more, err := m.systemText(v)
		if err != nil {
			return err
		}
		text += more
	}
	if text != "" {
		m.add("system", text)
	}
	return nil
}

// systemText mirrors _extract_system_text.
func (m *messages) systemText(v chat.Value) (string, error) {
	if s, ok := v.(string); ok {
		if strings.HasPrefix(s, billingHeader) {
			return "", nil
		}
		return s, nil
	}
	list, ok := v.(*chat.List)
	if !ok {
		return "", m.r.cannot(ReasonBody, "system is neither text nor list", nil)
	}
	var all strings.Builder
	for _, b := range list.Items {
		kind, d := block(b)
		if kind != "text" {
			return "", m.field("system: block of type " + kind)
		}
		text, err := m.text(d, "text")
		if err != nil {
			return "", err
		}
		if !strings.HasPrefix(text, billingHeader) {
			all.WriteString(text)
		}
	}
	return all.String(), nil
}

// block returns the type of a content block, "" for what is none.
func block(v chat.Value) (kind string, d *chat.Dict) {
	d, ok := v.(*chat.Dict)
	if !ok {
		return "", &chat.Dict{}
	}
	k, _ := d.Get("type")
	kind, _ = k.(string)
	return kind, d
}

// text returns a field that is a text, "" when it is absent or null.
func (c *conversation) text(d *chat.Dict, name string) (string, error) {
	v, _ := d.Get(name)
	s, ok := v.(string)
	if !ok && v != nil {
		return "", c.r.cannot(ReasonBody, name+" is no text", nil)
	}
	return s, nil
}

// turns mirrors _convert_messages.
func (m *messages) turns() error {
	for _, item := range m.r.Chat.Messages.Items {
		d := item.(*chat.Dict)
		role, _ := d.Get("role")
		content, _ := d.Get("content")
		switch role {
		case "user", "assistant":
			if err := m.turn(role.(string), content); err != nil {
				return err
			}
		case "system":
			text, err := m.systemText(content)
			if err != nil {
				return err
			}
			if !m.merge && text != "" {
				m.add("system", text)
			}
		default:
			return m.r.cannot(ReasonBody, "messages: another role than user, assistant and system", nil)
		}
	}
	return nil
}

// turn mirrors _convert_message_content: results of tools become messages
// of their own, before the one that they stand in.
func (m *messages) turn(role string, content chat.Value) error {
	if s, ok := content.(string); ok {
		m.add(role, s)
		return nil
	}
	list, ok := content.(*chat.List)
	if !ok {
		return m.r.cannot(ReasonBody, "content is neither text nor list", nil)
	}
	parts, calls := &chat.List{}, &chat.List{}
	var reasoning strings.Builder
	thinks := false
	for _, b := range list.Items {
		kind, d := block(b)
		switch kind {
		case "text":
			text, err := m.text(d, "text")
			if err != nil {
				return err
			}
			if text != "" {
				parts.Items = append(parts.Items, textPart(text))
			}
		case "thinking":
			text, err := m.text(d, "thinking")
			if err != nil {
				return err
			}
			if v, _ := d.Get("thinking"); v != nil {
				thinks = true
				reasoning.WriteString(text)
			}
		case "redacted_thinking":
		case "tool_use":
			call, err := m.toolUse(d)
			if err != nil {
				return err
			}
			calls.Items = append(calls.Items, call)
		case "tool_result":
			if err := m.toolResult(role, d, parts); err != nil {
				return err
			}
		default:
			return m.field("messages: block of type " + kind)
		}
	}
	var whole chat.Value
	if n := len(parts.Items); n == 1 {
		whole, _ = parts.Items[0].(*chat.Dict).Get("text")
	} else if n > 1 {
		whole = parts
	}
	if role == "user" {
		if whole != nil {
			m.add(role, whole) // with thinking and calls nothing that is read
		}
		return nil
	}
	d := m.add(role, whole)
	if thinks {
		d.Set("reasoning", reasoning.String())
	}
	if len(calls.Items) > 0 {
		d.Set("tool_calls", calls)
	}
	return nil
}

func textPart(text string) *chat.Dict {
	d := &chat.Dict{}
	d.Set("type", "text")
	d.Set("text", text)
	return d
}

// parsed are arguments of a tool call that are no text.
type parsed struct{ *chat.Dict }

// toolUse mirrors _convert_tool_use_block. There the input is written as JSON
// and read again.
func (m *messages) toolUse(d *chat.Dict) (*chat.Dict, error) {
	id, err := m.text(d, "id")
	if err != nil {
		return nil, err
	}
	if id == "" {
		return nil, m.field("messages: tool_use without id, for which the engine takes the time")
	}
	name, err := m.text(d, "name")
	if err != nil {
		return nil, err
	}
	v, _ := d.Get("input")
	input, ok := v.(*chat.Dict)
	if !ok && v != nil {
		return nil, m.r.cannot(ReasonBody, "input of tool_use is no object", nil)
	}
	if input == nil {
		input = &chat.Dict{}
	}
	return newCall(id, name, parsed{input}), nil
}

func newCall(id, name string, arguments chat.Value) *chat.Dict {
	fn, call := &chat.Dict{}, &chat.Dict{}
	fn.Set("name", name)
	fn.Set("arguments", arguments)
	call.Set("id", id)
	call.Set("function", fn)
	call.Set("type", "function")
	return call
}

// toolResult mirrors _convert_tool_result_block.
func (m *messages) toolResult(role string, d *chat.Dict, parts *chat.List) error {
	v, _ := d.Get("content")
	text, isText := v.(string)
	list, isList := v.(*chat.List)
	if v != nil && !isText && !isList {
		return m.r.cannot(ReasonBody, "content of tool_result is neither text nor list", nil)
	}
	if role != "user" {
		if isList && len(list.Items) > 0 {
			return m.field("messages: tool_result of the assistant that is a list")
		}
		parts.Items = append(parts.Items, textPart("Tool result: "+text))
		return nil
	}
	if isList {
		var texts []string
		for _, b := range list.Items {
			kind, part := block(b)
			text, err := m.text(part, "text")
			if kind != "text" || err != nil {
				return m.field("messages: tool_result with a part of type " + kind)
			}
			texts = append(texts, text)
		}
		text = strings.Join(texts, "\n")
	}
	id, err := m.text(d, "tool_use_id")
	if err != nil {
		return err
	}
	m.add("tool", text).Set("tool_call_id", id)
	return nil
}

// tools mirrors _convert_tools and _convert_tool_choice.
func (m *messages) tools() error {
	v := m.r.get("tools")
	if v == nil {
		return nil
	}
	list, ok := v.(*chat.List)
	if !ok {
		return m.r.cannot(ReasonBody, "tools is no list", nil)
	}
	if len(list.Items) == 0 {
		return m.field("tools: an empty list")
	}
	if choice, ok := m.r.get("tool_choice").(*chat.Dict); ok {
		if kind, _ := choice.Get("type"); kind == "none" {
			return m.field(`tool_choice: whether "none" hides the tools is a setting of the engine`)
		}
	}
	tools := &chat.List{}
	for _, t := range list.Items {
		d, ok := t.(*chat.Dict)
		if !ok {
			return m.r.cannot(ReasonBody, "a tool is no object", nil)
		}
		v, _ := d.Get("input_schema")
		schema, ok := v.(*chat.Dict)
		if !ok {
			return m.r.cannot(ReasonBody, "a tool has no input_schema", nil)
		}
		fn, tool := &chat.Dict{}, &chat.Dict{}
		for _, k := range []string{"name", "description", "strict", "defer_loading"} {
			if v, _ := d.Get(k); v != nil {
				fn.Set(k, v)
			}
		}
		fn.Set("parameters", withType(schema))
		tool.Set("type", "function")
		tool.Set("function", fn)
		tools.Items = append(tools.Items, tool)
	}
	m.out.Tools = tools
	return nil
}

// withType mirrors AnthropicTool.validate_input_schema.
func withType(schema *chat.Dict) *chat.Dict {
	if _, ok := schema.Get("type"); ok {
		return schema
	}
	out := &chat.Dict{}
	for i := range schema.Len() {
		k, v := schema.At(i)
		out.Set(k, v)
	}
	out.Set("type", "object")
	return out
}

// effort mirrors _handle_output_config and _handle_thinking.
func (m *messages) effort() error {
	if v := m.r.get("output_config"); v != nil {
		config, ok := v.(*chat.Dict)
		if !ok {
			return m.r.cannot(ReasonBody, "output_config is no object", nil)
		}
		effort, _ := config.Get("effort")
		switch effort {
		case nil, "low", "medium", "high", "xhigh", "max":
			m.out.ReasoningEffort = effort
		default:
			return m.r.cannot(ReasonBody, "output_config.effort", nil)
		}
	}
	v := m.r.get("thinking")
	if v == nil || m.m.Engine < VLLM0_32 { // 0.29 does not know the field
		return nil
	}
	switch kind, _ := block(v); kind {
	case "disabled":
		m.out.ReasoningEffort = m.disabledThinking()
	case "enabled", "adaptive":
	default:
		return m.r.cannot(ReasonBody, "thinking: type "+kind, nil)
	}
	return nil
}

// disabledThinking mirrors _probe_disabled_thinking_effort.
func (m *messages) disabledThinking() string {
	if m.m.DisabledThinkingEffort != "" {
		return m.m.DisabledThinkingEffort
	}
	probe := func(effort string) (string, bool) {
		hi := &Chat{AddGenerationPrompt: true, ReasoningEffort: effort, Messages: &chat.List{Items: []chat.Value{newMessage("user", "Hi")}}}
		c := &conversation{m: m.m, r: &Request{Endpoint: ChatCompletions, Chat: hi}, t: m.m.Template}
		text, err := c.render(nil, hi)
		return string(text), err == nil
	}
	none, ok := probe("none")
	if !ok {
		return "low"
	}
	for _, effort := range []string{"low", "medium", "high", "xhigh", "max"} {
		if text, ok := probe(effort); ok && text == none {
			return "low"
		}
	}
	return "none"
}
