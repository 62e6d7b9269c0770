package kvevents

// Batch is one decoded message: the events of one engine step in order.
//
// The zero value is an empty batch, ready for [Decoder.Decode]. A Batch is
// meant to be reused: it keeps its memory, and decoding into it does not
// allocate once it has held as much. It must not be copied while in use and
// is not safe for concurrent use.
type Batch struct {
	// Timestamp is the publisher's clock in seconds since 1970.
	Timestamp float64
	// Rank is the data-parallel rank, if HasRank.
	Rank    int32
	HasRank bool
	// Events are the good events in the order of the message, those of an
	// unknown type (Kind Unknown, only Type set) included.
	Events []Event
	// Malformed are the events that were left out, in the order of the
	// message.
	Malformed []Malformed
	// UnknownTypes counts the events in Events whose type is unknown;
	// UnknownFields the fields of known events that were skipped.
	UnknownTypes, UnknownFields int
	// Position is where the [Stream] that applies the batch is after it; none where
	// it does not know, or without a stream.
	Position Position

	hashes     []uint64
	tokens     []uint32
	extras     []ExtraKey
	extraLists [][]ExtraKey
	lookLists  [][]uint32
}

// Malformed is an event that was left out of a batch.
type Malformed struct {
	Index  int // its place in the message, from 0
	Reason Reason
	Kind   Kind // what it would have been, as far as it could be read
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	*b = Batch{
		Events: b.Events[:0], Malformed: b.Malformed[:0],
		hashes: b.hashes[:0], tokens: b.tokens[:0], extras: b.extras[:0],
		extraLists: b.extraLists[:0], lookLists: b.lookLists[:0],
	}
}

// Reason says why an event was left out.
type Reason uint8

const (
	ReasonNotAnEvent   Reason = iota + 1 // neither an array nor a map
	ReasonNoType                         // empty array, no "type" key, or a type that is not text
	ReasonDuplicateKey                   // a map with a known key twice
	ReasonMissingField                   // a required field is not there
	ReasonHash                           // a hash that is neither an integer nor at least 8 bytes
	ReasonFieldType                      // another field of the wrong type or out of range
	ReasonLength                         // extra_keys or lookahead_token_ids: not one entry per hash
	ReasonLimit                          // more hashes, tokens or keys than Limits allow
	numReasons
)

var reasonNames = [numReasons]string{
	ReasonNotAnEvent:   "not an array or map",
	ReasonNoType:       "no type name",
	ReasonDuplicateKey: "duplicate key",
	ReasonMissingField: "missing field",
	ReasonHash:         "bad hash",
	ReasonFieldType:    "field of a wrong type or range",
	ReasonLength:       "not one entry per hash",
	ReasonLimit:        "over a limit",
}

// String returns a few words for people.
func (r Reason) String() string {
	if r > 0 && r < numReasons {
		return reasonNames[r]
	}
	return "unknown reason"
}

// NumReasons is one more than the largest Reason: the length of an array
// indexed by Reason.
const NumReasons = int(numReasons)
