// Package kvatlas tells an LLM gateway which replica already holds a prompt's KV
// cache.
//
// Inference engines keep the attention state of prompts in blocks and reuse it for
// the next prompt with the same prefix. They do not answer "do you hold this?";
// they publish events about hashed blocks. An [Atlas] hashes prompts exactly as
// each worker's engine release does, keeps from the events who holds what on which
// medium, and computes from that how many tokens the engine will take from its
// cache: what it predicts is what the engine then reports. [Atlas.Route] weighs
// that against load and names a worker, with its reasons if asked.
//
// The package wires others that are useful alone: blockhash (the engines' block
// hashes), kvevents (their events on the wire), radix (the index and the engines'
// hit rules) and scoring (policies).
//
// # Use
//
// Register each worker with [Atlas.AddWorker], described or found out from its events
// ([Worker.Auto]). Give [Atlas.Handler] to a kvevents.Subscriber, which follows the
// engines' sockets and lets a router that starts late catch up by their replays, from
// another router's snapshot on if there is one ([Atlas.ReadSnapshot]); or feed the
// payloads of a stream to [Atlas.Apply] in order. Ask [Atlas.Match] or
// [Atlas.Route] from as many goroutines as there are requests, and follow each request
// with [Atlas.Begin], so that the policy knows the load. Results are owned by the caller;
// reuse them, and a decision does not allocate.
//
// Of engines known from documents only, and of LMCache's controller, the packages below
// kvevents (trtllm, dynamo, mooncake, lmcache) read the events; package kveventstest is an
// engine for tests.
//
// # What it does not do
//
// It does not forward requests, does not tokenize by guess, and does not predict
// what no event shows: blocks that are being evicted or stored at this moment,
// requests that ask the engine to skip its cache.
package kvatlas
