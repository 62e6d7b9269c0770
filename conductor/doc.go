// Package conductor speaks the query API of Mooncake's Conductor (RFC 1403): how many
// tokens of a prompt each instance holds, on which medium. [NewHandler] answers POST
// /query from a kvatlas.Atlas, so that routers written for the Conductor can ask it;
// [Client] asks a Conductor, or such a handler.
//
// From documents: nothing here was run against a Conductor. The sources are
// docs/source/api-reference/http/conductor-indexer.md of kvcache-ai/Mooncake
// (3b5a5941), whose examples the tests use, and, for errors, event_manager.cpp of its
// Conductor in C++ (13d50e57), which writes the names of an answer in lower case: the
// client reads both.
//
// # What an answer says
//
// Of each instance: the tokens of the longest prefix in whole blocks on each medium
// alone (GPU, CPU, DISK and what else there is; the best of its ranks), on each
// data-parallel rank whatever the medium (DP), and the longest of these. That is what is
// held, not what the engine will report: the last token of a prompt is computed all the
// same, and of models with several cache groups the first with full attention counts.
// kvatlas.WorkerMatch.Usable has the engine's rule.
//
// An instance is a worker, by Worker.Replica where it has one, with its ranks. Left out,
// rather than said to hold nothing, are instances of another block size than the query
// has, and those on which nothing can be known of the prompt. A query for another model
// or tenant than the handler's has an empty answer.
//
// Not served: /register and /unregister, since workers are added to an Atlas in the
// program; /query_by_hash, since an Atlas matches prompts.
package conductor
