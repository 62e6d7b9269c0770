package simulate

import "math"

// Engine describes the speed and size of one worker. The zero value is
// [Llama8BOnH100].
type Engine struct {
	// FlopsPerToken is the dense work for a token, AttentionFlops the further
	// work for each token before it, Flops what the device does in a second.
	FlopsPerToken, AttentionFlops, Flops float64
	// WeightBytes are read in each step, KVBytes for each token of context of
	// each decoding request, at Bandwidth bytes a second.
	WeightBytes, KVBytes, Bandwidth float64
	// Overhead is added to each step, in seconds.
	Overhead float64
	// BatchTokens is the budget of a step, MaxRequests the batch.
	BatchTokens, MaxRequests int
	// KVTokens is the size of the device cache, HostTokens of a cache in host
	// memory that takes what the device evicts (0: none); HostBandwidth bytes
	// a second load from it.
	KVTokens, HostTokens int
	HostBandwidth        float64
}

// Llama8BOnH100 is Llama-3.1-8B in bfloat16 on one H100 SXM 80 GB, derived from
// published figures:
//
//   - 2 FLOP a parameter and token, and 4·layers·width FLOP a token of context
//     (8.03 B parameters, 32 layers, width 4096: the model's config.json);
//   - 989 TFLOP/s dense bfloat16 and 3.35 TB/s (NVIDIA's H100 data sheet), of
//     which engines reach about a half and four fifths (the utilizations
//     reported by Sarathi-Serve, OSDI 2024, and in vLLM's and SGLang's
//     published profiles);
//   - 128 KiB of KV cache a token (2·32 layers·8 heads·128·2 bytes) and room for
//     500,000 tokens beside the weights, as llm-d's approximate prefix plugin
//     computes for the same model and device;
//   - 8,192 batched tokens and 1,024 requests: what vLLM's get_batch_defaults
//     (engine/arg_utils.py, since 0.9) takes for serving on a device of 70 GB or
//     more;
//   - host memory over PCIe 5.0 x16 at 50 GB/s.
//
// That is a cold prompt of 12,000 tokens in 0.48 s, and a step of 32 requests
// with 8,000 tokens of context in 19 ms.
func Llama8BOnH100() Engine {
	return Engine{
		FlopsPerToken: 2 * 8.03e9, AttentionFlops: 4 * 32 * 4096, Flops: 0.5 * 989e12,
		WeightBytes: 2 * 8.03e9, KVBytes: 128 << 10, Bandwidth: 0.8 * 3.35e12, Overhead: 0.001,
		BatchTokens: 8192, MaxRequests: 1024, KVTokens: 500_000, HostBandwidth: 50e9,
	}
}

// job is one request inside an engine.
type job struct {
	arrival  *Arrival
	flight   *flight
	computed int // prompt tokens in the cache, computed or in this step
	out      int // tokens generated
	cached   int // tokens that were not computed
	held     []*block
	reserved int // blocks set aside for the output
	first    float64
}

// worker is one simulated engine.
type worker struct {
	id      int
	name    string
	e       *Engine
	speed   float64 // noise: 1 is the engine's own
	cache   *cache
	waiting []*job
	running []*job
	alive   bool
	joined  float64
	left    float64

	stepping  bool
	stepStart float64
	stepTime  float64 // of one step
	steps     int     // steps of the stretch under way
	version   int     // of the event that ends it
	chunk     []int   // prompt tokens of each running job in this step

	requests float64 // integral of requests in the worker over time
	changed  float64 // when it was last brought up to date
	computed int
}

// blocksFor returns the blocks of a number of tokens.
func blocksFor(tokens, size int) int { return (tokens + size - 1) / size }

// plan starts the next step or stretch of equal steps, and returns when it ends;
// false if there is nothing to do.
//
// As in vLLM, running requests come first, then waiting ones while there is
// budget and room; whole blocks of a chunk count as cached as soon as the chunk is
// scheduled, so siblings admitted in the same step share them.
func (w *worker) plan(now float64) (end float64, ok bool) {
	budget := w.e.BatchTokens
	flops, context, shortest, prefill := 0.0, 0.0, math.MaxInt, 0
	w.chunk = w.chunk[:0]
	compute := func(j *job) {
		n := max(0, min(budget, j.arrival.Tokens-j.computed))
		mean := float64(j.computed) + float64(n)/2
		flops += float64(n) * (w.e.FlopsPerToken + w.e.AttentionFlops*mean)
		budget, prefill = budget-n, prefill+n
		w.cache.computed(j, n)
		j.computed += n
		w.chunk = append(w.chunk, n)
	}
	for _, j := range w.running {
		if j.out > 0 {
			budget--
			flops += w.e.FlopsPerToken
			context += float64(j.arrival.Tokens + j.out)
			shortest = min(shortest, j.arrival.Output-j.out)
			w.chunk = append(w.chunk, 0)
			continue
		}
		compute(j)
	}
	for len(w.waiting) > 0 && len(w.running) < w.e.MaxRequests && budget > 0 && w.cache.admit(w.waiting[0]) {
		j := w.waiting[0]
		w.waiting = w.waiting[1:]
		w.running = append(w.running, j)
		j.flight.admitted(j)
		compute(j)
	}
	if len(w.running) == 0 {
		w.stepping = false
		return 0, false
	}
	bytes := w.e.WeightBytes + w.e.KVBytes*context
	w.stepTime = (w.e.Overhead + max(flops/w.e.Flops, bytes/w.e.Bandwidth)) / w.speed
	if t := w.cache.takeTransfer(); t > 0 {
		w.stepTime += t / w.e.HostBandwidth
	}
	w.steps = 1
	if prefill == 0 { // nothing changes until the shortest answer is complete
		w.steps = max(1, shortest)
	}
	w.stepping, w.stepStart = true, now
	w.version++
	return now + float64(w.steps)*w.stepTime, true
}

// account brings the integral of requests up to date, before they change.
func (w *worker) account(now float64) {
	w.requests += float64(len(w.waiting)+len(w.running)) * (now - w.changed)
	w.changed = now
}

// cut ends a stretch at the next step, because a request arrived; it returns when
// that is, and false if the stretch ends by itself anyway.
func (w *worker) cut(now float64) (end float64, ok bool) {
	done := int((now-w.stepStart)/w.stepTime) + 1
	if !w.stepping || done >= w.steps {
		return 0, false
	}
	w.steps = done
	w.version++
	return w.stepStart + float64(done)*w.stepTime, true
}

// finish applies the step or stretch that ends now. Requests that got their first
// token or are complete are reported.
func (w *worker) finish(now float64) {
	kept := w.running[:0]
	for i, j := range w.running {
		w.computed += w.chunk[i]
		switch {
		case j.out > 0:
			j.out += w.steps
		case j.computed >= j.arrival.Tokens:
			j.out, j.first = 1, now
			j.flight.firstToken(j, now)
		}
		if j.out > 0 && j.out >= j.arrival.Output {
			w.cache.release(j)
			j.flight.finished(j, now)
			continue
		}
		kept = append(kept, j)
	}
	w.running = kept
}
