package kvevents

import (
	"math"
	"slices"
)

// extraKeys reads one entry per block hash: nil, or a list of keys.
func (r *reader) extraKeys(ev *Event) fault {
	n, f := r.arrayLen()
	if f != 0 {
		return f
	}
	b := r.b
	if n > r.lim.Hashes-len(b.extraLists) {
		return ReasonLimit
	}
	start := len(b.extraLists)
	b.extraLists = slices.Grow(b.extraLists, n)
	for range n {
		keys, f := r.extraEntry()
		if f != 0 {
			return f
		}
		b.extraLists = append(b.extraLists, keys)
	}
	ev.ExtraKeys = b.extraLists[start:len(b.extraLists):len(b.extraLists)]
	if n == 0 {
		ev.ExtraKeys = noExtraKeys
	}
	return 0
}

// An empty list differs from one that was not sent, also while the arenas
// have no memory yet.
var (
	noExtraKeys = [][]ExtraKey{}
	noLookahead = [][]uint32{}
)

// extraEntry reads the keys of one block; an empty list is the same as nil. An entry that is no list becomes
// one key of kind ExtraOther.
func (r *reader) extraEntry() ([]ExtraKey, fault) {
	if r.takeNil() {
		return nil, 0
	}
	n, f := r.arrayLen()
	if f == ReasonFieldType {
		n, f = 1, 0
	}
	if f != 0 || n == 0 {
		return nil, f
	}
	b := r.b
	if n > r.lim.ExtraKeys-len(b.extras) {
		return nil, ReasonLimit
	}
	start := len(b.extras)
	b.extras = slices.Grow(b.extras, n)
	for range n {
		k, f := r.extraKey()
		if f != 0 {
			return nil, f
		}
		b.extras = append(b.extras, k)
	}
	return b.extras[start:len(b.extras):len(b.extras)], 0
}

// extraKey reads one key. A form that we do not know is kept as it is: the
// block can then not be recomputed, but its hash stays good.
func (r *reader) extraKey() (k ExtraKey, f fault) {
	start := r.pos
	h, f := r.peek()
	if f != 0 {
		return k, f
	}
	switch {
	case h == 0xc4 || h == 0xc5 || h == 0xc6:
		k.Kind = ExtraBytes
		k.Text, f = r.text(true)
	case h == 0x92:
		k.Kind = ExtraItem
		r.pos++
		if k.Text, f = r.text(false); f == 0 {
			k.Offset, f = r.int(math.MinInt64, math.MaxInt64)
		}
	default:
		k.Kind = ExtraText
		if k.Text, f = r.text(false); f == ReasonFieldType {
			var v uint64
			v, _, f = r.integer()
			k.Kind, k.Offset = ExtraInt, int64(v)
		}
	}
	if f != ReasonFieldType {
		return k, f
	}
	r.pos = start
	if f = r.skip(); f != 0 {
		return k, f
	}
	return ExtraKey{Kind: ExtraOther, Text: r.buf[start:r.pos:r.pos]}, 0
}

// lookahead reads one list of token ids per block hash. Ids that do not fit
// leave Lookahead nil; the event stays.
func (r *reader) lookahead(ev *Event) fault {
	n, f := r.arrayLen()
	if f != 0 {
		return f
	}
	b := r.b
	if n > r.lim.Hashes-len(b.lookLists) {
		return ReasonLimit
	}
	start, firstToken, from := len(b.lookLists), len(b.tokens), r.pos
	b.lookLists = slices.Grow(b.lookLists, n)
	for range n {
		ids, f := r.lookaheadEntry()
		if f == ReasonFieldType {
			b.lookLists, b.tokens, r.pos = b.lookLists[:start], b.tokens[:firstToken], from
			return r.skipAll(n)
		}
		if f != 0 {
			return f
		}
		b.lookLists = append(b.lookLists, ids)
	}
	ev.Lookahead = b.lookLists[start:len(b.lookLists):len(b.lookLists)]
	if n == 0 {
		ev.Lookahead = noLookahead
	}
	return 0
}

func (r *reader) lookaheadEntry() ([]uint32, fault) {
	if r.takeNil() {
		return nil, 0
	}
	n, f := r.arrayLen()
	if f != 0 || n == 0 {
		return nil, f
	}
	b := r.b
	if n > r.lim.Tokens-len(b.tokens) {
		return nil, ReasonLimit
	}
	start := len(b.tokens)
	b.tokens = slices.Grow(b.tokens, n)
	if b.tokens, f = r.ids(b.tokens, n, false); f != 0 {
		return nil, f
	}
	return b.tokens[start:len(b.tokens):len(b.tokens)], 0
}
