package request

import (
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/tokenize/chat"
	"github.com/kvatlas/kvatlas/tokenize/remote"
	"github.com/stretchr/testify/require"
)

func parse(t testing.TB, path, body string) *Request {
	t.Helper()
	r, err := Parse(path, nil, []byte(body), Options{})
	require.NoError(t, err)
	require.Equal(t, body, string(r.Body))
	return r
}

func TestParseCompletions(t *testing.T) {
	r := parse(t, "/v1/completions", `{"model":"m","prompt":"a\n\u00e9","cache_salt":"s","session_id":"x","unknown":[1]}`)
	require.Equal(t, Completions, r.Endpoint)
	require.Equal(t, []Prompt{{Text: "a\né"}}, r.Prompts)
	require.True(t, r.AddSpecialTokens)
	require.Equal(t, []string{"m", "s", "x"}, []string{r.Model, r.Salt, r.Session})
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
	require.Len(t, r.Chat.Tools.(*chat.List).Items, 1)
	require.Equal(t, 1, r.Chat.Kwargs.(*chat.Dict).Len())
	require.Equal(t, "low", r.Chat.ReasoningEffort)
	require.Nil(t, r.Chat.Documents)

	r = parse(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"},"uuid":"u"},{"type":"input_audio","input_audio":{"data":"AA"}}]}]}`)
	require.Equal(t, []Part{{0, 1, "image_url", "x", "u"}, {0, 2, "input_audio", "", ""}}, r.Chat.Media)
	require.ErrorContains(t, r.Cannot, "messages[0].content[1]")

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
		{"/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"a"}]}]}`, "input[0].content[0]"},
		{"/v1/responses", `{"input":"a","previous_response_id":"b"}`, "previous_response_id"},
		{"/v1/responses", `{"input":"a","truncation":"auto"}`, "truncation"},
		{"/v1/messages", `{"messages":[{"role":"user","content":[{"type":"document","source":{}}]}]}`, "messages[0].content[0]"},
		{"/v1/messages", `{"messages":[{"role":"user","content":"a"}],"mcp_servers":[]}`, "mcp_servers"},
		{"/v1/score", `{"text_1":"a","text_2":"b","max_tokens_per_doc":3}`, "max_tokens_per_doc"},
		{"/v1/score", `{"text_1":"a","text_2":{"content":[]}}`, "text_2"},
		{"/v1/score", `{"text_1":"a","text_2":"b","queries":"a","documents":"b"}`, "queries"},
		{"/v2/rerank", `{"query":"a","documents":["b"],"truncate_prompt_tokens":4}`, "truncate_prompt_tokens"},
		{"/v2/rerank", `{"query":"a","documents":["b"],"padding":"max_length"}`, "padding"},
		{"/pooling", `{"input":{"a":1}}`, "input"},
		{"/v1/embeddings", `{"input":"a","padding":"max_length"}`, "padding"},
	} {
		r := parse(t, c.path, strings.Replace(c.body, "{", `{"model":"m","cache_salt":"s",`, 1))
		require.NotNil(t, r.Cannot, c.body)
		require.True(t, strings.HasPrefix(r.Cannot.Detail, c.field+":"), "%s: %v", c.body, r.Cannot)
		require.Equal(t, r.Endpoint, r.Cannot.Endpoint)
		require.Equal(t, ReasonField, r.Cannot.Reason)
		require.Equal(t, "m", r.Model)
		require.Equal(t, "s", r.Salt)
	}
	_, err := Parse("/v1/audio/transcriptions", nil, []byte(`{}`), Options{})
	require.Equal(t, ReasonUnknown, reasonOf(t, err))
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
		_, err := Parse(c.path, nil, []byte(c.body), Options{})
		require.Equal(t, ReasonBody, reasonOf(t, err), c.body)
	}
}

func TestGenerateItems(t *testing.T) {
	r := parse(t, "/inference/v1/generate", `{"token_ids":[1,2,3],"features":{"mm_hashes":{"image":["h1","h0"],"audio":["a"]},`+
		`"mm_placeholders":{"image":[{"offset":9,"length":4},{"offset":1,"length":2}],"audio":[{"offset":5,"length":1,"is_embed":null}]},"kwargs_data":null}}`)
	require.Equal(t, []remote.Item{{Modality: "image", Identifier: "h0", Offset: 1, Length: 2}, {Modality: "audio", Identifier: "a", Offset: 5, Length: 1}, {Modality: "image", Identifier: "h1", Offset: 9, Length: 4}}, r.Items)
	require.Equal(t, []Prompt{{Tokens: []uint32{1, 2, 3}, IsTokens: true}}, r.Prompts)
}
