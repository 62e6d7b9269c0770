package blockhash

import "fmt"

// Seed says what the engine's root hash is made of. The zero value is an
// engine without PYTHONHASHSEED in its environment. Seeds are comparable.
type Seed struct {
	kind seedKind
	data string
}

type seedKind uint8

const (
	seedUnset seedKind = iota
	seedText
	seedRoot
)

// SeedText is the value of PYTHONHASHSEED in the engine's environment. It is
// text, never a number: "0" and "00" are different seeds, "random" is a seed
// like any other, and so is the empty text (the variable is set, to nothing).
func SeedText(text string) Seed { return Seed{seedText, text} }

// SeedRoot is a root hash that was recorded from the engine's process
// (vLLM's NONE_HASH): the way to parity with an engine whose root is random.
// vLLM's roots have 16 or 32 bytes; [New] refuses other lengths. The bytes are
// copied.
func SeedRoot(digest []byte) Seed { return Seed{seedRoot, string(digest)} }

// String describes the seed for logs.
func (s Seed) String() string {
	switch s.kind {
	case seedText:
		return fmt.Sprintf("PYTHONHASHSEED=%q", s.data)
	case seedRoot:
		return fmt.Sprintf("root %x", s.data)
	}
	return "PYTHONHASHSEED unset"
}
