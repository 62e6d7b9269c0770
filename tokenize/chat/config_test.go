package chat

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoadConfig(t *testing.T) {
	c, err := LoadConfig([]byte(`{"model_max_length": 1000000000000000019884624838656, "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": null,
		"chat_template": [{"name": "default", "template": "{{ bos_token }}d{{ pad_token }}"}, {"name": "tool_use", "template": "t"}]}`), "")
	require.NoError(t, err)
	require.Equal(t, "t", c.ToolTemplate)
	require.Equal(t, map[string]string{"bos_token": "<s>"}, c.SpecialTokens)
	tpl, err := Parse(c.Template, Options{SpecialTokens: c.SpecialTokens})
	require.NoError(t, err)
	require.Equal(t, []string{"pad_token"}, c.Missing(tpl))

	c, err = LoadConfig([]byte(`{"chat_template": "a"}`), "b")
	require.NoError(t, err)
	require.Equal(t, "b", c.Template)
	_, err = LoadConfig([]byte(`{}`), "")
	require.ErrorIs(t, err, ErrNoTemplate)
	_, err = LoadConfig([]byte(`[`), "")
	require.ErrorAs(t, err, new(*JSONError))
}
