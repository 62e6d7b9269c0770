package blockhash

import (
	"fmt"
)

// Algorithm is what vLLM calls prefix_caching_hash_algo: how a block is
// turned into bytes, and which function hashes them. The zero value is
// [SHA256], the engine's default since 0.10.2.
type Algorithm uint8

// The algorithms of vLLM. Their names are those of the engine's option.
const (
	SHA256     Algorithm = iota // "sha256": pickle protocol 5, SHA-256
	SHA256CBOR                  // "sha256_cbor": canonical CBOR, SHA-256
	XXHash                      // "xxhash": pickle protocol 5, XXH3-128; from 0.13
	XXHashCBOR                  // "xxhash_cbor": canonical CBOR, XXH3-128; from 0.13
	numAlgorithms

	// BLAKE3 is the default of LMCache's multiprocess server, over raw ids. No
	// other engine has it.
	BLAKE3 = numAlgorithms
)

var algorithmNames = [numAlgorithms]string{"sha256", "sha256_cbor", "xxhash", "xxhash_cbor"}

const blake3Name = "blake3"

// String returns the engine's name of the algorithm.
func (a Algorithm) String() string {
	if a < numAlgorithms {
		return algorithmNames[a]
	}
	if a == BLAKE3 {
		return blake3Name
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// Size returns the length of a digest in bytes: 32 for SHA-256 and
// BLAKE3, 16 for XXH3-128, 0 for a value that is no algorithm.
func (a Algorithm) Size() int {
	switch a {
	case SHA256, SHA256CBOR, BLAKE3:
		return 32
	case XXHash, XXHashCBOR:
		return 16
	}
	return 0
}

func (a Algorithm) cbor() bool { return a == SHA256CBOR || a == XXHashCBOR }
func (a Algorithm) xxh() bool  { return a == XXHash || a == XXHashCBOR }

// ParseAlgorithm returns the algorithm of an engine's option. Names are exact:
// a near miss would hash everything differently and never match, so there is
// no default and no folding of case. "builtin" (Python's hash) cannot be
// reproduced and "sha256_cbor_64bit" chained other values than "sha256_cbor"
// does: both are refused by name (LMCache still has the latter as an alias of
// "sha256_cbor"). "blake3", of LMCache's server, is known too. The error wraps
// [ErrAlgorithm] and lists vLLM's names.
func ParseAlgorithm(name string) (Algorithm, error) {
	for i, n := range algorithmNames {
		if n == name {
			return Algorithm(i), nil
		}
	}
	if name == blake3Name {
		return BLAKE3, nil
	}
	why := ""
	switch name {
	case "builtin":
		why = " (Python's own hash is not reproducible)"
	case "sha256_cbor_64bit":
		why = " (renamed in vLLM; the old one chained 64-bit values)"
	}
	return 0, fmt.Errorf("%w %.64q%s: valid names are %s", ErrAlgorithm, name, why, quoteList(algorithmNames[:]))
}
