// Package kvevents reads the KV cache events that inference engines publish:
// which blocks a worker stored, which it removed, when it cleared its cache.
//
// A [Decoder] turns the msgpack payload of one message into a reusable
// [Batch]. It reads every form that vLLM 0.10.2 to 0.33 and SGLang 0.4.6 to
// 0.5.23 have sent: batches and events as arrays or as maps, hashes as
// integers of any width and sign or as digest bytes, every field of every
// release. What it does not know it counts and skips; an event that is
// malformed is counted by reason and costs none of its neighbours; a payload
// that is cut or not msgpack is an error and leaves the batch empty.
//
// [ParseMessage] and [ParseReplay] read the frames around a payload.
// [AppendBatch] is the other direction, for tests and for the fake engine.
//
// # Untrusted input
//
// Decode, ParseMessage and ParseReplay are safe on any bytes: no panic, no
// recursion, memory bounded by [Limits] and checked before it is allocated,
// time linear in the input.
//
// # Ownership
//
// A Batch owns its numbers and borrows its texts: every []byte in an [Event]
// points into the payload that was decoded. Both are valid until the next
// Decode into the same Batch or until the payload is changed, whichever comes
// first. Decoding into a Batch that has already held as much does not
// allocate.
package kvevents
