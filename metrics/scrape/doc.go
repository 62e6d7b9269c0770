// Package scrape reads the load of inference engines from their /metrics pages,
// for policies that weigh it against a cache hit: requests running and waiting,
// use of the KV cache, and the engine's own counts of cache hits and preemptions.
//
// [Parse] takes what is wanted out of one page (Prometheus text, OpenMetrics, or
// the JSON of older TensorRT-LLM) in one pass without allocating; it knows the names
// of vLLM (old and new), SGLang and TensorRT-LLM, alone or under Triton. [Scraper]
// polls many engines in turns, with deadlines, and keeps the last answer of each.
// Where an engine can do so it is asked for the wanted metrics alone.
//
// What an engine does not say is unknown, never 0: see [scoring.Gauge].
//
// A hit rate can be high because an engine evicts and computes again: look at it
// together with the preemptions.
package scrape
