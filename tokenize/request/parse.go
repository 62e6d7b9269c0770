package request

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"

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
