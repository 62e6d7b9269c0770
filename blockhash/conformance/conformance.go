// Package conformance checks a block hasher against what vLLM itself answered.
//
// It is for whoever computes vLLM's block hashes with code of their own, in
// any language that a Go test can call: [Run] feeds it vectors of every era,
// algorithm and kind of extra key, and shows for a block that differs what
// should have been hashed, byte by byte.
//
//	func TestMyHasher(t *testing.T) {
//		conformance.Run(t, func(v *conformance.Vector) ([][]byte, error) {
//			return myhasher.Hash(v.Version, v.Algorithm, v.Root, v.BlockSize, v.Prompt.Tokens)
//		})
//	}
//
// The vectors it carries ([Vectors]) are a selection of those in the
// repository's testdata, made by the engine's own functions; [Read] reads all
// of them, or others of the same format. See testdata/vllm/hash/README.md for
// how they were made.
package conformance

//go:generate go run ./gen

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/kvatlas/kvatlas/blockhash"
)

// Vector is one prompt with the engine's answer. It is shared: do not change
// it.
type Vector struct {
	Engine  string // "vllm"
	Version string // release that answered
	Name    string // what the case shows
	// Seed is PYTHONHASHSEED, nil when it was not set.
	Seed *string
	// Root is the engine's NONE_HASH. Where RandomRoot is set it cannot be
	// computed and has to be taken from here.
	Root       []byte
	RandomRoot bool

	Algorithm     blockhash.Algorithm
	BlockSize     int
	Lookahead     int
	SharedObjects bool // equal strings are one Python object
	Prompt        blockhash.Prompt

	Digests [][]byte // one per block
	Keys    []uint64 // their 64-bit form on the wire
}

// String names the vector for messages.
func (v *Vector) String() string {
	return fmt.Sprintf("%s %s, %s, %s", v.Engine, v.Version, v.Algorithm, v.Name)
}

//go:embed vectors.jsonl.gz
var embedded []byte

var vectors = sync.OnceValues(func() ([]Vector, error) {
	z, err := gzip.NewReader(bytes.NewReader(embedded))
	if err != nil {
		return nil, err
	}
	return Read(z)
})

// Vectors returns the vectors that the package carries: hundreds, of every
// era. The slice is shared: do not change it.
func Vectors() []Vector {
	list, err := vectors()
	if err != nil {
		panic(err) // the file is part of this package and of its test
	}
	return list
}

// TB is the part of [testing.TB] that Run needs. It is spelled out so that
// programs do not link package testing.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// ErrSkip is for a hash function to return when it does not claim a vector's
// era, algorithm or extra keys. Run counts and reports these.
var ErrSkip = errors.New("conformance: not claimed")

// Summary counts what Run saw.
type Summary struct{ Passed, Failed, Skipped int }

// Hash is the function under test: it returns the digests of all blocks of
// the vector's prompt, or their last eight bytes, one slice per block.
type Hash func(v *Vector) ([][]byte, error)

// Run calls hash for each of the vectors, or for [Vectors] when none are
// given, and reports every difference to t with the bytes that should have
// been hashed.
func Run(t TB, hash Hash, list ...Vector) Summary {
	t.Helper()
	if list == nil {
		list = Vectors()
	}
	var sum Summary
	for i := range list {
		v := &list[i]
		got, err := hash(v)
		if err == nil {
			err = compare(v, got)
		}
		switch {
		case errors.Is(err, ErrSkip):
			sum.Skipped++
		case err != nil:
			sum.Failed++
			t.Errorf("%v: %v", v, err)
		default:
			sum.Passed++
		}
	}
	return sum
}

func compare(v *Vector, got [][]byte) error {
	for i := range min(len(got), len(v.Digests)) {
		want := v.Digests[i]
		if len(got[i]) == 8 {
			want = want[len(want)-8:]
		}
		if !bytes.Equal(got[i], want) {
			return fmt.Errorf("block %d: got %x, the engine has %x\n%s", i, got[i], want, v.explain(i))
		}
	}
	if len(got) != len(v.Digests) {
		return fmt.Errorf("got %d blocks, the engine has %d", len(got), len(v.Digests))
	}
	return nil
}

// explain shows what the engine hashed for a block.
func (v *Vector) explain(block int) string {
	h, err := v.Hasher()
	if err != nil {
		return err.Error()
	}
	x, err := h.Explain(&v.Prompt, block)
	if err != nil {
		return err.Error()
	}
	return strings.TrimRight(x.String(), "\n")
}

// Hasher returns this library's hasher for the vector.
func (v *Vector) Hasher() (*blockhash.Hasher, error) {
	scheme, err := blockhash.SchemeFor(v.Engine, v.Version)
	if err != nil {
		return nil, err
	}
	opt := blockhash.Options{Scheme: scheme, Algorithm: v.Algorithm, BlockSize: v.BlockSize, Lookahead: v.Lookahead,
		SharedObjects: v.SharedObjects}
	switch {
	case v.RandomRoot:
		opt.Seed = blockhash.SeedRoot(v.Root)
	case v.Seed != nil:
		opt.Seed = blockhash.SeedText(*v.Seed)
	}
	return blockhash.New(opt)
}
