package blockhash

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

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
// Python starts with "random" and with what C's strtoul reads as 0 to 4294967295 only
// (also " 7", "+7"), but vLLM hashes whatever the variable holds later, which a
// program may have set itself: so other texts are seeds too. See [Seed.Validate] for what
// can be none.
func SeedText(text string) Seed { return Seed{seedText, text} }

// SeedRoot is a root hash that was recorded from the engine's process
// (vLLM's NONE_HASH): the way to parity with an engine whose root is random.
// vLLM's roots have 16 or 32 bytes; [New] refuses other lengths. The bytes are
// copied.
func SeedRoot(digest []byte) Seed { return Seed{seedRoot, string(digest)} }

// Validate says why no engine can have the seed. A variable of the environment has no NUL
// byte. One with bytes that are not UTF-8 has lone surrogates in Python, by which CPython's
// pickle gives a root and cbor2 an error; no such seed is known, so it is not reproduced. The
// error wraps [ErrOptions], for a root of another length than 16 or 32 bytes [ErrRoot].
func (s Seed) Validate() error {
	switch n := len(s.data); {
	case s.kind == seedRoot && n != 16 && n != 32:
		return fmt.Errorf("%w: the recorded root has %d bytes: want 16 or 32", ErrRoot, n)
	case s.kind == seedText && strings.IndexByte(s.data, 0) >= 0:
		return optionError("Seed %v has a NUL byte, which no environment variable can have", s)
	case s.kind == seedText && !utf8.ValidString(s.data):
		return optionError("Seed %v is not valid UTF-8", s)
	}
	return nil
}

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
