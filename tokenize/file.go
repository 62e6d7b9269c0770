package tokenize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/kvatlas/kvatlas/internal/jsonscan"
)

// file is a tokenizer.json, read but not yet understood.
type file struct {
	version                                            string
	truncation, padding                                string // raw JSON
	normalizer, preTokenizer, postProcessor            string // raw JSON
	added                                              []addedToken
	modelType                                          string
	dropout, unknown, subwordPrefix, wordSuffix        string // raw JSON
	fuseUnknown, byteFallback, ignoreMerges, hasMerges bool
	tokens                                             map[string]uint32
	merges                                             int // where the list begins
}

// readFile reads data, whose memory the result shares.
func readFile(data string) (*file, *jsonscan.Scanner, error) {
	f := &file{}
	s := jsonscan.New(data)
	seen := make(map[string]bool)
	err := s.Object(func(key string) (err error) {
		if seen[key] {
			return s.Fail(fmt.Sprintf("%q stands twice", key))
		}
		seen[key] = true
		switch key {
		case "version":
			f.version, err = s.Str()
		case "truncation":
			f.truncation, err = s.Raw()
		case "padding":
			f.padding, err = s.Raw()
		case "normalizer":
			f.normalizer, err = s.Raw()
		case "pre_tokenizer":
			f.preTokenizer, err = s.Raw()
		case "post_processor":
			f.postProcessor, err = s.Raw()
		case "decoder":
			_, err = s.Raw() // has no part in encoding
		case "added_tokens":
			err = f.readAdded(s)
		case "model":
			err = f.readModel(s)
		default:
			return unsupported("field", key, "it is not one that this package knows")
		}
		return err
	})
	if err == nil && !s.End() {
		err = s.Fail("unexpected text behind the end")
	}
	if err == nil && f.tokens == nil {
		err = invalid("no model with a vocab")
	}
	return f, s, err
}

func (f *file) readAdded(s *jsonscan.Scanner) error {
	raw, err := s.Raw()
	if err != nil || raw == "null" {
		return err
	}
	var list []struct {
		ID         *uint32 `json:"id"`
		Content    *string `json:"content"`
		SingleWord bool    `json:"single_word"`
		LStrip     bool    `json:"lstrip"`
		RStrip     bool    `json:"rstrip"`
		Normalized *bool   `json:"normalized"`
		Special    bool    `json:"special"`
	}
	if err := strict(raw, &list); err != nil {
		return invalid("added_tokens: %v", err)
	}
	for i, t := range list {
		if t.ID == nil || t.Content == nil || t.Normalized == nil {
			return invalid("added_tokens[%d] lacks its id, content or normalized", i)
		}
		f.added = append(f.added, addedToken{*t.Content, *t.ID, t.SingleWord, t.LStrip, t.RStrip, *t.Normalized, t.Special})
	}
	return nil
}

func (f *file) readModel(s *jsonscan.Scanner) error {
	return s.Object(func(key string) (err error) {
		switch key {
		case "type":
			f.modelType, err = s.Str()
		case "dropout":
			f.dropout, err = s.Raw()
		case "unk_token":
			f.unknown, err = s.Raw()
		case "continuing_subword_prefix":
			f.subwordPrefix, err = s.Raw()
		case "end_of_word_suffix":
			f.wordSuffix, err = s.Raw()
		case "fuse_unk":
			f.fuseUnknown, err = truth(s)
		case "byte_fallback":
			f.byteFallback, err = truth(s)
		case "ignore_merges":
			f.ignoreMerges, err = truth(s)
		case "vocab":
			if s.Peek() != '{' {
				return unsupported("model.vocab", "list", "only a BPE vocabulary is known, which is an object")
			}
			return f.readVocab(s)
		case "merges":
			s.Peek()
			f.merges, f.hasMerges = s.Pos(), true
			return skipArray(s)
		default:
			return unsupported("model field", key, "it is not one of a BPE model")
		}
		return err
	})
}

func (f *file) readVocab(s *jsonscan.Scanner) error {
	f.tokens = make(map[string]uint32, min(s.Len()/40, maxTokens))
	return s.Object(func(key string) error {
		id, err := s.Number()
		if err != nil {
			return err
		}
		if _, ok := f.tokens[key]; ok {
			return s.Fail(fmt.Sprintf("the vocabulary has %q twice", key))
		}
		f.tokens[key] = id
		if len(f.tokens) > maxTokens {
			return s.Fail("too many tokens")
		}
		return nil
	})
}

// eachMerge reads the list of merges: pairs, or texts with one space in the
// old form.
func (f *file) eachMerge(s *jsonscan.Scanner, merge func(left, right string) error) error {
	s.Seek(f.merges)
	return s.Array(func() error {
		if s.Peek() == '"' {
			line, err := s.Str()
			if err != nil {
				return err
			}
			if strings.HasPrefix(line, "#version") {
				return nil
			}
			left, right, ok := strings.Cut(line, " ")
			if !ok || strings.Contains(right, " ") {
				return s.Fail("a merge is not two tokens")
			}
			return merge(left, right)
		}
		var pair [2]string
		n := 0
		err := s.Array(func() (err error) {
			if n >= 2 {
				return s.Fail("a merge is not two tokens")
			}
			pair[n], err = s.Str()
			n++
			return err
		})
		if err == nil && n != 2 {
			err = s.Fail("a merge is not two tokens")
		}
		if err != nil {
			return err
		}
		return merge(pair[0], pair[1])
	})
}

// truth reads true or false; null counts as false.
func truth(s *jsonscan.Scanner) (bool, error) {
	raw, err := s.Raw()
	if err != nil {
		return false, err
	}
	switch raw {
	case "true":
		return true, nil
	case "false", "null":
		return false, nil
	}
	return false, s.Fail("expected true or false")
}

// skipArray skips a list of strings or of lists of strings.
func skipArray(s *jsonscan.Scanner) error {
	if s.Peek() != '[' {
		return s.Fail("expected '['")
	}
	_, err := s.Raw()
	return err
}

// strict decodes raw into v and refuses fields that v doesn't have.
func strict(raw string, v any) error {
	d := json.NewDecoder(strings.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("unexpected text behind the value")
	}
	return nil
}

// typeOf returns the "type" of a component and its other fields.
func typeOf(raw string) (kind string, fields string, err error) {
	m := make(map[string]json.RawMessage)
	if err := json.Unmarshal([]byte(raw), &m); err != nil {
		return "", "", err
	}
	if err := json.Unmarshal(m["type"], &kind); err != nil || kind == "" {
		return "", "", fmt.Errorf("a component without a type")
	}
	delete(m, "type")
	rest, err := json.Marshal(m)
	return kind, string(bytes.TrimSpace(rest)), err
}

func isNull(raw string) bool { return raw == "" || raw == "null" }
