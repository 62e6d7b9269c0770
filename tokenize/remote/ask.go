package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Tokenize asks /tokenize for the ids of a text. An empty model is the
// server's own.
func (c *Client) Tokenize(ctx context.Context, model, text string, addSpecial bool) ([]uint32, error) {
	ask := map[string]any{"prompt": text, "add_special_tokens": addSpecial}
	if model != "" {
		ask["model"] = model
	}
	return c.tokenize(ctx, ask)
}

// chatFields are the fields of a chat that /tokenize takes, notInTokenize
// those that it doesn't and that change the ids.
var (
	chatFields = []string{"model", "messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message",
		"add_special_tokens"}
	notInTokenize = []string{"reasoning_effort", "documents", "truncate_prompt_tokens", "truncation_side", "chat_template",
		"mm_processor_kwargs", "prompt_embeds"}
)

// TokenizeChat asks /tokenize for the ids of a body of /v1/chat/completions,
// for servers without render endpoints. Fields that vLLM's /tokenize doesn't
// have and that change the ids, such as reasoning_effort, are [ErrNoRender],
// and media are for [SGLang].
func (c *Client) TokenizeChat(ctx context.Context, body []byte) ([]uint32, error) {
	if c.options.Engine == SGLang {
		return c.tokenizeSGLangChat(ctx, body)
	}
	fields := make(map[string]json.RawMessage)
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoRender, err)
	}
	for _, name := range notInTokenize {
		if v, ok := fields[name]; ok && string(v) != "null" {
			return nil, fmt.Errorf("%w: /tokenize has no %s", ErrNoRender, name)
		}
	}
	if string(fields["tool_choice"]) == `"none"` && fields["tools"] != nil {
		return nil, fmt.Errorf("%w: whether tool_choice hides the tools is a setting of the engine", ErrNoRender)
	}
	ask := make(map[string]any)
	for _, name := range chatFields {
		if v, ok := fields[name]; ok && string(v) != "null" {
			ask[name] = v
		}
	}
	return c.tokenize(ctx, ask)
}

func (c *Client) tokenize(ctx context.Context, ask map[string]any) ([]uint32, error) {
	const path = "/tokenize"
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, &AnswerError{path, err.Error()}
	}
	answer, err := c.post(ctx, path, body)
	if err != nil {
		return nil, err
	}
	var got struct {
		Count  *int     `json:"count"`
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return nil, &AnswerError{path, err.Error()}
	}
	if got.Count == nil || got.Tokens == nil || *got.Count != len(got.Tokens) {
		return nil, &AnswerError{path, "count is not the number of tokens"}
	}
	return got.Tokens, nil
}

// Rendered is one prompt as the engine will see it.
type Rendered struct {
	Tokens    []uint32
	Items     []Item // multimodal items, by offset
	CacheSalt string
	Model     string
}

// Item is where a multimodal item lies in the tokens of a prompt, and the
// identifier that block hashes have for it.
type Item struct {
	Modality       string // such as "image"
	Identifier     string
	Offset, Length int // in tokens
}

// renders are the paths that have a render endpoint.
var renders = []string{"/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"}

// Render sends the body of a request to path, unchanged, to the render
// endpoint of that path and returns the request's prompts: one, or as many
// as a completions request has. It takes what can't be done in this process:
// other kinds of messages, images, templates that are refused. Paths without
// a render endpoint give [ErrNoRender]. For [SGLang], which has none, chats are
// asked of /tokenize.
func (c *Client) Render(ctx context.Context, path string, body []byte) ([]Rendered, error) {
	path = strings.TrimSuffix(path, "/")
	if c.options.Engine == SGLang {
		if path != "/v1/chat/completions" {
			return nil, ErrNoRender
		}
		tokens, err := c.tokenizeSGLangChat(ctx, body)
		if err != nil {
			return nil, err
		}
		return []Rendered{{Tokens: tokens}}, nil
	}
	if !slices.Contains(renders, path) {
		return nil, ErrNoRender
	}
	path += "/render"
	answer, err := c.post(ctx, path, body)
	if err != nil {
		return nil, err
	}
	type one struct {
		TokenIDs *[]uint32       `json:"token_ids"`
		Features json.RawMessage `json:"features"`
		Salt     string          `json:"cache_salt"`
		Model    string          `json:"model"`
	}
	list := make([]one, 1)
	if path == "/v1/completions/render" {
		err = json.Unmarshal(answer, &list)
	} else {
		err = json.Unmarshal(answer, &list[0])
	}
	if err != nil {
		return nil, &AnswerError{path, err.Error()}
	}
	rendered := make([]Rendered, len(list))
	for i, o := range list {
		if o.TokenIDs == nil {
			return nil, &AnswerError{path, "no token_ids"}
		}
		items, err := ParseItems(o.Features)
		if err != nil {
			return nil, &AnswerError{path, err.Error()}
		}
		rendered[i] = Rendered{*o.TokenIDs, items, o.Salt, o.Model}
	}
	return rendered, nil
}

// ParseItems reads the features of a render answer, or of a body of
// /inference/v1/generate: identifiers in mm_hashes and places in
// mm_placeholders, by modality. Empty and null give none. The items come by
// offset.
func ParseItems(features []byte) ([]Item, error) {
	if len(features) == 0 || string(features) == "null" {
		return nil, nil
	}
	var f struct {
		Hashes map[string][]string `json:"mm_hashes"`
		Places map[string][]struct {
			Offset int `json:"offset"`
			Length int `json:"length"`
		} `json:"mm_placeholders"`
	}
	if err := json.Unmarshal(features, &f); err != nil {
		return nil, fmt.Errorf("remote: features: %w", err)
	}
	var items []Item
	for modality, places := range f.Places {
		if len(places) != len(f.Hashes[modality]) {
			return nil, fmt.Errorf("remote: features: %d places but %d identifiers of %s", len(places), len(f.Hashes[modality]), modality)
		}
		for i, place := range places {
			if place.Offset < 0 || place.Length < 0 {
				return nil, fmt.Errorf("remote: features: negative offset or length of %s", modality)
			}
			items = append(items, Item{modality, f.Hashes[modality][i], place.Offset, place.Length})
		}
	}
	for modality, hashes := range f.Hashes {
		if len(hashes) != len(f.Places[modality]) {
			return nil, fmt.Errorf("remote: features: identifiers without a place of %s", modality)
		}
	}
	slices.SortFunc(items, func(a, b Item) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Modality, b.Modality), cmp.Compare(a.Identifier, b.Identifier))
	})
	return items, nil
}
