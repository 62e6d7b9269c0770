package tokenize

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/stretchr/testify/require"
)

// fetchedEnv names a folder with the vocabularies that are not kept in the
// repository, made by testdata/tokenize/gen/fetch-tokenizers.py.
const fetchedEnv = "KVATLAS_TOKENIZERS"

// tokenizerJSON returns the named tokenizer.json, or skips t when it is one
// that must be fetched and hasn't been.
func tokenizerJSON(t testing.TB, name string) []byte {
	t.Helper()
	if data, err := golden.ReadFile("tokenize/tokenizers/" + name + ".json"); err == nil {
		return data
	}
	dir := os.Getenv(fetchedEnv)
	if dir == "" {
		t.Skipf("%s is not kept in the repository; set %s to a folder made by fetch-tokenizers.py", name, fetchedEnv)
	}
	data, err := os.ReadFile(filepath.Join(dir, name+".json"))
	require.NoError(t, err)
	return data
}

func loadGolden(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := Load(tokenizerJSON(t, name), Options{IgnoreTruncation: true, IgnorePadding: true})
	require.NoError(t, err)
	return tok
}

type goldenCase struct {
	Category   string   `json:"category"`
	Text       string   `json:"text"`
	AddSpecial bool     `json:"add_special"`
	IDs        []uint32 `json:"ids"`
}

func goldenCases(t testing.TB, name string) []goldenCase {
	t.Helper()
	var cases []goldenCase
	for line := range bytes.Lines(golden.Read(t, name)) {
		var c goldenCase
		require.NoError(t, json.Unmarshal(line, &c))
		cases = append(cases, c)
	}
	require.NotEmpty(t, cases)
	return cases
}

func TestGolden(t *testing.T) {
	for _, file := range golden.Files(t, "tokenize/ids/*.jsonl") {
		name := strings.TrimSuffix(path.Base(file), ".jsonl")
		t.Run(name, func(t *testing.T) {
			tok := loadGolden(t, name)
			wrong := 0
			for _, c := range goldenCases(t, file) {
				for range 2 { // the second time from the cache of pieces
					got, err := tok.AppendIDs([]uint32{7}, c.Text, EncodeOptions{AddSpecialTokens: c.AddSpecial})
					require.NoError(t, err)
					if !equalIDs(got[1:], c.IDs) {
						if wrong++; wrong < 4 {
							t.Errorf("%s %.300q:\n got %v\nwant %v", c.Category, c.Text, clip(got[1:]), clip(c.IDs))
						}
					}
				}
			}
			require.Zero(t, wrong)
		})
	}
}

func equalIDs(a, b []uint32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func clip(ids []uint32) []uint32 { return ids[:min(len(ids), 60)] }
