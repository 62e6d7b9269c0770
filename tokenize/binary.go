package tokenize

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/kvatlas/kvatlas/tokenize/internal/unidata"
)

// The compact form of a tokenizer: the version, the SHA-256 of all that
// follows, the SHA-256 of the tokenizer.json, then what Load made of it.
// Tables are not in it, but what goes into them: they are filled again, so
// that no content makes a table that is not sound.
const binaryVersion = "kvatlas tokenizer 2\n"

const (
	sums = 2 * sha256.Size

	// maxSpellingBytes is more than a normalizer makes of maxAddedBytes.
	maxSpellingBytes = 64 * maxAddedBytes
)

// CacheError is returned by [LoadBinary] for data that is not the compact
// form of that tokenizer. Load its tokenizer.json instead.
type CacheError struct {
	// Reason says what is wrong.
	Reason string
}

// Error says what is wrong, and what to do.
func (e *CacheError) Error() string {
	return "tokenize: compact form: " + e.Reason + "; load the tokenizer.json and make it again"
}

func cacheError(format string, args ...any) error { return &CacheError{fmt.Sprintf(format, args...)} }

// AppendBinary appends a compact form of t to dst, for [LoadBinary]. It is
// about a third of a tokenizer.json and the same for the same file. It fails
// for a t that is none only, with [ErrTokenizer].
func (t *Tokenizer) AppendBinary(dst []byte) ([]byte, error) {
	if !t.made() {
		return dst, ErrTokenizer
	}
	w := binaryWriter{dst}
	w.b = append(w.b, binaryVersion...)
	from := len(w.b)
	w.b = append(w.b, make([]byte, sha256.Size)...)
	w.b = append(w.b, t.source[:]...)
	w.text(t.truncation)
	w.text(t.padding)
	w.flags(t.marked, t.pre.marks, t.pre.bytes, t.pre.words)
	w.number(uint32(t.pre.prefix))
	w.number(uint32(len(t.ops)))
	for _, op := range t.ops {
		w.number(uint32(op.kind))
		w.number(uint32(op.form))
		w.text(op.old)
		w.text(op.new)
	}
	w.number(uint32(len(t.pre.splits)))
	for _, s := range t.pre.splits {
		w.number(uint32(s))
	}
	w.model(&t.model)
	for i := range t.cuts.joined {
		w.words(t.cuts.joined[i][:])
	}
	w.words(t.cuts.wide[:])
	for kind := range t.added {
		w.number(uint32(len(t.added[kind])))
		for i, a := range t.added[kind] {
			w.text(a.content)
			w.text(t.spellings[kind][i])
			w.number(a.id)
			w.flags(a.singleWord, a.lstrip, a.rstrip, a.normalized, a.special)
		}
	}
	w.template(&t.template)
	w.number(uint32(len(t.lengths)))
	for _, n := range t.lengths {
		w.number(uint32(n))
	}
	sum := sha256.Sum256(w.b[from+sha256.Size:])
	copy(w.b[from:], sum[:])
	return w.b, nil
}

// LoadBinary reads the compact form that [Tokenizer.AppendBinary] made.
// source is the SHA-256 of the tokenizer.json as it was given to [Load],
// zipped or not; o may be other than what it was loaded with. The result
// gives the same ids, and is made in about a tenth of the time.
//
// The error is the [*UnsupportedError] of Load when o doesn't ignore a
// truncation or padding of the file, and a [*CacheError] for anything else:
// another file, another version of this package, damage. An option out of range is
// named, as by Load.
func LoadBinary(data []byte, source [sha256.Size]byte, o Options) (*Tokenizer, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	rest, ok := bytes.CutPrefix(data, []byte(binaryVersion))
	switch {
	case !ok:
		return nil, cacheError("it is none, or of another version")
	case len(rest) < sums:
		return nil, cacheError("it is cut short")
	case sha256.Sum256(rest[sha256.Size:]) != [sha256.Size]byte(rest):
		return nil, cacheError("it is damaged")
	case [sha256.Size]byte(rest[sha256.Size:]) != source:
		return nil, cacheError("it was made from another tokenizer.json")
	}
	t := newTokenizer(o)
	t.source = source
	r := &binaryReader{b: rest[sums:]}
	if r.tokenizer(t); r.failed || len(r.b) > 0 {
		return nil, cacheError("its content makes no sense")
	}
	if err := t.allowedBy(o); err != nil {
		return nil, err
	}
	t.finish()
	return t, nil
}

func newTokenizer(o Options) *Tokenizer {
	return &Tokenizer{
		u:       unidata.Load(),
		maxText: cmp.Or(o.MaxTextBytes, DefaultMaxTextBytes),
		states:  states{idle: make([]*state, 0, 2*runtime.GOMAXPROCS(0))},
	}
}

// binaryWriter appends fields.
type binaryWriter struct{ b []byte }

func (w *binaryWriter) number(n uint32) { w.b = binary.AppendUvarint(w.b, uint64(n)) }

func (w *binaryWriter) text(s string) {
	w.number(uint32(len(s)))
	w.b = append(w.b, s...)
}

func (w *binaryWriter) flags(list ...bool) {
	n := uint32(0)
	for i, f := range list {
		if f {
			n |= 1 << i
		}
	}
	w.number(n)
}

func (w *binaryWriter) words(list []uint64) {
	for _, n := range list {
		w.b = binary.LittleEndian.AppendUint64(w.b, n)
	}
}

func (w *binaryWriter) ids(list []uint32) {
	w.number(uint32(len(list)))
	for _, id := range list {
		w.number(id)
	}
}

func (w *binaryWriter) model(m *bpe) {
	w.flags(m.bytes, m.fuse, m.fallback != nil)
	w.number(m.unknown)
	w.ids(m.ascii[:])
	if m.fallback != nil {
		w.ids(m.fallback[:])
	}
	w.number(uint32(len(m.wide)))
	for _, r := range slices.Sorted(maps.Keys(m.wide)) {
		w.number(uint32(r))
		w.number(m.wide[r])
	}
	merges := m.pairs.byRank(len(m.merged))
	w.number(uint32(len(merges)))
	for rank, pair := range merges {
		if w.flags(pair.there); pair.there {
			w.number(pair.left)
			w.number(pair.right)
			w.number(m.merged[rank])
		}
	}
	words := m.words.all()
	w.number(uint32(len(words)))
	for _, text := range slices.Sorted(maps.Keys(words)) {
		w.text(text)
		w.number(words[text])
	}
}

func (w *binaryWriter) template(t *template) {
	w.ids(t.before)
	w.ids(t.after)
	w.number(uint32(len(t.pair)))
	for _, step := range t.pair {
		w.number(uint32(step.text))
		w.ids(step.ids)
	}
	w.flags(t.pairErr != nil)
	if e := t.pairErr; e != nil {
		w.text(e.Part)
		w.text(e.Value)
		w.text(e.Reason)
	}
}

// binaryReader takes fields; after a failure all are empty.
type binaryReader struct {
	b      []byte
	failed bool
}

func (r *binaryReader) fail() {
	r.failed, r.b = true, nil
}

func (r *binaryReader) number() uint32 {
	if len(r.b) > 0 && r.b[0] < 0x80 { // most of them
		n := r.b[0]
		r.b = r.b[1:]
		return uint32(n)
	}
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > 1<<32-1 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return uint32(n)
}

// count reads the length of a list, of whose items each takes a byte at
// least.
func (r *binaryReader) count() int {
	n := r.number()
	if uint64(n) > uint64(len(r.b)) { // an int may have 32 bits
		r.fail()
		return 0
	}
	return int(n)
}

// below reads a number that is less than n.
func (r *binaryReader) below(n uint32) uint32 {
	v := r.number()
	if v >= n {
		r.fail()
		return 0
	}
	return v
}

func (r *binaryReader) text() string { return strings.Clone(r.view()) }

// view is text without a copy.
func (r *binaryReader) view() string {
	n := r.count()
	s := view(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *binaryReader) flags(list ...*bool) {
	n := r.below(1 << len(list))
	for i, f := range list {
		*f = n&(1<<i) != 0
	}
}

func (r *binaryReader) words(list []uint64) {
	if len(r.b) < 8*len(list) {
		r.fail()
		return
	}
	for i := range list {
		list[i] = binary.LittleEndian.Uint64(r.b[8*i:])
	}
	r.b = r.b[8*len(list):]
}

func (r *binaryReader) ids() []uint32 {
	n := r.count()
	if n == 0 {
		return nil
	}
	list := make([]uint32, n)
	for i := range list {
		list[i] = r.number()
	}
	return list
}

func (r *binaryReader) table(to *[256]uint32) {
	list := r.ids()
	if len(list) != len(to) {
		r.fail()
	}
	for i, id := range list {
		to[i%len(to)] = r.token(id)
	}
}

// token fails for what is neither an id nor noToken.
func (r *binaryReader) token(id uint32) uint32 {
	if id >= maxTokens && id != noToken {
		r.fail()
	}
	return id
}

func (r *binaryReader) tokenizer(t *Tokenizer) {
	t.truncation, t.padding = r.text(), r.text()
	r.flags(&t.marked, &t.pre.marks, &t.pre.bytes, &t.pre.words)
	t.pre.prefix = prefixScheme(r.below(uint32(prefixAlways) + 1))
	for range r.count() {
		kind, form := normKind(r.below(uint32(normReplace)+1)), unidata.Form(r.below(uint32(unidata.NFKD)+1))
		op := normOp{kind: kind, form: form, old: r.text(), new: r.text()}
		if op.kind == normReplace && op.old == "" {
			r.fail() // would be found for ever
		}
		t.ops = append(t.ops, op)
	}
	for range r.count() {
		t.pre.split(splitKind(r.below(uint32(splitKinds))))
	}
	r.model(&t.model)
	for i := range t.cuts.joined {
		r.words(t.cuts.joined[i][:])
	}
	r.words(t.cuts.wide[:])
	for kind := range t.added {
		seen := make(map[string]bool)
		for range r.count() {
			a := addedToken{content: r.text()}
			spelling := r.text()
			a.id = r.number()
			r.flags(&a.singleWord, &a.lstrip, &a.rstrip, &a.normalized, &a.special)
			if a.content == "" || spelling == "" || seen[spelling] || len(a.content) > maxAddedBytes || len(spelling) > maxSpellingBytes {
				r.fail() // no trie has room for it
				return
			}
			seen[spelling] = true
			t.added[kind] = append(t.added[kind], a)
			t.spellings[kind] = append(t.spellings[kind], spelling)
		}
	}
	r.template(&t.template)
	if n := r.count(); n > 0 {
		t.lengths = make([]uint16, n)
		for i := range t.lengths {
			t.lengths[i] = uint16(r.below(1 << 16))
		}
	}
	if t.lengths != nil {
		r.known(t, uint32(len(t.lengths)))
	}
}

// known fails when the model may give an id that has no length.
func (r *binaryReader) known(t *Tokenizer, n uint32) {
	m := &t.model
	most := uint32(0)
	check := func(id uint32) {
		if id != noToken {
			most = max(most, id)
		}
	}
	check(m.unknown)
	for i := range m.ascii {
		check(m.ascii[i])
		if m.fallback != nil {
			check(m.fallback[i])
		}
	}
	for _, id := range m.merged {
		check(id)
	}
	for _, id := range m.wide {
		check(id)
	}
	for i := range m.words.slots {
		check(m.words.slots[i].id)
	}
	for _, id := range m.words.long {
		check(id)
	}
	if most >= n {
		r.fail()
	}
}

func (r *binaryReader) model(m *bpe) {
	fallback := false
	r.flags(&m.bytes, &m.fuse, &fallback)
	m.unknown = r.token(r.number())
	r.table(&m.ascii)
	if fallback {
		m.fallback = new([256]uint32)
		r.table(m.fallback)
	}
	if !m.bytes {
		m.wide = make(map[rune]uint32)
	}
	for range r.count() {
		c := rune(r.below(0x110000))
		if m.wide == nil {
			r.fail()
			return
		}
		m.wide[c] = r.token(r.number())
	}
	n := r.count()
	if n > maxMerges {
		r.fail()
		return
	}
	m.pairs, m.merged = newPairTable(n), make([]uint32, n)
	for rank := range m.merged {
		var there bool
		if r.flags(&there); there {
			m.pairs.put(r.below(maxTokens), r.below(maxTokens), uint32(rank))
			m.merged[rank] = r.below(maxTokens)
		}
	}
	n = r.count()
	m.words = newWordTable(n)
	before := ""
	for range n {
		text := r.view()
		id := r.number()
		if text <= before { // sorted, so that each is there once
			r.fail()
			return
		}
		m.words.put(text, id)
		before = text
	}
}

func (r *binaryReader) template(t *template) {
	t.before, t.after = r.ids(), r.ids()
	for range r.count() {
		t.pair = append(t.pair, templateStep{text: int(r.below(2)), ids: r.ids()})
	}
	var refused bool
	if r.flags(&refused); refused {
		t.pairErr = &UnsupportedError{Part: r.text(), Value: r.text(), Reason: r.text()}
	}
}
