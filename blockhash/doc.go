// Package blockhash computes the block hashes of LLM engines, byte for byte.
//
// An engine that caches the KV state of prompts cuts a prompt into blocks of
// tokens and names each block by a hash chained over everything before it. It
// announces blocks by these names. Whoever computes the same names for a new
// prompt knows which engine already holds its beginning.
//
// The function differs between engines and changes about every second vLLM
// release, so each era is a named, immutable [Scheme], found by [SchemeFor].
// [New] compiles a scheme, an [Algorithm], a [Seed] and a block size into a
// [Hasher]. A Hasher gives all keys of a prompt at once
// ([Hasher.AppendKeys], [Hasher.AppendDigests]), or one after the other
// through a caller-owned [Chain], so that a lookup that stops at the first
// unknown block has hashed one block.
//
// Some hashes cannot be computed outside the engine: a root made of random
// bytes ([ErrRoot]), or an opaque hash. [Content] keys such blocks by their
// content instead, equally from a prompt and from an engine's events.
//
// When two hashes differ, [Hasher.Explain] lists the bytes that were hashed,
// opcode by opcode, and [Hasher.AppendEventDigests] computes what an event
// should have announced. Package conformance checks other hashers against the
// engine's answers.
//
// The rule of this package: a hash equals the engine's, or there is an error.
// It never guesses.
//
// # Engines
//
// vLLM from 0.10.2 on is complete: pickle and CBOR, SHA-256 and XXH3-128, LoRA,
// multimodal items, salts, prompt embeddings, lookahead. SGLang, LMCache and
// LMCache's server are there by release, Dynamo's and Mooncake's keys of plain
// prompts by definition (Dynamo from 1.6 with adapter and salt); TensorRT-LLM's are opaque. [Schemes] lists the
// eras; all but Dynamo, Mooncake and TensorRT-LLM are tested against answers of
// the engine itself, kept in the repository's testdata.
//
// # Speed
//
// Hashers are immutable and meant to be kept; making one costs a hash of the
// seed. Append functions do not allocate when dst has room. A Chain keeps its
// buffer, so reuse it. A block's bytes are encoded by hand straight into one
// buffer: no pickle or CBOR library runs. On amd64 the SHA extensions and
// AVX-512 are used where the processor has them; the build tag purego leaves
// them out. With xxhash the append functions encode some blocks ahead of the
// one being hashed.
//
// Three ways lead past the hash function's own cost: a Chain stops where the
// lookup does; [Hasher.Resume] goes on after a known digest; and with
// [Options].MemoBytes a Hasher remembers the digests of prompts seen before.
// Prompts at hand together are hashed side by side by [Hasher.AppendKeysEach].
//
// # Untrusted input
//
// Every function here is safe on any prompt: limits are checked before work,
// and nothing panics. Cost is linear in the prompt.
package blockhash
