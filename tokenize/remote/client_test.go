package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/tokenize"
	"github.com/stretchr/testify/require"
)

type exchange struct {
	Method, Path string
	Request      json.RawMessage
	Status       int
	Response     json.RawMessage
}

func recorded(t *testing.T, file string) []exchange {
	t.Helper()
	var list []exchange
	require.NoError(t, json.Unmarshal(golden.Read(t, file), &list))
	return list
}

func newClient(t *testing.T, handler http.HandlerFunc, o Options) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	o.URL = server.URL + "/"
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// replay answers as the recorded engine did, to requests with equal JSON.
func replay(t *testing.T, list []exchange) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var got any
		if err := json.Unmarshal(body, &got); err != nil {
			t.Errorf("%s: %v", r.URL, err)
		}
		for _, e := range list {
			var want any
			_ = json.Unmarshal(e.Request, &want)
			if e.Method == r.Method && e.Path == r.URL.Path && reflect.DeepEqual(got, want) {
				w.WriteHeader(e.Status)
				_, _ = w.Write(e.Response)
				return
			}
		}
		http.Error(w, "not recorded", http.StatusTeapot)
	}
}

func TestRecordedRender(t *testing.T) {
	for _, file := range golden.Files(t, "vllm/server/*/*render.json") {
		list := recorded(t, file)
		c := newClient(t, replay(t, list), Options{})
		asked := 0
		for _, e := range list {
			endpoint, ok := strings.CutSuffix(e.Path, "/render")
			if !ok {
				continue
			}
			got, err := c.Render(t.Context(), endpoint, e.Request)
			asked++
			if e.Status != http.StatusOK {
				status, ok := errors.AsType[*StatusError](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, e.Status, status.Status)
				require.NotEmpty(t, status.Message)
				require.False(t, IsUnavailable(err))
				continue
			}
			require.NoError(t, err)
			var want []struct {
				TokenIDs []uint32 `json:"token_ids"`
				Salt     string   `json:"cache_salt"`
			}
			response := e.Response
			if response[0] != '[' {
				response = []byte("[" + string(response) + "]")
			}
			require.NoError(t, json.Unmarshal(response, &want))
			require.Len(t, got, len(want))
			for i := range want {
				require.Equal(t, want[i].TokenIDs, got[i].Tokens)
				require.Equal(t, want[i].Salt, got[i].CacheSalt)
			}
		}
		require.NotZero(t, asked, file)
	}
}

func TestRecordedTokenize(t *testing.T) {
	for _, file := range golden.Files(t, "vllm/server/*/*tokenize.json") {
		t.Run(path.Dir(file), func(t *testing.T) {
			asked := 0
			for _, e := range recorded(t, file) {
				if e.Path != "/tokenize" {
					continue
				}
				var q struct {
					Model, Prompt string
					Messages      json.RawMessage
					AddSpecial    *bool `json:"add_special_tokens"`
				}
				require.NoError(t, json.Unmarshal(e.Request, &q))
				// What this client sends has more fields; the answer is
				// the recorded one.
				c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(e.Status)
					_, _ = w.Write(e.Response)
				}, Options{})
				var got []uint32
				var err error
				if q.Messages != nil {
					got, err = c.TokenizeChat(t.Context(), e.Request)
				} else {
					got, err = c.Tokenize(t.Context(), q.Model, q.Prompt, q.AddSpecial == nil || *q.AddSpecial)
				}
				asked++
				if e.Status != http.StatusOK {
					require.Error(t, err)
					continue
				}
				require.NoError(t, err)
				var want struct{ Tokens []uint32 }
				require.NoError(t, json.Unmarshal(e.Response, &want))
				require.Equal(t, want.Tokens, got)
			}
			require.NotZero(t, asked)
		})
	}
}

// TestTokenizeChatFields is trial T134: nothing that changes the ids is left
// out of what is asked.
func TestTokenizeChatFields(t *testing.T) {
	var asked map[string]any
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		asked = nil
		_ = json.NewDecoder(r.Body).Decode(&asked)
		fmt.Fprint(w, `{"count":1,"tokens":[1]}`)
	}, Options{Header: http.Header{"Authorization": {"Bearer x"}}})
	_, err := c.TokenizeChat(t.Context(), []byte(`{"model":"m","messages":[{"role":"user","content":"<a>"}],"tools":[{"x":1}],"temperature":0,`+
		`"chat_template_kwargs":{"enable_thinking":false},"add_generation_prompt":false,"continue_final_message":true,"add_special_tokens":true}`))
	require.NoError(t, err)
	require.Equal(t, map[string]any{
		"model": "m", "messages": []any{map[string]any{"role": "user", "content": "<a>"}}, "tools": []any{map[string]any{"x": 1.0}},
		"chat_template_kwargs": map[string]any{"enable_thinking": false}, "add_generation_prompt": false, "continue_final_message": true,
		"add_special_tokens": true,
	}, asked)
	for _, field := range []string{`"reasoning_effort":"low"`, `"documents":[{}]`, `"truncate_prompt_tokens":3`, `"tools":[],"tool_choice":"none"`} {
		_, err = c.TokenizeChat(t.Context(), []byte(`{"messages":[{"role":"user","content":"a"}],`+field+`}`))
		require.ErrorIs(t, err, ErrNoRender)
	}
	_, err = c.TokenizeChat(t.Context(), []byte(`[`))
	require.ErrorIs(t, err, ErrNoRender)
}

func TestParseItems(t *testing.T) {
	items, err := ParseItems([]byte(`{"mm_hashes":{"image":["h1","h0"],"audio":["a"]},"mm_placeholders":{"image":[{"offset":9,"length":4},` +
		`{"offset":1,"length":2}],"audio":[{"offset":5,"length":1,"is_embed":null}]},"kwargs_data":null}`))
	require.NoError(t, err)
	require.Equal(t, []Item{{"image", "h0", 1, 2}, {"audio", "a", 5, 1}, {"image", "h1", 9, 4}}, items)
	for _, none := range []string{"", "null", "{}"} {
		items, err := ParseItems([]byte(none))
		require.NoError(t, err)
		require.Empty(t, items)
	}
	for _, bad := range []string{"7", `{"mm_placeholders":{"image":[{"offset":1,"length":2}]}}`, `{"mm_hashes":{"image":["a"]}}`,
		`{"mm_hashes":{"image":["a"]},"mm_placeholders":{"image":[{"offset":-1,"length":2}]}}`} {
		_, err := ParseItems([]byte(bad))
		require.ErrorContains(t, err, "remote: features: ", bad)
	}
}

func TestSingleFlight(t *testing.T) {
	var asked atomic.Int32
	release := make(chan struct{})
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		<-release
		fmt.Fprint(w, `{"count":2,"tokens":[1,2]}`)
	}, Options{Timeout: 30 * time.Second})
	// One that gives up doesn't end it for the others.
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { _, err := c.Tokenize(ctx, "m", "x", true); gone <- err }()
	for asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			got, err := c.Tokenize(t.Context(), "m", "x", true)
			if err != nil || len(got) != 2 {
				t.Errorf("%v %v", got, err)
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	close(release)
	wg.Wait()
	require.LessOrEqual(t, asked.Load(), int32(2)) // a late one may have found it done
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestBodyOfCallerThatLeft: a caller whose context ends may use its body for something
// else, and those who wait for the same exchange get the answer to what they asked.
func TestBodyOfCallerThatLeft(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(asked) })
	c, err := New(Options{URL: "http://h", Transport: transport(func(r *http.Request) (*http.Response, error) {
		once()
		<-goOn
		body, err := io.ReadAll(r.Body)
		answer := `{"token_ids": [1]}`
		if string(body) != `{"prompt": "a"}` {
			answer = `{"token_ids": [2]}`
		}
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(answer))}, err
	})})
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	body := []byte(`{"prompt": "a"}`)
	left := make(chan error)
	go func() {
		_, err := c.Render(ctx, "/v1/chat/completions", body)
		left <- err
	}()
	<-asked
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	clear(body)
	time.AfterFunc(10*time.Millisecond, func() { close(goOn) })
	got, err := c.Render(t.Context(), "/v1/chat/completions", []byte(`{"prompt": "a"}`))
	require.NoError(t, err)
	require.Equal(t, []uint32{1}, got[0].Tokens)
}

func TestLimits(t *testing.T) {
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "completions") {
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not see the client go
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, `{"count":1,"tokens":[1],"x":"`+strings.Repeat("a", 1000)+`"}`)
	}, Options{Timeout: 50 * time.Millisecond, MaxResponseBytes: 500})
	_, err := c.Tokenize(t.Context(), "", "x", true)
	require.ErrorIs(t, err, ErrResponseTooLarge)
	_, err = c.Render(t.Context(), "/v1/completions", []byte(`{"prompt":"x"}`))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, IsUnavailable(err))
	_, err = c.Render(t.Context(), "/v1/embeddings", []byte(`{"input":"x"}`))
	require.ErrorIs(t, err, ErrNoRender)
}

func TestBadAnswers(t *testing.T) {
	for _, answer := range []string{"", "x", "{}", `{"count":2,"tokens":[1]}`, `{"count":1,"tokens":[-1]}`} {
		c := newClient(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }, Options{})
		_, err := c.Tokenize(t.Context(), "", "x", true)
		_, ok := errors.AsType[*AnswerError](err)
		require.True(t, ok, "%q: %v", answer, err)
	}
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[{"tokens":[1]}]`) }, Options{})
	_, err := c.Render(t.Context(), "/v1/completions/", []byte(`{"prompt":"x"}`))
	require.ErrorContains(t, err, "no token_ids")
	for _, u := range []string{"", "10.0.0.7:8000", "ftp://x", "http://"} {
		_, err := New(Options{URL: u})
		require.Error(t, err, u)
	}
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker{most: 3, pause: time.Second}
		for range 3 {
			require.True(t, b.allow())
			b.record(false)
		}
		require.False(t, b.allow())
		time.Sleep(time.Second)
		require.True(t, b.allow()) // one tries
		require.False(t, b.allow())
		b.record(false)
		require.False(t, b.allow())
		time.Sleep(time.Second)
		require.True(t, b.allow())
		b.record(true)
		require.True(t, b.allow())
		require.True(t, b.allow())
	})
}

func TestBreakerOpens(t *testing.T) {
	var asked atomic.Int32
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "down", http.StatusBadGateway)
	}, Options{Failures: 2, Pause: time.Hour})
	for range 2 {
		_, err := c.Tokenize(t.Context(), "", "x", true)
		require.True(t, IsUnavailable(err))
		require.NotErrorIs(t, err, ErrOpen)
	}
	_, err := c.Tokenize(t.Context(), "", "x", true)
	require.ErrorIs(t, err, ErrOpen)
	require.True(t, c.Open())
	require.Equal(t, int32(2), asked.Load())
}

// TestVerify finds an engine whose tokenizer is another one.
func TestVerify(t *testing.T) {
	load := func(name string) *tokenize.Tokenizer {
		tok, err := tokenize.Load(golden.Read(t, name), tokenize.Options{})
		require.NoError(t, err)
		return tok
	}
	engine := load("tokenize/tokenizers/mistral-v3.json")
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Prompt  string
			Special bool `json:"add_special_tokens"`
		}
		_ = json.NewDecoder(r.Body).Decode(&q)
		ids, _ := engine.AppendIDs([]uint32{}, q.Prompt, tokenize.EncodeOptions{AddSpecialTokens: q.Special})
		_ = json.NewEncoder(w).Encode(map[string]any{"count": len(ids), "tokens": ids})
	}, Options{})
	require.NoError(t, c.Verify(t.Context(), "m", engine))
	err := c.Verify(t.Context(), "m", load("tokenize/tokenizers/mistral-v3-first.json"))
	mismatch, ok := errors.AsType[*MismatchError](err)
	require.True(t, ok, "%v", err)
	require.NotEqual(t, mismatch.Ours, mismatch.Theirs)
	require.NoError(t, c.Verify(t.Context(), "m", load("tokenize/tokenizers/mistral-v3-first.json"), "plain"))
}

// TestSGLangRecorded: for each body, SGLang's own application is asked what
// was recorded, and its answer is the ids that its chat handler runs; texts
// get the ids of the tokenizer in process.
func TestSGLangRecorded(t *testing.T) {
	data, err := golden.ReadFile("tokenize/tokenizers/qwen3.json")
	require.NoError(t, err)
	tok, err := tokenize.Load(data, tokenize.Options{})
	require.NoError(t, err)
	for _, file := range golden.Files(t, "sglang/tokenize/*.jsonl") {
		t.Run(path.Base(file), func(t *testing.T) {
			var asked, answer json.RawMessage
			var status int
			c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
				asked, _ = io.ReadAll(r.Body)
				w.WriteHeader(status)
				_, _ = w.Write(answer)
			}, Options{Engine: SGLang})
			chats := 0
			for line := range bytes.Lines(golden.Read(t, file)) {
				var l struct {
					Body, Ask json.RawMessage
					Chat      []uint32
					Status    int
					Answer    json.RawMessage
				}
				require.NoError(t, json.Unmarshal(line, &l))
				asked, answer, status = nil, l.Answer, l.Status
				if string(l.Body) != "null" {
					ids, err := c.TokenizeChat(t.Context(), l.Body)
					require.JSONEq(t, string(l.Ask), string(asked))
					if status != http.StatusOK { // a release without chats, or a body that is no chat
						require.ErrorAs(t, err, new(*StatusError), "%s", l.Body)
						continue
					}
					require.NoError(t, err)
					require.Equal(t, l.Chat, ids, "%s", l.Body)
					chats++
					continue
				}
				var ask struct {
					Model   string
					Prompt  any
					Special *bool `json:"add_special_tokens"`
				}
				require.NoError(t, json.Unmarshal(l.Ask, &ask))
				text, single := ask.Prompt.(string)
				if !single || ask.Special == nil {
					continue // nothing that the client asks
				}
				ids, err := c.Tokenize(t.Context(), ask.Model, text, *ask.Special)
				require.NoError(t, err)
				require.JSONEq(t, string(l.Ask), string(asked))
				want, err := tok.AppendIDs(nil, text, tokenize.EncodeOptions{AddSpecialTokens: *ask.Special})
				require.NoError(t, err)
				require.Equal(t, append([]uint32{}, want...), append([]uint32{}, ids...), "%q", text)
			}
			t.Logf("%d chats", chats)
			require.Equal(t, path.Base(file) != "tokenize-0.5.4.jsonl", chats >= 18)
		})
	}
}

// TestSGLang asks as SGLang's serving_tokenize.py takes it: the whole chat,
// without what would make it another request.
func TestSGLang(t *testing.T) {
	var asked map[string]any
	answer := `{"tokens":[1,2],"count":2,"max_model_len":-1}`
	status := http.StatusOK
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		asked = nil
		if r.URL.Path == "/tokenize" {
			_ = json.NewDecoder(r.Body).Decode(&asked)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}, Options{Engine: SGLang})
	body := []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"<a>"}]},{"role":"assistant","content":null}],` +
		`"reasoning_effort":"low","documents":[{"x":"y"}],"tools":[],"tool_choice":"none","continue_final_message":true,` +
		`"stream":true,"stream_options":{},"add_generation_prompt":false,"add_special_tokens":true,"prompt":"x"}`)
	want := map[string]any{
		"model": "m", "messages": []any{map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": "<a>"}}}, map[string]any{"role": "assistant", "content": nil}},
		"reasoning_effort": "low", "documents": []any{map[string]any{"x": "y"}}, "tools": []any{}, "tool_choice": "none", "continue_final_message": true,
	}
	got, err := c.TokenizeChat(t.Context(), body)
	require.NoError(t, err)
	require.Equal(t, []uint32{1, 2}, got)
	require.Equal(t, want, asked)
	rendered, err := c.Render(t.Context(), "/v1/chat/completions/", body)
	require.NoError(t, err)
	require.Equal(t, []Rendered{{Tokens: []uint32{1, 2}}}, rendered)
	got, err = c.Tokenize(t.Context(), "", "x", true)
	require.NoError(t, err)
	require.Equal(t, []uint32{1, 2}, got)
	require.Equal(t, map[string]any{"prompt": "x", "add_special_tokens": true}, asked)

	for _, bad := range []string{`[`, `{}`, `{"messages":[{"content":[5]}]}`, `{"messages":[{"content":[{"type":"image_url"}]}]}`} {
		_, err = c.TokenizeChat(t.Context(), []byte(bad))
		require.ErrorIs(t, err, ErrNoRender, bad)
	}
	_, err = c.Render(t.Context(), "/v1/messages", body)
	require.ErrorIs(t, err, ErrNoRender)

	// A list of prompts has lists of tokens, which nobody asked for.
	answer = `{"tokens":[[1],[2]],"count":[1,1],"max_model_len":9}`
	_, err = c.TokenizeChat(t.Context(), body)
	require.ErrorAs(t, err, new(*AnswerError))
	status, answer = http.StatusBadRequest, `{"object":"error","message":"no template","type":"BadRequestError","param":null,"code":400}`
	_, err = c.TokenizeChat(t.Context(), body)
	failed, ok := errors.AsType[*StatusError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "no template", failed.Message)
	require.False(t, IsUnavailable(err))
	_, err = New(Options{URL: "http://x", Engine: 7})
	require.ErrorContains(t, err, "Engine")
}

// TestIdleConnectionCloses: a server that closes connections while they idle,
// as they do after some seconds, is asked again on another one.
func TestIdleConnectionCloses(t *testing.T) {
	var asked atomic.Int32
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		require.NotContains(t, r.Header, "Idempotency-Key")
		if asked.Add(1) == 2 { // on the connection of the first
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
			return
		}
		fmt.Fprint(w, `{"count":1,"tokens":[1]}`)
	}, Options{})
	for i := range 3 {
		_, err := c.Tokenize(t.Context(), "", fmt.Sprint(i), true)
		require.NoError(t, err)
	}
	require.EqualValues(t, 4, asked.Load())
}
