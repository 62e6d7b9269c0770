package tokenize

import (
	"encoding/json"
	"errors"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/stretchr/testify/require"
)

func parse(t testing.TB, path, body string) *Request {
	t.Helper()
	r, err := ParseRequest(path, []byte(body))
	require.NoError(t, err)
	require.Equal(t, body, string(r.Body))
	return r
}

func TestParseCompletions(t *testing.T) {
	r := parse(t, "/v1/completions", `{"model":"m","prompt":"a\n\u00e9","cache_salt":"s","session_id":"x","unknown":[1]}`)
	require.Equal(t, Completions, r.Endpoint)
	require.Equal(t, []Prompt{{Text: "a\né"}}, r.Prompts)
	require.True(t, r.AddSpecialTokens)
	require.Equal(t, []string{"m", "s", "x"}, []string{r.Model, r.CacheSalt, r.SessionID})
	require.Nil(t, r.Cannot)

	r = parse(t, "/v1/completions/?a=b", `{"prompt":["a","b"],"add_special_tokens":false,"model":null,"Prompt":"no"}`)
	require.Equal(t, []Prompt{{Text: "a"}, {Text: "b"}}, r.Prompts)
	require.False(t, r.AddSpecialTokens)
	require.Equal(t, []Prompt{{Tokens: []uint32{1, 20}, IsTokens: true}}, parse(t, "/v1/completions", `{"prompt":[1, 20]}`).Prompts)
	require.Equal(t, []Prompt{{Tokens: []uint32{1}, IsTokens: true}, {Tokens: []uint32{2, 3}, IsTokens: true}},
		parse(t, "/v1/completions", `{"prompt":[[1],[2,3]]}`).Prompts)
	// Of two equal names the last counts, as in Python.
	require.Equal(t, []Prompt{{Text: "b"}}, parse(t, "/v1/completions", `{"prompt":"a","prompt":"b"}`).Prompts)
}

func TestParseChat(t *testing.T) {
	r := parse(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},"b"]},{"role":"assistant","content":null}],`+
		`"tools":[{"a":1}],"chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"low","documents":null}`)
	require.Nil(t, r.Cannot)
	require.False(t, r.AddSpecialTokens)
	require.True(t, r.Chat.AddGenerationPrompt)
	require.Equal(t, `[{"a":1}]`, r.Chat.Tools)
	require.Equal(t, `{"enable_thinking":false}`, r.Chat.Kwargs)
	require.Equal(t, `"low"`, r.Chat.ReasoningEffort)
	require.Empty(t, r.Chat.Documents)

	r = parse(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}]}`)
	require.Equal(t, []Part{{0, 1, "image_url"}}, r.Chat.Media)
	require.Equal(t, "messages[0].content[1]", r.Cannot.Field)

	r = parse(t, "/v1/embeddings", `{"messages":[{"role":"user","content":"a"}]}`)
	require.NotNil(t, r.Chat)
}

// TestCannot is trial T129: what can't be tokenized says so, with its kind
// and reason, and still gives what routing needs.
func TestCannot(t *testing.T) {
	for _, c := range []struct{ path, body, field string }{
		{"/v1/completions", `{"prompt_embeds":"AAAA"}`, "prompt_embeds"},
		{"/v1/completions", `{"prompt":"a","truncate_prompt_tokens":5}`, "truncate_prompt_tokens"},
		{"/v1/completions", `{"prompt":"a","add_special_tokens":"yes"}`, "add_special_tokens"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"chat_template":"x"}`, "chat_template"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tools":[],"tool_choice":"none"}`, "tool_choice"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"text":"a"}]}]}`, "messages[0].content[0]"},
		{"/v1/responses", `{"input":[{"role":"user","content":"a"}]}`, "input"},
		{"/v1/responses", `{"input":"a","instructions":"b"}`, "instructions"},
		{"/v1/messages", `{"messages":[{"role":"user","content":"a"}],"system":"b"}`, "system"},
		{"/v1/messages", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`, "messages[0].content"},
		{"/v1/messages", `{"messages":[{"role":"system","content":"a"}]}`, "messages[0].role"},
		{"/v1/score", `{"text_1":"a","text_2":"b"}`, "text_1"},
		{"/v2/rerank", `{"query":"a","documents":["b"]}`, "query"},
		{"/pooling", `{"input":{"a":1}}`, "input"},
	} {
		r := parse(t, c.path, strings.Replace(c.body, "{", `{"model":"m","cache_salt":"s",`, 1))
		require.NotNil(t, r.Cannot, c.body)
		require.Equal(t, c.field, r.Cannot.Field)
		require.Equal(t, r.Endpoint, r.Cannot.Endpoint)
		require.ErrorContains(t, r.Cannot, "render endpoint")
		require.Equal(t, "m", r.Model)
		require.Equal(t, "s", r.CacheSalt)
	}
	_, err := ParseRequest("/v1/audio/transcriptions", []byte(`{}`))
	require.ErrorIs(t, err, ErrUnknownEndpoint)
}

func TestBadRequest(t *testing.T) {
	for _, c := range []struct{ path, body string }{
		{"/v1/completions", ""}, {"/v1/completions", "[]"}, {"/v1/completions", "{}"}, {"/v1/completions", `{"prompt":"a"} x`},
		{"/v1/completions", `{"prompt":"a"` + "\x00}"}, {"/v1/completions", `{"prompt":7}`}, {"/v1/completions", `{"prompt":[]}`},
		{"/v1/completions", `{"prompt":["a",1]}`}, {"/v1/completions", `{"prompt":[1.5]}`}, {"/v1/completions", `{"prompt":[-1]}`},
		{"/v1/completions", `{"prompt":[[1.0]]}`}, {"/v1/completions", `{"prompt":"\ud800"}`}, {"/v1/completions", `{"prompt":NaN}`},
		{"/v1/completions", `{"prompt":"a","model":3}`}, {"/v1/completions", "{\"prompt\":\"\xff\"}"},
		{"/v1/completions", `{"a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`},
		{"/v1/chat/completions", `{}`}, {"/v1/chat/completions", `{"messages":"a"}`}, {"/v1/chat/completions", `{"messages":[1]}`},
		{"/v1/chat/completions", `{"messages":[{"content":"a"}]}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user"}],"continue_final_message":true}`},
		{"/inference/v1/generate", `{}`}, {"/inference/v1/generate", `{"token_ids":[1],"features":{"mm_placeholders":{"image":[{"offset":1,"length":2}]}}}`},
		{"/inference/v1/generate", `{"token_ids":[1],"features":{"mm_hashes":{"image":["a"]}}}`},
		{"/inference/v1/generate", `{"token_ids":[1],"features":7}`},
	} {
		_, err := ParseRequest(c.path, []byte(c.body))
		require.Error(t, err, c.body)
		var bad *RequestError
		require.True(t, errors.As(err, &bad), c.body)
	}
}

func TestGenerateItems(t *testing.T) {
	r := parse(t, "/inference/v1/generate", `{"token_ids":[1,2,3],"features":{"mm_hashes":{"image":["h1","h0"],"audio":["a"]},`+
		`"mm_placeholders":{"image":[{"offset":9,"length":4},{"offset":1,"length":2}],"audio":[{"offset":5,"length":1,"is_embed":null}]},"kwargs_data":null}}`)
	require.Equal(t, []Item{{"image", "h0", 1, 2}, {"audio", "a", 5, 1}, {"image", "h1", 9, 4}}, r.Items)
	require.Equal(t, []Prompt{{Tokens: []uint32{1, 2, 3}, IsTokens: true}}, r.Prompts)
}

func TestSession(t *testing.T) {
	h := http.Header{"X-Session-Id": {"from header"}}
	require.Equal(t, "b", parse(t, "/v1/completions", `{"prompt":"","session_id":"b","vllm_xargs":{"session_id":"x"}}`).Session(h))
	r := parse(t, "/v1/completions", `{"prompt":"","vllm_xargs":{"a":[],"session_id":"x"}}`)
	require.Equal(t, "from header", r.Session(h))
	require.Equal(t, "x", r.Session(nil))
}

// exchange is one recorded request to an engine and its answer.
type exchange struct {
	Method, Path string
	Request      json.RawMessage
	Status       int
	Response     json.RawMessage
}

// TestRecordedRequests: what engines were recorded to render is understood,
// and what needs no template gives the same ids.
func TestRecordedRequests(t *testing.T) {
	tok, err := Load(golden.Read(t, "vllm/server/tokenizer/tokenizer.json"), Options{})
	require.NoError(t, err)
	texts, chats := 0, 0
	for _, file := range golden.Files(t, "vllm/server/*/*render.json") {
		var list []exchange
		require.NoError(t, json.Unmarshal(golden.Read(t, file), &list))
		for _, e := range list {
			endpoint, isRender := strings.CutSuffix(e.Path, "/render")
			if e.Status != 200 || !isRender && e.Path != "/inference/v1/generate" {
				continue
			}
			r := parse(t, endpoint, string(e.Request))
			require.Nil(t, r.Cannot, "%s %s", path.Dir(file), e.Request)
			if r.Chat != nil {
				chats++
				continue
			}
			if !isRender {
				continue
			}
			var answers []struct {
				TokenIDs []uint32 `json:"token_ids"`
				Salt     string   `json:"cache_salt"`
			}
			require.NoError(t, json.Unmarshal(e.Response, &answers))
			require.Len(t, r.Prompts, len(answers))
			for i, a := range answers {
				texts++
				require.Equal(t, a.Salt, r.CacheSalt)
				got := r.Prompts[i].Tokens
				if !r.Prompts[i].IsTokens {
					got, err = tok.AppendIDs(nil, r.Prompts[i].Text, EncodeOptions{AddSpecialTokens: r.AddSpecialTokens})
					require.NoError(t, err)
				}
				require.Equal(t, a.TokenIDs, got)
			}
		}
	}
	require.NotZero(t, texts)
	require.NotZero(t, chats)
}

// FuzzParseRequest: no body panics, and what is understood is valid JSON.
func FuzzParseRequest(f *testing.F) {
	for _, p := range []string{"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/score", "/inference/v1/generate"} {
		f.Add(p, `{"model":"m","prompt":["a","b"],"messages":[{"role":"user","content":[{"type":"text","text":"\u00e9"}]}],"input":"x","token_ids":[1,2]}`)
	}
	f.Fuzz(func(t *testing.T, path, body string) {
		r, err := ParseRequest(path, []byte(body))
		if err != nil {
			return
		}
		require.True(t, json.Valid(r.Body))
		if r.Chat != nil && r.Chat.Messages != "" {
			require.True(t, json.Valid([]byte(r.Chat.Messages)))
		}
	})
}
