package tokenize

import (
	"testing"

	"github.com/kvatlas/kvatlas/internal/corpus"
	"github.com/stretchr/testify/require"
)

func benchText(t testing.TB, size int) string {
	t.Helper()
	text, err := corpus.Text(size)
	require.NoError(t, err)
	return text
}

var sinkIDs []uint32

func BenchmarkAppendIDs(b *testing.B) {
	text := benchText(b, 460_000)
	for _, name := range []string{"qwen3", "llama3.1", "gpt-oss", "deepseek-v3", "mistral-v3", "gemma3", "anthropic"} {
		b.Run(name, func(b *testing.B) {
			tok := loadGolden(b, name)
			run := func(b *testing.B, cold bool) {
				sinkIDs = ids(b, tok, text)
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					if cold {
						b.StopTimer()
						s := tok.get()
						clear(s.cache)
						tok.put(s)
						b.StartTimer()
					}
					sinkIDs, _ = tok.AppendIDs(sinkIDs[:0], text, EncodeOptions{})
				}
				b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N)/float64(len(sinkIDs))*1e5, "ms/100k")
			}
			b.Run("warm", func(b *testing.B) { run(b, false) })
			b.Run("cold", func(b *testing.B) { run(b, true) })
		})
	}
}

// BenchmarkStream encodes the same text in pieces of 4 KB.
func BenchmarkStream(b *testing.B) {
	text := []byte(benchText(b, 460_000))
	for _, name := range []string{"qwen3", "llama3.1", "mistral-v3"} {
		b.Run(name, func(b *testing.B) {
			s, err := loadGolden(b, name).NewStream(EncodeOptions{})
			require.NoError(b, err)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				for rest := text; len(rest) > 0; {
					n := min(len(rest), 4096)
					sinkIDs, _ = s.AppendIDs(sinkIDs[:0], rest[:n])
					rest = rest[n:]
				}
				sinkIDs, _ = s.Finish(sinkIDs[:0])
			}
		})
	}
}

// BenchmarkLoad loads tokenizer.json, and its compact form.
func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"qwen3", "mistral-v3", "gpt-oss", "gemma3"} {
		data := func(b *testing.B) []byte { return tokenizerJSON(b, name) }
		b.Run(name+"/json", func(b *testing.B) {
			data := data(b)
			b.ReportAllocs()
			for b.Loop() {
				_, err := Load(data, wholeOptions)
				require.NoError(b, err)
			}
		})
		b.Run(name+"/compact", func(b *testing.B) {
			tok, err := Load(data(b), wholeOptions)
			require.NoError(b, err)
			form, err := tok.AppendBinary(nil)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				_, err := LoadBinary(form, tok.source, wholeOptions)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(len(form))/1e6, "MB")
		})
	}
}
