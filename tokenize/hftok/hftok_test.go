//go:build cgo && hftok

package hftok

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kvatlas/kvatlas/tokenize"
)

const data = "../../testdata/tokenize/"

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(data + name + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = io.ReadAll(z); err != nil {
		t.Fatal(err)
	}
	return b
}

func load(t testing.TB, file []byte) *Tokenizer {
	t.Helper()
	tok, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tok.Close() })
	return tok
}

// TestGolden checks the library that was built, and the guard for U+0000.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob(data + "tokenizers/*.json.gz")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json.gz")
		tok := load(t, read(t, "tokenizers/"+name+".json"))
		for line := range bytes.Lines(read(t, "ids/"+name+".jsonl")) {
			var c struct {
				Text       string   `json:"text"`
				AddSpecial bool     `json:"add_special"`
				IDs        []uint32 `json:"ids"`
			}
			if err := json.Unmarshal(line, &c); err != nil {
				t.Fatal(err)
			}
			got, err := tok.AppendIDs(nil, c.Text, tokenize.EncodeOptions{AddSpecialTokens: c.AddSpecial})
			switch {
			case strings.Contains(c.Text, "\x00"):
				if !errors.Is(err, ErrNUL) {
					t.Fatalf("%s: %q: %v", name, c.Text, err)
				}
			case len(c.IDs) == 0 && c.Text != "":
				if !errors.Is(err, ErrNoIDs) {
					t.Fatalf("%s: %q: %v", name, c.Text, err)
				}
			case err != nil || !slices.Equal(got, c.IDs):
				t.Fatalf("%s: %q: %v, want %v (%v)", name, c.Text, got, c.IDs, err)
			}
		}
	}
}

func TestBadFile(t *testing.T) {
	for _, bad := range []string{"", "{", "{}"} {
		if _, err := Load([]byte(bad)); err == nil {
			t.Errorf("%q loads", bad)
		}
	}
	if _, err := LoadFile("none.json"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// vocabularies are the tokenizer.json files by name: those of testdata and of
// the folder that KVATLAS_TOKENIZERS names, made by fetch-tokenizers.py; only
// the one that KVATLAS_VOCABULARY names when it is set.
func vocabularies(t testing.TB) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	for _, name := range []string{"tiny", "qwen3", "mistral-v3", "mistral-v3-first", "anthropic"} {
		files[name] = read(t, "tokenizers/"+name+".json")
	}
	if dir := os.Getenv("KVATLAS_TOKENIZERS"); dir != "" {
		fetched, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range fetched {
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			if files[name], err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	if only := os.Getenv("KVATLAS_VOCABULARY"); only != "" {
		if files[only] == nil {
			t.Fatalf("there is no vocabulary %q", only)
		}
		return map[string][]byte{only: files[only]}
	}
	return files
}

// FuzzAgainstTokenize: package tokenize gives the ids that the library gives.
func FuzzAgainstTokenize(f *testing.F) {
	type pair struct {
		name   string
		ours   *tokenize.Tokenizer
		theirs *Tokenizer
	}
	var pairs []pair
	files := vocabularies(f)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		ours, err := tokenize.Load(files[name], tokenize.Options{})
		if err != nil {
			f.Fatal(err)
		}
		pairs = append(pairs, pair{name, ours, load(f, files[name])})
		if _, err := os.Stat(data + "ids/" + name + ".jsonl.gz"); err != nil {
			f.Add("a b\n1234\u00e9 x", byte(len(pairs)-1), true)
			continue // no recorded texts
		}
		for line := range bytes.Lines(read(f, "ids/"+name+".jsonl")) {
			var c struct{ Text string }
			if err := json.Unmarshal(line, &c); err != nil {
				f.Fatal(err)
			}
			f.Add(c.Text, byte(len(pairs)-1), true)
		}
	}
	f.Fuzz(func(t *testing.T, text string, which byte, special bool) {
		if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			return
		}
		p := pairs[int(which)%len(pairs)]
		o := tokenize.EncodeOptions{AddSpecialTokens: special}
		ours, err := p.ours.AppendIDs(nil, text, o)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := p.theirs.AppendIDs(nil, text, o)
		if errors.Is(err, ErrNoIDs) && len(ours) == 0 {
			return
		}
		if err != nil || !slices.Equal(ours, theirs) {
			t.Fatalf("%s: %+q: ours %v, theirs %v (%v)", p.name, text, ours, theirs, err)
		}
	})
}
