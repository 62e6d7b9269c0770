package kvevents

import (
	"iter"
	"math/bits"
	"strings"
)

// Field is a field of an event that this package knows.
type Field uint8

const (
	FieldHashes Field = iota
	FieldParent
	FieldTokens
	FieldBlockSize
	FieldLoRAID
	FieldMedium
	FieldLoRAName
	FieldExtraKeys
	FieldGroup
	FieldSpecKind
	FieldWindow
	FieldLocality
	FieldOwnership
	FieldSessionID
	FieldCacheSalt
	FieldLookahead
	numFields
)

var fieldNames = [numFields]string{
	FieldHashes:    "block_hashes",
	FieldParent:    "parent_block_hash",
	FieldTokens:    "token_ids",
	FieldBlockSize: "block_size",
	FieldLoRAID:    "lora_id",
	FieldMedium:    "medium",
	FieldLoRAName:  "lora_name",
	FieldExtraKeys: "extra_keys",
	FieldGroup:     "group_idx",
	FieldSpecKind:  "kv_cache_spec_kind",
	FieldWindow:    "kv_cache_spec_sliding_window",
	FieldLocality:  "locality",
	FieldOwnership: "ownership",
	FieldSessionID: "session_id",
	FieldCacheSalt: "cache_salt",
	FieldLookahead: "lookahead_token_ids",
}

// String returns the field's name on the wire.
func (f Field) String() string {
	if f < numFields {
		return fieldNames[f]
	}
	return "field?"
}

// FieldSet is a set of fields. The zero value is empty; values are comparable.
type FieldSet uint32

func fields(fs ...Field) (s FieldSet) {
	for _, f := range fs {
		s |= 1 << f
	}
	return s
}

// Has reports whether f is in the set.
func (s FieldSet) Has(f Field) bool { return s>>f&1 == 1 }

// Len returns the number of fields in the set.
func (s FieldSet) Len() int { return bits.OnesCount32(uint32(s)) }

// All iterates over the fields in the order of their constants.
func (s FieldSet) All() iter.Seq[Field] {
	return func(yield func(Field) bool) {
		for f := range numFields {
			if s.Has(f) && !yield(f) {
				return
			}
		}
	}
}

// String lists the wire names, separated by spaces.
func (s FieldSet) String() string {
	var b strings.Builder
	for f := range s.All() {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(f.String())
	}
	return b.String()
}
