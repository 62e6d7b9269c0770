// Package dynamo reads the KV cache events that NVIDIA Dynamo relays from its
// workers to its routers: RouterEvent, in JSON and in msgpack, alone, in lists, and in
// the envelopes of its event plane. A [Follower] feeds them to a kvevents.Handler, such
// as that of a kvatlas.Atlas whose workers have Engine "dynamo".
//
// From documents: nothing here was run against Dynamo. The sources, all of
// ai-dynamo/dynamo, are
//
//   - lib/kv-router/src/protocols.rs (038eab23): RouterEvent, KvCacheEvent, storage
//     tiers, residency domains;
//   - lib/runtime/src/transports/event_plane: traits.rs (331ac67b), codec.rs
//     (bf0be57c), mod.rs (0e8f3009), zmq_transport.rs (0a8ea9dd): envelopes, their
//     numbers, the frames of ZMQ;
//   - the batches of RouterEvents that publishers encode for the event plane;
//   - the answer of the standalone indexer to GET /dump: a list of RouterEvents.
//
// What workers send to Dynamo's own publisher is vLLM's form with maps ("Publish KV
// Events from a Custom Backend" in Dynamo's documentation): kvevents.Decoder and
// kvevents.Subscriber read that, and an Atlas knows a dynamo worker's blocks by the
// tokens in it.
//
// # What becomes of an event
//
//	stored    BlockStored with Event.TokenHashes, Dynamo's hashes of each block's
//	          tokens, by which the blocks are known; from the first block with
//	          multimodal content on by hash alone, so that they match nothing
//	removed   BlockRemoved of the event's storage tier
//	cleared   AllBlocksCleared of the worker's rank, on all tiers
//
// The tiers device, host_pinned, disk and external are GPU, CPU, STORAGE and
// EXTERNAL. Events of a residency domain other than the worker's are of blocks that
// outlive it; they are left out and counted, as are those of unknown tiers. An event
// that begins behind the start of its sequence but names no parent is announced by
// hash alone.
//
// # Losses
//
// Several events may have one event_id, so that it does not show what is missing. The
// envelope's sequence does: it counts up by one for each message of a publisher, from
// 0. A hole is told to all sources that the publisher had so far, and what was known
// of them is forgotten. A source that comes from another publisher than before has
// restarted. So has a publisher whose sequence goes back; should its clock have been set
// back too, the content of messages tells (see kvevents.Sequence). Events without an
// envelope have no such numbers: what is lost before [Follower.Events] is not seen.
//
// A publisher id must be of one publisher. Should publishers of one process share it,
// their numbers contradict one another, and are taken for losses and restarts.
package dynamo
