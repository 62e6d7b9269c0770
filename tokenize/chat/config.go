package chat

import "slices"

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
	v, err := ParseJSON(data)
	if err != nil {
		return nil, err
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, &JSONError{0, "no object"}
	}
	c := &Config{Template: jinja, SpecialTokens: map[string]string{}}
	for _, name := range tokenNames {
		switch t, _ := d.Get(name); t := t.(type) {
		case string:
			c.SpecialTokens[name] = t
		case *Dict:
			if s, ok := t.Get("content"); ok {
				c.SpecialTokens[name], _ = s.(string)
			}
		}
	}
	switch t, _ := d.Get("chat_template"); t := t.(type) {
	case string:
		if jinja == "" {
			c.Template = t
		}
	case *List:
		c.named(t, jinja)
	}
	if c.Template == "" {
		return nil, ErrNoTemplate
	}
	return c, nil
}

func (c *Config) named(list *List, jinja string) {
	for _, e := range list.Items {
		d, ok := e.(*Dict)
		if !ok {
			continue
		}
		name, _ := d.Get("name")
		text, _ := d.Get("template")
		s, _ := text.(string)
		switch {
		case name == "tool_use":
			c.ToolTemplate = s
		case name == "default" && jinja == "":
			c.Template = s
		}
	}
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
