package tokenize

import (
	"strings"
	"unicode/utf8"

	"github.com/kvatlas/kvatlas/tokenize/internal/unidata"
)

// Token is an id and the bytes of the text that it stands for.
type Token struct {
	ID         uint32
	Start, End int
}

const (
	// ErrNoOffsets is returned by [Tokenizer.AppendTokens] for tokenizers
	// that leave characters out or have an unknown token.
	ErrNoOffsets = constError("tokenize: this tokenizer drops or replaces characters, so that its tokens have no certain place")

	// ErrInvalidUTF8 is returned by [Tokenizer.AppendTokens] for a text
	// that is not UTF-8.
	ErrInvalidUTF8 = constError("tokenize: offsets of a text that is not valid UTF-8")
)

// AppendTokens is [Tokenizer.AppendIDs] with offsets: for each token the
// range of whole characters of text, in bytes, that it or a part of it comes
// from. Ids of the template have the empty range at 0. Ranges of neighbours
// overlap where a character became several tokens.
//
// They are those of Hugging Face tokenizers before its post-processor trims
// them, with one difference: where a normalizer joined, split or moved
// characters, a range is that of the whole group, and not of its first
// character.
//
// It is slower than AppendIDs and allocates. The error is [ErrTextTooLong],
// [ErrInvalidUTF8] or [ErrNoOffsets].
func (t *Tokenizer) AppendTokens(dst []Token, text string, o EncodeOptions) ([]Token, error) {
	switch {
	case !t.made():
		return dst, ErrTokenizer
	case len(text) > t.maxText:
		return dst, ErrTextTooLong
	case !utf8.ValidString(text):
		return dst, ErrInvalidUTF8
	case t.lengths == nil:
		return dst, ErrNoOffsets
	}
	s := t.get()
	defer t.put(s)
	special := func(ids []uint32) {
		for _, id := range ids {
			if o.AddSpecialTokens {
				dst = append(dst, Token{ID: id})
			}
		}
	}
	special(t.template.before)
	c := cut{matcher: &t.raw, u: t.u, text: text}
	for ok := true; ok; {
		var before, start, end int
		var token *addedToken
		before, start, end, token, ok = c.next()
		if before < start {
			dst = s.tokens(dst, aligned(text[before:start], before), atStart.from(before))
		}
		if ok {
			dst = append(dst, Token{token.id, start, end})
		}
	}
	special(t.template.after)
	return dst, nil
}

// alignedText is a text with the range of the original that each byte comes
// from.
type alignedText struct {
	text string
	from []span
}

type span struct{ start, end int }

// aligned is a text as it stands in the original, at an offset.
func aligned(text string, at int) alignedText {
	from := make([]span, 0, len(text))
	for i := 0; i < len(text); {
		_, n := utf8.DecodeRuneInString(text[i:])
		for range n {
			from = append(from, span{at + i, at + i + n})
		}
		i += n
	}
	return alignedText{text, from}
}

func (a alignedText) slice(start, end int) alignedText {
	return alignedText{a.text[start:end], a.from[start:end]}
}

// over is the range of the original that bytes of a come from.
func (a alignedText) over(start, end int) span {
	whole := span{a.from[start].start, a.from[end-1].end}
	for _, f := range a.from[start:end] {
		whole.start, whole.end = min(whole.start, f.start), max(whole.end, f.end)
	}
	return whole
}

// add appends text that comes from one range.
func (a *alignedText) add(b []byte, text string, from span) []byte {
	for range len(text) {
		a.from = append(a.from, from)
	}
	return append(b, text...)
}

// apply is op on a text whose places are kept.
func (op *normOp) apply(u *unidata.Tables, a alignedText) alignedText {
	if op.keeps(u, a.text) {
		return a
	}
	var out alignedText
	var b []byte
	var runes []rune
	switch op.kind {
	case normForm:
		for i := 0; i < len(a.text); {
			end := u.NextStretch(op.form, a.text, i)
			stretch := a.text[i:end]
			if normal := string(u.AppendNormal(nil, op.form, stretch, &runes)); normal != stretch {
				b = out.add(b, normal, a.over(i, end))
			} else {
				b = append(b, stretch...)
				out.from = append(out.from, a.from[i:end]...)
			}
			i = end
		}
	case normLower:
		for i, r := range a.text {
			b = out.add(b, string(u.AppendLower(nil, string(r))), a.from[i])
		}
	case normPrepend:
		b = out.add(b, op.new, a.from[0])
		b = append(b, a.text...)
		out.from = append(out.from, a.from...)
	case normReplace:
		for i := 0; i < len(a.text); {
			n := strings.Index(a.text[i:], op.old)
			if n < 0 {
				n = len(a.text) - i
			}
			b = append(b, a.text[i:i+n]...)
			out.from = append(out.from, a.from[i:i+n]...)
			if i += n; i < len(a.text) {
				b = out.add(b, op.new, a.over(i, i+len(op.old)))
				i += len(op.old)
			}
		}
	}
	out.text = string(b)
	return out
}

// tokens is encodeStretch with offsets.
func (s *state) tokens(dst []Token, a alignedText, at place) []Token {
	for i := range s.t.ops {
		a = s.t.ops[i].apply(s.t.u, a)
	}
	c := cut{matcher: &s.t.normal, u: s.t.u, text: a.text, marks: s.t.marked}
	for ok := true; ok; {
		var before, start, end int
		var token *addedToken
		before, start, end, token, ok = c.next()
		if before < start {
			dst = s.placed(dst, a.slice(before, start), at.from(before))
		}
		if ok {
			from := a.over(start, end)
			dst = append(dst, Token{token.id, from.start, from.end})
		}
	}
	return dst
}

// placed is pretokenize with offsets.
func (s *state) placed(dst []Token, a alignedText, at place) []Token {
	p := &s.t.pre
	if p.marks {
		a = marksToSpaces.apply(s.t.u, a)
	}
	if p.needsPrefix(a.text, at) {
		space := normOp{kind: normPrepend, new: " "}
		a = space.apply(s.t.u, a)
	}
	done := 0
	for _, id := range s.pieces(nil, a.text) {
		n := int(s.t.lengths[id])
		if n == 0 || done+n > len(a.text) {
			continue // not of this text: a compact form that was made up
		}
		from := a.over(done, done+n)
		dst = append(dst, Token{id, from.start, from.end})
		done += n
	}
	return dst
}
