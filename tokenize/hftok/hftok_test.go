//go:build cgo && hftok

package hftok

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
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

// FuzzAgainstTokenize: package tokenize gives the ids that the library
// gives, for the vocabularies of testdata.
func FuzzAgainstTokenize(f *testing.F) {
	type pair struct {
		name   string
		ours   *tokenize.Tokenizer
		theirs *Tokenizer
	}
	var pairs []pair
	for _, name := range []string{"tiny", "qwen3", "mistral-v3", "mistral-v3-first", "anthropic"} {
		file := read(f, "tokenizers/"+name+".json")
		ours, err := tokenize.Load(file, tokenize.Options{})
		if err != nil {
			f.Fatal(err)
		}
		pairs = append(pairs, pair{name, ours, load(f, file)})
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
