// Package scoring decides which worker serves a prompt.
//
// A decision is a fixed pipeline over plain values: [Filter]s drop candidates,
// weighted [Scorer]s add up to a total (or one [Cost] is its negative), and a
// [Picker] takes one. A [Policy] is that pipeline validated once and immutable;
// any number of goroutines may decide with it at the same time, each with a
// [Decision] of its own.
//
// The package knows nothing of hashes, sockets or metrics: the caller fills a
// [Candidate] for each worker from its index and its load signals. A load that
// nobody measured is unknown, never zero: see [Gauge]. One that cannot be, as of a
// page that was read wrong, is unknown too, and said: see [Decision].Faults.
//
// # Which policy
//
// [KVAtlas] is the default: it predicts each worker's time to first token, charges
// the fleet for what is computed twice, and keeps an objective for as many
// requests as it can. [Preset] makes the policies of
// today's routers by name, with their defaults, for moving over without a change
// of behaviour and for comparing on one trace; package simulate does that.
// [PrefixLoad] is the simplest that works. [Shadow] runs two side by side.
//
// # What stands around a policy
//
// Each is a part of its own and works with every policy:
//
//   - [InFlight] counts what was sent where and merges it with scraped metrics;
//   - [Speculation] knows the blocks on their way to a worker before its events;
//   - [Peers] counts in what other replicas of the router send;
//   - [Affinity] pins conversations, keys, responses and prompts;
//   - [History] and [TextTree] stand in for the index where engines publish no
//     events.
//
// All of them are bounded, safe for concurrent use, and take a clock for tests.
//
// What has a constructor needs it, unless it says otherwise: of a nil or zero value
// methods with an error return [ErrNil], all others do nothing and answer as if nothing
// were known, and constructors refuse it as an option.
//
// # Cost
//
// [Policy.Decide] does not allocate once its Decision has been used with as many
// candidates, unless [Request.Explain] is set. Filters and scorers are called
// once a decision, not once a candidate.
package scoring
