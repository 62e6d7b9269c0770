package kvevents

// Positions after the type name in the array form (testdata/vllm/server/README.md
// and testdata/sglang/README.md). vLLM 0.10.2 to 0.23 and SGLang to 0.5.19 send a leading part of them.
var (
	storedPositions = [...]Field{FieldHashes, FieldParent, FieldTokens, FieldBlockSize, FieldLoRAID,
		FieldMedium, FieldLoRAName, FieldExtraKeys, FieldGroup, FieldSpecKind, FieldWindow}
	removedPositions = [...]Field{FieldHashes, FieldMedium, FieldGroup}
)

// The fields of each kind in the map form, and those every release sends. A
// parent that is not there is not the same as nil: nil says "root".
var (
	storedFields   = FieldSet(1<<numFields - 1)
	storedRequired = fields(FieldHashes, FieldParent, FieldTokens, FieldBlockSize)
	removedFields  = fields(FieldHashes, FieldMedium, FieldGroup, FieldLocality, FieldOwnership)
	removedNeeds   = fields(FieldHashes)
)

// event reads one event of any form into ev, which is zero.
func (r *reader) event(ev *Event) fault {
	h, f := r.peek()
	if f != 0 {
		return f
	}
	switch {
	case h>>4 == 9 || h == 0xdc || h == 0xdd:
		ev.Wire = WireArray
		f = r.arrayEvent(ev)
	case h>>4 == 8 || h == 0xde || h == 0xdf:
		ev.Wire = WireMap
		f = r.mapEvent(ev)
	case h == 0xc1:
		return faultInvalid
	default:
		return ReasonNotAnEvent
	}
	if f != 0 {
		return f
	}
	return ev.check()
}

// check looks at the event as a whole.
func (ev *Event) check() fault {
	required := FieldSet(0)
	switch ev.Kind {
	case BlockStored:
		required = storedRequired
	case BlockRemoved:
		required = removedNeeds
	}
	if ev.Fields&required != required {
		return ReasonMissingField
	}
	if ev.ExtraKeys != nil && len(ev.ExtraKeys) != len(ev.Hashes) ||
		ev.Lookahead != nil && len(ev.Lookahead) != len(ev.Hashes) {
		return ReasonLength
	}
	return 0
}

// kind reads the type name into ev.
func (r *reader) kind(ev *Event) fault {
	name, f := r.text(false)
	if f == ReasonFieldType {
		return ReasonNoType
	}
	ev.Type = name
	switch string(name) {
	case "BlockStored":
		ev.Kind = BlockStored
	case "BlockRemoved":
		ev.Kind = BlockRemoved
	case "AllBlocksCleared":
		ev.Kind = AllBlocksCleared
	}
	return f
}

func (r *reader) arrayEvent(ev *Event) fault {
	n, f := r.arrayLen()
	if f != 0 {
		return f
	}
	if n == 0 {
		return ReasonNoType
	}
	if f = r.kind(ev); f != 0 {
		return f
	}
	var positions []Field
	switch ev.Kind {
	case Unknown:
		r.b.UnknownTypes++
	case BlockStored:
		positions = storedPositions[:]
	case BlockRemoved:
		positions = removedPositions[:]
	}
	for i := range n - 1 {
		if i < len(positions) {
			f = r.field(ev, positions[i])
		} else {
			f = r.unknownField(ev)
		}
		if f != 0 {
			return f
		}
	}
	return 0
}

func (r *reader) mapEvent(ev *Event) fault {
	n, f := r.mapLen()
	if f != 0 {
		return f
	}
	start := r.pos
	if f = r.findType(ev, n); f != 0 {
		return f
	}
	r.pos = start
	known := FieldSet(0)
	switch ev.Kind {
	case Unknown:
		r.b.UnknownTypes++
	case BlockStored:
		known = storedFields
	case BlockRemoved:
		known = removedFields
	}
	types := 0
	for range n {
		key, f := r.text(false)
		if f == ReasonFieldType { // a key that is no text: some unknown field
			f = r.skip()
		}
		if f != 0 {
			return f
		}
		if string(key) == "type" {
			if types++; types > 1 {
				return ReasonDuplicateKey
			}
			f = r.skip()
		} else if id, ok := fieldNamed(key); ok && known.Has(id) {
			f = r.field(ev, id)
		} else {
			f = r.unknownField(ev)
		}
		if f != 0 {
			return f
		}
	}
	return 0
}

// findType reads the type of an event map of n entries. Engines send it first.
func (r *reader) findType(ev *Event, n int) fault {
	for range n {
		key, f := r.text(false)
		if f == ReasonFieldType {
			f = r.skip()
		}
		if f != 0 {
			return f
		}
		if string(key) == "type" {
			return r.kind(ev)
		}
		if f = r.skip(); f != 0 {
			return f
		}
	}
	return ReasonNoType
}

func (r *reader) unknownField(ev *Event) fault {
	if ev.Kind != Unknown {
		r.b.UnknownFields++
	}
	return r.skip()
}

func fieldNamed(key []byte) (Field, bool) {
	switch string(key) {
	case "block_hashes":
		return FieldHashes, true
	case "parent_block_hash":
		return FieldParent, true
	case "token_ids":
		return FieldTokens, true
	case "block_size":
		return FieldBlockSize, true
	case "lora_id":
		return FieldLoRAID, true
	case "medium":
		return FieldMedium, true
	case "lora_name":
		return FieldLoRAName, true
	case "extra_keys":
		return FieldExtraKeys, true
	case "group_idx":
		return FieldGroup, true
	case "kv_cache_spec_kind":
		return FieldSpecKind, true
	case "kv_cache_spec_sliding_window":
		return FieldWindow, true
	case "locality":
		return FieldLocality, true
	case "ownership":
		return FieldOwnership, true
	case "session_id":
		return FieldSessionID, true
	case "cache_salt":
		return FieldCacheSalt, true
	case "lookahead_token_ids":
		return FieldLookahead, true
	}
	return 0, false
}
