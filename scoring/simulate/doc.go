// Package simulate plays request traces against a fleet of modelled engines and
// real policies of package scoring, to compare policies before traffic does.
//
// It is a discrete-event simulation: engines batch continuously, compute prompts
// in chunks beside decoding, and keep blocks in an LRU cache as vLLM does (a
// request pins its blocks, freed blocks stay cached until they are reused, tail
// first; the last token of a prompt is always computed). Events reach the routers
// late, metrics are scraped from time to time, several router replicas know only
// what they sent themselves or hear of each other's requests late, workers come and
// go by a plan or with the load.
// Everything but the time that routers take is decided by the seed: the same
// configuration gives the same result on every machine.
//
// # What is not modelled
//
// Preemption (a request is admitted only when all blocks it will need are free),
// generated tokens as cached prefixes, network bandwidth, CPU time of engines and
// routers, tensor or pipeline parallelism beyond one speed figure. A result says
// how policies compare on this model; it is not a forecast of a fleet.
package simulate
