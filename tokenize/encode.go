package tokenize

import (
	"slices"
	"strings"
	"sync"
)

// state is the working memory of one call. It belongs to one tokenizer and
// one goroutine at a time.
type state struct {
	t       *Tokenizer
	valid   []byte // the text with U+FFFD in place of invalid UTF-8
	norm    normalizeBuffers
	marks   []byte // a piece with its marks replaced
	prefix  []byte // a piece with a space in front
	symbols symbols
	cache   []cacheSlot

	segments *Cache // during a call through it
	tenant   string
	user     uintptr // the goroutine that had it last, as near tells
}

// cacheSlot remembers the ids of a piece of up to maxInline bytes that is
// more than one token. It fills one cache line.
type cacheSlot struct {
	lo, hi uint64
	size   uint8 // bytes, 0 when free
	count  uint8
	ids    [11]uint32
}

const cacheSlots = 1 << 13

// place says where a text stands in the prompt, which decides what is put
// before it.
type place uint8

const (
	inside  place = iota // it goes on from what was encoded before: nothing is
	behind               // an added token
	atStart              // of the prompt
)

// from is the place of what begins at an offset of a text with this place.
func (p place) from(offset int) place {
	if offset > 0 {
		return behind
	}
	return p
}

// mostKept is the number of bytes or symbols above which working memory is
// given back after a call.
const mostKept = 4 << 20

// states keeps working memory between calls. A goroutine gets what it had before,
// else what was given back last: its cache of pieces is the one that the processor
// still holds. Two that took each other's would send it to and fro between processors.
type states struct {
	mu   sync.Mutex
	idle []*state // its capacity is how many are kept
}

func (t *Tokenizer) get() *state {
	l := &t.states
	user := near()
	l.mu.Lock()
	if last := len(l.idle) - 1; last >= 0 {
		at := last
		for i := last; i >= 0; i-- {
			if l.idle[i].user == user {
				at = i
				break
			}
		}
		s := l.idle[at]
		l.idle = slices.Delete(l.idle, at, at+1)
		l.mu.Unlock()
		s.user = user
		return s
	}
	l.mu.Unlock()
	return &state{t: t, cache: make([]cacheSlot, cacheSlots), user: user}
}

func (t *Tokenizer) put(s *state) {
	if cap(s.symbols.id) > mostKept {
		s.symbols = symbols{}
	}
	if cap(s.valid) > mostKept {
		s.valid = nil
	}
	if cap(s.norm.text[0])+cap(s.norm.text[1])+4*cap(s.norm.runes) > mostKept {
		s.norm = normalizeBuffers{}
	}
	if cap(s.marks)+cap(s.prefix) > mostKept {
		s.marks, s.prefix = nil, nil
	}
	l := &t.states
	l.mu.Lock()
	if len(l.idle) < cap(l.idle) {
		l.idle = append(l.idle, s)
	}
	l.mu.Unlock()
}

// prompt encodes a whole text, through the cache of segments if there is
// one. A segment is what lies between the special tokens of raw; the other
// added tokens that it holds may be thousands, as newlines are in Gemma's.
func (s *state) prompt(dst []uint32, text string) []uint32 {
	if s.segments == nil {
		return s.text(dst, text, atStart)
	}
	m := &s.t.turns
	done := 0
	for at := 0; ; {
		start, end, n, ok := m.next(text, at)
		if !ok {
			return s.segment(dst, text[done:], atStart.from(done))
		}
		if longest, _ := s.t.raw.longest(text, start); longest != end {
			at = longest // a longer token begins with this one
			continue
		}
		dst = s.segment(dst, text[done:start], atStart.from(done))
		dst = append(dst, m.tokens[n].id)
		at, done = end, end
	}
}

func (s *state) segment(dst []uint32, text string, at place) []uint32 {
	if len(text) >= s.segments.min {
		return s.segments.appendSegment(dst, s, text, at)
	}
	return s.text(dst, text, at)
}

// text cuts at the added tokens that stand in the raw text.
func (s *state) text(dst []uint32, text string, at place) []uint32 {
	if s.t.raw.empty() {
		return s.stretch(dst, text, at)
	}
	c := cut{matcher: &s.t.raw, u: s.t.u, text: text}
	for {
		before, start, _, token, ok := c.next()
		if before < start {
			dst = s.stretch(dst, text[before:start], at.from(before))
		}
		if !ok {
			return dst
		}
		dst = append(dst, token.id)
	}
}

// stretch normalizes what lies between added tokens, and cuts it at those
// that stand in the normalized text.
func (s *state) stretch(dst []uint32, text string, at place) []uint32 {
	if text == "" {
		return dst
	}
	ops := s.t.ops
	if at == inside {
		ops = s.t.stream.ops // without what is put before a text
	}
	text = normalize(s.t.u, ops, text, &s.norm)
	if s.t.normal.empty() {
		return s.pretokenize(dst, text, at)
	}
	c := cut{matcher: &s.t.normal, u: s.t.u, text: text, marks: s.t.marked}
	for {
		before, start, _, token, ok := c.next()
		if before < start {
			dst = s.pretokenize(dst, text[before:start], at.from(before))
		}
		if !ok {
			return dst
		}
		dst = append(dst, token.id)
	}
}

// pretokenize prepares text, in which no added token stands, and encodes it.
func (s *state) pretokenize(dst []uint32, text string, at place) []uint32 {
	if text == "" {
		return dst
	}
	p := &s.t.pre
	if p.marks && strings.Contains(text, spaceMark) {
		s.marks = marksToSpaces.appendTo(s.marks[:0], s.t.u, text, nil)
		text = view(s.marks)
	}
	if p.needsPrefix(text, at) {
		s.prefix = append(append(s.prefix[:0], ' '), text...)
		text = view(s.prefix)
	}
	return s.pieces(dst, text)
}

var marksToSpaces = normOp{kind: normReplace, old: spaceMark, new: " "}

func (p *pretokenizer) needsPrefix(text string, at place) bool {
	return text[0] != ' ' && (p.prefix == prefixAlways && at != inside || p.prefix == prefixFirst && at == atStart)
}

// pieces splits prepared text into pieces and encodes them.
func (s *state) pieces(dst []uint32, text string) []uint32 {
	if s.t.pre.bytes {
		return s.split(dst, text, s.t.pre.levels)
	}
	for i := 0; i < len(text); {
		end := s.t.cuts.next(text, i, s.t.pre.words)
		dst = s.piece(dst, text[i:end])
		i = end
	}
	return dst
}

// split applies the patterns of levels, each to the pieces of the one
// before.
func (s *state) split(dst []uint32, text string, levels []splitFunc) []uint32 {
	if len(levels) == 0 {
		return s.piece(dst, text)
	}
	find, rest := levels[0], levels[1:]
	for i := 0; i < len(text); {
		start, end := find(s.t.u, text, i)
		if i < start {
			dst = s.split(dst, text[i:start], rest)
		}
		if start < end {
			if len(rest) == 0 {
				dst = s.piece(dst, text[start:end])
			} else {
				dst = s.split(dst, text[start:end], rest)
			}
		}
		i = end
	}
	return dst
}

// piece appends the ids of one piece, which is not empty.
func (s *state) piece(dst []uint32, text string) []uint32 {
	m := &s.t.model
	if len(text) > maxInline {
		if id, ok := m.words.getLong(text); ok {
			return append(dst, id)
		}
		m.encode(&s.symbols, text)
		return append(dst, s.symbols.id...)
	}
	lo, hi := inline(text)
	hash := hashWord(lo, hi, len(text))
	if id, ok := m.words.getInline(lo, hi, hash, len(text)); ok {
		return append(dst, id)
	}
	slot := &s.cache[hash>>(64-13)]
	if slot.lo == lo && slot.hi == hi && int(slot.size) == len(text) {
		return append(dst, slot.ids[:slot.count]...)
	}
	m.encode(&s.symbols, text)
	if ids := s.symbols.id; len(ids) <= len(slot.ids) {
		*slot = cacheSlot{lo: lo, hi: hi, size: uint8(len(text)), count: uint8(copy(slot.ids[:], ids))}
		copy(slot.ids[:], ids)
	}
	return append(dst, s.symbols.id...)
}
