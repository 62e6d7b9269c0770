package tokenize

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// requestParser reads a body into a Request.
type requestParser struct {
	r      *Request
	fields map[string]string // raw JSON of all fields but null
}

func (p *requestParser) parse() error {
	body := p.r.Body
	if !utf8.Valid(body) {
		return &RequestError{-1, "not valid UTF-8"}
	}
	s := &scanner{data: view(body)}
	err := s.object(func(key string) error {
		raw, err := s.raw()
		if raw == "null" {
			delete(p.fields, key)
		} else {
			p.fields[key] = raw
		}
		return err
	})
	if err == nil && !s.end() {
		err = s.fail("unexpected text behind the end")
	}
	if err != nil {
		return err
	}
	if err := p.common(); err != nil {
		return err
	}
	switch p.r.Endpoint {
	case Completions:
		return p.completions()
	case ChatCompletions:
		return p.chat()
	case Responses:
		return p.responses()
	case Messages:
		return p.anthropic()
	case Embeddings, Pooling, Classify:
		return p.embeddings()
	case Generate:
		return p.generate()
	default:
		p.cannot(cmp.Or(p.first("text_1", "queries", "query"), "query"), "how pairs of texts are joined depends on the model")
		return nil
	}
}

func (p *requestParser) first(names ...string) string {
	for _, n := range names {
		if _, ok := p.fields[n]; ok {
			return n
		}
	}
	return ""
}

// cannot keeps the first reason.
func (p *requestParser) cannot(field, reason string) {
	if p.r.Cannot == nil {
		p.r.Cannot = &CannotError{p.r.Endpoint, field, reason}
	}
}

// text reads a field that is a text; absent gives "".
func (p *requestParser) text(name string) (string, error) {
	raw, ok := p.fields[name]
	if !ok {
		return "", nil
	}
	s := &scanner{data: raw}
	text, err := s.str()
	if err != nil {
		return "", &RequestError{-1, name + " is no string"}
	}
	return text, nil
}

// truth reads a field that is true or false. Python's engines take "true"
// and 1 for true as well, which is left to them.
func (p *requestParser) truth(name string, absent bool) bool {
	switch p.fields[name] {
	case "":
		return absent
	case "true":
		return true
	case "false":
	default:
		p.cannot(name, "neither true nor false")
	}
	return false
}

func (p *requestParser) common() (err error) {
	r := p.r
	if r.Model, err = p.text("model"); err != nil {
		return err
	}
	if r.CacheSalt, err = p.text("cache_salt"); err != nil {
		return err
	}
	if r.SessionID, err = p.text("session_id"); err != nil {
		return err
	}
	if raw, ok := p.fields["vllm_xargs"]; ok && raw[0] == '{' {
		s := &scanner{data: raw}
		if err := s.object(func(key string) error {
			if key == "session_id" && s.peek() == '"' {
				r.xargs, err = s.str()
				return err
			}
			_, err := s.raw()
			return err
		}); err != nil {
			return err
		}
	}
	if name := p.first("truncate_prompt_tokens", "truncation_side"); name != "" && r.Endpoint != Responses {
		p.cannot(name, "what is left depends on the engine's limits")
	}
	return nil
}

// prompts reads a text, a list of texts, token ids, or a list of those.
func (p *requestParser) prompts(name string) error {
	raw, ok := p.fields[name]
	if !ok {
		return &RequestError{-1, name + " is missing"}
	}
	s := &scanner{data: raw}
	switch s.peek() {
	case '"':
		text, err := s.str()
		p.r.Prompts = append(p.r.Prompts, Prompt{Text: text})
		return err
	case '[':
	default:
		return &RequestError{-1, name + " is neither a string nor a list"}
	}
	var ids []uint32
	var kind byte
	err := s.array(func() error {
		c := s.peek()
		if '0' <= c && c <= '9' {
			c = '0'
		}
		if kind == 0 {
			kind = c
		}
		if c != kind {
			return &RequestError{-1, name + " mixes texts, ids and lists"}
		}
		switch c {
		case '"':
			text, err := s.str()
			p.r.Prompts = append(p.r.Prompts, Prompt{Text: text})
			return err
		case '[':
			list, err := s.ids()
			p.r.Prompts = append(p.r.Prompts, Prompt{Tokens: list, IsTokens: true})
			return err
		case '0':
			id, err := s.number()
			ids = append(ids, id)
			return err
		}
		return &RequestError{-1, name + " holds neither texts nor token ids"}
	})
	if err == nil && kind == '0' {
		p.r.Prompts = append(p.r.Prompts, Prompt{Tokens: ids, IsTokens: true})
	}
	if err == nil && kind == 0 {
		err = &RequestError{-1, name + " is an empty list"}
	}
	return err
}

// ids reads a list of token ids.
func (s *scanner) ids() ([]uint32, error) {
	var list []uint32
	err := s.array(func() error {
		id, err := s.number()
		if err == nil && s.pos < len(s.data) && (s.data[s.pos] == '.' || s.data[s.pos]|0x20 == 'e') {
			err = s.fail("expected a whole number")
		}
		list = append(list, id)
		return err
	})
	return list, err
}

func (p *requestParser) completions() error {
	p.r.AddSpecialTokens = p.truth("add_special_tokens", true)
	if _, ok := p.fields["prompt_embeds"]; ok {
		p.cannot("prompt_embeds", "embeddings have no token ids")
		if _, ok := p.fields["prompt"]; !ok {
			return nil
		}
	}
	return p.prompts("prompt")
}

func (p *requestParser) embeddings() error {
	if _, ok := p.fields["messages"]; ok {
		return p.chat()
	}
	p.r.AddSpecialTokens = p.truth("add_special_tokens", true)
	if raw := p.fields["input"]; p.r.Endpoint == Pooling && raw != "" && raw[0] == '{' {
		p.cannot("input", "an object is for a plugin of the engine")
		return nil
	}
	return p.prompts("input")
}

func (p *requestParser) generate() error {
	raw, ok := p.fields["token_ids"]
	if !ok {
		return &RequestError{-1, "token_ids is missing"}
	}
	s := &scanner{data: raw}
	ids, err := s.ids()
	if err != nil {
		return err
	}
	p.r.Prompts = []Prompt{{Tokens: ids, IsTokens: true}}
	p.r.Items, err = ParseItems([]byte(p.fields["features"]))
	return err
}

// ParseItems reads the features of a render answer or of a generate request:
// identifiers in mm_hashes and places in mm_placeholders, by modality.
// Empty and null give none. The items come by offset.
func ParseItems(features []byte) ([]Item, error) {
	if len(features) == 0 || string(features) == "null" {
		return nil, nil
	}
	var f struct {
		Hashes map[string][]string `json:"mm_hashes"`
		Places map[string][]struct {
			Offset int `json:"offset"`
			Length int `json:"length"`
		} `json:"mm_placeholders"`
	}
	if err := json.Unmarshal(features, &f); err != nil {
		return nil, &RequestError{-1, "features: " + err.Error()}
	}
	var items []Item
	for modality, places := range f.Places {
		if len(places) != len(f.Hashes[modality]) {
			return nil, &RequestError{-1, fmt.Sprintf("features: %d places but %d identifiers of %s", len(places), len(f.Hashes[modality]), modality)}
		}
		for i, place := range places {
			if place.Offset < 0 || place.Length < 0 {
				return nil, &RequestError{-1, "features: negative offset or length"}
			}
			items = append(items, Item{modality, f.Hashes[modality][i], place.Offset, place.Length})
		}
	}
	for modality, hashes := range f.Hashes {
		if len(hashes) != len(f.Places[modality]) {
			return nil, &RequestError{-1, "features: identifiers without a place of " + modality}
		}
	}
	slices.SortFunc(items, func(a, b Item) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Modality, b.Modality), cmp.Compare(a.Identifier, b.Identifier))
	})
	return items, nil
}
