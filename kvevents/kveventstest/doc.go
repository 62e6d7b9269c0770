// Package kveventstest is an inference engine for tests: a prefix cache that
// behaves, and a publisher that speaks the wire of a chosen release over real
// sockets, with faults on demand.
//
//	e, err := kveventstest.Start(kveventstest.Options{Release: "0.32.0", Replay: true})
//	defer e.Close()
//	hit := e.Serve(tokens)          // what the engine reuses, in tokens
//	e.Inject(kveventstest.Drop, 2)  // the next two batches never arrive
//	e.Restart()                     // empty cache, sequence from 0, same ports
//
// The cache is a pool of physical blocks with least-recently-used eviction:
// equal blocks can be held twice and are announced and removed copy by copy,
// a look-up is capped at all tokens but one, window groups keep and announce
// only what the window needs, and a CPU tier announces its copies one step
// late and by hash alone, as engines do (testdata/vllm/server/README.md and
// testdata/vllm/tiers/README.md). What it holds can be asked at any time, so that a consumer can be
// compared with the truth.
//
// It is meant for tests of any kind, also outside this module. It is not an
// engine: hashes are its own unless [Options.Hash] gives others ([HashAs]: a
// release's), and the look-up rule of several groups is the plain one.
package kveventstest
