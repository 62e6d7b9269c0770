package remote

import (
	"context"
	"encoding/json"

	"github.com/kvatlas/kvatlas/tokenize"
)

// Tokenize asks /tokenize for the ids of a text. An empty model is the
// server's own.
func (c *Client) Tokenize(ctx context.Context, model, text string, addSpecial bool) ([]uint32, error) {
	return c.tokenize(ctx, map[string]any{"prompt": text, "add_special_tokens": addSpecial}, model)
}

// TokenizeChat asks /tokenize for the ids of a chat, for servers without
// render endpoints. Fields that /tokenize doesn't have, such as
// reasoning_effort and documents, are an error: the ids could differ.
func (c *Client) TokenizeChat(ctx context.Context, r *tokenize.Request) ([]uint32, error) {
	chat := r.Chat
	if chat == nil || r.Endpoint != tokenize.ChatCompletions || chat.ReasoningEffort != "" || chat.Documents != "" {
		return nil, ErrNoRender
	}
	if r.Cannot != nil && len(chat.Media) == 0 {
		return nil, ErrNoRender // a field that /tokenize doesn't have
	}
	ask := map[string]any{
		"messages":               json.RawMessage(chat.Messages),
		"add_generation_prompt":  chat.AddGenerationPrompt,
		"continue_final_message": chat.ContinueFinalMessage,
		"add_special_tokens":     r.AddSpecialTokens,
	}
	if chat.Tools != "" {
		ask["tools"] = json.RawMessage(chat.Tools)
	}
	if chat.Kwargs != "" {
		ask["chat_template_kwargs"] = json.RawMessage(chat.Kwargs)
	}
	return c.tokenize(ctx, ask, r.Model)
}

func (c *Client) tokenize(ctx context.Context, ask map[string]any, model string) ([]uint32, error) {
	const path = "/tokenize"
	if model != "" {
		ask["model"] = model
	}
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
	if got.Count == nil || *got.Count != len(got.Tokens) {
		return nil, &AnswerError{path, "count is not the number of tokens"}
	}
	return got.Tokens, nil
}

// Rendered is one prompt as the engine will see it.
type Rendered struct {
	Tokens    []uint32
	Items     []tokenize.Item // multimodal items, by offset
	CacheSalt string
	Model     string
}

var renderPaths = map[tokenize.Endpoint]string{
	tokenize.Completions:     "/v1/completions/render",
	tokenize.ChatCompletions: "/v1/chat/completions/render",
	tokenize.Messages:        "/v1/messages/render",
	tokenize.Responses:       "/v1/responses/render",
}

// Render sends the body of r, unchanged, to the render endpoint of its kind
// and returns its prompts. It takes what package tokenize cannot: other
// kinds of messages, images, templates that it refuses.
func (c *Client) Render(ctx context.Context, r *tokenize.Request) ([]Rendered, error) {
	path, ok := renderPaths[r.Endpoint]
	if !ok {
		return nil, ErrNoRender
	}
	answer, err := c.post(ctx, path, r.Body)
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
	if r.Endpoint == tokenize.Completions {
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
		items, err := tokenize.ParseItems(o.Features)
		if err != nil {
			return nil, &AnswerError{path, err.Error()}
		}
		rendered[i] = Rendered{*o.TokenIDs, items, o.Salt, o.Model}
	}
	return rendered, nil
}
