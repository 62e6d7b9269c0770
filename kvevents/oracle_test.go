package kvevents

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"

	"github.com/vmihailenco/msgpack/v5"
)

// This file is the slow, obvious decoder that the fast one is compared with:
// vmihailenco/msgpack reads the payload into a tree, and the rules are applied
// to the tree.

type (
	tree  any
	str   []byte
	bin   []byte
	list  []tree
	pair  struct{ key, value tree }
	table []pair
	ext   struct{}
	// raw keeps the encoding of a value beside it, for keys of unknown form.
	node struct {
		value tree
		raw   []byte
	}
)

func readTree(payload []byte) (node, error) {
	r := bytes.NewReader(payload)
	d := msgpack.NewDecoder(r)
	n, err := readNode(d, r, payload)
	if err == nil && r.Len() > 0 {
		err = errors.New("trailing bytes")
	}
	return n, err
}

func readNode(d *msgpack.Decoder, r *bytes.Reader, payload []byte) (node, error) {
	start := len(payload) - r.Len()
	v, err := readValue(d, r, payload)
	return node{v, payload[start : len(payload)-r.Len()]}, err
}

func readValue(d *msgpack.Decoder, r *bytes.Reader, payload []byte) (tree, error) {
	c, err := d.PeekCode()
	if err != nil {
		return nil, err
	}
	switch {
	case c == 0xc0:
		return nil, d.DecodeNil()
	case c == 0xc2 || c == 0xc3:
		return d.DecodeBool()
	case c <= 0x7f || c >= 0xcc && c <= 0xcf:
		return d.DecodeUint64()
	case c >= 0xe0 || c >= 0xd0 && c <= 0xd3:
		return d.DecodeInt64()
	case c == 0xca:
		f, err := d.DecodeFloat32()
		return float64(f), err
	case c == 0xcb:
		return d.DecodeFloat64()
	case c >= 0xa0 && c <= 0xbf || c >= 0xd9 && c <= 0xdb:
		b, err := readBytes(d, r)
		return str(b), err
	case c >= 0xc4 && c <= 0xc6:
		b, err := readBytes(d, r)
		return bin(b), err
	case c&0xf0 == 0x90 || c == 0xdc || c == 0xdd:
		n, err := d.DecodeArrayLen()
		l := list{}
		for i := 0; i < n && err == nil; i++ {
			var e node
			e, err = readNode(d, r, payload)
			l = append(l, e)
		}
		return l, err
	case c&0xf0 == 0x80 || c == 0xde || c == 0xdf:
		n, err := d.DecodeMapLen()
		t := table{}
		for i := 0; i < n && err == nil; i++ {
			var k, v node
			if k, err = readNode(d, r, payload); err == nil {
				v, err = readNode(d, r, payload)
			}
			t = append(t, pair{k, v})
		}
		return t, err
	case c >= 0xc7 && c <= 0xc9 || c >= 0xd4 && c <= 0xd8:
		_, n, err := d.DecodeExtHeader()
		if err != nil {
			return nil, err
		}
		_, err = io.CopyN(io.Discard, d.Buffered(), int64(n))
		return ext{}, err
	}
	return nil, errors.New("invalid byte")
}

// readBytes looks at the length itself: the library would believe it.
func readBytes(d *msgpack.Decoder, r *bytes.Reader) ([]byte, error) {
	n, err := d.DecodeBytesLen()
	if err != nil {
		return nil, err
	}
	if n < 0 || n > r.Len() { // a 32-bit int turns the longest negative
		return nil, io.ErrUnexpectedEOF
	}
	b := make([]byte, n)
	return b, d.ReadFull(b)
}

// oracleDecode is the reference of Decoder.Decode under default limits.
func oracleDecode(payload []byte) (*Batch, error) {
	n, err := readTree(payload)
	if err != nil {
		return nil, err
	}
	bad := errors.New("no batch")
	b := &Batch{}
	var ts, events, rank tree
	switch v := n.value.(type) {
	case list:
		if len(v) < 2 {
			return nil, bad
		}
		ts, events = v[0].(node).value, v[1].(node).value
		if len(v) > 2 {
			rank = v[2].(node).value
			b.UnknownFields += len(v) - 3
		}
	case table:
		seen := map[string]int{}
		for _, p := range v {
			value := p.value.(node).value
			name := "other"
			if key, ok := p.key.(node).value.(str); ok {
				name = string(key)
			}
			switch name {
			case "ts":
				ts = value
			case "events":
				events = value
			case "data_parallel_rank", "attn_dp_rank":
				name, rank = "rank", value
			default:
				b.UnknownFields++
				continue
			}
			seen[name]++
		}
		if seen["ts"] != 1 || seen["events"] != 1 || seen["rank"] > 1 {
			return nil, bad
		}
	default:
		return nil, bad
	}
	switch t := ts.(type) {
	case float64:
		b.Timestamp = t
	case uint64:
		b.Timestamp = float64(t)
	case int64:
		b.Timestamp = float64(t)
	default:
		return nil, bad
	}
	if rank != nil {
		v, ok := asInt(rank, 0, math.MaxInt32)
		if !ok {
			return nil, bad
		}
		b.Rank, b.HasRank = int32(v), true
	}
	l, ok := events.(list)
	if !ok {
		return nil, bad
	}
	for i, e := range l {
		ev, unknown, reason := oracleEvent(e.(node).value)
		if reason != 0 {
			b.Malformed = append(b.Malformed, Malformed{i, reason, ev.Kind})
			continue
		}
		b.Events = append(b.Events, ev)
		b.UnknownFields += unknown
		if ev.Kind == Unknown {
			b.UnknownTypes++
		}
	}
	return b, nil
}

func asInt(v tree, lo, hi int64) (int64, bool) {
	var n int64
	switch v := v.(type) {
	case uint64:
		if v > math.MaxInt64 {
			return 0, false
		}
		n = int64(v)
	case int64:
		n = v
	default:
		return 0, false
	}
	return n, n >= lo && n <= hi
}

func oracleEvent(v tree) (ev Event, unknown int, reason Reason) {
	setType := func(t tree) bool {
		name, ok := t.(str)
		ev.Type = name
		switch string(name) {
		case "BlockStored":
			ev.Kind = BlockStored
		case "BlockRemoved":
			ev.Kind = BlockRemoved
		case "AllBlocksCleared":
			ev.Kind = AllBlocksCleared
		}
		return ok
	}
	skip := func() {
		if ev.Kind != Unknown {
			unknown++
		}
	}
	switch v := v.(type) {
	case list:
		ev.Wire = WireArray
		if len(v) == 0 || !setType(v[0].(node).value) {
			return ev, 0, ReasonNoType
		}
		positions := map[Kind][]Field{BlockStored: storedPositions[:], BlockRemoved: removedPositions[:]}[ev.Kind]
		for i, e := range v[1:] {
			if i >= len(positions) {
				skip()
			} else if reason = oracleField(&ev, positions[i], e.(node), skip); reason != 0 {
				return ev, 0, reason
			}
		}
	case table:
		ev.Wire = WireMap
		types := 0
		for _, p := range v {
			if k, ok := p.key.(node).value.(str); ok && string(k) == "type" {
				if types++; types == 1 && !setType(p.value.(node).value) {
					return ev, 0, ReasonNoType
				}
			}
		}
		if types == 0 {
			return ev, 0, ReasonNoType
		}
		known := map[Kind]FieldSet{BlockStored: storedFields, BlockRemoved: removedFields}[ev.Kind]
		typesSoFar := 0
	pairs:
		for _, p := range v {
			k, _ := p.key.(node).value.(str)
			if string(k) == "type" {
				if typesSoFar++; typesSoFar > 1 {
					return ev, 0, ReasonDuplicateKey
				}
				continue
			}
			for f := range numFields {
				if k != nil && fieldNames[f] == string(k) && known.Has(f) {
					if reason = oracleField(&ev, f, p.value.(node), skip); reason != 0 {
						return ev, 0, reason
					}
					continue pairs
				}
			}
			skip()
		}
	default:
		return ev, 0, ReasonNotAnEvent
	}
	switch ev.Kind {
	case BlockStored:
		for _, f := range []Field{FieldHashes, FieldParent, FieldTokens, FieldBlockSize} {
			if !ev.Fields.Has(f) {
				return ev, 0, ReasonMissingField
			}
		}
	case BlockRemoved:
		if !ev.Fields.Has(FieldHashes) {
			return ev, 0, ReasonMissingField
		}
	}
	if ev.ExtraKeys != nil && len(ev.ExtraKeys) != len(ev.Hashes) || ev.Lookahead != nil && len(ev.Lookahead) != len(ev.Hashes) {
		return ev, 0, ReasonLength
	}
	return ev, unknown, 0
}

func oracleHash(ev *Event, v tree) (h uint64, digest int, ok bool) {
	switch v := v.(type) {
	case uint64:
		if v > 1<<63-1 {
			ev.Wire |= WireUnsigned
		}
		return v, 0, true
	case int64:
		if v < 0 {
			ev.Wire |= WireSigned
		}
		return uint64(v), 0, true
	case str:
		return oracleHash(ev, bin(v))
	case bin:
		if len(v) >= 8 {
			return binary.BigEndian.Uint64(v[len(v)-8:]), len(v), true
		}
	}
	return 0, 0, false
}

func oracleField(ev *Event, f Field, n node, skip func()) Reason {
	if ev.Fields.Has(f) {
		return ReasonDuplicateKey
	}
	ev.Fields |= 1 << f
	if n.value == nil && f != FieldHashes {
		return 0
	}
	text, isText := n.value.(str)
	items, isList := n.value.(list)
	number := func(lo, hi int64) (v int64, r Reason) {
		v, ok := asInt(n.value, lo, hi)
		if !ok {
			return 0, ReasonFieldType
		}
		return v, 0
	}
	switch f {
	case FieldHashes:
		if !isList {
			return ReasonFieldType
		}
		for i, e := range items {
			h, digest, ok := oracleHash(ev, e.(node).value)
			if !ok {
				return ReasonHash
			}
			if i == 0 {
				ev.HashBytes = digest
			} else if ev.HashBytes != digest {
				ev.HashBytes = -1
			}
			ev.Hashes = append(ev.Hashes, h)
		}
	case FieldParent:
		h, _, ok := oracleHash(ev, n.value)
		if !ok {
			return ReasonHash
		}
		ev.Parent, ev.HasParent = h, true
	case FieldTokens:
		if !isList {
			return ReasonFieldType
		}
		oracleTokens(ev, items)
	case FieldBlockSize:
		v, r := number(0, math.MaxInt32)
		ev.BlockSize = int(v)
		return r
	case FieldLoRAID:
		v, r := number(math.MinInt64, math.MaxInt64)
		ev.LoRAID, ev.HasLoRAID = v, true
		return r
	case FieldGroup:
		v, r := number(0, math.MaxInt32)
		ev.Group, ev.HasGroup = int32(v), true
		return r
	case FieldWindow:
		v, r := number(math.MinInt32, math.MaxInt32)
		ev.SlidingWindow = int(v)
		return r
	case FieldExtraKeys:
		if !isList {
			return ReasonFieldType
		}
		ev.ExtraKeys = [][]ExtraKey{}
		for _, e := range items {
			ev.ExtraKeys = append(ev.ExtraKeys, oracleExtra(e.(node)))
		}
	case FieldLookahead:
		if !isList {
			return ReasonFieldType
		}
		all := [][]uint32{}
		for _, e := range items {
			switch v := e.(node).value.(type) {
			case nil:
				all = append(all, nil)
			case list:
				ids, ok := oracleIDs(v)
				if !ok {
					return 0
				}
				all = append(all, ids)
			default:
				return 0
			}
		}
		ev.Lookahead = all
	default:
		if !isText {
			if m, ok := n.value.(table); ok && f == FieldLoRAName {
				ev.Fields &^= 1 << FieldLoRAName
				for _, p := range m {
					if k, ok := p.key.(node).value.(str); ok && string(k) == "cache_salt" {
						if r := oracleField(ev, FieldCacheSalt, p.value.(node), skip); r != 0 {
							return r
						}
					} else {
						skip()
					}
				}
				return 0
			}
			return ReasonFieldType
		}
		*map[Field]*[]byte{
			FieldMedium: &ev.Medium, FieldLoRAName: &ev.LoRAName, FieldSpecKind: &ev.SpecKind, FieldLocality: &ev.Locality,
			FieldOwnership: &ev.Ownership, FieldSessionID: &ev.SessionID, FieldCacheSalt: &ev.CacheSalt,
		}[f] = text
	}
	return 0
}

func oracleIDs(l list) (ids []uint32, ok bool) {
	for _, e := range l {
		v, ok := asInt(e.(node).value, 0, math.MaxUint32)
		if !ok {
			return nil, false
		}
		ids = append(ids, uint32(v))
	}
	return ids, true
}

func oracleTokens(ev *Event, l list) {
	var ok bool
	if ev.Tokens, ok = oracleIDs(l); ok {
		return
	}
	ev.TokenForm = TokensPairs
	for _, e := range l {
		two, isList := e.(node).value.(list)
		ids, ok := oracleIDs(two)
		if !isList || len(two) != 2 || !ok {
			ev.TokenForm, ev.Tokens = TokensOpaque, nil
			return
		}
		ev.Tokens = append(ev.Tokens, ids...)
	}
}

func oracleExtra(n node) []ExtraKey {
	l, ok := n.value.(list)
	if n.value == nil {
		return nil
	} else if !ok {
		l = list{n}
	}
	var keys []ExtraKey
	for _, e := range l {
		k := ExtraKey{Kind: ExtraOther, Text: e.(node).raw}
		switch v := e.(node).value.(type) {
		case str:
			k = ExtraKey{Kind: ExtraText, Text: v}
		case bin:
			k = ExtraKey{Kind: ExtraBytes, Text: v}
		case uint64:
			k = ExtraKey{Kind: ExtraInt, Offset: int64(v)}
		case int64:
			k = ExtraKey{Kind: ExtraInt, Offset: v}
		case list:
			if len(v) == 2 {
				id, isText := v[0].(node).value.(str)
				offset, isInt := asInt(v[1].(node).value, math.MinInt64, math.MaxInt64)
				if isText && isInt {
					k = ExtraKey{Kind: ExtraItem, Text: id, Offset: offset}
				}
			}
		}
		keys = append(keys, k)
	}
	return keys
}
