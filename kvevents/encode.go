package kvevents

import (
	"encoding/binary"
	"math"
)

// AppendBatch appends the payload of b in the form f to dst and returns it.
// What the release cannot say is left out: fields it does not know, tokens of
// the form TokensOpaque, malformed events. It reads the exported fields of b
// only, so a batch may be put together by hand; nil is an empty one. It does not allocate when dst
// has room.
func AppendBatch(dst []byte, b *Batch, f Form) []byte {
	if b == nil {
		b = &Batch{}
	}
	e := f.get()
	w := writer{buf: dst, era: e, digest: f.digest}
	rank := b.HasRank && !e.noRank
	if rank {
		w.buf = append(w.buf, 0x93)
	} else {
		w.buf = append(w.buf, 0x92)
	}
	w.buf = append(w.buf, 0xcb)
	w.buf = binary.BigEndian.AppendUint64(w.buf, math.Float64bits(b.Timestamp))
	w.array(len(b.Events))
	for i := range b.Events {
		w.event(&b.Events[i])
	}
	if rank {
		w.integer(int64(b.Rank))
	}
	return w.buf
}

// writer appends msgpack with the shortest encoding of everything, as the
// engines' encoder does.
type writer struct {
	buf    []byte
	era    *era
	digest int
}

func (w *writer) event(ev *Event) {
	var name string // stays empty for a type that has only the name it was read with
	var order []Field
	switch ev.Kind {
	case BlockStored:
		name, order = "BlockStored", w.era.stored
	case BlockRemoved:
		name, order = "BlockRemoved", w.era.removed
	case AllBlocksCleared:
		name = "AllBlocksCleared"
	}
	if w.era.maps {
		n := 1
		for _, id := range order {
			if w.sends(ev, id) {
				n++
			}
		}
		if 1+len(order) > 15 {
			// The engines' encoder chooses the header's width by the fields that
			// the struct has, before it leaves any out (msgspec, seen in 0.33).
			w.buf = append(w.buf, 0xde, byte(n>>8), byte(n))
		} else {
			w.mapHead(n)
		}
		w.text("type")
		w.typeName(ev, name)
		for _, id := range order {
			if w.sends(ev, id) {
				w.text(fieldNames[id])
				w.field(ev, id)
			}
		}
		return
	}
	if !w.era.trailing {
		for len(order) > 0 && !w.sends(ev, order[len(order)-1]) {
			order = order[:len(order)-1]
		}
	}
	salt := w.era.saltMap && ev.Kind == BlockStored && ev.CacheSalt != nil
	n := 1 + len(order)
	if salt {
		n++
	}
	w.array(n)
	w.typeName(ev, name)
	for _, id := range order {
		w.field(ev, id)
	}
	if salt {
		w.mapHead(1)
		w.text(fieldNames[FieldCacheSalt])
		w.bytes(ev.CacheSalt, false)
	}
}

func (w *writer) typeName(ev *Event, name string) {
	if name == "" {
		w.bytes(ev.Type, false)
	} else {
		w.text(name)
	}
}

// sends reports whether a field is written: it has a value, or the release
// writes it always. For removals only hashes and medium are such.
func (w *writer) sends(ev *Event, id Field) bool {
	return w.era.always.Has(id) || ev.has(id)
}

// has reports whether a field has a value.
func (ev *Event) has(id Field) bool {
	switch id {
	case FieldHashes, FieldTokens, FieldBlockSize:
		return true
	case FieldParent:
		return ev.HasParent
	case FieldLoRAID:
		return ev.HasLoRAID
	case FieldExtraKeys:
		return ev.ExtraKeys != nil
	case FieldGroup:
		return ev.HasGroup
	case FieldWindow:
		return ev.SlidingWindow != 0
	case FieldLookahead:
		return ev.Lookahead != nil
	}
	return ev.textOf(id) != nil
}

func (ev *Event) textOf(id Field) []byte {
	switch id {
	case FieldMedium:
		return ev.Medium
	case FieldLoRAName:
		return ev.LoRAName
	case FieldSpecKind:
		return ev.SpecKind
	case FieldLocality:
		return ev.Locality
	case FieldOwnership:
		return ev.Ownership
	case FieldSessionID:
		return ev.SessionID
	case FieldCacheSalt:
		return ev.CacheSalt
	}
	return nil
}

func (w *writer) field(ev *Event, id Field) {
	if !ev.has(id) {
		w.buf = append(w.buf, 0xc0)
		return
	}
	switch id {
	case FieldHashes:
		w.array(len(ev.Hashes))
		for _, h := range ev.Hashes {
			w.hash(h)
		}
	case FieldParent:
		w.hash(ev.Parent)
	case FieldTokens:
		w.tokens(ev)
	case FieldBlockSize:
		w.integer(int64(ev.BlockSize))
	case FieldLoRAID:
		w.integer(ev.LoRAID)
	case FieldExtraKeys:
		w.extraKeys(ev.ExtraKeys)
	case FieldGroup:
		w.integer(int64(ev.Group))
	case FieldWindow:
		w.integer(int64(ev.SlidingWindow))
	case FieldLookahead:
		w.array(len(ev.Lookahead))
		for _, ids := range ev.Lookahead {
			w.array(len(ids))
			for _, id := range ids {
				w.unsigned(uint64(id))
			}
		}
	default:
		w.bytes(ev.textOf(id), false)
	}
}

func (w *writer) tokens(ev *Event) {
	switch ev.TokenForm {
	case TokensOpaque:
		w.array(0)
	case TokensPairs:
		w.array(len(ev.Tokens) / 2)
		for i := 0; i+1 < len(ev.Tokens); i += 2 {
			w.array(2)
			w.unsigned(uint64(ev.Tokens[i]))
			w.unsigned(uint64(ev.Tokens[i+1]))
		}
	default:
		w.array(len(ev.Tokens))
		for _, id := range ev.Tokens {
			w.unsigned(uint64(id))
		}
	}
}

func (w *writer) extraKeys(lists [][]ExtraKey) {
	w.array(len(lists))
	for _, keys := range lists {
		if keys == nil {
			w.buf = append(w.buf, 0xc0)
			continue
		}
		w.array(len(keys))
		for _, k := range keys {
			switch k.Kind {
			case ExtraText:
				w.bytes(k.Text, false)
			case ExtraItem:
				w.array(2)
				w.bytes(k.Text, false)
				w.integer(k.Offset)
			case ExtraBytes:
				w.bytes(k.Text, true)
			case ExtraInt:
				w.integer(k.Offset)
			default:
				w.buf = append(w.buf, k.Text...)
			}
		}
	}
}

func (w *writer) hash(h uint64) {
	switch {
	case w.digest > 0:
		w.buf = append(w.buf, 0xc4, byte(w.digest))
		filler := h
		for i := range w.digest - 8 {
			if i%8 == 0 {
				filler = filler*0x9e3779b97f4a7c15 + 1
			}
			w.buf = append(w.buf, byte(filler>>(8*(i%8))))
		}
		w.buf = binary.BigEndian.AppendUint64(w.buf, h)
	case w.era.signed:
		w.integer(int64(h))
	default:
		w.unsigned(h)
	}
}

func (w *writer) unsigned(v uint64) {
	switch {
	case v <= 0x7f:
		w.buf = append(w.buf, byte(v))
	case v <= math.MaxUint8:
		w.buf = append(w.buf, 0xcc, byte(v))
	case v <= math.MaxUint16:
		w.buf = append(w.buf, 0xcd, byte(v>>8), byte(v))
	case v <= math.MaxUint32:
		w.buf = binary.BigEndian.AppendUint32(append(w.buf, 0xce), uint32(v))
	default:
		w.buf = binary.BigEndian.AppendUint64(append(w.buf, 0xcf), v)
	}
}

func (w *writer) integer(v int64) {
	switch {
	case v >= 0:
		w.unsigned(uint64(v))
	case v >= -32:
		w.buf = append(w.buf, byte(v))
	case v >= math.MinInt8:
		w.buf = append(w.buf, 0xd0, byte(v))
	case v >= math.MinInt16:
		w.buf = append(w.buf, 0xd1, byte(v>>8), byte(v))
	case v >= math.MinInt32:
		w.buf = binary.BigEndian.AppendUint32(append(w.buf, 0xd2), uint32(v))
	default:
		w.buf = binary.BigEndian.AppendUint64(append(w.buf, 0xd3), uint64(v))
	}
}

// head appends the header of a value with a length: fix with the length in
// it up to fixMax (-1: there is none), code8 and up to two wider ones (code8
// = 0: there is no 8-bit form, and code16 is given).
func (w *writer) head(n int, fix byte, fixMax int, code8, code16 byte) {
	switch {
	case n <= fixMax:
		w.buf = append(w.buf, fix|byte(n))
	case code8 != 0 && n <= math.MaxUint8:
		w.buf = append(w.buf, code8, byte(n))
	case n <= math.MaxUint16:
		w.buf = append(w.buf, code16, byte(n>>8), byte(n))
	default:
		w.buf = binary.BigEndian.AppendUint32(append(w.buf, code16+1), uint32(n))
	}
}

func (w *writer) array(n int)   { w.head(n, 0x90, 15, 0, 0xdc) }
func (w *writer) mapHead(n int) { w.head(n, 0x80, 15, 0, 0xde) }

func (w *writer) text(s string) {
	w.head(len(s), 0xa0, 31, 0xd9, 0xda)
	w.buf = append(w.buf, s...)
}

func (w *writer) bytes(s []byte, bin bool) {
	if bin {
		w.head(len(s), 0, -1, 0xc4, 0xc5)
	} else {
		w.head(len(s), 0xa0, 31, 0xd9, 0xda)
	}
	w.buf = append(w.buf, s...)
}
