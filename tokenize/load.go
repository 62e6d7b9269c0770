package tokenize

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kvatlas/kvatlas/internal/jsonscan"
)

// LoadFile is [Load] of the file of that name. Gzip is recognized by its
// content. When there is no such file, name with ".gz" is tried.
func LoadFile(name string, o Options) (*Tokenizer, error) {
	data, err := readLimited(name)
	if errors.Is(err, fs.ErrNotExist) {
		if zipped, zerr := readLimited(name + ".gz"); zerr == nil {
			data, err = zipped, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	t, err := Load(data, o)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, name)
	}
	return t, nil
}

// readLimited reads one byte more than the limit at most, which Load refuses.
func readLimited(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
}

// Load reads a tokenizer.json, plain or gzipped. data must not change during
// the call and is not kept.
//
// The error is an [*UnsupportedError] when the file is valid, but uses
// something that is not proved exact here, a [*FileError] when it is not
// valid, [ErrFileTooLarge] beyond [MaxFileBytes], and names an option out of range.
//
// It takes about 0.1 s of one core per 100,000 tokens of the vocabulary.
func Load(data []byte, o Options) (*Tokenizer, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	source := sha256.Sum256(data)
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, invalid("compressed: %v", err)
		}
		if data, err = io.ReadAll(io.LimitReader(z, MaxFileBytes+1)); err != nil {
			return nil, invalid("compressed: %v", err)
		}
	}
	if len(data) > MaxFileBytes {
		return nil, ErrFileTooLarge
	}
	if !utf8.Valid(data) {
		return nil, invalid("not valid UTF-8")
	}
	f, s, err := readFile(view(data))
	if err != nil {
		return nil, asFileError(err)
	}
	t := newTokenizer(o)
	t.source = source
	if err := t.compile(f, s, o); err != nil {
		return nil, asFileError(err)
	}
	return t, nil
}

func (t *Tokenizer) compile(f *file, s *jsonscan.Scanner, o Options) error {
	if f.version != "1.0" {
		return unsupported("version", f.version, `only "1.0" is known`)
	}
	if !isNull(f.truncation) {
		t.truncation = strings.Clone(shortened(f.truncation))
	}
	if !isNull(f.padding) {
		t.padding = strings.Clone(shortened(f.padding))
	}
	if err := t.allowedBy(o); err != nil {
		return err
	}
	ops, err := readNormalizer(f.normalizer, 0)
	if err != nil {
		return err
	}
	// When the last step makes every space a mark, spaces and marks are the
	// same to the model. Then the marks become spaces instead: it is one
	// byte for three, and most texts stay as they are.
	marked := len(ops) > 0 && ops[len(ops)-1] == (normOp{kind: normReplace, old: " ", new: spaceMark})
	if marked {
		ops[len(ops)-1] = normOp{kind: normReplace, old: spaceMark, new: " "}
	}
	t.ops, t.marked = ops, marked
	if err := t.pre.read(f.preTokenizer, marked, 0); err != nil {
		return err
	}
	if !t.pre.bytes {
		if !marked && !t.pre.marks {
			return unsupported("pre_tokenizer", f.preTokenizer, "neither ByteLevel nor spaces as "+spaceMark)
		}
		if len(t.pre.levels) > 0 {
			return unsupported("pre_tokenizer", "Split", "without ByteLevel")
		}
	}
	if err := readPostProcessor(f.postProcessor, &t.template, 0); err != nil {
		return err
	}
	if err := t.compileModel(f, s); err != nil {
		return err
	}
	return t.compileAdded(f)
}

// allowedBy returns the error of a truncation or padding that o does not
// ignore.
func (t *Tokenizer) allowedBy(o Options) error {
	if t.truncation != "" && !o.IgnoreTruncation {
		return unsupported("truncation", t.truncation, "set Options.IgnoreTruncation for engines that switch it off in each call, as transformers does")
	}
	if t.padding != "" && !o.IgnorePadding {
		return unsupported("padding", t.padding, "set Options.IgnorePadding for engines that switch it off in each call, as transformers does")
	}
	return nil
}

// maxAddedBytes bounds an added token, and so the time that a text of nothing
// but beginnings of one takes.
const maxAddedBytes = 4096

// compileAdded builds the matchers, after checking that every token has the
// id that the library would give it: it takes no notice of the file's.
func (t *Tokenizer) compileAdded(f *file) error {
	var lists [2][]addedToken
	var spellings [2][]string
	ids := make(map[string]uint32)
	seen := make(map[string]addedToken)
	next := uint32(len(f.tokens))
	var buffers normalizeBuffers
	for i, a := range f.added {
		part := fmt.Sprintf("added_tokens[%d]", i)
		if a.content == "" {
			continue // the library ignores it
		}
		if len(a.content) > maxAddedBytes {
			return unsupported(part, a.content, fmt.Sprintf("longer than %d bytes", maxAddedBytes))
		}
		if before, ok := seen[a.content]; ok {
			if before != a {
				return unsupported(part, a.content, "it stands twice and differs")
			}
			continue
		}
		seen[a.content] = a
		id, ok := f.tokens[a.content]
		if !ok {
			id = next
		}
		if id >= next {
			next = id + 1
		}
		if id != a.id {
			return unsupported(part+".id", a.id, fmt.Sprintf("the library would give %q the id %d", a.content, id))
		}
		ids[a.content] = id
		a.content = strings.Clone(a.content)
		spelling, kind := a.content, 0
		if a.normalized {
			kind = 1
			spelling = strings.Clone(normalize(t.u, t.ops, spelling, &buffers))
			if spelling == "" {
				return unsupported(part, a.content, "the normalizer leaves nothing of it")
			}
		}
		lists[kind] = append(lists[kind], a)
		spellings[kind] = append(spellings[kind], spelling)
	}
	if len(lists[1]) > 0 && len(t.ops) > 0 {
		if t.pre.prefix == prefixFirst {
			return unsupported("added_tokens.normalized", "true", `with a normalizer and Metaspace "first"`)
		}
		twice := make(map[string]bool)
		for _, s := range spellings[1] {
			if twice[s] {
				return unsupported("added_tokens.normalized", s, "two tokens are the same once normalized")
			}
			twice[s] = true
		}
	}
	t.added, t.spellings = lists, spellings
	t.finish()
	return nil
}

// finish makes what follows from the rest.
func (t *Tokenizer) finish() {
	t.raw = newMatcher(t.added[0], t.spellings[0])
	t.normal = newMatcher(t.added[1], t.spellings[1])
	t.neighbours = slices.ContainsFunc(t.added[0], func(a addedToken) bool { return a.singleWord || a.lstrip || a.rstrip })
	t.turns = delimiters(t.added[0])
	t.stream.init(t)
}

// delimiters returns a matcher of the special tokens at which a text may be
// cut without looking for all the others: no token begins before one and
// reaches into it.
func delimiters(tokens []addedToken) matcher {
	var kept []addedToken
	var spellings []string
	for _, a := range tokens {
		if a.special && !slices.ContainsFunc(tokens, func(t addedToken) bool { return reachesInto(t.content, a.content) }) {
			kept = append(kept, a)
			spellings = append(spellings, a.content)
		}
	}
	return newMatcher(kept, spellings)
}

// reachesInto reports that a token may begin in front of another, and cover
// its beginning or all of it.
func reachesInto(token, other string) bool {
	for i := 1; ; i++ {
		n := strings.IndexByte(token[i:], other[0])
		if n < 0 {
			return false
		}
		i += n
		if strings.HasPrefix(token[i:], other) || strings.HasPrefix(other, token[i:]) {
			return true
		}
		if i+1 >= len(token) {
			return false
		}
	}
}

// byteAlphabet gives the character that stands for each byte in a ByteLevel
// vocabulary (GPT-2's bytes_to_unicode).
var byteAlphabet = func() (table [256]rune) {
	extra := rune(256)
	for c := range table {
		switch {
		case '!' <= c && c <= '~' || 0xA1 <= c && c <= 0xAC || 0xAE <= c:
			table[c] = rune(c)
		default:
			table[c] = extra
			extra++
		}
	}
	return table
}()

// byteOf is the inverse of byteAlphabet; all its characters are below 0x144.
var byteOf = func() (table [0x144]int16) {
	for i := range table {
		table[i] = -1
	}
	for c, r := range byteAlphabet {
		table[r] = int16(c)
	}
	return table
}()

// plain appends the text that a token of the vocabulary stands for. ok is
// false when no text can give it.
func (t *Tokenizer) plain(dst []byte, token string) (text []byte, ok bool) {
	if t.pre.bytes {
		for _, r := range token {
			if int(r) >= len(byteOf) || byteOf[r] < 0 {
				return dst, false
			}
			dst = append(dst, byte(byteOf[r]))
		}
		return dst, true
	}
	if strings.Contains(token, " ") {
		return dst, false
	}
	for {
		i := strings.Index(token, spaceMark)
		if i < 0 {
			return append(dst, token...), true
		}
		dst = append(append(dst, token[:i]...), ' ')
		token = token[i+len(spaceMark):]
	}
}
