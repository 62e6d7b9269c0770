package remote

import (
	"context"
	"encoding/json"
	"fmt"
)

// Engine is what a server is, where that makes a difference to what it is
// asked.
type Engine uint8

const (
	// VLLM has /tokenize and, from 0.20 on, render endpoints.
	VLLM Engine = iota
	// SGLang has /tokenize from 0.5.4 on, for conversations from 0.5.13 on
	// (testdata/sglang/tokenize has its answers). Earlier releases answer
	// with a [*StatusError]; they take token ids only (input_ids of
	// /generate).
	SGLang
)

// notForSGLang are fields of a chat that its /tokenize takes for something
// else: the first ones belong to its other form or make it answer as a
// stream; add_generation_prompt changes the render there, and has no effect
// on the chat itself.
var notForSGLang = []string{"prompt", "add_special_tokens", "stream", "stream_options", "add_generation_prompt"}

// tokenizeSGLangChat sends the whole chat, of which the server makes the
// prompt as it does for /v1/chat/completions. Media it leaves as the
// template wrote them, so these are ErrNoRender.
func (c *Client) tokenizeSGLangChat(ctx context.Context, body []byte) ([]uint32, error) {
	ask := make(map[string]any)
	fields := make(map[string]json.RawMessage)
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoRender, err)
	}
	if err := onlyTexts(fields["messages"]); err != nil {
		return nil, err
	}
	for name, v := range fields {
		ask[name] = v
	}
	for _, name := range notForSGLang {
		delete(ask, name)
	}
	return c.tokenize(ctx, ask)
}

// onlyTexts tells that no message has a part that is no text.
func onlyTexts(messages json.RawMessage) error {
	var list []struct {
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(messages, &list); err != nil {
		return fmt.Errorf("%w: messages: %w", ErrNoRender, err)
	}
	for i, m := range list {
		if len(m.Content) == 0 || m.Content[0] != '[' {
			continue
		}
		var parts []struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(m.Content, &parts); err != nil {
			return fmt.Errorf("%w: messages[%d].content: %w", ErrNoRender, i, err)
		}
		for j, p := range parts {
			if p.Type != "text" {
				return fmt.Errorf("%w: messages[%d].content[%d] is of type %q, which /tokenize does not expand", ErrNoRender, i, j, p.Type)
			}
		}
	}
	return nil
}
