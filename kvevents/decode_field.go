package kvevents

import (
	"encoding/binary"
	"math"
	"slices"
)

// field reads the value of one known field into ev.
func (r *reader) field(ev *Event, id Field) fault {
	if ev.Fields.Has(id) {
		return ReasonDuplicateKey
	}
	ev.Fields |= 1 << id
	if id != FieldHashes && r.takeNil() {
		return 0
	}
	switch id {
	case FieldHashes:
		return r.hashList(ev)
	case FieldTokens:
		return r.tokenList(ev)
	case FieldExtraKeys:
		return r.extraKeys(ev)
	case FieldLookahead:
		return r.lookahead(ev)
	case FieldLoRAName:
		return r.loraName(ev)
	case FieldMedium:
		return r.textField(&ev.Medium)
	case FieldSpecKind:
		return r.textField(&ev.SpecKind)
	case FieldLocality:
		return r.textField(&ev.Locality)
	case FieldOwnership:
		return r.textField(&ev.Ownership)
	case FieldSessionID:
		return r.textField(&ev.SessionID)
	case FieldCacheSalt:
		return r.textField(&ev.CacheSalt)
	}
	return r.numberField(ev, id)
}

func (r *reader) textField(dst *[]byte) (f fault) {
	*dst, f = r.text(false)
	return f
}

func (r *reader) numberField(ev *Event, id Field) (f fault) {
	var v int64
	switch id {
	case FieldParent:
		ev.HasParent = true
		ev.Parent, _, f = r.hash(&ev.Wire)
	case FieldBlockSize:
		v, f = r.int(0, math.MaxInt32)
		ev.BlockSize = int(v)
	case FieldLoRAID:
		ev.HasLoRAID = true
		ev.LoRAID, f = r.int(math.MinInt64, math.MaxInt64)
	case FieldGroup:
		v, f = r.int(0, math.MaxInt32)
		ev.HasGroup, ev.Group = true, int32(v)
	case FieldWindow:
		v, f = r.int(math.MinInt32, math.MaxInt32)
		ev.SlidingWindow = int(v)
	}
	return f
}

// hash reads a block hash: an integer, or a digest as bin or str (older
// msgpack writers know only str), of which the last 8 bytes count. It returns
// the digest's length, 0 for an integer, whose sign it notes.
func (r *reader) hash(wire *Wire) (v uint64, digest int, f fault) {
	v, negative, f := r.integer()
	if f != ReasonFieldType {
		wire.integerHash(v, negative)
		return v, 0, f
	}
	d, f := r.text(true)
	if f == ReasonFieldType || f == 0 && len(d) < 8 {
		return 0, 0, ReasonHash
	}
	if f != 0 {
		return 0, 0, f
	}
	return binary.BigEndian.Uint64(d[len(d)-8:]), len(d), 0
}

func (r *reader) hashList(ev *Event) fault {
	n, f := r.arrayLen()
	if f != 0 || n == 0 {
		return f
	}
	b := r.b
	if n > r.lim.Hashes-len(b.hashes) {
		return ReasonLimit
	}
	start := len(b.hashes)
	b.hashes = slices.Grow(b.hashes, n)
	for i := range n {
		v, digest, f := r.hash(&ev.Wire)
		if f != 0 {
			return f
		}
		if i == 0 {
			ev.HashBytes = digest
		} else if ev.HashBytes != digest {
			ev.HashBytes = -1
		}
		b.hashes = append(b.hashes, v)
	}
	ev.Hashes = b.hashes[start:len(b.hashes):len(b.hashes)]
	return 0
}

// tokenList reads token ids: a list of integers, or of pairs of them.
func (r *reader) tokenList(ev *Event) fault {
	n, f := r.arrayLen()
	if f != 0 || n == 0 {
		return f
	}
	b, per := r.b, 1
	if h, f := r.peek(); f != 0 {
		return f
	} else if h == 0x92 {
		ev.TokenForm, per = TokensPairs, 2
	}
	if n > (r.lim.Tokens-len(b.tokens))/per {
		return ReasonLimit
	}
	start, from := len(b.tokens), r.pos
	b.tokens = slices.Grow(b.tokens, n*per)
	b.tokens, f = r.ids(b.tokens, n, per == 2)
	if f == ReasonFieldType { // ids that we cannot hold cost the tokens, not the event
		ev.TokenForm = TokensOpaque
		b.tokens, r.pos = b.tokens[:start], from
		return r.skipAll(n)
	}
	if f != 0 {
		return f
	}
	ev.Tokens = b.tokens[start:len(b.tokens):len(b.tokens)]
	return 0
}

// ids appends n ids, or n pairs, to dst. It is the hottest loop of the
// package: most of the bytes of a message are token ids of up to three bytes.
func (r *reader) ids(dst []uint32, n int, pairs bool) ([]uint32, fault) {
	if pairs {
		for range n {
			two, f := r.arrayLen()
			if f == 0 && two != 2 {
				f = ReasonFieldType
			}
			if f == 0 {
				dst, f = r.ids(dst, 2, false)
			}
			if f != 0 {
				return dst, f
			}
		}
		return dst, 0
	}
	rest := r.buf[r.pos:]
	for range n {
		if len(rest) >= 5 {
			switch rest[0] {
			case 0xcd:
				dst, rest = append(dst, uint32(binary.BigEndian.Uint16(rest[1:]))), rest[3:]
				continue
			case 0xce:
				dst, rest = append(dst, binary.BigEndian.Uint32(rest[1:])), rest[5:]
				continue
			case 0xcc:
				dst, rest = append(dst, uint32(rest[1])), rest[2:]
				continue
			}
			if rest[0] <= 0x7f {
				dst, rest = append(dst, uint32(rest[0])), rest[1:]
				continue
			}
		}
		r.pos = len(r.buf) - len(rest)
		v, f := r.int(0, math.MaxUint32)
		if f != 0 {
			return dst, f
		}
		dst, rest = append(dst, uint32(v)), r.buf[r.pos:]
	}
	r.pos = len(r.buf) - len(rest)
	return dst, 0
}

// loraName reads position 7 or the key lora_name. SGLang 0.5.18 and 0.5.19
// send a map with the cache salt in that position.
func (r *reader) loraName(ev *Event) fault {
	f := r.textField(&ev.LoRAName)
	if f != ReasonFieldType {
		return f
	}
	n, f := r.mapLen()
	if f != 0 {
		return f
	}
	ev.Fields &^= 1 << FieldLoRAName
	for range n {
		key, f := r.text(false)
		if f == ReasonFieldType {
			f = r.skip()
		}
		if f != 0 {
			return f
		}
		if string(key) == "cache_salt" {
			f = r.field(ev, FieldCacheSalt)
		} else {
			f = r.unknownField(ev)
		}
		if f != 0 {
			return f
		}
	}
	return 0
}
