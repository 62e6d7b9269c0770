package blockhash_test

import (
	"errors"
	"fmt"

	"github.com/kvatlas/kvatlas/blockhash"
)

// An engine with PYTHONHASHSEED=0 and block size 4.
func newHasher() *blockhash.Hasher {
	scheme, err := blockhash.SchemeFor("vllm", "0.31.0")
	if err != nil {
		panic(err)
	}
	h, err := blockhash.New(blockhash.Options{
		Scheme:    scheme,
		Algorithm: blockhash.SHA256,
		BlockSize: 4,
		Seed:      blockhash.SeedText("0"),
	})
	if err != nil {
		panic(err)
	}
	return h
}

func Example() {
	h := newHasher()
	keys, err := h.AppendKeys(nil, &blockhash.Prompt{Tokens: []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}})
	fmt.Println(keys, err)
	// Output: [10362225831949560093 12472515041799373675] <nil>
}

// A lookup stops at the first block that nobody holds: no further block is
// hashed.
func ExampleHasher_Start() {
	h := newHasher()
	held := map[uint64]bool{10362225831949560093: true}
	var chain blockhash.Chain // keep and reuse it
	if err := h.Start(&chain, &blockhash.Prompt{Tokens: make([]uint32, 100_000)}); err != nil {
		panic(err)
	}
	for {
		key, ok := chain.Next()
		if !ok || !held[key] {
			break
		}
	}
	fmt.Println("hashed:", chain.Blocks())
	// Output: hashed: 1
}

// The next turn of a conversation hashes its new blocks only.
func ExampleChain_Extend() {
	h := newHasher()
	var chain blockhash.Chain
	if err := h.Start(&chain, &blockhash.Prompt{Tokens: []uint32{1, 2, 3, 4, 5, 6}}); err != nil {
		panic(err)
	}
	first, _ := chain.Next()
	_, more := chain.Next()
	chain.Extend([]uint32{7, 8})
	second, _ := chain.Next()
	fmt.Println(first, more, second)
	// Output: 10362225831949560093 false 12472515041799373675
}

func ExampleHasher_Resume() {
	h := newHasher()
	prompt := &blockhash.Prompt{Tokens: []uint32{1, 2, 3, 4, 5, 6, 7, 8}}
	digests, err := h.AppendDigests(nil, prompt)
	if err != nil {
		panic(err)
	}
	var chain blockhash.Chain
	if err := h.Resume(&chain, prompt, 1, digests[:h.DigestSize()]); err != nil {
		panic(err)
	}
	fmt.Println(chain.Next())
	// Output: 12472515041799373675 true
}

// Some roots cannot be known. There is an error then, never a guess.
func ExampleNew_randomRoot() {
	scheme, _ := blockhash.SchemeFor("vllm", "0.20.2")
	_, err := blockhash.New(blockhash.Options{Scheme: scheme, BlockSize: 16})
	fmt.Println(errors.Is(err, blockhash.ErrRoot))
	// Output: true
}

func ExampleParseAlgorithm() {
	_, err := blockhash.ParseAlgorithm("builtin")
	fmt.Println(err)
	// Output: blockhash: unknown algorithm "builtin" (Python's own hash is not reproducible): valid names are "sha256", "sha256_cbor", "xxhash", "xxhash_cbor"
}

// The same block has the same content key whether it comes from a prompt or
// from the engine's event, whatever the engine's own hash is made of.
func ExampleContent() {
	scheme, _ := blockhash.SchemeFor("vllm", "0.20.2")
	content, err := blockhash.NewContent(blockhash.ContentOptions{Scheme: scheme, BlockSize: 4})
	if err != nil {
		panic(err)
	}
	prompt := &blockhash.Prompt{Tokens: []uint32{1, 2, 3, 4}, CacheSalt: "tenant"}
	wanted, _ := content.AppendKeys(nil, prompt)
	announced, _ := content.AppendEventKeys(nil, &blockhash.Span{
		Parent: blockhash.ContentRoot,
		Tokens: []uint32{1, 2, 3, 4},
		Extras: [][]blockhash.Extra{{{Kind: blockhash.ExtraText, Text: []byte("tenant")}}},
	})
	fmt.Println(wanted[0] == announced[0])
	// Output: true
}
