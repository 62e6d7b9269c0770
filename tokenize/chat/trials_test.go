package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Trial T124 (vllm-project/production-stack#1045, vllm-project/aibrix#2002):
// the render of one question, by the hash that loxilb-inference-gateway's
// fixtures (7c45f4db, transformers 5.5.4) have, given as text and as parts.
// Trial T139 (NikolaLohinski/gonja#18, #37, #38) is TestGoldenRenders.
func TestPublishedRender(t *testing.T) {
	src, err := os.ReadFile("testdata/templates/Qwen-Qwen2.5-7B-Instruct.jinja")
	require.NoError(t, err)
	tpl, err := Parse(string(src), Options{})
	require.NoError(t, err)
	v, err := ParseJSON([]byte(`[{"role": "user", "content": "What is the capital of France?"}]`))
	require.NoError(t, err)
	text, err := tpl.AppendRender(nil, &Input{Messages: v.(*List), AddGenerationPrompt: true})
	require.NoError(t, err)
	sum := sha256.Sum256(text)
	require.Equal(t, "e4116145fa4718debfced9095b10407196de1b28ab09bb6d200f9730def6259f", hex.EncodeToString(sum[:]), "%s", text)
}
