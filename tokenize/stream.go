package tokenize

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/kvatlas/kvatlas/tokenize/internal/unidata"
)

// Stream encodes a text that comes in pieces, cut anywhere, into exactly the
// ids that [Tokenizer.AppendIDs] gives for the whole. It holds what lies
// behind the last place where the text may be cut whatever follows: some
// [StreamBytes] of ordinary text, more when it has a word that is longer.
//
//	s, err := tok.NewStream(tokenize.EncodeOptions{})
//	for chunk := range chunks {
//		ids, err = s.AppendIDs(ids, chunk)
//	}
//	ids, err = s.Finish(ids)
//
// Made by [Tokenizer.NewStream]. It belongs to one goroutine at a time; many
// may stream through one tokenizer. It must not be copied.
type Stream struct {
	t       *Tokenizer
	options EncodeOptions
	gather  int    // bytes; StreamBytes but in tests
	held    []byte // not yet encoded
	looked  int    // bytes of held that are known to have no cut
	at      place  // of held
	begun   bool   // the template's first ids are given
	err     error  // what ended the text
}

// StreamBytes is how much of a text is gathered before it is encoded.
const StreamBytes = 32 << 10

// NoStreamError is returned by [Tokenizer.NewStream] for a tokenizer whose
// texts can be cut nowhere with certainty. Encode them whole.
type NoStreamError struct {
	// Part names what stands against it, as in [UnsupportedError].
	Part string
	// Reason says why.
	Reason string
}

// Error says what stands against it, and what to do instead.
func (e *NoStreamError) Error() string {
	return fmt.Sprintf("tokenize: texts of this tokenizer cannot be encoded in pieces: %s: %s; encode them whole", e.Part, e.Reason)
}

// NewStream returns a stream for one text after another, or a
// [*NoStreamError].
func (t *Tokenizer) NewStream(o EncodeOptions) (*Stream, error) {
	if !t.made() {
		return nil, ErrTokenizer
	}
	if t.stream.refused != nil {
		return nil, t.stream.refused
	}
	return &Stream{t: t, options: o, gather: StreamBytes, at: atStart}, nil
}

// AppendIDs takes the next piece of the text, which it doesn't keep, and
// appends the ids that are certain by now to dst. It doesn't allocate once it
// has seen as much and dst has room.
//
// The error is [ErrTextTooLong] when the text has no place to be cut within
// [Options.MaxTextBytes]; how long it is as a whole is not limited. After an
// error dst is unchanged and the stream is good for [Stream.Reset] only.
func (s *Stream) AppendIDs(dst []uint32, piece []byte) ([]uint32, error) {
	if s == nil || s.t == nil {
		return dst, ErrTokenizer
	}
	from := len(dst)
	for len(piece) > 0 && s.err == nil {
		n := min(len(piece), max(s.gather-len(s.held), (s.gather+1)/2))
		s.held = append(s.held, piece[:n]...)
		piece = piece[n:]
		if len(s.held) >= s.gather {
			dst = s.flush(dst)
		}
	}
	if s.err != nil {
		return dst[:from], s.err
	}
	return dst, nil
}

// flush encodes up to the last cut.
func (s *Stream) flush(dst []uint32) []uint32 {
	text := view(s.held)
	end := s.t.stream.last(s.t, text, s.looked)
	if end == 0 {
		s.looked = max(0, len(text)-utf8.UTFMax) // the last character may not be whole
		if len(text) > s.t.maxText {
			s.err = ErrTextTooLong
		}
		return dst
	}
	dst = s.encode(dst, text[:end])
	s.held = s.held[:copy(s.held, s.held[end:])]
	s.looked, s.at = 0, inside
	return dst
}

func (s *Stream) encode(dst []uint32, text string) []uint32 {
	if !s.begun && s.options.AddSpecialTokens {
		dst = append(dst, s.t.template.before...)
	}
	s.begun = true
	if len(text) > s.t.maxText {
		s.err = ErrTextTooLong
		return dst
	}
	state := s.t.get()
	dst = state.text(dst, state.utf8(text), s.at)
	s.t.put(state)
	return dst
}

// Finish appends the ids of the text's end to dst, and makes the stream ready
// for the next text. Errors are those of [Stream.AppendIDs].
func (s *Stream) Finish(dst []uint32) ([]uint32, error) {
	if s == nil || s.t == nil {
		return dst, ErrTokenizer
	}
	from := len(dst)
	if s.err == nil {
		dst = s.encode(dst, view(s.held))
	}
	if s.err != nil {
		return dst[:from], s.err
	}
	if s.options.AddSpecialTokens {
		dst = append(dst, s.t.template.after...)
	}
	s.Reset()
	return dst, nil
}

// Reset forgets the text and makes the stream ready for another.
func (s *Stream) Reset() {
	if s == nil {
		return
	}
	if cap(s.held) > mostKept {
		s.held = nil
	}
	s.held, s.looked, s.at, s.begun, s.err = s.held[:0], 0, atStart, false, nil
}

// AppendIDsFrom reads a text to its end and appends its ids to dst. It holds
// as much of it as a [Stream] does. With an error dst is unchanged; it is
// that of r, or one of [Tokenizer.NewStream] and [Stream.AppendIDs].
func (t *Tokenizer) AppendIDsFrom(dst []uint32, r io.Reader, o EncodeOptions) ([]uint32, error) {
	s, err := t.NewStream(o)
	if err != nil {
		return dst, err
	}
	from := len(dst)
	buffer := make([]byte, StreamBytes)
	for err == nil {
		n, readErr := r.Read(buffer)
		if dst, err = s.AppendIDs(dst, buffer[:n]); err == nil {
			err = readErr
		}
	}
	if err == io.EOF {
		dst, err = s.Finish(dst)
	}
	if err != nil {
		return dst[:from], err
	}
	return dst, nil
}

// streamCuts knows between which two characters a text may be cut, so that
// the ids of the parts are those of the whole whatever stands around. The
// first is no white space. The second is white space, or the punctuation of
// scripts that write without spaces.
//
// Such a cut is exact because nothing of the library reaches across it:
//   - no added token holds the two side by side, and none looks there at its
//     neighbours in a way that a cut would change;
//   - no normal form joins them: both are starters, and nothing composes with
//     the second as the later one;
//   - no match of a pattern holds both (patternSplitter.words), or no token
//     does (cutTable).
type streamCuts struct {
	refused error
	ops     []normOp  // what a normalizer does to a text that goes on
	plain   bool      // characters stay what they are, but for spaces and marks
	whole   bool      // letters stay letters: none becomes a letter and a mark
	first   [256]bool // bytes that the first part may end with
	second  [256]bool // bytes that the second part may begin with
}

// widePunctuation are the characters beside white space that a part may begin
// with. They are punctuation, and so is what a normalizer makes of them.
const widePunctuation = "、。「」『』【】《》！（），：；？"

const asciiSpace = " \t\n\v\f\r"

// init looks at everything that could reach across a cut.
func (c *streamCuts) init(t *Tokenizer) {
	tokens, spellings := t.added, t.spellings
	refuse := func(part, reason string) {
		if c.refused == nil {
			c.refused = &NoStreamError{part, reason}
		}
	}
	p := &t.pre
	prefix := p.prefix != prefixNever
	c.plain, c.whole = true, true
	for i, op := range t.ops {
		switch op.kind {
		case normPrepend:
			prefix = true
			continue
		case normReplace:
			if !t.marked || i < len(t.ops)-1 {
				refuse("normalizer", fmt.Sprintf("Replace of %q may join what stands on both sides of a cut", op.old))
			}
		default:
			c.plain = false
			c.whole = c.whole && (op.kind == normLower || op.form == unidata.NFC || op.form == unidata.NFKC)
		}
		c.ops = append(c.ops, op)
	}
	switch {
	case p.bytes && !p.wordLevel:
		refuse("pre_tokenizer", "no pattern splits at white space")
	case !p.bytes && !strings.ContainsFunc("aeionst", func(r rune) bool { return t.cuts.between(byte(r), ' ', p.words) }):
		refuse("model", "a token may hold any characters side by side")
	}
	for b := range c.first {
		c.first[b] = b >= utf8.RuneSelf || asciiClass[b]&(space|newline) == 0
	}
	for _, b := range []byte(asciiSpace) {
		c.second[b] = true
	}
	wide := p.bytes && (c.plain || len(tokens[1]) == 0)
	for kind, list := range tokens {
		for i, a := range list {
			if kind == 1 && !c.plain && (a.rstrip || prefix) {
				refuse("added_tokens", fmt.Sprintf("%q is found after characters have changed, and decides what follows it", a.content))
			}
			for _, text := range []string{a.content, spellings[kind][i]} {
				wide = !c.avoid(t.u, text, a.singleWord) && wide
				if a.rstrip || prefix {
					c.first[text[len(text)-1]] = false
				}
			}
		}
	}
	for _, r := range widePunctuation {
		c.second[string(r)[0]] = wide
	}
	if !c.second[' '] && !c.second['\n'] {
		refuse("added_tokens", "they hold spaces and newlines behind other characters")
	}
}

// avoid forbids the cuts that an added token may reach across, and tells
// whether those before wide punctuation are among them.
func (c *streamCuts) avoid(u *unidata.Tables, token string, looksBack bool) (wide bool) {
	visible := looksBack // what stands before a character can end a part
	for _, r := range token {
		if visible && r < utf8.RuneSelf && strings.ContainsRune(asciiSpace, r) {
			c.second[r] = false
		}
		wide = wide || visible && strings.ContainsRune(widePunctuation, r)
		visible = u.Flags(r)&unidata.Space == 0
	}
	return wide
}

// last returns the last cut of text behind from, 0 if there is none.
func (c *streamCuts) last(t *Tokenizer, text string, from int) int {
	for i := len(text) - 1; i > from; i-- {
		if c.second[text[i]] && c.first[text[i-1]] && c.at(t, text, i) {
			return i
		}
	}
	return 0
}

// at tells whether text may be cut at i, where the bytes are such that it may
// be possible.
func (c *streamCuts) at(t *Tokenizer, text string, i int) bool {
	first, _ := utf8.DecodeLastRuneInString(text[:i])
	second, _ := utf8.DecodeRuneInString(text[i:])
	if t.u.Flags(first)&unidata.Space != 0 {
		return false
	}
	if t.pre.bytes {
		return second == ' ' || steady(first) && (c.whole || first < utf8.RuneSelf) && (second < utf8.RuneSelf || strings.ContainsRune(widePunctuation, second))
	}
	a, b, words := text[i-1], text[i], t.pre.words
	switch {
	case string(first) == spaceMark: // a space to the model
		return false
	case c.plain:
		return t.cuts.between(a, b, words)
	case a >= utf8.RuneSelf:
		return words && b == ' '
	default: // in lower case perhaps
		return t.cuts.between(a, b, words) && t.cuts.between(a|0x20, b, words)
	}
}

// steady tells letters and digits that stay such, but that forms NFD and NFKD
// may put marks behind those beyond ASCII.
func steady(r rune) bool {
	return r < utf8.RuneSelf && asciiClass[r]&(letter|digit) != 0 ||
		'ぁ' <= r && r <= 'ゖ' || 'ァ' <= r && r <= 'ヺ' || '一' <= r && r <= '龥' || '가' <= r && r <= '힣'
}
