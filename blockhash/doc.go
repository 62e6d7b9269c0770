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
// The rule of this package: a hash equals the engine's, or there is an error.
// It never guesses.
//
// # Speed
//
// Hashers are immutable and meant to be kept; making one costs a hash of the
// seed. Append functions do not allocate when dst has room. A Chain keeps its
// buffer, so reuse it. A block's bytes are encoded by hand straight into one
// buffer: no pickle or CBOR library runs.
//
// # Untrusted input
//
// Every function here is safe on any prompt: limits are checked before work,
// and nothing panics. Cost is linear in the prompt.
package blockhash
