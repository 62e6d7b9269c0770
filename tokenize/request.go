package tokenize

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Endpoint is a kind of request that an engine takes.
type Endpoint uint8

// The endpoints that are known. The zero value is none.
const (
	Completions Endpoint = iota + 1 // /v1/completions
	ChatCompletions
	Responses  // /v1/responses
	Messages   // /v1/messages, Anthropic's
	Embeddings // /v1/embeddings
	Pooling    // /pooling
	Classify   // /classify
	Score      // /score, /v1/score
	Rerank     // /rerank, /v1/rerank, /v2/rerank
	Generate   // /inference/v1/generate, vLLM's for token ids
)

var endpoints = map[string]Endpoint{
	"/v1/completions": Completions, "/v1/chat/completions": ChatCompletions, "/v1/responses": Responses,
	"/v1/messages": Messages, "/v1/embeddings": Embeddings, "/pooling": Pooling, "/classify": Classify,
	"/score": Score, "/v1/score": Score, "/rerank": Rerank, "/v1/rerank": Rerank, "/v2/rerank": Rerank,
	"/inference/v1/generate": Generate,
}

var endpointNames = [...]string{"none", "completions", "chat", "responses", "messages", "embeddings", "pooling", "classify", "score", "rerank", "generate"}

// String returns the name by which counters tell endpoints apart.
func (e Endpoint) String() string {
	if int(e) < len(endpointNames) {
		return endpointNames[e]
	}
	return fmt.Sprintf("Endpoint(%d)", uint8(e))
}

// EndpointOf returns the endpoint of a URL path. A trailing slash and a
// query don't matter; a prefix that a gateway adds must be cut off first.
func EndpointOf(path string) (Endpoint, bool) {
	path, _, _ = strings.Cut(path, "?")
	e, ok := endpoints[strings.TrimSuffix(path, "/")]
	return e, ok
}

// Request is what a body says about its prompts, and about what else goes
// into block hashes. Texts and raw JSON share the memory of Body.
type Request struct {
	Endpoint Endpoint
	// Body is what was parsed, byte for byte, to be forwarded.
	Body []byte

	// Model is the model or LoRA adapter that is asked for, empty when the
	// body has none: then the engine takes its own.
	Model string
	// CacheSalt goes into the hash of the first block when not empty.
	CacheSalt string
	// SessionID is the field session_id, else vllm_xargs.session_id; see
	// [Request.Session] for the header.
	SessionID string
	xargs     string // vllm_xargs.session_id

	// Prompts are independent of each other. A chat has one, of which Chat
	// says how it is made.
	Prompts []Prompt
	// Chat is set for bodies with messages.
	Chat *Chat
	// AddSpecialTokens is the field or the endpoint's default.
	AddSpecialTokens bool
	// Items are the multimodal parts of a Generate request, by offset.
	Items []Item

	// Cannot says why the token ids can't be had without the engine. It is
	// nil when they can.
	Cannot *CannotError
}

// Prompt is a text or token ids.
type Prompt struct {
	Text   string
	Tokens []uint32
	// IsTokens tells an empty list from an empty text.
	IsTokens bool
}

// Chat is what a chat template is rendered with. The JSON texts are as
// received, empty when the field is absent or null.
type Chat struct {
	Messages, Tools, Documents string
	// Kwargs is chat_template_kwargs, an object.
	Kwargs string
	// ReasoningEffort is the JSON of that field.
	ReasoningEffort string
	// ToolChoice is the JSON of that field.
	ToolChoice           string
	AddGenerationPrompt  bool // default true
	ContinueFinalMessage bool
	// Media are the parts of contents that are no text.
	Media []Part
}

// Part is one multimodal part of a message.
type Part struct {
	Message, Index int    // both from 0
	Type           string // such as "image_url"
}

// Item is where a multimodal item lies in the tokens of a prompt, and the
// identifier that block hashes have for it.
type Item struct {
	Modality       string // such as "image"
	Identifier     string
	Offset, Length int // in tokens
}

// CannotError says why a request's token ids can't be had exactly without
// the engine. The engine's render endpoint still can.
type CannotError struct {
	Endpoint Endpoint
	// Field is the field of the body that is the reason.
	Field string
	// Reason says more.
	Reason string
}

// Error says what can't be tokenized, and why.
func (e *CannotError) Error() string {
	return fmt.Sprintf("tokenize: %s: %s: %s; ask the engine's render endpoint", e.Endpoint, e.Field, e.Reason)
}

// RequestError is returned for a body that an engine would refuse too.
type RequestError struct {
	// Offset is the byte where reading stopped, -1 when it is no matter of
	// syntax.
	Offset int
	Reason string
}

// Error says what is wrong, and where.
func (e *RequestError) Error() string {
	if e.Offset < 0 {
		return "tokenize: request: " + e.Reason
	}
	return fmt.Sprintf("tokenize: request: byte %d: %s", e.Offset, e.Reason)
}

// ErrUnknownEndpoint is returned for a path that [EndpointOf] doesn't know.
const ErrUnknownEndpoint = constError("tokenize: unknown endpoint; bodies of completions, chat, responses, messages, embeddings, pooling, classify, score, rerank and generate are understood")

// Session returns the session that vLLM takes a request for: the field
// session_id of the body, else the header X-Session-ID, else
// vllm_xargs.session_id (vLLM 0.32.0). header may be nil.
func (r *Request) Session(header http.Header) string {
	if r.SessionID != "" {
		return r.SessionID
	}
	if id := header.Get("X-Session-ID"); id != "" {
		return id
	}
	return r.xargs
}

// ParseRequest reads the body of a request to path, by the rules of vLLM
// 0.32.0. body is kept in the result and must not change.
//
// The error is [ErrUnknownEndpoint] or a [*RequestError]. What is understood
// but can't be tokenized exactly is no error: see [Request.Cannot].
//
// JSON is read as Python reads it: names are exact, of two equal ones the
// last counts. NaN and lone surrogates, which Python lets pass, are refused.
func ParseRequest(path string, body []byte) (*Request, error) {
	endpoint, ok := EndpointOf(path)
	if !ok {
		return nil, ErrUnknownEndpoint
	}
	r := &Request{Endpoint: endpoint, Body: body}
	p := requestParser{r: r, fields: make(map[string]string)}
	if err := p.parse(); err != nil {
		if syntax, ok := errors.AsType[*syntaxError](err); ok {
			return nil, &RequestError{syntax.offset, syntax.reason}
		}
		return nil, err
	}
	return r, nil
}
