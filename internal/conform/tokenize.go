package conform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/tokenize"
)

// Tokenizers loads tokenizers from a folder, each once.
type Tokenizers struct {
	Dir    string
	loaded map[string]*tokenize.Tokenizer
	failed map[string]error
}

// get loads NAME.json or NAME.json.gz.
func (t *Tokenizers) get(name string) (*tokenize.Tokenizer, error) {
	if tok, ok := t.loaded[name]; ok || t.failed[name] != nil {
		return tok, t.failed[name]
	}
	if t.loaded == nil {
		t.loaded, t.failed = map[string]*tokenize.Tokenizer{}, map[string]error{}
	}
	tok, err := t.load(name)
	t.loaded[name], t.failed[name] = tok, err
	return tok, err
}

func (t *Tokenizers) load(name string) (*tokenize.Tokenizer, error) {
	if name != filepath.Base(name) {
		return nil, fmt.Errorf("tokenizer %q is not a file name", name)
	}
	for _, ending := range []string{".json", ".json.gz"} {
		path := filepath.Join(t.Dir, name+ending)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return tokenize.LoadFile(path, tokenize.Options{})
	}
	return nil, fmt.Errorf("neither %s.json nor %[1]s.json.gz is in %s", name, t.Dir)
}

// Tokenize checks a file of token ids: every text is encoded to the ids that the
// engine's tokenizer gave. A file whose tokenizer is missing or refused is not checked.
func Tokenize(t *Tokenizers, name string, r io.Reader) *Result {
	const check = "tokenize"
	res := &Result{File: name, Check: check}
	texts := map[string]int{}
	var ids []uint32
	err := recording.Lines(r, func(n int, line []byte) error {
		var c struct {
			Tokenizer  string   `json:"tokenizer"`
			Category   string   `json:"category"`
			Text       *string  `json:"text"`
			AddSpecial bool     `json:"add_special"`
			IDs        []uint32 `json:"ids"`
		}
		if err := json.Unmarshal(line, &c); err != nil {
			return fmt.Errorf("not a record of this format: %w", err)
		}
		if c.Tokenizer == "" || c.Text == nil || c.IDs == nil {
			return errors.New(`want "tokenizer", "text" and "ids"`)
		}
		tok, err := t.get(c.Tokenizer)
		if err != nil {
			return err
		}
		texts[c.Tokenizer]++
		d := Difference{Where: fmt.Sprintf("line %d, %s", n, c.Category), Want: fmt.Sprint(c.IDs), About: fmt.Sprintf("%q, special tokens added: %v", *c.Text, c.AddSpecial)}
		ids, err = tok.AppendIDs(ids[:0], *c.Text, tokenize.EncodeOptions{AddSpecialTokens: c.AddSpecial})
		switch {
		case err != nil:
			d.Got = err.Error()
			res.fail(d)
		case !slices.Equal(ids, c.IDs):
			d.Got = fmt.Sprint(ids)
			res.fail(d)
		default:
			res.pass()
		}
		return nil
	})
	if err == nil && len(texts) == 0 {
		err = errors.New("empty file: want a text a line")
	}
	if err != nil {
		return Broken(check, name, err)
	}
	for tokenizer, n := range texts {
		res.What = fmt.Sprintf("%s, %d texts", tokenizer, n)
	}
	return res
}
