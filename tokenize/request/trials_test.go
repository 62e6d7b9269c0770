package request

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/tokenize"
	"github.com/kvatlas/kvatlas/tokenize/chat"
	"github.com/stretchr/testify/require"
)

// Trial T124 (vllm-project/production-stack#1045, vllm-project/aibrix#2002):
// bodies of chats to the token ids that others published for Qwen2.5 (whose
// vocabulary Qwen3 has kept), with contents as texts and as parts.
func TestTrialT124PublishedIDs(t *testing.T) {
	source, err := os.ReadFile("../chat/testdata/templates/Qwen-Qwen2.5-7B-Instruct.jinja")
	require.NoError(t, err)
	tpl, err := chat.Parse(string(source), chat.Options{})
	require.NoError(t, err)
	tok, err := tokenize.Load(golden.Read(t, "tokenize/tokenizers/qwen3.json"), tokenize.Options{})
	require.NoError(t, err)
	m := &Model{Engine: VLLM0_32, Encoder: tok, Template: tpl}
	for _, c := range []struct {
		source, system, user string
		want                 []uint32
	}{
		{"kv_chat_template_parity.json of loxilb-inference-gateway", "", "What is 2+2?",
			[]uint32{151644, 8948, 198, 2610, 525, 1207, 16948, 11, 3465, 553, 54364, 14817, 13, 1446, 525, 264, 10950, 17847, 13, 151645, 198,
				151644, 872, 198, 3838, 374, 220, 17, 10, 17, 30, 151645, 198, 151644, 77091, 198}},
		{"the same", "You are a terse assistant.", "What is 2+2?",
			[]uint32{151644, 8948, 198, 2610, 525, 264, 50537, 17847, 13, 151645, 198, 151644, 872, 198, 3838, 374, 220, 17, 10, 17, 30, 151645, 198,
				151644, 77091, 198}},
		{"LMCache/LMCache#1511", "You are a helpful assistant.", "Explain quantum computing in simple terms.",
			[]uint32{151644, 8948, 198, 2610, 525, 264, 10950, 17847, 13, 151645, 198, 151644, 872, 198, 840, 20772, 30128, 24231, 304, 4285, 3793, 13,
				151645, 198, 151644, 77091, 198}},
	} {
		for _, parts := range []bool{false, true} {
			var messages []map[string]any
			add := func(role, text string) {
				var content any = text
				if parts {
					content = []any{map[string]string{"type": "text", "text": text}}
				}
				messages = append(messages, map[string]any{"role": role, "content": content})
			}
			if c.system != "" {
				add("system", c.system)
			}
			add("user", c.user)
			body, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
			require.NoError(t, err)
			res, err := m.Tokens(t.Context(), parse(t, "/v1/chat/completions", string(body)))
			require.NoError(t, err)
			require.Equal(t, c.want, res.Prompts[0].Tokens, "%s, parts %v", c.source, parts)
		}
	}
}
