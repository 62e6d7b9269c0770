// Package kvevents reads the KV cache events that inference engines publish:
// which blocks a worker stored, which it removed, when it cleared its cache.
//
// It has three layers, each useful alone:
//
//   - [Decoder] turns the msgpack payload of one message into a reusable
//     [Batch]; [ParseMessage] and [ParseReplay] read the frames around it, and
//     [AppendBatch] writes what a release would send.
//   - [Stream] makes one ordered sequence of batches from what one publisher
//     sends: gaps, replays, duplicates, restarts, and a typed [Loss] for what
//     could not be had. It has no sockets, clock or goroutines.
//   - [Subscriber] runs a Stream for each data-parallel rank of each worker over
//     sockets that reconnect (package zmtp, or another zmtp.Transport).
//
// Package kveventstest has an engine for tests, package parity finds out from
// events how an engine hashes.
//
// # Forms
//
// The decoder reads every form that vLLM 0.10.2 to 0.33 and SGLang 0.4.6 to
// 0.5.23 have sent: batches and events as arrays or as maps, hashes as integers
// of any width and sign or as digest bytes, every field of every release. What
// it does not know it counts and skips; an event that is malformed is counted
// by reason and costs none of its neighbours; a payload that is cut or not
// msgpack is an error and leaves the batch empty.
//
// # What a stream promises
//
// Batches are applied in the order of their sequence, each once. While its state
// is [Live], what was applied is exactly what the engine held after the last of
// those batches. In any other state [Status] says which way it may differ:
// Missing (blocks that we do not know) or Excess (blocks that the engine no
// longer has). With the default policy, [ClearOnLoss], Excess happens only while
// the publisher's identity is unverified.
//
// What no stream can know: what the engine has not published yet (a clear is
// published with the next step), and, without a replay endpoint, whether an
// engine that comes back with the very number that was expected is the same one.
//
// # Untrusted input
//
// Decode, ParseMessage, ParseReplay and all methods of Stream are safe on any
// bytes: no panic, no recursion, memory bounded by [Limits] and
// [StreamOptions] and checked before it is allocated, time linear in the input.
//
// # Ownership
//
// A Batch owns its numbers and borrows its texts: every []byte in an [Event]
// points into the payload that was decoded. Both are valid until the next
// Decode into the same Batch or until the payload is changed, whichever comes
// first. Decoding into a Batch that has already held as much does not
// allocate, and neither does a live message on its way through Stream and
// Subscriber to the Handler.
package kvevents
