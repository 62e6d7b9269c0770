package chat

import (
	"encoding/json"
	"slices"
)

// Config is the chat part of a tokenizer_config.json.
type Config struct {
	// Template is the default template.
	Template string
	// ToolTemplate is the template named tool_use, which transformers takes
	// for requests with tools when there are several; "" without one.
	ToolTemplate string
	// SpecialTokens are for [Options].
	SpecialTokens map[string]string
}

// tokenNames are transformers' SPECIAL_TOKENS_ATTRIBUTES.
var tokenNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// LoadConfig reads a tokenizer_config.json. jinja is the text of the
// chat_template.jinja beside it, which wins; "" when there is none. It
// returns [ErrNoTemplate] when neither has a template, a [*JSONError] for
// what is not JSON.
//
// A tokenizer class may have special tokens of its own that the file does not
// name. Where a template uses one that has no text in the file,
// [Config.Missing] names it: its text must then come from the engine.
func LoadConfig(data []byte, jinja string) (*Config, error) {
	var file map[string]json.RawMessage
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, &JSONError{0, "tokenizer_config.json: " + err.Error()}
	}
	c := &Config{Template: jinja, SpecialTokens: map[string]string{}}
	for _, name := range tokenNames {
		var token *string
		var added struct{ Content *string }
		if json.Unmarshal(file[name], &token) != nil && json.Unmarshal(file[name], &added) == nil {
			token = added.Content
		}
		if token != nil {
			c.SpecialTokens[name] = *token
		}
	}
	var text string
	var list []struct{ Name, Template string }
	if json.Unmarshal(file["chat_template"], &text) != nil {
		_ = json.Unmarshal(file["chat_template"], &list) // neither: none
	}
	for _, t := range list {
		switch t.Name {
		case "tool_use":
			c.ToolTemplate = t.Template
		case "default":
			text = t.Template
		}
	}
	if jinja == "" {
		c.Template = text
	}
	if c.Template == "" {
		return nil, ErrNoTemplate
	}
	return c, nil
}

// Missing names the special tokens that a template of c uses and that the
// file gives no text for.
func (c *Config) Missing(t *Template) []string {
	var out []string
	for _, name := range tokenNames {
		if _, ok := c.SpecialTokens[name]; !ok && t.Uses(name) {
			out = append(out, name)
		}
	}
	return slices.Clip(out)
}
