package request

import (
	"errors"
	"strings"

	"github.com/kvatlas/kvatlas/tokenize/chat"
)

// chat renders and encodes a conversation as vLLM's /v1/chat/completions does.
func (m *Model) chat(r *Request) ([]uint32, error) {
	if m.InProcess != nil && !m.InProcess() {
		return nil, r.cannot(ReasonGate, "", nil)
	}
	text, err := m.AppendText(nil, r)
	if err != nil {
		return nil, err
	}
	return m.encode(r, string(text))
}

// AppendText appends the text that the chat template makes of a request with
// a conversation. The error is a [*CannotError].
func (m *Model) AppendText(dst []byte, r *Request) ([]byte, error) {
	if r.Cannot != nil {
		return dst, r.Cannot
	}
	if r.Chat == nil {
		return dst, r.cannot(ReasonBody, "there is no conversation", nil)
	}
	if m.Engine == 0 {
		return dst, r.cannot(ReasonEngine, "", nil)
	}
	if m.Template == nil {
		return dst, r.cannot(ReasonTemplate, "there is none in process", nil)
	}
	switch r.Endpoint {
	case ChatCompletions, Responses, Messages:
	default:
		return dst, r.cannot(ReasonField, "conversations of this endpoint are not verified", nil)
	}
	c := &conversation{m: m, r: r, t: m.Template}
	req, err := r.Chat, error(nil)
	switch r.Endpoint {
	case Messages:
		req, err = c.fromMessages()
	case Responses:
		req, err = c.fromResponses()
	}
	if err != nil {
		return dst, err
	}
	return c.render(dst, req)
}

func (c *conversation) render(dst []byte, req *Chat) ([]byte, error) {
	in, err := c.input(req)
	if err != nil {
		return dst, err
	}
	return c.apply(dst, in)
}

func (c *conversation) apply(dst []byte, in *chat.Input) ([]byte, error) {
	out, err := c.t.AppendRender(dst, in)
	if err == nil {
		return out, nil
	}
	if _, ok := errors.AsType[*chat.RenderError](err); ok {
		return dst, c.r.cannot(ReasonRejected, "", err)
	}
	return dst, c.r.cannot(ReasonTemplate, "", err)
}

// conversation mirrors what vLLM does between the body and the template.
type conversation struct {
	m     *Model
	r     *Request
	t     *chat.Template
	parts bool // contents are lists of parts
	tools chat.Value
	// unchecked says that the messages do not pass through the checks of
	// ChatCompletionRequest, which order the fields of tool calls.
	unchecked bool
}

func (c *conversation) field(detail string) error { return c.r.cannot(ReasonField, detail, nil) }

func (c *conversation) input(req *Chat) (*chat.Input, error) {
	in := &chat.Input{AddGenerationPrompt: req.AddGenerationPrompt, ContinueFinalMessage: req.ContinueFinalMessage}
	if err := c.readTools(req.Tools); err != nil {
		return nil, err
	}
	in.Tools = c.tools
	if c.tools != nil && c.m.ToolTemplate != nil {
		c.t = c.m.ToolTemplate
	}
	src := c.t.Source()
	if strings.Contains(src, "<|start|>") && strings.Contains(src, "<|channel|>") {
		return nil, c.r.cannot(ReasonTemplate, "vLLM renders gpt-oss with code of its own", nil)
	}
	format := c.m.Format
	if format == 0 {
		if c.m.Engine < VLLM0_32 {
			return nil, c.r.cannot(ReasonTemplate, "the content format of this release is not found here; set it", nil)
		}
		found, ok := c.t.ContentFormat()
		if !ok {
			return nil, c.r.cannot(ReasonTemplate, "releases of vLLM differ about its content format; set it", nil)
		}
		format = found
	}
	c.parts = format == chat.ContentParts
	var err error
	if in.Documents, err = c.documents(req.Documents); err != nil {
		return nil, err
	}
	if in.Kwargs, err = c.kwargs(req); err != nil {
		return nil, err
	}
	list := req.Messages
	in.Messages = &chat.List{Items: make([]chat.Value, len(list.Items))}
	for i, msg := range list.Items {
		d, ok := msg.(*chat.Dict)
		if !ok {
			return nil, c.r.cannot(ReasonBody, "a message is no object", nil)
		}
		if in.Messages.Items[i], err = c.message(d); err != nil {
			return nil, err
		}
	}
	c.developers(in.Messages)
	return in, nil
}

func (c *conversation) documents(v chat.Value) (chat.Value, error) {
	if v == nil {
		return nil, nil
	}
	list, ok := v.(*chat.List)
	if !ok {
		return nil, c.r.cannot(ReasonBody, "documents is no list", nil)
	}
	for _, d := range list.Items {
		d, ok := d.(*chat.Dict)
		if !ok {
			return nil, c.r.cannot(ReasonBody, "a document is no object", nil)
		}
		for i := range d.Len() {
			if _, v := d.At(i); !isString(v) {
				return nil, c.r.cannot(ReasonBody, "a document holds what is no string", nil)
			}
		}
	}
	return list, nil
}

func isString(v chat.Value) bool { _, ok := v.(string); return ok }

// readTools mirrors the dump of ChatCompletionToolsParam: these fields, in
// this order, whatever the request has.
func (c *conversation) readTools(v chat.Value) error {
	if v == nil {
		return nil
	}
	list, ok := v.(*chat.List)
	if !ok || len(list.Items) == 0 {
		return c.r.cannot(ReasonBody, "tools is no list of at least one", nil)
	}
	out := &chat.List{}
	for _, t := range list.Items {
		d, ok := t.(*chat.Dict)
		if !ok {
			return c.r.cannot(ReasonBody, "a tool is no object", nil)
		}
		if kind, ok := d.Get("type"); ok && kind != "function" {
			return c.field("tools: a tool is no function")
		}
		if _, ok := d.Get("defer_loading"); ok {
			return c.field("tools: defer_loading")
		}
		f, _ := d.Get("function")
		fn, ok := f.(*chat.Dict)
		if !ok {
			return c.r.cannot(ReasonBody, "a tool has no function", nil)
		}
		dumped, err := c.function(fn)
		if err != nil {
			return err
		}
		tool := &chat.Dict{}
		tool.Set("type", "function")
		tool.Set("function", dumped)
		out.Items = append(out.Items, tool)
	}
	c.tools = out
	return nil
}

func (c *conversation) function(fn *chat.Dict) (*chat.Dict, error) {
	out := &chat.Dict{}
	name, _ := fn.Get("name")
	description, _ := fn.Get("description")
	params, _ := fn.Get("parameters")
	strict, hasStrict := fn.Get("strict")
	_, isDict := params.(*chat.Dict)
	_, isBool := strict.(bool)
	switch {
	case !isString(name), description != nil && !isString(description), params != nil && !isDict, strict != nil && !isBool:
		return nil, c.field("tools: a function's field is not of its type")
	}
	if _, ok := fn.Get("defer_loading"); ok {
		return nil, c.field("tools: defer_loading")
	}
	out.Set("name", name)
	out.Set("description", description)
	out.Set("parameters", params)
	if hasStrict && strict != nil {
		out.Set("strict", strict)
	}
	return out, nil
}

// taken are kwargs that are arguments of apply_chat_template or of vLLM
// itself; what they do there is not reproduced.
var taken = map[string]bool{
	"chat_template": true, "tokenize": true, "tools": true, "documents": true, "messages": true, "conversation": true,
	"add_generation_prompt": true, "continue_final_message": true, "padding": true, "truncation": true,
	"max_length": true, "return_tensors": true, "return_dict": true, "return_assistant_tokens_mask": true,
	"tokenizer_kwargs": true, "processor_kwargs": true, "sanitize_control_tokens": true, "self": true,
}

var efforts = map[string]bool{"none": true, "minimal": true, "low": true, "medium": true, "high": true, "xhigh": true, "max": true}

// kwargs mirrors build_chat_params and merge_kwargs: null and "auto" do not
// override.
func (c *conversation) kwargs(req *Chat) (*chat.Dict, error) {
	out := &chat.Dict{}
	// Responses merge the request's kwargs a second time as defaults, which
	// nothing is taken out of, unless the server has defaults.
	all := c.unchecked && (c.m.DefaultKwargs == nil || c.m.DefaultKwargs.Len() == 0)
	merge := func(k string, v chat.Value) {
		if all || v != nil && v != "auto" {
			out.Set(k, v)
		}
	}
	if d := c.m.DefaultKwargs; d != nil {
		for i := range d.Len() {
			k, v := d.At(i)
			if taken[k] {
				return nil, c.field("default kwargs: " + k)
			}
			out.Set(k, v)
		}
	}
	v := req.Kwargs
	own, ok := v.(*chat.Dict)
	if v != nil && !ok {
		return nil, c.r.cannot(ReasonBody, "chat_template_kwargs is no object", nil)
	}
	thinking := false
	if own != nil {
		for i := range own.Len() {
			k, v := own.At(i)
			if taken[k] {
				return nil, c.field("chat_template_kwargs." + k)
			}
			thinking = thinking || k == "enable_thinking"
			merge(k, v)
		}
	}
	effort := req.ReasoningEffort
	if effort == nil {
		return out, nil
	}
	e, _ := effort.(string)
	if !efforts[e] {
		return nil, c.r.cannot(ReasonBody, "reasoning_effort", nil)
	}
	merge("reasoning_effort", e)
	if !thinking {
		merge("enable_thinking", e != "none")
	}
	return out, nil
}
