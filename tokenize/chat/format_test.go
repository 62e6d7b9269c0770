package chat

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// testdata/formats.jsonl is what vLLM found. Do not change it: change the
// code.
func TestContentFormats(t *testing.T) {
	data, err := os.ReadFile("testdata/formats.jsonl")
	require.NoError(t, err)
	found := map[string]int{}
	for line := range bytes.Lines(data) {
		var want struct{ Template, Format string }
		require.NoError(t, json.Unmarshal(line, &want))
		src, err := os.ReadFile("testdata/templates/" + want.Template + ".jinja")
		require.NoError(t, err)
		tpl, err := Parse(string(src), Options{})
		if refusedTemplates[want.Template] != "" {
			continue
		}
		require.NoError(t, err)
		got, ok := tpl.ContentFormat()
		require.True(t, ok)
		require.Equal(t, want.Format, got.String(), want.Template)
		found[want.Format]++
	}
	require.Positive(t, found["string"])
	require.Positive(t, found["openai"])
}

// Releases of vLLM that differ about a template are not taken for one.
func TestContentFormatAliases(t *testing.T) {
	tpl, err := Parse("{% set ns = namespace(rest=messages) %}{% for m in ns.rest %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}", Options{})
	require.NoError(t, err)
	_, ok := tpl.ContentFormat()
	require.False(t, ok)
}
