package request

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/tokenize"
	"github.com/kvatlas/kvatlas/tokenize/chat"
	"github.com/kvatlas/kvatlas/tokenize/remote"
	"github.com/stretchr/testify/require"
)

type exchange struct {
	Method, Path      string
	Status            int
	Request, Response json.RawMessage
}

func recorded(t testing.TB, name string) []exchange {
	t.Helper()
	var list []exchange
	require.NoError(t, json.Unmarshal(golden.Read(t, name), &list))
	return list
}

// tiny is the model of the recorded servers.
func tiny(t testing.TB) (*Model, *tokenize.Tokenizer) {
	t.Helper()
	tok, err := tokenize.Load(golden.Read(t, "vllm/server/tokenizer/tokenizer.json"), tokenize.Options{})
	require.NoError(t, err)
	c, err := chat.LoadConfig(golden.Read(t, "vllm/server/tokenizer/tokenizer_config.json"), string(golden.Read(t, "vllm/server/tokenizer/chat_template.jinja")))
	require.NoError(t, err)
	tpl, err := chat.Parse(c.Template, chat.Options{SpecialTokens: c.SpecialTokens})
	require.NoError(t, err)
	require.Empty(t, c.Missing(tpl))
	return &Model{Encoder: tok, Template: tpl, Engine: VLLM0_32, Counters: &Counters{}}, tok
}

func TestRecordedRenders(t *testing.T) {
	m, _ := tiny(t)
	equal := 0
	for _, name := range golden.Files(t, "vllm/server/*/*render.json") {
		for _, e := range recorded(t, name) {
			path, isRender := strings.CutSuffix(e.Path, "/render")
			if !isRender {
				continue
			}
			r, err := Parse(path, nil, e.Request, Options{})
			require.NoError(t, err)
			res, err := m.Tokens(t.Context(), r)
			if e.Status != http.StatusOK {
				// It is refused for other reasons than its prompt: the model's
				// name, tools without a parser. Its tokens do no harm.
				continue
			}
			require.NoError(t, err, "%s: %s", name, e.Request)
			var want []struct {
				Tokens []uint32 `json:"token_ids"`
				Salt   string   `json:"cache_salt"`
			}
			if e.Response[0] != '[' {
				e.Response = append(append([]byte("["), e.Response...), ']')
			}
			require.NoError(t, json.Unmarshal(e.Response, &want))
			require.Len(t, res.Prompts, len(want))
			for i, w := range want {
				require.Equal(t, w.Tokens, res.Prompts[i].Tokens, "%s: %s", name, e.Request)
				require.Equal(t, w.Salt, r.Salt)
			}
			require.False(t, res.Remote)
			equal++
		}
	}
	require.GreaterOrEqual(t, equal, 15)
	require.EqualValues(t, 0, m.Counters.Remote(ChatCompletions))
	require.Positive(t, m.Counters.Local(ChatCompletions))
}

func TestRecordedTokenizeOfChats(t *testing.T) {
	m, _ := tiny(t)
	equal := 0
	for _, name := range golden.Files(t, "vllm/server/*/*tokenize.json") {
		for _, e := range recorded(t, name) {
			if e.Path != "/tokenize" || e.Status != http.StatusOK || !strings.Contains(string(e.Request), `"messages"`) {
				continue
			}
			r, err := Parse("/v1/chat/completions", nil, e.Request, Options{})
			require.NoError(t, err)
			res, err := m.Tokens(t.Context(), r)
			require.NoError(t, err)
			var want struct{ Tokens []uint32 }
			require.NoError(t, json.Unmarshal(e.Response, &want))
			require.Equal(t, want.Tokens, res.Prompts[0].Tokens, "%s: %s", name, e.Request)
			equal++
		}
	}
	require.GreaterOrEqual(t, equal, 20)
}

func reasonOf(t testing.TB, err error) Reason {
	t.Helper()
	why, ok := errors.AsType[*CannotError](err)
	require.True(t, ok, "%v", err)
	return why.Reason
}

// Trial T129 (llm-d/llm-d-router#1861): a body that is not understood gives a
// typed reason and is counted, never empty tokens.
func TestTypedReasons(t *testing.T) {
	m, _ := tiny(t)
	for _, c := range []struct {
		path, body string
		want       Reason
	}{
		{"/v1/audio/speech", `{}`, ReasonUnknown},
		{"/v1/completions", `{`, ReasonBody},
		{"/v1/completions", `{"prompt": 5}`, ReasonBody},
		{"/v1/completions", `{"prompt": "a", "suffix": "b"}`, ReasonField},
		{"/v1/completions", `{"prompt": "a", "s\u0075ffix": "b"}`, ReasonField},
		{"/v1/completions", `{"prompt": "a", "truncate_prompt_tokens": 3}`, ReasonField},
		{"/v1/completions", `{"prompt_embeds": "AAAA"}`, ReasonField},
		{"/v1/embeddings", `{"input": "a"}`, ReasonField},
		{"/score", `{"text_1": "a", "text_2": "b"}`, ReasonField},
		{"/v1/messages", `{"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}`, ReasonField},
		{"/v1/responses", `{"input": "x", "previous_response_id": "y"}`, ReasonField},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}`, ReasonField},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "x"}], "chat_template": "y"}`, ReasonField},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "x"}], "kv_transfer_params": {"prompt_token_ids": [1]}}`, ReasonField},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"tokenize": true}}`, ReasonField},
		{"/v1/chat/completions", `{"messages": []}`, ReasonRejected},
	} {
		counters := &Counters{}
		m.Counters = counters
		r, err := Parse(c.path, nil, []byte(c.body), Options{Counters: counters})
		if err == nil {
			var res *Result
			res, err = m.Tokens(t.Context(), r)
			require.Nil(t, res, c.body)
		}
		require.Equal(t, c.want, reasonOf(t, err), "%s: %v", c.body, err)
		e, _ := EndpointOf(c.path)
		require.EqualValues(t, 1, counters.Cannot(e, c.want))
	}
	r, err := Parse("/v1/embeddings", nil, []byte(`{"input": ["a", "b"]}`), Options{})
	require.NoError(t, err)
	m.PlainEmbeddings = true
	res, err := m.Tokens(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, res.Prompts, 2)
	r, err = Parse("/inference/v1/generate", nil, []byte(`{"token_ids": [1, 2, 3], "features": {"mm_hashes": {"image": ["h"]}, "mm_placeholders": {"image": [{"offset": 1, "length": 2}]}}}`), Options{})
	require.NoError(t, err)
	res, err = (&Model{}).Tokens(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, []uint32{1, 2, 3}, res.Prompts[0].Tokens)
	require.Equal(t, []remote.Item{{Modality: "image", Identifier: "h", Offset: 1, Length: 2}}, res.Prompts[0].Items)
}

type encoderFunc func(text string, o tokenize.EncodeOptions) []uint32

func (f encoderFunc) AppendIDs(dst []uint32, text string, o tokenize.EncodeOptions) ([]uint32, error) {
	return append(dst, f(text, o)...), nil
}

// Who adds special tokens: vLLM 0.32, protocol.py of each endpoint, and for responses
// vLLM's ResponsesRequest.build_tok_params. Trial T126 (vllm-project/vllm#55288).
func TestSpecialTokens(t *testing.T) {
	m, _ := tiny(t)
	m.Encoder = encoderFunc(func(_ string, o tokenize.EncodeOptions) []uint32 {
		if o.AddSpecialTokens {
			return []uint32{1}
		}
		return []uint32{0}
	})
	for _, c := range []struct {
		path, body string
		want       uint32
	}{
		{"/v1/completions", `{"prompt": "x"}`, 1},
		{"/v1/completions", `{"prompt": "x", "add_special_tokens": false}`, 0},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "x"}]}`, 0},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "x"}], "add_special_tokens": true}`, 1},
		{"/v1/messages", `{"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}`, 0},
		{"/v1/responses", `{"input": "x"}`, 1},
	} {
		r, err := Parse(c.path, nil, []byte(c.body), Options{})
		require.NoError(t, err)
		res, err := m.Tokens(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, []uint32{c.want}, res.Prompts[0].Tokens, c.path+c.body)
	}
}

// Of 0.32's disabled thinking the render endpoint makes another prompt than
// the server may; what is done here is the server's.
func TestDisabledThinking(t *testing.T) {
	asked := 0
	render := renderFunc(func() []remote.Rendered { asked++; return []remote.Rendered{{Tokens: []uint32{9}}} })
	body := `{"model": "m", "max_tokens": 9, "thinking": {"type": "disabled"}, "messages": [{"role": "user", "content": "x"}]}`
	for _, c := range []struct {
		m    Model
		want bool
	}{
		{Model{}, false}, {Model{Engine: VLLM0_29}, true}, {Model{Engine: VLLM0_32}, false}, {Model{Engine: VLLM0_33}, true},
		{Model{Engine: VLLM0_32, DisabledThinkingEffort: "none"}, true}, {Model{Engine: VLLM0_32, DisabledThinkingEffort: "low"}, false},
	} {
		c.m.Remote = render
		r, err := Parse("/v1/messages", nil, []byte(body), Options{})
		require.NoError(t, err)
		res, err := c.m.Tokens(t.Context(), r)
		if !c.want {
			require.Equal(t, ReasonRemote, reasonOf(t, err))
			continue
		}
		require.NoError(t, err)
		require.True(t, res.Remote)
	}
	require.Equal(t, 3, asked)

	effort, err := chat.Parse("{{ reasoning_effort }}", chat.Options{})
	require.NoError(t, err)
	m := Model{Engine: VLLM0_32, Template: effort, DisabledThinkingEffort: "medium"}
	r, err := Parse("/v1/messages", nil, []byte(body), Options{})
	require.NoError(t, err)
	text, err := m.AppendText(nil, r)
	require.NoError(t, err)
	require.Equal(t, "medium", string(text))
}

type renderFunc func() []remote.Rendered

func (f renderFunc) Render(context.Context, string, []byte) ([]remote.Rendered, error) {
	return f(), nil
}

func TestModelsThatKnowLess(t *testing.T) {
	full, _ := tiny(t)
	r, err := Parse("/v1/chat/completions", nil, []byte(`{"messages": [{"role": "user", "content": "x"}]}`), Options{})
	require.NoError(t, err)
	harmony, err := chat.Parse("<|start|>{{ messages[0].content }}<|channel|>", chat.Options{})
	require.NoError(t, err)
	for want, m := range map[Reason]*Model{
		ReasonEngine:   {Encoder: full.Encoder, Template: full.Template},
		ReasonTemplate: {Encoder: full.Encoder, Template: harmony, Engine: VLLM0_32},
		ReasonEncoder:  {Template: full.Template, Engine: VLLM0_32},
		ReasonGate:     {Encoder: full.Encoder, Template: full.Template, Engine: VLLM0_32, InProcess: func() bool { return false }},
	} {
		_, err := m.Tokens(t.Context(), r)
		require.Equal(t, want, reasonOf(t, err))
	}
	_, ok := VLLMRelease("0.31.0")
	require.False(t, ok)
}

// Trial T46 (ai-dynamo/dynamo#8197, vllm-project/vllm#57609): an explicit
// salt overrides the body's. T45: an empty one is none.
func TestSaltAndSession(t *testing.T) {
	body := []byte(`{"model": "a1", "prompt": [1], "cache_salt": "body", "vllm_xargs": {"session_id": "x"}}`)
	explicit, none := "explicit", ""
	for want, salt := range map[string]*string{"body": nil, "explicit": &explicit, "": &none} {
		r, err := Parse("/v1/completions", nil, body, Options{CacheSalt: salt, Adapter: func(name string) (string, bool) { return "base", name == "a1" }})
		require.NoError(t, err)
		require.Equal(t, want, r.Salt)
		require.Equal(t, "base", r.Base)
		require.Equal(t, "a1", r.LoRA)
		require.Equal(t, "x", r.Session)
	}
	r, err := Parse("/v1/completions", http.Header{"X-Session-Id": {"h"}}, body, Options{})
	require.NoError(t, err)
	require.Equal(t, "h", r.Session)
	r, err = Parse("/v1/completions", http.Header{"X-Session-Id": {"h"}}, []byte(`{"prompt": "", "session_id": "b"}`), Options{})
	require.NoError(t, err)
	require.Equal(t, "b", r.Session)
}

func TestReadKeepsTheBody(t *testing.T) {
	for _, c := range []struct {
		body string
		most int
		want error
	}{
		{`{"prompt":  [1, 2] ,"x":"\u00e9"}` + "\n", 0, nil},
		{`not json`, 0, &CannotError{}},
		{`{"prompt": "` + strings.Repeat("x", 100) + `"}`, 50, &CannotError{}},
	} {
		hr := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(c.body))
		r, err := Read(hr, Options{MaxBytes: c.most})
		again, readErr := io.ReadAll(hr.Body)
		require.NoError(t, readErr)
		require.Equal(t, c.body, string(again))
		if c.want != nil {
			require.ErrorAs(t, err, new(*CannotError))
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.body, string(r.Body))
		require.Equal(t, []uint32{1, 2}, r.Prompts[0].Tokens)
	}
}

// Trial T134 (ray-project/ray#64224): nothing that changes a prompt is lost on
// the way.
func TestEverythingCounts(t *testing.T) {
	m, _ := tiny(t)
	tpl, err := chat.Parse("{{ tools | tojson }}{{ enable_thinking }}{{ add_generation_prompt }}{% for m in messages %}{{ m.content }}</{% endfor %}", chat.Options{})
	require.NoError(t, err)
	m.Template = tpl
	seen := map[string]string{}
	for _, extra := range []string{
		``, `, "chat_template_kwargs": {"enable_thinking": true}`, `, "chat_template_kwargs": {"enable_thinking": false}`,
		`, "tools": [{"type": "function", "function": {"name": "f"}}]`, `, "add_generation_prompt": false`,
		`, "add_generation_prompt": false, "continue_final_message": true`,
	} {
		body := `{"messages": [{"role": "user", "content": "x"}]` + extra + `}`
		r, err := Parse("/v1/chat/completions", nil, []byte(body), Options{})
		require.NoError(t, err)
		text, err := m.AppendText(nil, r)
		require.NoError(t, err)
		require.NotContains(t, seen, string(text), body)
		seen[string(text)] = body
	}
}

func TestRemoteAndCanary(t *testing.T) {
	m, tok := tiny(t)
	// An engine with the same tokenizer, until it is told to lie.
	lie := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/chat/completions/render" {
			io.WriteString(w, `{"token_ids": [7, 8], "features": {"mm_hashes": {"image": ["h"]}, "mm_placeholders": {"image": [{"offset": 0, "length": 1}]}}}`)
			return
		}
		var ask struct {
			Prompt  string
			Special bool `json:"add_special_tokens"`
		}
		if json.NewDecoder(r.Body).Decode(&ask) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		ids, _ := tok.AppendIDs([]uint32{}, ask.Prompt, tokenize.EncodeOptions{AddSpecialTokens: ask.Special})
		if lie {
			ids = append(ids, 1)
		}
		json.NewEncoder(w).Encode(map[string]any{"count": len(ids), "tokens": ids})
	}))
	defer server.Close()
	client, err := remote.New(remote.Options{URL: server.URL})
	require.NoError(t, err)
	defer client.Close()
	var mismatches []*remote.MismatchError
	var log bytes.Buffer
	canary, err := NewCanary(CanaryOptions{Client: client, Tokenizer: tok, Every: 2, Logger: slog.New(slog.NewTextHandler(&log, nil)), OnMismatch: func(e *remote.MismatchError) { mismatches = append(mismatches, e) }})
	require.NoError(t, err)
	m.InProcess, m.Remote = canary.OK, client

	r, err := Parse("/v1/chat/completions", nil, []byte(`{"messages": [{"role": "user", "content": "x"}]}`), Options{})
	require.NoError(t, err)
	isRemote := func() bool {
		res, err := m.Tokens(t.Context(), r)
		require.NoError(t, err)
		if res.Remote {
			require.Equal(t, []uint32{7, 8}, res.Prompts[0].Tokens)
			require.Equal(t, "h", res.Prompts[0].Items[0].Identifier)
			require.Equal(t, ReasonGate, reasonOf(t, res.Reason))
		}
		return res.Remote
	}
	require.True(t, isRemote()) // not checked yet
	require.NoError(t, canary.Check(t.Context()))
	require.False(t, isRemote())
	lie = true
	require.NoError(t, canary.Sample(t.Context(), "one of two"))
	require.False(t, isRemote())
	require.ErrorAs(t, canary.Sample(t.Context(), "the other"), new(*remote.MismatchError))
	require.True(t, isRemote())
	require.Len(t, mismatches, 1)
	require.Contains(t, log.String(), "level=ERROR")
	require.Contains(t, log.String(), `text="the other"`)
	lie = false
	require.NoError(t, canary.Check(t.Context()))
	require.True(t, isRemote(), "a mismatch is not forgotten")
	canary.Reset()
	require.NoError(t, canary.Check(t.Context()))
	require.False(t, isRemote())
	require.EqualValues(t, 3, m.Counters.Remote(ChatCompletions))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	canary.Reset()
	_, err = m.Tokens(ctx, r)
	require.ErrorIs(t, err, context.Canceled)
	// A request that the engine refuses is not asked for again elsewhere.
	r, err = Parse("/v1/responses", nil, []byte(`{"input": []}`), Options{})
	require.NoError(t, err)
	_, err = m.Tokens(t.Context(), r)
	require.Error(t, err)
}

func TestAppendItem(t *testing.T) {
	items, err := AppendItem(nil, "a", 3, 4, 20)
	require.NoError(t, err)
	items, err = AppendItem(items, "b", 7, 13, 20)
	require.NoError(t, err)
	require.Len(t, items, 2)
	for _, bad := range []remote.Item{{Identifier: "", Offset: 20, Length: 1}, {Identifier: "c", Offset: 19, Length: 1}, {Identifier: "c", Offset: 20, Length: 1}, {Identifier: "c", Offset: -1, Length: 1}, {Identifier: "c", Offset: 20, Length: 0}} {
		_, err = AppendItem(items, bad.Identifier, bad.Offset, bad.Length, 20)
		require.Error(t, err)
	}
	_, err = AppendItem(nil, "c", 1, int(^uint(0)>>1), 20)
	require.Error(t, err)
}

func FuzzTokens(f *testing.F) {
	for _, l := range lines(f, "testdata/bodies.jsonl") {
		f.Add("/v1/chat/completions", []byte(l))
	}
	for _, l := range lines(f, "testdata/api-bodies.jsonl.gz") {
		var s sample
		require.NoError(f, json.Unmarshal([]byte(l), &s))
		f.Add(s.Path, []byte(s.Body))
	}
	for path, body := range map[string]string{
		"/v1/completions": `{"prompt": ["a", "b"]}`, "/v1/responses": `{"input": "x"}`, "/v1/messages": `{"messages": [{"role": "user", "content": "x"}]}`,
		"/inference/v1/generate": `{"token_ids": [1]}`, "/score": `{"text_1": "a", "text_2": ["b", {}]}`, "/rerank": `{"query": "a", "documents": ["b"], "instruction": "c"}`, "/pooling": `{"input": [[1], [2]]}`,
	} {
		f.Add(path, []byte(body))
	}
	m, _ := tiny(f)
	m.PlainEmbeddings, m.Scoring = true, ScoringPair
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		// No panic; tokens or a typed reason, never both or neither.
		r, err := Parse(path, nil, body, Options{MaxBytes: 1 << 16})
		if err == nil {
			var res *Result
			res, err = m.Tokens(t.Context(), r)
			if (err == nil) != (res != nil) {
				t.Fatalf("result %v, error %v", res, err)
			}
		}
		if err != nil {
			reasonOf(t, err)
		}
	})
}
