// Package radix is the index of a KV-cache fleet: which worker holds which
// block of which prompt, on which medium and in which cache group, and how many
// tokens of a prompt the worker's engine will therefore not compute again.
//
// A block's key is the 64-bit wire form of the engine's chained block hash (see
// package blockhash). Since the hash of a block covers everything before it, a
// key names a whole prefix, and membership of keys alone decides a match: no
// tree, no parents and no positions have to be known. An orphan, a block of a
// masked group and a block behind a hole are held under their own key and count
// as soon as everything in front of them is there again.
//
// # State
//
// The index counts, for each (worker, medium, group), the copies of every key:
// engines announce equal blocks copy by copy and remove them copy by copy
// (testdata/vllm/truth/RULES.md, section 2). A removal of something that is not held is
// counted in [Stats] and changes nothing. One index is one hash domain: put
// models, hash schemes or tenants that must not see each other into an index
// each.
//
// A worker is one cache, that is one data-parallel rank of one replica.
//
// # Answers
//
// [Index.Match] compares one prompt with all workers, or with a subset, at once.
// For each it reports the contiguous prefix by medium, the combined prefix, a
// score weighted by medium, and the tokens the engine will report as cached:
// exactly its own look-up rule, by release and layout, as [Profile] describes
// them. The result is the caller's and is reused; a match does not allocate once
// the result has grown.
//
// # Concurrency and cost
//
// Any number of goroutines may match while others write. Readers take no lock and
// write nothing that others read but a cell of their own; writers share one lock.
// A match of a prompt costs about a nanosecond for every three blocks of the
// longest prefix, and little more for many workers that hold the same. A clear or
// the removal of a worker takes effect at once, whatever the worker holds; the
// memory is given back by later writes, or by [Index.Tidy].
//
// A block costs about 20 bytes, a further holder of it well below one where
// holders agree on whole stretches; see [Stats.Bytes] and, for a bound,
// [Options.MaxBytes]. LAYOUT.md in the package's folder describes the memory and
// why readers need no lock.
//
// Store keys in the order of their chain, and with their parent
// ([Index.StoreAfter]) where the event names it: look-ups are faster where a
// chain lies in one piece. Correctness does not depend on it.
//
// # Never too much
//
// A look-up never reports a block that was not held at some instant of the call.
// What the index does not know (an unknown release, a prompt length of zero, a
// lost event) can only make an answer smaller, with one documented exception:
// where an engine's events do not name their cache group although it has
// several (vLLM before 0.20), answers are an upper bound and say so
// ([WorkerMatch.UpperBound]).
//
// Hashes are taken for what they stand for: two blocks with one key are one block,
// and stretches of 64 keys are compared by a secret digest, which takes about one in
// 2^58 of those that differ for equal.
package radix
