package tokenize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
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
func readFile(data string) (*file, *scanner, error) {
	f := &file{}
	s := &scanner{data: data}
	seen := make(map[string]bool)
	err := s.object(func(key string) (err error) {
		if seen[key] {
			return s.fail(fmt.Sprintf("%q stands twice", key))
		}
		seen[key] = true
		switch key {
		case "version":
			f.version, err = s.str()
		case "truncation":
			f.truncation, err = s.raw()
		case "padding":
			f.padding, err = s.raw()
		case "normalizer":
			f.normalizer, err = s.raw()
		case "pre_tokenizer":
			f.preTokenizer, err = s.raw()
		case "post_processor":
			f.postProcessor, err = s.raw()
		case "decoder":
			_, err = s.raw() // has no part in encoding
		case "added_tokens":
			err = f.readAdded(s)
		case "model":
			err = f.readModel(s)
		default:
			return unsupported("field", key, "it is not one that this package knows")
		}
		return err
	})
	if err == nil && !s.end() {
		err = s.fail("unexpected text behind the end")
	}
	if err == nil && f.tokens == nil {
		err = invalid("no model with a vocab")
	}
	return f, s, err
}

func (f *file) readAdded(s *scanner) error {
	raw, err := s.raw()
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

func (f *file) readModel(s *scanner) error {
	return s.object(func(key string) (err error) {
		switch key {
		case "type":
			f.modelType, err = s.str()
		case "dropout":
			f.dropout, err = s.raw()
		case "unk_token":
			f.unknown, err = s.raw()
		case "continuing_subword_prefix":
			f.subwordPrefix, err = s.raw()
		case "end_of_word_suffix":
			f.wordSuffix, err = s.raw()
		case "fuse_unk":
			f.fuseUnknown, err = s.truth()
		case "byte_fallback":
			f.byteFallback, err = s.truth()
		case "ignore_merges":
			f.ignoreMerges, err = s.truth()
		case "vocab":
			if s.peek() != '{' {
				return unsupported("model.vocab", "list", "only a BPE vocabulary is known, which is an object")
			}
			return f.readVocab(s)
		case "merges":
			s.peek()
			f.merges, f.hasMerges = s.pos, true
			return s.skipArray()
		default:
			return unsupported("model field", key, "it is not one of a BPE model")
		}
		return err
	})
}

func (f *file) readVocab(s *scanner) error {
	f.tokens = make(map[string]uint32, min(len(s.data)/40, maxTokens))
	return s.object(func(key string) error {
		id, err := s.number()
		if err != nil {
			return err
		}
		if _, ok := f.tokens[key]; ok {
			return s.fail(fmt.Sprintf("the vocabulary has %q twice", key))
		}
		f.tokens[key] = id
		if len(f.tokens) > maxTokens {
			return s.fail("too many tokens")
		}
		return nil
	})
}

// eachMerge reads the list of merges: pairs, or texts with one space in the
// old form.
func (f *file) eachMerge(s *scanner, merge func(left, right string) error) error {
	s.pos = f.merges
	return s.array(func() error {
		if s.peek() == '"' {
			line, err := s.str()
			if err != nil {
				return err
			}
			if strings.HasPrefix(line, "#version") {
				return nil
			}
			left, right, ok := strings.Cut(line, " ")
			if !ok || strings.Contains(right, " ") {
				return s.fail("a merge is not two tokens")
			}
			return merge(left, right)
		}
		var pair [2]string
		n := 0
		err := s.array(func() (err error) {
			if n >= 2 {
				return s.fail("a merge is not two tokens")
			}
			pair[n], err = s.str()
			n++
			return err
		})
		if err == nil && n != 2 {
			err = s.fail("a merge is not two tokens")
		}
		if err != nil {
			return err
		}
		return merge(pair[0], pair[1])
	})
}

// truth reads true or false; null counts as false.
func (s *scanner) truth() (bool, error) {
	raw, err := s.raw()
	if err != nil {
		return false, err
	}
	switch raw {
	case "true":
		return true, nil
	case "false", "null":
		return false, nil
	}
	return false, s.fail("expected true or false")
}

// skipArray skips a list of strings or of lists of strings.
func (s *scanner) skipArray() error {
	if s.peek() != '[' {
		return s.fail("expected '['")
	}
	_, err := s.raw()
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
