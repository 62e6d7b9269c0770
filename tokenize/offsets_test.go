package tokenize

import (
	"path"
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/stretchr/testify/require"
)

// TestOffsets compares the places of ten thousand random texts with the
// library's, and the ids with our own.
func TestOffsets(t *testing.T) {
	oneGoroutine(t)
	p := loadPools(t)
	for _, file := range golden.Files(t, "tokenize/random/offsets-*.txt") {
		name := strings.TrimPrefix(strings.TrimSuffix(path.Base(file), ".txt"), "offsets-")
		t.Run(name, func(t *testing.T) {
			tok := loadGolden(t, name)
			wrong, compared := 0, 0
			for i, want := range strings.Fields(string(golden.Read(t, file))) {
				text := p.text(i)
				tokens, err := tok.AppendTokens(nil, text, EncodeOptions{})
				require.NoError(t, err)
				var got, places []uint32
				for _, token := range tokens {
					got = append(got, token.ID)
					places = append(places, uint32(token.Start), uint32(token.End))
				}
				require.True(t, equalIDs(ids(t, tok, text), got), "%.200q", text)
				if want == "-" {
					for _, token := range tokens {
						require.True(t, 0 <= token.Start && token.Start < token.End && token.End <= len(text), "%q %v", text, token)
					}
					continue
				}
				compared++
				if digest(places) != want {
					if wrong++; wrong < 4 {
						t.Errorf("text %d %.300q: %v", i, text, tokens[:min(len(tokens), 40)])
					}
				}
			}
			require.Zero(t, wrong, "of %d", compared)
			require.Greater(t, compared, 4000)
		})
	}
}

func TestOffsetsRefused(t *testing.T) {
	tok := loadGolden(t, "tiny")
	_, err := tok.AppendTokens(nil, "a\xff", EncodeOptions{})
	require.ErrorIs(t, err, ErrInvalidUTF8)
	tok, err = Load(changed(t, "mistral-v3", `{"model":{"byte_fallback":false}}`), Options{})
	require.NoError(t, err)
	_, err = tok.AppendTokens(nil, "a", EncodeOptions{})
	require.ErrorIs(t, err, ErrNoOffsets)
	tok, err = Load(tokenizerJSON(t, "tiny"), Options{MaxTextBytes: 1})
	require.NoError(t, err)
	_, err = tok.AppendTokens(nil, "ab", EncodeOptions{})
	require.ErrorIs(t, err, ErrTextTooLong)
}
