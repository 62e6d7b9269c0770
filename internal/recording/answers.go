package recording

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// AnswersHeader says how a controller of LMCache was started.
type AnswersHeader struct {
	LMCache   string  `json:"lmcache"`
	Seed      *string `json:"python_hash_seed"`
	Algorithm string  `json:"algorithm"`
	ChunkSize int     `json:"chunk_size"`
	Partial   bool    `json:"save_unfull_chunk"`
}

// Answer is what a controller of LMCache said. Op names it: "message" is one it was
// sent, with its reply; "lookup" has its answer for some tokens; "state" are its
// counters at the end.
type Answer struct {
	N      int              `json:"n"`
	Op     string           `json:"op"`
	Type   string           `json:"type"`
	Sent   []byte           `json:"payload_b64"`
	Reply  []byte           `json:"reply_b64"` // nil for none
	Tokens []int64          `json:"tokens"`
	Keys   []ChunkKey       `json:"-"` // of a look-up
	Layout []AnsweredLayout `json:"layout_info"`
	Chunks int              `json:"-"` // of the state
	Gaps   uint64           `json:"seq_discontinuities"`
}

// ChunkKey is a key as text, a whole number that may be negative.
type ChunkKey string

// Bits returns the key's 64 bits, and whether it was negative.
func (k ChunkKey) Bits() (bits uint64, negative bool, err error) {
	text, negative := strings.CutPrefix(string(k), "-")
	if bits, err = strconv.ParseUint(text, 10, 64); negative {
		bits = -bits
	}
	return bits, negative, err
}

// AnsweredLayout is a part of the answer to a look-up.
type AnsweredLayout struct {
	Instance, Location string
	Tokens             int64
}

// UnmarshalJSON reads the list of its three values.
func (p *AnsweredLayout) UnmarshalJSON(text []byte) error {
	parts := []any{&p.Instance, &p.Location, &p.Tokens}
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	if len(parts) != 3 {
		return errors.New("layout_info: want instance, location and tokens")
	}
	return nil
}

// ReadAnswersHeader reads the first line of such a recording.
func ReadAnswersHeader(line []byte) (h AnswersHeader, err error) {
	return h, decode(line, &h)
}

// ReadAnswer reads a further one.
func ReadAnswer(line []byte) (a Answer, err error) {
	l := struct {
		*Answer
		Keys json.RawMessage `json:"keys"` // a list, of the state their number
	}{Answer: &a}
	if err = decode(line, &l); err != nil {
		return a, err
	}
	switch a.Op {
	case "lookup":
		err = decode(l.Keys, &a.Keys)
	case "state":
		err = decode(l.Keys, &a.Chunks)
	}
	return a, err
}
