package chat

import (
	"os"
	"strings"
	"testing"
)

// BenchmarkRender renders a conversation of 60 messages and 450 kB, about
// 100,000 tokens.
func BenchmarkRender(b *testing.B) {
	for _, name := range []string{"Qwen-Qwen3-0.6B", "mistralai-Mistral-7B-Instruct-v0.3", "zai-org-GLM-4.6"} {
		b.Run(name, func(b *testing.B) {
			src, err := os.ReadFile("testdata/templates/" + name + ".jinja")
			if err != nil {
				b.Fatal(err)
			}
			tpl, err := Parse(string(src), Options{SpecialTokens: map[string]string{"bos_token": "<s>", "eos_token": "</s>"}})
			if err != nil {
				b.Fatal(err)
			}
			in := &Input{Messages: &List{}, AddGenerationPrompt: true}
			for i := range 61 {
				m := &Dict{}
				m.Set("role", []string{"user", "assistant"}[i%2])
				m.Set("content", strings.Repeat("The quick brown fox jumps over the lazy dog.\n", 165))
				in.Messages.Items = append(in.Messages.Items, m)
			}
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				if out, err = tpl.AppendRender(out[:0], in); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(out)))
		})
	}
}
