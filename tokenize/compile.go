package tokenize

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/kvatlas/kvatlas/internal/jsonscan"
)

// compileModel builds the tables of the BPE model.
func (t *Tokenizer) compileModel(f *file, s *jsonscan.Scanner) error {
	if f.modelType != "BPE" && (f.modelType != "" || !f.hasMerges) {
		return unsupported("model.type", f.modelType, "only BPE is known")
	}
	if !isNull(f.dropout) {
		return unsupported("model.dropout", f.dropout, "it makes ids random")
	}
	for part, raw := range map[string]string{"continuing_subword_prefix": f.subwordPrefix, "end_of_word_suffix": f.wordSuffix} {
		if !isNull(raw) && raw != `""` {
			return unsupported("model."+part, raw, "")
		}
	}
	for token, id := range f.tokens {
		if id >= maxTokens {
			return unsupported("model.vocab id", id, fmt.Sprintf("of %q; ids below %d are known", token, maxTokens))
		}
	}
	m := &t.model
	m.bytes, m.fuse, m.unknown = t.pre.bytes, f.fuseUnknown, noToken
	t.characters(f)
	special, err := t.substitutes(f)
	if err != nil {
		return err
	}
	texts, err := t.merges(f, s, special)
	if err != nil {
		return err
	}
	t.findWords(f, texts)
	t.measure(f, special, texts)
	return nil
}

// measure keeps how many bytes of prepared text each token stands for, when
// every byte of it is part of a token and no token is ambiguous.
func (t *Tokenizer) measure(f *file, substitute map[uint32]bool, made []string) {
	m := &t.model
	if m.unknown != noToken {
		return
	}
	if m.bytes {
		for _, id := range m.ascii {
			if id == noToken {
				return
			}
		}
	} else if m.fallback == nil {
		return
	}
	lengths := make([]uint16, len(made))
	for token, id := range f.tokens {
		n := 0
		if substitute[id] {
			if n = 1; made[id] != "" {
				return
			}
		} else if text, ok := t.plain(nil, token); ok {
			n = len(text)
		}
		if n > 1<<16-1 {
			return
		}
		lengths[id] = uint16(n)
	}
	t.lengths = lengths
}

// characters fills the tokens of single bytes or characters.
func (t *Tokenizer) characters(f *file) {
	m := &t.model
	for i := range m.ascii {
		m.ascii[i] = noToken
	}
	if m.bytes {
		for c, r := range byteAlphabet {
			if id, ok := f.tokens[string(r)]; ok {
				m.ascii[c] = id
			}
		}
		return
	}
	m.wide = make(map[rune]uint32)
	for token, id := range f.tokens {
		r, n := utf8.DecodeRuneInString(token)
		switch {
		case n != len(token) || n == 0 || r == ' ':
		case token == spaceMark:
			m.ascii[' '] = id
		case n == 1:
			m.ascii[r] = id
		default:
			m.wide[r] = id
		}
	}
}

// substitutes fills what takes the place of characters without a token, and
// returns those tokens.
func (t *Tokenizer) substitutes(f *file) (map[uint32]bool, error) {
	m := &t.model
	special := make(map[uint32]bool)
	if m.bytes {
		complete := true
		for _, id := range m.ascii {
			complete = complete && id != noToken
		}
		if complete {
			return special, nil // nothing is ever without a token
		}
		if f.byteFallback {
			return nil, unsupported("model.byte_fallback", "true", "with ByteLevel and bytes without a token")
		}
	}
	if f.byteFallback {
		m.fallback = new([256]uint32)
		for c := range m.fallback {
			name := fmt.Sprintf("<0x%02X>", c)
			id, ok := f.tokens[name]
			if !ok {
				return nil, unsupported("model.byte_fallback", "true", "the vocabulary lacks "+name)
			}
			m.fallback[c] = id
			special[id] = true
		}
		return special, nil // so unk_token is never needed
	}
	if !isNull(f.unknown) {
		var token string
		if err := json.Unmarshal([]byte(f.unknown), &token); err != nil {
			return nil, invalid("model.unk_token: %v", err)
		}
		id, ok := f.tokens[token]
		if !ok {
			return nil, unsupported("model.unk_token", token, "it is not in the vocabulary")
		}
		m.unknown = id
		special[id] = true
	}
	return special, nil
}

// merges fills the merge tables and returns, by id, the tokens that merges
// make.
func (t *Tokenizer) merges(f *file, s *jsonscan.Scanner, special map[uint32]bool) ([]string, error) {
	if !f.hasMerges {
		return nil, invalid("the model has no merges")
	}
	type merge struct{ left, right, id uint32 }
	var list []merge
	largest := uint32(0)
	for _, id := range f.tokens {
		largest = max(largest, id)
	}
	names := make([]string, largest+1)
	shared := make(map[uint32]bool)
	for token, id := range f.tokens {
		if names[id] != "" {
			shared[id] = true
		}
		names[id] = token
	}
	made := make([]string, largest+1)
	var joined []byte
	err := f.eachMerge(s, func(left, right string) error {
		joined = append(append(joined[:0], left...), right...)
		l, okL := f.tokens[left]
		r, okR := f.tokens[right]
		id, ok := f.tokens[string(joined)]
		switch {
		case !okL || !okR || !ok:
			return s.Fail(fmt.Sprintf("merge %q + %q: not all of them and their sum are in the vocabulary", left, right))
		case special[l] || special[r]:
			return unsupported("model.merges", left+" "+right, "it merges a byte or unknown token")
		case len(list) >= maxMerges:
			return s.Fail("too many merges")
		case names[id] != string(joined) || shared[id]:
			return unsupported("model.vocab id", id, fmt.Sprintf("%q and another token share it", joined))
		}
		made[id] = names[id]
		list = append(list, merge{l, r, id})
		return nil
	})
	if err != nil {
		return nil, err
	}
	m := &t.model
	m.pairs = newPairTable(len(list))
	m.merged = make([]uint32, len(list))
	for rank, merge := range list {
		m.pairs.put(merge.left, merge.right, uint32(rank))
		m.merged[rank] = merge.id
	}
	return made, nil
}

// findWords fills the table of texts that are one token by themselves, and
// where a text may be cut.
func (t *Tokenizer) findWords(f *file, made []string) {
	m := &t.model
	m.words = newWordTable(len(f.tokens))
	var text []byte
	var s symbols
	for token, id := range f.tokens {
		var ok bool
		text, ok = t.plain(text[:0], token)
		if !ok || len(text) == 0 {
			continue
		}
		if !f.ignoreMerges {
			if made[id] == "" && utf8.RuneCountInString(token) > 1 {
				continue // no merge makes it
			}
			m.encode(&s, view(text))
			if len(s.id) != 1 || s.id[0] != id {
				continue
			}
		}
		m.words.put(view(text), id)
	}
	if m.bytes {
		return
	}
	t.cuts.init(m.fallback != nil && !f.ignoreMerges)
	for _, token := range made {
		if text, ok := t.plain(text[:0], token); ok {
			t.cuts.keep(view(text))
		}
	}
}
