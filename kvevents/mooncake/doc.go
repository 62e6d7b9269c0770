// Package mooncake reads the KV cache events of Mooncake's RFC 1527 ("KV Events API
// Standardization"), in JSON and in msgpack: one, a list of them, or the batches that
// mooncake_master publishes over ZMQ. A [Follower] feeds them to a kvevents.Handler,
// such as that of a kvatlas.Atlas whose workers have Engine "mooncake".
//
// From documents: nothing here was run against Mooncake. The sources, all of
// kvcache-ai/Mooncake, are
//
//   - docs/source/api-reference/http/conductor-indexer.md (3b5a5941), with RFC 1403
//     and RFC 1527: envelopes, payloads, streams, the hashing standard;
//   - mooncake-store/src/kv_event/kv_event_publisher.cpp (3b5a5941): what the
//     master publishes.
//
// # How blocks are known
//
// A publisher that follows the hashing standard (XXH3-64 with a seed, rolling) is known
// by its seq_hashes: give the worker that seed, Worker.XXH3Seed. All others must send
// token_ids, and their blocks are known by these. Mooncake's master sends neither
// tokens nor a place in a prompt, and hashes only where the object's key is one: without
// the seed its blocks match nothing.
//
// # What becomes of an event
//
//	stored    BlockStored of the event's medium, with its tokens if it has any and
//	          its place is known: parent_hash, or base_block_idx 0
//	removed   BlockRemoved of the event's medium only
//	cleared   AllBlocksCleared of the event's medium only, of all where it has none
//
// The media gpu, cpu and disk are GPU, CPU and STORAGE; others keep their names in
// capitals. The source of an event is its backend_id and dp_rank. Events of another
// model, tenant or salt than the [Options] say are left out and counted, and all of
// adapters (lora_name): the blocks of one are never taken for those of another. That a
// publisher sends blocks under a request's salt, or with images in them, with an
// additional_salt of their own is taken from the RFC's word.
//
// The master's backend_id is of a pool: a worker of that name shows what the pool holds,
// and is no engine to route to (Request.Workers names those that are).
//
// # Losses
//
// RFC 1527 numbers the events of each stream (model, block size, salt, adapter, tenant,
// backend, medium, rank) one by one: [Follower.Events] goes by event_id. The master
// counts through all its streams, and numbers its messages: [Follower.Frames] goes by
// the message's number instead. A hole is a kvevents.Loss, and what was known of the
// source is forgotten on all its media. A first number of 0 or 1 is a beginning.
//
// The timestamp tells a number that came twice from a publisher that began anew; where
// that one's clock was set back, the content does (see kvevents.Sequence). Without a
// timestamp it is taken for a publisher that began anew.
package mooncake
