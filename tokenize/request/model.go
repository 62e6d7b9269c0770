package request

import (
	"context"
	"errors"
	"strings"

	"github.com/kvatlas/kvatlas/tokenize"
	"github.com/kvatlas/kvatlas/tokenize/chat"
	"github.com/kvatlas/kvatlas/tokenize/remote"
)

// Encoder turns text into token ids: [tokenize.Tokenizer] and
// [tokenize.Cache], for example.
type Encoder interface {
	AppendIDs(dst []uint32, text string, o tokenize.EncodeOptions) ([]uint32, error)
}

// Renderer asks an engine for the tokens of the body of a request that came
// to path: one answer per prompt. [remote.Client] is one.
type Renderer interface {
	Render(ctx context.Context, path string, body []byte) ([]remote.Rendered, error)
}

// Result is what became of a request.
type Result struct {
	// Prompts are independent of each other; most requests have one. Of the
	// fields, Tokens and Items are set.
	Prompts []remote.Rendered
	// Remote tells that the engine gave them.
	Remote bool
	// Reason is why it had to, nil without Remote.
	Reason error
}

// VLLM is a release of vLLM, or a range of releases, whose handling of chat
// requests was compared with this package. The zero value is none.
type VLLM uint8

const (
	// VLLM0_29 is 0.29.0.
	VLLM0_29 VLLM = iota + 1
	// VLLM0_32 is 0.32.0.
	VLLM0_32
	// VLLM0_33 is 0.33.0, which makes the same prompts.
	VLLM0_33
)

// VLLMRelease returns the release that a version (of GET /version) belongs
// to. ok is false for one that was not compared: its chats are rendered by
// the engine.
func VLLMRelease(version string) (v VLLM, ok bool) {
	version, _, _ = strings.Cut(version, "+")
	switch version {
	case "0.29.0":
		return VLLM0_29, true
	case "0.32.0":
		return VLLM0_32, true
	case "0.33.0":
		return VLLM0_33, true
	}
	return 0, false
}

// Model is what is known of one served model. The zero value knows nothing
// and gives only the ids that a body itself has. Fields must not change once
// it is used; it is safe for concurrent use.
type Model struct {
	// Encoder is the engine's effective tokenizer. Nil: none in process.
	Encoder Encoder
	// Template is the chat template that the engine uses, with the special
	// tokens and the era of its transformers. Nil: none in process. Models
	// that the engine renders with code of its own (gpt-oss, DeepSeek-V3.2,
	// Kimi-K3, Mistral's own tokenizer in vLLM) must not have one; gpt-oss'
	// is refused.
	Template *chat.Template
	// ToolTemplate is the one named tool_use, for requests with tools; nil
	// when there is none of that name.
	ToolTemplate *chat.Template
	// Format is how contents are given to the template. Zero: as the engine
	// finds it, see [chat.Template.ContentFormat]; it must be set for
	// [VLLM0_29], which looks for it in another way.
	Format chat.ContentFormat
	// Engine is the release. Zero: none that was compared, so that chats go
	// to the engine.
	Engine VLLM
	// DefaultKwargs is the server's --default-chat-template-kwargs.
	DefaultKwargs *chat.Dict
	// DisabledThinkingEffort is the server's option that says which
	// reasoning effort "thinking": {"type": "disabled"} of /v1/messages
	// is. "": as the engine finds it by rendering the efforts.
	DisabledThinkingEffort string
	// Scoring says how the model compares the texts of /score and /rerank.
	// Models with a prompt of their own for it (JinaForRanking, those with
	// a score template in vLLM) must have none.
	Scoring Scoring
	// ScoreTemplate is the template that the engine renders queries and
	// documents with: its option --chat-template, or from 0.33 on what the
	// model's Sentence Transformers configuration names, if that gives no
	// kwargs. It goes before ScoringJoined and ScoringPair.
	ScoreTemplate *chat.Template
	// PlainEmbeddings says that the model's embeddings take texts as they
	// are: no instruction, no change of case.
	PlainEmbeddings bool
	// InProcess, when not nil, is asked for each request whether ids may be
	// made in process: the gate of a canary check.
	InProcess func() bool
	// Remote answers what is not told in process. Nil: nobody does.
	Remote Renderer
	// Counters, when not nil, count outcomes.
	Counters *Counters
}

// Tokens returns the exact tokens of a request. The error is a
// [*CannotError], or that of ctx.
func (m *Model) Tokens(ctx context.Context, r *Request) (*Result, error) {
	res, err := m.local(r)
	if why, failed := err.(*CannotError); failed && why.Local() && m.Remote != nil {
		res, err = m.remote(ctx, r, why)
	}
	m.Counters.count(r.Endpoint, res != nil && res.Remote, err)
	if err != nil {
		return nil, err
	}
	return res, nil
}

func (m *Model) remote(ctx context.Context, r *Request, why error) (*Result, error) {
	if m.renderIsAnother(r) {
		return nil, r.cannot(ReasonRemote, `the render endpoint takes no notice of what "thinking": {"type": "disabled"} means to the server`, why)
	}
	prompts, err := m.Remote.Render(ctx, r.Path, r.Body)
	if err == nil {
		return &Result{Prompts: prompts, Remote: true, Reason: why}, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	reason := ReasonRemote
	if status, ok := errors.AsType[*remote.StatusError](err); ok && !remote.IsUnavailable(status) {
		reason = ReasonRejected
	}
	return nil, &CannotError{r.Endpoint, reason, why.Error(), err}
}

// renderIsAnother tells of a prompt that the render endpoint makes otherwise
// than the server: 0.32 renders disabled thinking with the effort "none"
// there, whatever the server has found (scale_out/render/serving.py). 0.29
// does not know the field, 0.33 does it alike.
func (m *Model) renderIsAnother(r *Request) bool {
	if r.Endpoint != Messages || m.Engine == VLLM0_29 || m.Engine == VLLM0_33 || m.DisabledThinkingEffort == "none" {
		return false
	}
	kind, _ := block(r.get("thinking"))
	return kind == "disabled"
}

func (r *Request) cannot(reason Reason, detail string, err error) error {
	return &CannotError{r.Endpoint, reason, detail, err}
}

// local returns what can be told without the engine.
func (m *Model) local(r *Request) (*Result, error) {
	if r.Cannot != nil {
		return nil, r.Cannot
	}
	if r.Comparison != nil {
		return m.score(r)
	}
	res := &Result{Prompts: make([]remote.Rendered, len(r.Prompts))}
	if r.Chat != nil {
		ids, err := m.chat(r)
		if err != nil {
			return nil, err
		}
		res.Prompts[0].Tokens = ids
		return res, nil
	}
	for i, p := range r.Prompts {
		if p.IsTokens {
			res.Prompts[i].Tokens = p.Tokens
			continue
		}
		if err := m.textual(r); err != nil {
			return nil, err
		}
		ids, err := m.encode(r, p.Text)
		if err != nil {
			return nil, err
		}
		res.Prompts[i].Tokens = ids
	}
	if len(res.Prompts) > 0 {
		res.Prompts[0].Items = r.Items
	}
	return res, nil
}

// textual tells whether texts of the request may be encoded as they are.
func (m *Model) textual(r *Request) error {
	switch r.Endpoint {
	case Completions:
	case Embeddings, Pooling, Classify:
		if !m.PlainEmbeddings {
			return r.cannot(ReasonField, "the model may put an instruction before the text or lower its case", nil)
		}
	default:
		return r.cannot(ReasonField, "how texts become a prompt is not known", nil)
	}
	return nil
}

// encoder tells why there is none to use.
func (m *Model) encoder(r *Request) error {
	if m.InProcess != nil && !m.InProcess() {
		return r.cannot(ReasonGate, "", nil)
	}
	if m.Encoder == nil {
		return r.cannot(ReasonEncoder, "there is none in process", nil)
	}
	return nil
}

func (m *Model) encode(r *Request, text string) ([]uint32, error) {
	if err := m.encoder(r); err != nil {
		return nil, err
	}
	ids, err := m.Encoder.AppendIDs(nil, text, tokenize.EncodeOptions{AddSpecialTokens: r.AddSpecialTokens})
	if err != nil {
		return nil, r.cannot(ReasonEncoder, "", err)
	}
	return ids, nil
}
