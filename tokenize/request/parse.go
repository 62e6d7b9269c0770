package request

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/kvatlas/kvatlas/tokenize/chat"
	"github.com/kvatlas/kvatlas/tokenize/remote"
)

// Request is a parsed body with what the gateway knows of it. It is read-only.
type Request struct {
	Endpoint Endpoint
	// Path is the path that it came to.
	Path string
	// Body is what was parsed, byte for byte, to be forwarded.
	Body []byte

	// Model is the body's field, "" when it has none: the engine takes its
	// own then. Base is the model and LoRA the adapter that it names, "" for
	// none.
	Model, Base, LoRA string
	// Salt goes into the hash of the first block when it is not empty.
	Salt string
	// Session is the session that vLLM takes the request for: the field
	// session_id, else the header X-Session-ID, else vllm_xargs.session_id.
	Session string

	// Prompts are independent of each other. A chat has one, of which Chat
	// says how it is made.
	Prompts []Prompt
	// Chat is set for bodies with a conversation.
	Chat *Chat
	// Comparison is set for bodies that compare texts. How many prompts they
	// become depends on the model.
	Comparison *Comparison
	// AddSpecialTokens is the field or the endpoint's default.
	AddSpecialTokens bool
	// Items are the multimodal items of a Generate request, by offset.
	Items []remote.Item

	// Cannot says why the tokens cannot be told from the body without the
	// engine. It is nil when they can.
	Cannot *CannotError

	root *chat.Dict
}

// Prompt is a text or token ids.
type Prompt struct {
	Text   string
	Tokens []uint32
	// IsTokens tells an empty list from an empty text.
	IsTokens bool
}

// Chat is a conversation as the body has it: JSON values, nil for fields that
// are absent or null.
type Chat struct {
	Messages                                  *chat.List
	Tools, Documents, ReasoningEffort, Kwargs chat.Value
	AddGenerationPrompt                       bool // default true
	ContinueFinalMessage                      bool
	// Media are the parts of contents that are no text.
	Media []Part
}

// Part is one multimodal part of a message.
type Part struct {
	Message, Index int    // both from 0
	Type           string // such as "image_url"
	// URL is its address or data URL, "" when it is given otherwise; UUID
	// the identifier that the client gave it, which vLLM hashes in place of
	// the content.
	URL, UUID string
}

var (
	errUnknown = errors.New("the endpoint is not known")
	errShape   = errors.New("the body is not of the endpoint's shape")
)

// Parse parses a body that came to path, by the rules of vLLM 0.32.0. header
// may be nil. The result keeps body, which must not change. The error is a
// [*CannotError] with reason body, unknown or limit. What is understood but
// cannot be told in process is no error: see [Request.Cannot].
//
// JSON is read as Python reads it: of two equal names the last counts. NaN,
// integers beyond 64 bits and lone surrogates, which Python lets pass, are
// refused.
func Parse(path string, header http.Header, body []byte, o Options) (*Request, error) {
	if len(body) > o.maxBytes() {
		return nil, refused(&o, path, ReasonLimit, errTooLarge)
	}
	endpoint, ok := EndpointOf(path)
	if !ok {
		return nil, refused(&o, path, ReasonUnknown, errUnknown)
	}
	v, err := chat.ParseJSON(body)
	if err != nil {
		return nil, refused(&o, path, ReasonBody, err)
	}
	root, ok := v.(*chat.Dict)
	if !ok {
		return nil, refused(&o, path, ReasonBody, errShape)
	}
	r := &Request{Endpoint: endpoint, Path: path, Body: body, root: root}
	if err := r.common(header, &o); err != nil {
		return nil, refused(&o, path, ReasonBody, err)
	}
	if err := r.prompt(); err != nil {
		return nil, refused(&o, path, ReasonBody, err)
	}
	return r, nil
}

func shape(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errShape}, args...)...)
}

// get returns a field, nil for null and for none.
func (r *Request) get(name string) chat.Value { v, _ := r.root.Get(name); return v }

// leave keeps the first reason to leave the request to the engine.
func (r *Request) leave(field, why string) {
	if r.Cannot == nil {
		r.Cannot = &CannotError{Endpoint: r.Endpoint, Reason: ReasonField, Detail: field + ": " + why}
	}
}

// text reads a field that is a text; absent gives "".
func (r *Request) text(name string) (string, error) {
	switch v := r.get(name).(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	}
	return "", shape("%s is no string", name)
}

// truth reads a field that is true or false. Python's engines take "true" and
// 1 for true as well, which is left to them.
func (r *Request) truth(name string, absent bool) bool {
	switch v := r.get(name).(type) {
	case nil:
		return absent
	case bool:
		return v
	}
	r.leave(name, "neither true nor false")
	return false
}

func (r *Request) common(header http.Header, o *Options) (err error) {
	if r.Model, err = r.text("model"); err != nil {
		return err
	}
	if r.Salt, err = r.text("cache_salt"); err != nil {
		return err
	}
	if o.CacheSalt != nil {
		r.Salt = *o.CacheSalt
	}
	if r.Session, err = r.text("session_id"); err != nil {
		return err
	}
	if r.Session == "" {
		r.Session = header.Get("X-Session-ID")
	}
	if x, ok := r.get("vllm_xargs").(*chat.Dict); ok && r.Session == "" {
		v, _ := x.Get("session_id")
		r.Session, _ = v.(string)
	}
	r.Base = r.Model
	if o.Adapter != nil {
		if base, ok := o.Adapter(r.Model); ok {
			r.Base, r.LoRA = base, r.Model
		}
	}
	for _, name := range []string{"truncate_prompt_tokens", "truncation_side"} {
		if r.get(name) != nil {
			r.leave(name, "what is left depends on the engine's limits")
		}
	}
	return nil
}

func (r *Request) prompt() error {
	switch r.Endpoint {
	case Completions:
		r.AddSpecialTokens = r.truth("add_special_tokens", true)
		if r.get("suffix") != nil {
			r.leave("suffix", "the engine puts it into the prompt")
		}
		if r.get("prompt_embeds") != nil {
			r.leave("prompt_embeds", "embeddings have no token ids")
			if r.get("prompt") == nil {
				return nil
			}
		}
		return r.texts("prompt")
	case ChatCompletions:
		return r.chat()
	case Responses:
		return r.responses()
	case Messages:
		return r.anthropic()
	case Embeddings, Pooling, Classify:
		if r.get("padding") != nil {
			r.leave("padding", "the engine fills the prompt up to its limits")
		}
		if r.get("messages") != nil {
			return r.chat()
		}
		r.AddSpecialTokens = r.truth("add_special_tokens", true)
		if _, ok := r.get("input").(*chat.Dict); ok && r.Endpoint == Pooling {
			r.leave("input", "an object is for a plugin of the engine")
			return nil
		}
		return r.texts("input")
	case Generate:
		return r.generate()
	}
	return r.score()
}

// texts reads a text, a list of texts, token ids, or a list of those.
func (r *Request) texts(name string) error {
	switch v := r.get(name).(type) {
	case string:
		r.Prompts = []Prompt{{Text: v}}
		return nil
	case *chat.List:
		return r.list(name, v)
	case nil:
		return shape("%s is missing", name)
	}
	return shape("%s is neither a string nor a list", name)
}

func (r *Request) list(name string, l *chat.List) error {
	if len(l.Items) == 0 {
		return shape("%s is an empty list", name)
	}
	if _, isID := l.Items[0].(int64); isID {
		list, err := ids(name, l)
		r.Prompts = []Prompt{{Tokens: list, IsTokens: true}}
		return err
	}
	_, isText := l.Items[0].(string)
	for _, v := range l.Items {
		switch v := v.(type) {
		case string:
			if isText {
				r.Prompts = append(r.Prompts, Prompt{Text: v})
				continue
			}
		case *chat.List:
			if !isText {
				list, err := ids(name, v)
				if err != nil {
					return err
				}
				r.Prompts = append(r.Prompts, Prompt{Tokens: list, IsTokens: true})
				continue
			}
		}
		return shape("%s holds what is neither all texts nor all lists of token ids", name)
	}
	return nil
}

func ids(name string, l *chat.List) ([]uint32, error) {
	out := make([]uint32, len(l.Items))
	for i, v := range l.Items {
		n, ok := v.(int64)
		if !ok || n < 0 || n > math.MaxUint32 {
			return nil, shape("%s holds what is no token id", name)
		}
		out[i] = uint32(n)
	}
	return out, nil
}

func (r *Request) generate() error {
	list, ok := r.get("token_ids").(*chat.List)
	if !ok {
		return shape("token_ids is missing")
	}
	tokens, err := ids("token_ids", list)
	if err != nil {
		return err
	}
	r.Prompts = []Prompt{{Tokens: tokens, IsTokens: true}}
	if r.get("content_parts") != nil {
		r.leave("content_parts", "the engine's processor puts media into the prompt")
	}
	if r.get("features") == nil {
		return nil
	}
	// The keys are those of encoding/json, up to case; ParseJSON has found
	// the exact name.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(r.Body, &fields); err != nil {
		return shape("%v", err)
	}
	if r.Items, err = remote.ParseItems(fields["features"]); err != nil {
		return shape("%v", err)
	}
	return nil
}

func (r *Request) chat() error {
	c := &Chat{Tools: r.get("tools"), Documents: r.get("documents"), Kwargs: r.get("chat_template_kwargs"), ReasoningEffort: r.get("reasoning_effort")}
	r.Chat = c
	r.Prompts = []Prompt{{}}
	r.AddSpecialTokens = r.truth("add_special_tokens", false)
	c.AddGenerationPrompt = r.truth("add_generation_prompt", true)
	c.ContinueFinalMessage = r.truth("continue_final_message", false)
	if c.ContinueFinalMessage && c.AddGenerationPrompt {
		return shape("add_generation_prompt and continue_final_message are both true; the first is by default")
	}
	for _, f := range [][2]string{
		{"chat_template", "engines take a template of the request only when told to trust it"},
		{"mm_processor_kwargs", "they change what the engine's processor makes of multimodal parts"},
		{"prompt_embeds", "embeddings have no token ids"},
	} {
		if r.get(f[0]) != nil {
			r.leave(f[0], f[1])
		}
	}
	r.forwarded()
	if c.Tools != nil && r.get("tool_choice") == "none" {
		r.leave("tool_choice", `whether "none" hides the tools is a setting of the engine`)
	}
	return r.messages(r.get("messages"))
}

// forwarded leaves to the engine what came with its tokens.
func (r *Request) forwarded() {
	if kv, ok := r.get("kv_transfer_params").(*chat.Dict); ok {
		if v, _ := kv.Get("prompt_token_ids"); v != nil {
			r.leave("kv_transfer_params.prompt_token_ids", "vLLM takes them in place of the messages")
		}
	}
}

// messages checks the list and finds the parts that are no text.
func (r *Request) messages(v chat.Value) error {
	list, ok := v.(*chat.List)
	if !ok {
		return shape("messages is no list")
	}
	r.Chat.Messages = list
	for i, m := range list.Items {
		d, ok := m.(*chat.Dict)
		if !ok {
			return shape("messages[%d] is no object", i)
		}
		if role, _ := d.Get("role"); !isString(role) {
			return shape("messages[%d] has no role", i)
		}
		content, _ := d.Get("content")
		if err := r.media(fmt.Sprintf("messages[%d].content", i), i, content); err != nil {
			return err
		}
	}
	return nil
}

// media finds the parts of a content that are no text.
func (r *Request) media(at string, message int, content chat.Value) error {
	parts, ok := content.(*chat.List)
	if !ok {
		return nil
	}
	for i, p := range parts.Items {
		switch p := p.(type) {
		case string:
		case *chat.Dict:
			r.part(fmt.Sprintf("%s[%d]", at, i), message, i, p)
		default:
			return shape("%s[%d] is neither an object nor a string", at, i)
		}
	}
	return nil
}

// textParts are the types of parts, by endpoint where they differ, that are
// no media.
var textParts = map[string]bool{"text": true, "input_text": true, "output_text": true, "refusal": true, "thinking": true, "tool_reference": true,
	"redacted_thinking": true, "tool_use": true, "tool_result": true, "tool_addition": true, "tool_removal": true,
	"reasoning_text": true, "summary_text": true}

func (r *Request) part(at string, message, index int, d *chat.Dict) {
	v, _ := d.Get("type")
	kind, _ := v.(string)
	if textParts[kind] {
		return
	}
	if kind == "" {
		r.leave(at, "it has no type")
	}
	p := Part{Message: message, Index: index, Type: kind}
	for i := range d.Len() {
		k, v := d.At(i)
		s, _ := v.(string)
		inner, _ := v.(*chat.Dict)
		switch {
		case k == "uuid":
			p.UUID = s
		case k == kind || strings.HasSuffix(k, "_url") || k == "source":
			p.URL = s
			if inner != nil {
				u, _ := inner.Get("url")
				p.URL, _ = u.(string)
			}
		}
	}
	r.Chat.Media = append(r.Chat.Media, p)
	r.leave(at, kind+": what the engine's processor makes of it is not known")
}

// known are the fields of the other two kinds of chats that are read, and
// those that have no part in the prompt. All that are not here make a body
// one for the engine to render.
var known = map[Endpoint]string{
	Responses: " model input instructions tools tool_choice reasoning chat_template_kwargs truncation " +
		" background enable_response_messages frequency_penalty ignore_eos include include_reasoning include_stop_str_in_output logit_bias " +
		" max_output_tokens max_tool_calls metadata min_p parallel_tool_calls presence_penalty prompt_cache_key repetition_penalty " +
		" safety_identifier seed service_tier skip_special_tokens stop stop_token_ids store stream stream_options structured_outputs " +
		" temperature text top_k top_logprobs top_p user" + knownToBoth,
	Messages: " model messages system tools tool_choice thinking output_config chat_template_kwargs " +
		" context_management max_tokens metadata service_tier stop_sequences stream temperature top_k top_p" + knownToBoth,
}

const knownToBoth = " cache_salt session_id vllm_xargs priority request_id kv_transfer_params ec_transfer_params mm_payload return_mm_kwargs watermarking "

func (r *Request) onlyKnown() {
	for i := range r.root.Len() {
		if name, v := r.root.At(i); v != nil && !strings.Contains(known[r.Endpoint], " "+name+" ") {
			r.leave(name, "how the engine turns it into a chat is not proved here")
		}
	}
}

// responses and anthropic keep the body's values: which messages they become
// depends on the release (Model.AppendText).
func (r *Request) responses() error {
	r.onlyKnown()
	r.forwarded()
	r.Prompts = []Prompt{{}}
	r.Chat = &Chat{AddGenerationPrompt: true, Kwargs: r.get("chat_template_kwargs")}
	// ResponsesRequest.build_tok_params leaves add_special_tokens at the
	// renderer's default, which is true: BOS stands twice for some models.
	r.AddSpecialTokens = true
	if v, ok := r.root.Get("truncation"); ok && v != "disabled" {
		r.leave("truncation", "what is left depends on the engine's limits")
	}
	switch v := r.get("input").(type) {
	case string:
	case *chat.List:
		for i, item := range v.Items {
			if d, ok := item.(*chat.Dict); ok {
				content, _ := d.Get("content")
				if err := r.media(fmt.Sprintf("input[%d].content", i), i, content); err != nil {
					return err
				}
			}
		}
	default:
		return shape("input is missing")
	}
	return nil
}

func (r *Request) anthropic() error {
	r.onlyKnown()
	r.forwarded()
	r.Prompts = []Prompt{{}}
	r.Chat = &Chat{AddGenerationPrompt: true, Kwargs: r.get("chat_template_kwargs")}
	return r.messages(r.get("messages"))
}
