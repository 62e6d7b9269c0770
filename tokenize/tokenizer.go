package tokenize

import (
	"crypto/sha256"
	"unicode/utf8"

	"github.com/kvatlas/kvatlas/tokenize/internal/unidata"
)

// DefaultMaxTextBytes is the limit that the zero [Options] set.
const DefaultMaxTextBytes = 64 << 20

// Options are the choices of [Load]. The zero value is good for every
// tokenizer that can be loaded.
type Options struct {
	// MaxTextBytes is the longest text that is encoded, in bytes;
	// 0 means [DefaultMaxTextBytes].
	MaxTextBytes int
	// IgnoreTruncation loads a file that has a truncation, and doesn't
	// truncate. Engines that encode through transformers switch it off.
	IgnoreTruncation bool
	// IgnorePadding does the same for padding.
	IgnorePadding bool
}

func (o *Options) validate() error {
	if o.MaxTextBytes < 0 {
		return constError("tokenize: Options.MaxTextBytes is negative")
	}
	return nil
}

// EncodeOptions are the choices of one call. The zero value encodes as
// engines encode what a chat template rendered.
type EncodeOptions struct {
	// AddSpecialTokens puts the ids of the post-processor around the
	// text's, BOS most often. vLLM does so for /v1/completions by default,
	// and not for chats, whose template writes BOS.
	AddSpecialTokens bool
}

// Tokenizer turns texts into the token ids that Hugging Face tokenizers
// gives with the same tokenizer.json.
//
// It is made by [Load] and is immutable and safe for concurrent use. It must
// not be copied. The zero value encodes nothing: its methods return
// [ErrTokenizer].
type Tokenizer struct {
	u        *unidata.Tables
	maxText  int
	ops      []normOp
	marked   bool // the normalizer leaves no space; the last of ops makes marks spaces
	pre      pretokenizer
	model    bpe
	cuts     cutTable
	raw      matcher // added tokens found before normalization
	normal   matcher // added tokens found after
	turns    matcher // special tokens of raw that nothing can hide
	template template
	// neighbours says that some token of raw has lstrip, rstrip or
	// single_word.
	neighbours bool
	stream     streamCuts
	added      [2][]addedToken // those of raw and of normal
	spellings  [2][]string     // what is looked for of each
	truncation string          // of the file, shortened; empty when there is none
	padding    string
	source     [sha256.Size]byte
	lengths    []uint16 // by id: bytes of prepared text; nil without offsets
	states     states
}

// made says that a constructor made it: they all set a limit.
func (t *Tokenizer) made() bool { return t != nil && t.maxText > 0 }

// AppendIDs appends the ids of text to dst and returns the extended slice,
// or dst unchanged with an error. It doesn't allocate once it has run on
// texts as long and dst has room; memory kept between calls is bounded.
//
// Special tokens written out in the text become their ids, as engines have
// it. Invalid UTF-8 is read as U+FFFD, one for each maximal part of a
// character, as Rust and Python decode it; engines refuse such a request.
//
// The error is [ErrTextTooLong] for texts over the limit, or [ErrTokenizer].
func (t *Tokenizer) AppendIDs(dst []uint32, text string, o EncodeOptions) ([]uint32, error) {
	if !t.made() {
		return dst, ErrTokenizer
	}
	s := t.get()
	dst, err := t.appendIDs(dst, text, o, s)
	t.put(s)
	return dst, err
}

func (t *Tokenizer) appendIDs(dst []uint32, text string, o EncodeOptions, s *state) ([]uint32, error) {
	if len(text) > t.maxText {
		return dst, ErrTextTooLong
	}
	text = s.utf8(text)
	if o.AddSpecialTokens {
		dst = append(dst, t.template.before...)
	}
	dst = s.prompt(dst, text)
	if o.AddSpecialTokens {
		dst = append(dst, t.template.after...)
	}
	return dst, nil
}

// AppendPairIDs appends the ids of two texts as one input, which models take
// that compare them: tokenizer(text=a, text_pair=b) in Python. With special
// tokens they are those of the post-processor's template for pairs.
//
// The error is [ErrTextTooLong], or an [*UnsupportedError] when that template
// is not known.
func (t *Tokenizer) AppendPairIDs(dst []uint32, a, b string, o EncodeOptions) ([]uint32, error) {
	if !t.made() {
		return dst, ErrTokenizer
	}
	if t.template.pairErr != nil {
		return dst, t.template.pairErr
	}
	steps := t.template.pair
	if steps == nil {
		steps = plainPair
	}
	from := len(dst)
	for _, step := range steps {
		if step.ids != nil {
			if o.AddSpecialTokens {
				dst = append(dst, step.ids...)
			}
			continue
		}
		var err error
		if dst, err = t.AppendIDs(dst, [2]string{a, b}[step.text], EncodeOptions{}); err != nil {
			return dst[:from], err
		}
	}
	return dst, nil
}

// AppendIDsBytes is [Tokenizer.AppendIDs] for bytes, which it doesn't copy
// and which must not change during the call.
func (t *Tokenizer) AppendIDsBytes(dst []uint32, text []byte, o EncodeOptions) ([]uint32, error) {
	return t.AppendIDs(dst, view(text), o)
}

// utf8 returns text with U+FFFD for what is not UTF-8, until the next call.
func (s *state) utf8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	s.valid = appendValid(s.valid[:0], text)
	return view(s.valid)
}

// appendValid appends s with U+FFFD for what is not UTF-8: one for each
// longest beginning of a valid sequence, or byte (Unicode 3.9, table 3-8).
func appendValid(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r != utf8.RuneError || n > 1 {
			dst = append(dst, s[i:i+n]...)
			i += n
			continue
		}
		dst = append(dst, "\uFFFD"...)
		i += invalidPrefix(s[i:])
	}
	return dst
}

// invalidPrefix returns how many bytes of s, which does not begin with a
// character, one U+FFFD stands for.
func invalidPrefix(s string) int {
	n := 1
	for n < len(s) && n < utf8.UTFMax && !utf8.FullRuneInString(s[:n]) {
		n++
	}
	if n > 1 && utf8.FullRuneInString(s[:n]) {
		n-- // the last byte is what made it invalid
	}
	return n
}
