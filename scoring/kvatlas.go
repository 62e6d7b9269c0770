package scoring

import (
	"math"
	"sync"
	"time"
)

// KVAtlasOptions are the knobs of [NewKVAtlas]. The zero value is the default
// policy.
type KVAtlasOptions struct {
	// PrefillRate is the prompt tokens a second that a worker computes, used
	// until its own speed has been learned; 0 means 20,000. Only ratios to
	// the other terms matter: too high, and early requests follow the cache
	// less.
	PrefillRate float64
	// FetchRate is the tokens a second that come from a colder medium; where
	// 0: CPU 400,000, Storage 40,000, Remote 20,000. A medium slower than
	// computing is as good as not there.
	FetchRate [NumMedia]float64
	// Work prices the computing that a choice costs the fleet, beyond the
	// request's own wait: a prompt computed twice delays others, and takes
	// memory twice. 0 means 3; negative is off: prefixes are then copied as soon as the shortest queue
	// makes it faster for this one request. Higher keeps prefixes on fewer
	// workers and lets queues grow longer first.
	Work float64
	// RequestTime is what each request in flight at a worker counts for: it
	// slows every answer there a little. 0 means 5 ms; negative is off:
	// workers whose queues are empty then count as equal, however many answers
	// they are writing.
	RequestTime time.Duration
	// Explore is the share of requests that go to the least busy worker
	// whatever its cache, while it has less than half of the mean load: so
	// that idle and fresh workers warm up also on hot prefixes. Siblings of a
	// burst, whose prefix is still on its way, stay together. 0 means 0.05,
	// negative is off. A user sees, while a worker idles, one request in
	// twenty wait for a prompt that was cached elsewhere.
	Explore float64
	// Tolerance is how much longer a predicted time may be and still count as
	// equal, relative to the best, among workers with as much of the prompt
	// in cache; 0 means 0.05, negative is off. Equals are drawn at random, so
	// that many routers do not all choose the same victim at once.
	Tolerance float64
	// Random feeds exploration and ties; nil means the default.
	Random Random
}

// KVAtlas is the default policy: the lowest predicted time to first token wins,
// where computing something that another worker holds is also charged to the
// fleet. For each candidate it adds up, in seconds,
//
//   - queue: prompt tokens ahead of the request at the worker, at the worker's
//     learned speed: this router's own ([Load.PrefillTokens]) and, where the
//     engine's metrics show more requests waiting than this router sent, theirs;
//   - prefill: the prompt's uncached tokens, at the same speed;
//   - transfer: tokens to fetch from colder media;
//   - network: the round trip;
//   - work: the prefill once more, weighted, see [KVAtlasOptions.Work];
//   - memory: the used part of the KV cache counts up to a second, and rises
//     steeply from 92 %, where requests begin to wait for blocks;
//   - batch: requests in flight, see [KVAtlasOptions.RequestTime].
//
// What the five ways to fail come to: a hot spot's queue grows until another
// worker is faster in spite of its cold cache, which then has the prefix too; a
// fresh worker has no queue, so it gets cold requests at once and hot prefixes by
// exploration; siblings of a burst count as cached by a [Speculation] in front;
// unique prompts differ in queues only.
//
// Known limit: several routers that share nothing each see only their own part of
// the queues. Near the limit of a fleet whose prompts share large prefixes they
// copy prefixes against each other; in simulation goodput then collapses (see
// benchmarks/results/policy.md). Leave room, or send a tenant to one router.
//
// It learns each worker's speed from [KVAtlas.FirstToken], and how much to
// believe of a predicted match where the engine reports what it hit.
//
// Create it with [NewKVAtlas]. It is safe for concurrent use.
type KVAtlas struct {
	o      KVAtlasOptions
	policy *Policy

	mu      sync.RWMutex
	workers map[WorkerID]*learned
	fleet   learned
}

// learned is what was seen of a worker, as decaying sums.
type learned struct {
	xy, xx   float64 // time and tokens: seconds a token is xy/xx
	trust    float64 // reported over predicted cached tokens, moving average
	uncached float64 // of a request, moving average
	seen     float64
}

const (
	learnDecay   = 0.97
	priorSamples = 3 // weight of the fleet in a worker's speed
	memoryStart  = 0.92
	memoryWait   = 20 // seconds a unit of usage beyond that
)

// NewKVAtlas returns the default policy with nothing learned. The error is an
// [*OptionError].
func NewKVAtlas(o KVAtlasOptions) (*KVAtlas, error) {
	if err := checks("PrefillRate", o.PrefillRate, "Work", max(0, o.Work), "Explore", max(0, o.Explore), "Tolerance", max(0, o.Tolerance)); err != nil {
		return nil, err
	}
	if math.IsNaN(o.Work) || math.IsNaN(o.Explore) || math.IsNaN(o.Tolerance) {
		return nil, optionErrorf("Work, Explore, Tolerance", "not a number")
	}
	if o.RequestTime == 0 {
		o.RequestTime = 5 * time.Millisecond
	}
	o.RequestTime = max(0, o.RequestTime)
	o.PrefillRate = orDefault(o.PrefillRate, 20000)
	for m, rate := range [NumMedia]float64{GPU: math.Inf(1), CPU: 400e3, Storage: 40e3, Remote: 20e3} {
		if err := nonNegative("FetchRate["+Medium(m).String()+"]", o.FetchRate[m]); err != nil {
			return nil, err
		}
		o.FetchRate[m] = orDefault(o.FetchRate[m], rate)
	}
	o.FetchRate[GPU] = math.Inf(1)
	for _, k := range []struct {
		v        *float64
		fallback float64
	}{{&o.Work, 3}, {&o.Explore, 0.05}, {&o.Tolerance, 0.05}} {
		*k.v = max(0, orDefault(*k.v, k.fallback))
	}
	if o.Explore > 1 {
		return nil, optionErrorf("Explore", "is %v; it is a share, at most 1", o.Explore)
	}
	k := &KVAtlas{o: o, workers: map[WorkerID]*learned{}}
	k.fleet = learned{xy: 1 / o.PrefillRate, xx: 1, trust: 1, uncached: 0}
	var err error
	k.policy, err = New(Options{Name: "kvatlas", Cost: k, Picker: atlasPicker{k}, Random: o.Random})
	return k, err
}

// Policy returns the policy; always the same one.
func (k *KVAtlas) Policy() *Policy { return k.policy }

// Observation is what a request's first token tells.
type Observation struct {
	// Worker computed it.
	Worker WorkerID
	// AheadTokens were to be computed at the worker before it when it was
	// sent, PromptTokens are its own, CachedTokens the part that was
	// predicted to be in cache.
	AheadTokens, PromptTokens, CachedTokens int
	// ReportedTokens is the part that the engine says it found in its cache
	// (usage.prompt_tokens_details.cached_tokens); negative if unknown.
	ReportedTokens int
	// TTFT is the time from sending to the first token.
	TTFT time.Duration
}

// FirstToken teaches the policy. Observations that cannot be (no time, no
// prompt) are ignored.
func (k *KVAtlas) FirstToken(o Observation) {
	if o.TTFT <= 0 || o.PromptTokens <= 0 {
		return
	}
	cached := min(max(0, o.CachedTokens), o.PromptTokens)
	found := cached
	if o.ReportedTokens >= 0 {
		found = min(o.ReportedTokens, o.PromptTokens)
	}
	x, y := float64(max(0, o.AheadTokens)+o.PromptTokens-found), o.TTFT.Seconds()
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.workers[o.Worker]
	if w == nil {
		w = &learned{trust: 1}
		k.workers[o.Worker] = w
	}
	for _, l := range []*learned{w, &k.fleet} {
		l.xy, l.xx = learnDecay*l.xy+x*y, learnDecay*l.xx+x*x
		if cached > 0 && o.ReportedTokens >= 0 {
			l.trust += (1 - learnDecay) * (min(1, float64(found)/float64(cached)) - l.trust)
		}
		l.uncached += max(1-learnDecay, 1/(l.seen+1)) * (float64(o.PromptTokens-found) - l.uncached)
		l.seen++
	}
}

// Forget drops what was learned about a worker that went away or restarted.
func (k *KVAtlas) Forget(w WorkerID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.workers, w)
}

// Rate returns the learned speed of a worker in prompt tokens a second; that of
// the fleet for one that is not known.
func (k *KVAtlas) Rate(w WorkerID) float64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	perToken, _ := k.speed(w)
	return 1 / perToken
}

// speed returns seconds a token, drawn to the fleet's while little was seen, and
// the trust in matches.
func (k *KVAtlas) speed(w WorkerID) (perToken, trust float64) {
	fleet := k.fleet.xy / k.fleet.xx
	l := k.workers[w]
	if l == nil || l.xx == 0 {
		return clampSpeed(fleet), k.fleet.trust
	}
	prior := priorSamples * l.xx / min(l.seen, 1/(1-learnDecay))
	return clampSpeed((l.xy + prior*fleet) / (l.xx + prior)), l.trust
}

// clampSpeed keeps a speed between 100 and 10 million tokens a second.
func clampSpeed(perToken float64) float64 { return min(1e-2, max(1e-7, perToken)) }

// Name implements [Cost].
func (k *KVAtlas) Name() string { return "ttft" }

// Cost implements [Cost], in seconds.
func (k *KVAtlas) Cost(req *Request, candidates []*Candidate, dst []float64) error {
	k.fill(req, candidates, dst, nil)
	return nil
}

var atlasTerms = [...]string{"queue", "prefill", "transfer", "network", "work", "memory", "batch"}

// Explain implements [Explainer] with every term in seconds.
func (k *KVAtlas) Explain(req *Request, candidates []*Candidate, term func(string, []float64)) string {
	var terms [len(atlasTerms)][]float64
	for i := range terms {
		terms[i] = make([]float64, len(candidates))
	}
	k.fill(req, candidates, make([]float64, len(candidates)), &terms)
	for i, name := range atlasTerms {
		term(name, terms[i])
	}
	return ""
}

func (k *KVAtlas) fill(req *Request, candidates []*Candidate, dst []float64, terms *[len(atlasTerms)][]float64) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	fill(PrefillTokens, candidates, dst)
	rtt, requests, usages := mean(RTT, candidates), mean(Requests, candidates), mean(KVUsage, candidates)
	for i, c := range candidates {
		perToken, trust := k.speed(c.ID)
		perToken /= c.capability()
		fetched, transfer := k.transfer(req, c, perToken)
		held := trust * float64(fetched)
		uncached := max(1, float64(req.Tokens)-held)
		ahead := dst[i]
		if w := c.Load.Waiting; w.Known && c.Load.Queued.Known {
			ahead += max(0, w.Value-c.Load.Queued.Value) * k.fleet.uncached
		}
		usage := c.Load.KVUsage.Or(usages)
		t := [len(atlasTerms)]float64{
			ahead * perToken, uncached * perToken, transfer, c.Load.RTT.Or(rtt) / 1000, k.o.Work * uncached * perToken,
			usage + max(0, usage-memoryStart)*memoryWait, k.o.RequestTime.Seconds() * c.Load.Requests.Or(requests),
		}
		dst[i] = 0
		for n, v := range t {
			dst[i] += v
			if terms != nil {
				terms[n][i] = v
			}
		}
	}
}

// transfer returns the tokens of a match worth having and the time to fetch those
// on colder media. Media slower than computing end the match.
func (k *KVAtlas) transfer(req *Request, c *Candidate, perToken float64) (tokens int32, seconds float64) {
	m := &c.Match
	if m.Blocks[CPU]+m.Blocks[Storage]+m.Blocks[Remote] == 0 || m.Total() == 0 {
		return m.Usable, 0
	}
	perBlock := float64(m.Usable) / float64(m.Total())
	kept := 0.0
	for medium, n := range m.Blocks {
		part := float64(n) * perBlock
		if 1/k.o.FetchRate[medium] >= perToken {
			break
		}
		kept += part
		seconds += part / k.o.FetchRate[medium]
	}
	return int32(kept), seconds
}

// atlasPicker takes the lowest cost, at random among near-equals that hold as
// much of the prompt, and explores.
type atlasPicker struct{ k *KVAtlas }

func (p atlasPicker) Pick(candidates []*Candidate, totals []float64, random Random) int {
	if p.k.o.Explore > 0 && len(candidates) > 1 && random.Float64() < p.k.o.Explore && settled(candidates) {
		if i, ok := idlest(candidates, random); ok {
			return i
		}
	}
	best := 0
	ties := 1
	for i, t := range totals[1:] {
		switch {
		case t > totals[best]:
			best, ties = i+1, 1
		case t == totals[best]:
			if ties++; random.IntN(ties) == 0 {
				best = i + 1
			}
		}
	}
	// Totals are negative costs. A tolerance of nothing leaves exact ties,
	// which were drawn above.
	floor := totals[best] - p.k.o.Tolerance*math.Abs(totals[best])
	chosen, n := best, 0
	for i, t := range totals {
		if t < floor || candidates[i].Match.Usable < candidates[best].Match.Usable {
			continue
		}
		if n++; random.IntN(n) == 0 {
			chosen = i
		}
	}
	return chosen
}

// settled reports whether no match is speculative.
func settled(candidates []*Candidate) bool {
	for _, c := range candidates {
		if c.Match.Speculative > 0 {
			return false
		}
	}
	return true
}

// idlest returns the candidate with the fewest requests, at random among equals,
// if that is less than half of the mean.
func idlest(candidates []*Candidate, random Random) (int, bool) {
	average := mean(Requests, candidates)
	chosen, least, n := 0, math.Inf(1), 0
	for i, c := range candidates {
		load := c.Load.Requests.Or(average)
		switch {
		case load < least:
			chosen, least, n = i, load, 1
		case load == least:
			if n++; random.IntN(n) == 0 {
				chosen = i
			}
		}
	}
	return chosen, least < average/2
}
