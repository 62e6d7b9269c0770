package kvevents

// Kind is what an event says happened. The zero value is Unknown.
type Kind uint8

const (
	Unknown          Kind = iota // a type name that this package does not know
	BlockStored                  // blocks became available
	BlockRemoved                 // one copy of each named block went away
	AllBlocksCleared             // a pool was emptied; the event does not say which
)

// String returns the engine's name of the kind, "Unknown" for the zero value.
func (k Kind) String() string {
	switch k {
	case BlockStored:
		return "BlockStored"
	case BlockRemoved:
		return "BlockRemoved"
	case AllBlocksCleared:
		return "AllBlocksCleared"
	}
	return "Unknown"
}

// TokenForm says how [Event.Tokens] is to be read. The zero value is
// TokensPlain.
type TokenForm uint8

const (
	// TokensPlain: one token id an element.
	TokensPlain TokenForm = iota
	// TokensPairs: the pairs (t_i, t_i+1) that SGLang sends under EAGLE,
	// flattened: elements 2i and 2i+1 are pair i.
	TokensPairs
	// TokensOpaque: at least one id does not fit a uint32 (a negative
	// placeholder, say) or is no integer. Tokens is empty; the hashes of the
	// event are good all the same.
	TokensOpaque
)

// ExtraKind says which value an [ExtraKey] holds. The zero value is
// ExtraOther.
type ExtraKind uint8

const (
	ExtraOther ExtraKind = iota // none of the forms below; Text is its msgpack encoding
	ExtraText                   // LoRA name, cache salt, or item identifier before vLLM 0.19
	ExtraItem                   // (identifier, offset relative to the block): multimodal item
	ExtraBytes                  // digest of prompt embeds
	ExtraInt                    // an integer, such as a LoRA id
)

// ExtraKey is one extra key of a block as the event carries it: untagged in
// every release so far (testdata/vllm/server/README.md). What it stands for
// follows from its kind and place: with a LoRA name set the first text of a
// block is the adapter; remaining text is the salt.
type ExtraKey struct {
	Kind   ExtraKind
	Text   []byte // ExtraText, ExtraBytes, the identifier of ExtraItem; borrowed from the payload
	Offset int64  // the offset of ExtraItem, the value of ExtraInt (its low 64 bits)
}

// Event is one cache event. Fields that the engine did not send, or sent as
// nil, have their zero value; [Event.Fields] tells which were on the wire.
//
// An Event is part of the [Batch] that it was decoded into and is valid as
// long as that one is; see the package documentation for its texts.
type Event struct {
	Kind Kind
	// TokenForm says how Tokens is to be read.
	TokenForm TokenForm
	// HasParent, HasLoRAID and HasGroup say whether Parent, LoRAID and Group
	// were sent with a value.
	HasParent, HasLoRAID, HasGroup bool
	// Wire is what the encoding tells of the sender.
	Wire Wire
	// Fields is the set of known fields that were on the wire, nil ones
	// included.
	Fields FieldSet

	// Type is the event's type name.
	Type []byte
	// Hashes are the block hashes in the order of the event: the integer's
	// low 64 bits, or the last 8 bytes of a digest read as big-endian.
	Hashes []uint64
	// HashBytes is the length of the digests that Hashes were cut from; 0
	// when they were integers, -1 when the event mixes forms.
	HashBytes int
	// Parent is the hash of the block before the span, if HasParent.
	Parent uint64
	// Tokens are the token ids of the whole span, which may be longer than
	// len(Hashes)*BlockSize (masked groups) or empty (offload tiers).
	Tokens []uint32
	// BlockSize is in tokens: of the group, of a partial block, or 0.
	BlockSize int
	// LoRAID is the adapter's number, if HasLoRAID.
	LoRAID int64
	// LoRAName is the adapter's name (vLLM 0.14, SGLang 0.5.22).
	LoRAName []byte
	// Medium is the tier as the engine spells it; empty means the device.
	Medium []byte
	// ExtraKeys has one entry per hash, nil for a block without extra keys.
	// It is nil when the event has no such field (before vLLM 0.17).
	ExtraKeys [][]ExtraKey
	// Group is the index of the cache group, if HasGroup (vLLM 0.20).
	Group int32
	// SpecKind is the kind of the cache group, such as "full_attention"
	// (vLLM 0.22).
	SpecKind []byte
	// SlidingWindow is the window of the group in tokens, 0 when not sent
	// (vLLM 0.22).
	SlidingWindow int
	// Locality is "LOCAL" or "REMOTE" (vLLM 0.26).
	Locality []byte
	// Ownership names a secondary offload tier (vLLM 0.26).
	Ownership []byte
	// SessionID is the session that caused the event (vLLM 0.30, SGLang
	// 0.5.20). The block may be shared with others.
	SessionID []byte
	// CacheSalt is the salt of the span (SGLang 0.5.18).
	CacheSalt []byte
	// Lookahead has the tokens after each block that its hash covers too, one
	// list per hash; nil when not sent (vLLM 0.33).
	Lookahead [][]uint32
	// TokenHashes has a hash of the tokens of each block, one per hash, where a
	// relay sends these in place of tokens (package dynamo); else nil.
	TokenHashes []uint64
}

// Short reports whether the event has token ids, but fewer than its blocks need. Of
// blocks on the device no engine sends that: the event contradicts itself, and nothing
// tells which half is wrong. More tokens than blocks are normal (masked groups), and so
// are none at all (offload tiers): then the hashes are good.
func (ev *Event) Short() bool {
	n := len(ev.Tokens)
	if ev.TokenForm == TokensPairs {
		n /= 2
	}
	return ev.Kind == BlockStored && n > 0 && int64(n) < int64(len(ev.Hashes))*int64(ev.BlockSize)
}
