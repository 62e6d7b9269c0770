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
// nobody measured is unknown, never zero: see [Gauge].
//
// # Cost
//
// [Policy.Decide] does not allocate once its Decision has been used with as many
// candidates, unless [Request.Explain] is set. Filters and scorers are called
// once a decision, not once a candidate.
package scoring
