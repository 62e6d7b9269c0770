package scoring

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
)

// KVAtlasOptions are the knobs of [NewKVAtlas]. The zero value is the default
// policy.
type KVAtlasOptions struct {
	// PrefillRate is the prompt tokens a second that a worker computes, from 100
	// to 10 million, used until its own speed has been learned; 0 means 20,000.
	// Only ratios to the other terms matter: too high, and early requests follow
	// the cache less.
	PrefillRate float64
	// FetchRate is the tokens a second that come from a colder medium; where
	// 0: CPU 400,000, Storage 40,000, Remote 20,000. A medium slower than
	// computing is as good as not there.
	FetchRate [NumMedia]float64
	// Work prices the computing that a choice costs the fleet, beyond the
	// request's own wait: a prompt computed twice delays others, and takes
	// memory twice. It counts so many times, and once more for each request
	// that waits at a worker on average, as those would be delayed; so in a
	// rush prompts go where they are cached, however long the queue is there.
	// 0 means 3; negative is off, and prefixes are then copied as soon as the
	// shortest queue makes it faster for this one request. Higher keeps
	// prefixes on fewer workers and lets queues grow longer first.
	Work float64
	// RequestTime is what each request in flight at a worker counts for: it
	// slows every answer there, and its own is slowed by them. 0 means 40 ms;
	// negative is off: workers whose queues are empty then count as equal,
	// however many answers they are writing.
	RequestTime time.Duration
	// Objective is the time to first token that should be kept; 0 means 3 s.
	// A worker that is predicted to miss it counts half of it more. A request
	// that would be late everywhere goes behind the longest queue there is, up
	// to ten times the objective, so that the other queues stay short: in an
	// overload a user then sees most requests in time and some very late, and
	// not all of them late. Negative is off.
	Objective time.Duration
	// Explore is the share of requests that go to the least busy worker
	// whatever its cache, while it has less than half of the mean load: so
	// that idle and fresh workers warm up also on hot prefixes. Siblings of a
	// burst, whose prefix is still on its way, stay together. Replicas that tell
	// each other explore with the same prompts, drawn by [Request.Novel], and
	// not with what some worker holds whole. 0 means 0.05, negative is off. A
	// user sees, while a worker idles, one request in twenty wait for a prompt
	// that was cached elsewhere.
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
//     engine's metrics show requests that this router did not send, their part of
//     those that wait, at the mean of tokens a request;
//   - prefill: the prompt's uncached tokens, at the same speed;
//   - transfer: tokens to fetch from colder media;
//   - network: the round trip;
//   - work: the prefill again, for those whom it delays, see [KVAtlasOptions.Work];
//   - memory: the used part of the KV cache counts up to a second, and rises
//     steeply from 92 %, where requests begin to wait for blocks;
//   - batch: requests in flight, see [KVAtlasOptions.RequestTime];
//   - unheard: prompt tokens that another replica is expected to be sending there
//     ([Load.Unheard]), beyond those at every worker, at the worker's speed, and half
//     of the objective at most;
//   - late: half of the objective where the first four, the queue with a margin
//     of 40 %, and unheard exceed it, see [KVAtlasOptions.Objective];
//   - yield: where they do so everywhere, minus the queue and a tenth of it, so
//     that what is late anyway waits where most others wait (and minus what the
//     best costs, so that no other is nearly as good);
//   - agree: minus what other routers may have sent there, see below;
//   - draw: minus what makes one of near-equals the best, see below.
//
// What the five ways to fail come to: a hot spot's queue grows until another
// worker is faster in spite of its cold cache, which then has the prefix too, and
// the more hold it the less a further copy is charged with: the others will use it; a
// fresh worker has no queue, so it gets cold requests at once and hot prefixes by
// exploration; siblings of a burst count as cached by a [Speculation] in front;
// unique prompts differ in queues only.
//
// Replicas of a router should tell each other what they send ([Peers]): each then
// decides by the same figures. Of workers that cost about the same (within a fifth
// of the time to compute what nobody holds) all take the same one, by hashing
// [Request.Novel] with the workers' names: different prompts go to different
// workers, and siblings that reach all replicas at once are computed once.
// Where unrelated prompts reach all at once, each replica uses workers of its own
// first (the term unheard).
//
// Routers that share nothing each know only what they sent themselves, and would
// compute the same new prompt once each. So each first unknown block has a home,
// found by the same hash among all workers. The home's work and prefill of what
// nobody holds count less: by the part of the fleet's requests that is not known to
// this router (the engines' counts against the account), and less in loads whose
// prompts have nothing in common. Without scraped metrics, or with one router, this
// does nothing.
//
// Known limit: routers that share nothing estimate what the others have queued from
// metrics that are some tenths of a second old, and no two of them agree on whom
// to let be late. While the fleet keeps up they do nearly as well as one; in an
// overload they do not (benchmarks/results/policy.md has figures, with and without
// notes).
//
// It learns each worker's speed from [KVAtlas.FirstToken], from 100 to 10 million
// prompt tokens a second, and how much to believe of a predicted match where the engine
// reports what it hit.
//
// Create it with [NewKVAtlas]. It is safe for concurrent use.
type KVAtlas struct {
	o      KVAtlasOptions
	policy *Policy

	mu      sync.RWMutex
	workers slots[learned]
	fleet   learned
	reuse   float64 // part of prompts that was predicted to be cached, moving average
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

	// Seconds a token that are learned, and by how much one observation changes that
	// when so many were seen.
	slowest, fastest         = 1e-2, 1e-7
	oneSays                  = 8
	learnSlower, learnFaster = 8, 32

	memoryStart = 0.92
	memoryWait  = 20 // seconds a unit of usage beyond that

	// Predictions of a queue of 3 s were found to be right within a third, so
	// a queue counts as late with this margin.
	queueMargin = 1.4
	lateShare   = 0.5 // of the objective, for missing it
	yieldShare  = 0.1 // of the queue, beyond the queue itself
	yieldLimit  = 10  // objectives; no request yields to a longer queue

	// The price of one more copy falls with the square of the copies beyond so
	// many, each of holderShare of what the best has at least.
	firstCopies = 2
	holderShare = 0.8

	drawShare = 0.2 // of the time to compute what nobody holds

	// Of the objective, for what others may be sending: a worker of theirs that waits
	// for nothing must be better than one's own where requests are late.
	unheardShare = 0.5

	exploreSalt = 0x6578706c6f7265 // any number, for a hash of its own

	reuseLearn = 0.02
	reuseFull  = 0.5 // from this part on, new blocks are taken to be shared
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
		o.RequestTime = 40 * time.Millisecond
	}
	if o.Objective == 0 {
		o.Objective = 3 * time.Second
	}
	o.RequestTime = max(0, o.RequestTime)
	o.PrefillRate = orDefault(o.PrefillRate, 20000)
	if o.PrefillRate < 1/slowest || o.PrefillRate > 1/fastest {
		return nil, optionErrorf("PrefillRate", "is %v; 100 to 1e7 tokens a second are possible (0 takes the default)", o.PrefillRate)
	}
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
	k := &KVAtlas{o: o, reuse: reuseFull}
	k.fleet = learned{xy: 1 / o.PrefillRate, xx: 1, trust: 1, uncached: 0}
	var err error
	k.policy, err = New(Options{Name: "kvatlas", Cost: k, Picker: atlasPicker{k}, Random: o.Random})
	return k, err
}

// Policy returns the policy; always the same one.
func (k *KVAtlas) Policy() *Policy {
	if k == nil {
		return nil
	}
	return k.policy
}

// Validate refuses a policy that [NewKVAtlas] did not make.
func (k *KVAtlas) Validate() error {
	if !k.made() {
		return constError("was not made by NewKVAtlas")
	}
	return nil
}

func (k *KVAtlas) made() bool { return k != nil && k.o.PrefillRate > 0 }

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

// FirstToken teaches the policy. Observations that cannot be are ignored: no time, or
// more than an hour; no prompt; more than 2^31-1 tokens, or more than ten million a
// second.
//
// One that can be and yet is far from all others, as of an engine that hung or a clock
// that was set, has a limited say: after 8 observations, one makes the time a token that
// was learned at most 8 times as long, after 32 not less than an eighth. One that is so
// slow weighs no more than all before it, however long its prompt: it fades with every
// further one, to a half within 23 of prompts like those before. One that is so fast
// weighs by its length as any: where most prompts are short, and take a while all the
// same, the few long ones tell the speed. Before that the first few decide alone.
func (k *KVAtlas) FirstToken(o Observation) {
	if !k.made() || o.TTFT <= 0 || o.TTFT > time.Hour || o.PromptTokens <= 0 || o.PromptTokens > mostTokens || o.AheadTokens > mostTokens {
		return
	}
	cached := min(max(0, o.CachedTokens), o.PromptTokens)
	found := cached
	if o.ReportedTokens >= 0 {
		found = min(o.ReportedTokens, o.PromptTokens)
	}
	x, y := float64(max(0, o.AheadTokens))+float64(o.PromptTokens-found), o.TTFT.Seconds()
	if x*fastest > y {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reuse += reuseLearn * (float64(cached)/float64(o.PromptTokens) - k.reuse)
	for _, l := range [...]*learned{k.worker(o.Worker), &k.fleet} {
		l.speed(x, y)
		if cached > 0 && o.ReportedTokens >= 0 {
			l.trust += (1 - learnDecay) * (min(1, float64(found)/float64(cached)) - l.trust)
		}
		l.uncached += max(1-learnDecay, 1/(l.seen+1)) * (float64(o.PromptTokens-found) - l.uncached)
		l.seen++
	}
}

// speed learns from the time for some tokens; that for none says nothing of it.
func (l *learned) speed(tokens, seconds float64) {
	if tokens == 0 {
		return
	}
	xy, xx := learnDecay*l.xy, learnDecay*l.xx // of the first xy/xx is no number and limits nothing
	l.xy, l.xx = xy+tokens*seconds, xx+tokens*tokens
	switch {
	case l.seen >= learnSlower && l.xy/l.xx > oneSays*xy/xx:
		l.xy, l.xx = oneSays*xy, xx
	case l.seen >= learnFaster && l.xy/l.xx < xy/xx/oneSays:
		l.xy = xy / xx / oneSays * l.xx
	}
}

// worker returns what is learned of a worker, to be changed.
func (k *KVAtlas) worker(w WorkerID) *learned {
	l := k.workers.get(w)
	if l == nil {
		l = &learned{trust: 1}
		k.workers.put(w, l)
	}
	return l
}

// Forget drops what was learned about a worker that went away or restarted.
func (k *KVAtlas) Forget(w WorkerID) {
	if !k.made() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.workers.remove(w)
}

// Rate returns the learned speed of a worker in prompt tokens a second, from 100 to 10
// million; that of the fleet for one that is not known. It is 0 of a policy that
// [NewKVAtlas] did not make.
func (k *KVAtlas) Rate(w WorkerID) float64 {
	if !k.made() {
		return 0
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	perToken, _ := k.speed(w)
	return 1 / perToken
}

// speed returns seconds a token, drawn to the fleet's while little was seen, and
// the trust in matches.
func (k *KVAtlas) speed(w WorkerID) (perToken, trust float64) {
	fleet := k.fleet.xy / k.fleet.xx
	l := k.workers.get(w)
	if l == nil || l.xx == 0 {
		return min(slowest, fleet), k.fleet.trust
	}
	prior := priorSamples * l.xx / min(l.seen, 1/(1-learnDecay))
	return min(slowest, (l.xy+prior*fleet)/(l.xx+prior)), l.trust
}

// Name implements [Cost].
func (k *KVAtlas) Name() string { return "ttft" }

// Cost implements [Cost], in seconds.
func (k *KVAtlas) Cost(req *Request, candidates []*Candidate, dst []float64) error {
	if !k.made() {
		return ErrNil
	}
	k.fill(req, candidates, dst, nil)
	return nil
}

const (
	termQueue = iota
	termPrefill
	termTransfer
	termNetwork
	termWork
	termMemory
	termBatch
	termUnheard
	termLate
	termYield
	termAgree
	termDraw
	numTerms
)

var atlasTerms = [numTerms]string{"queue", "prefill", "transfer", "network", "work", "memory", "batch", "unheard", "late", "yield", "agree", "draw"}

type atlasCost [numTerms]float64

func (t *atlasCost) sum() (s float64) {
	for _, v := range t {
		s += v
	}
	return s
}

// predicted is the time to first token, with a margin for the queue.
func (t *atlasCost) predicted() float64 {
	return queueMargin*t[termQueue] + t[termUnheard] + t[termPrefill] + t[termTransfer] + t[termNetwork]
}

// Explain implements [Explainer] with every term in seconds.
func (k *KVAtlas) Explain(req *Request, candidates []*Candidate, term func(string, []float64)) string {
	if !k.made() {
		return ""
	}
	terms := make([]atlasCost, len(candidates))
	late := k.fill(req, candidates, make([]float64, len(candidates)), terms)
	for n, name := range atlasTerms {
		values := make([]float64, len(candidates))
		for i := range terms {
			values[i] = terms[i][n]
		}
		term(name, values)
	}
	if late {
		return "late everywhere: behind the longest queue"
	}
	return ""
}

// fill sets dst to the costs, and terms, if not nil, to what they are made of. It
// reports whether the request is late everywhere.
func (k *KVAtlas) fill(req *Request, candidates []*Candidate, dst []float64, terms []atlasCost) (late bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	fill(PrefillTokens, candidates, dst)
	v := k.view(req, candidates)
	objective := k.o.Objective.Seconds()
	soonest := math.Inf(1)
	for i, c := range candidates {
		t := v.terms(i, c, dst[i])
		soonest = min(soonest, t.predicted())
	}
	late = objective > 0 && soonest > objective
	for i, c := range candidates {
		t := v.terms(i, c, dst[i])
		switch {
		case late && t[termQueue] < yieldLimit*objective:
			t[termYield] = -(1 + yieldShare) * t[termQueue]
		case !late && objective > 0 && t.predicted() > objective:
			t[termLate] = lateShare * objective
		}
		if dst[i] = t.sum(); terms != nil {
			terms[i] = t
		}
	}
	if late { // nothing is nearly as good: the best costs nothing
		best := slices.Min(dst)
		for i := range dst {
			if dst[i] -= best; terms != nil {
				terms[i][termYield] -= best
			}
		}
	}
	drawn := v.explore(candidates)
	if drawn < 0 && v.home >= 0 && !late {
		drawn = v.draw(candidates, dst)
	}
	if drawn >= 0 { // it costs less than the best, beyond the tolerance
		best := slices.Min(dst)
		less := dst[drawn] - best + (k.o.Tolerance+0.01)*max(1, math.Abs(best))
		if dst[drawn] -= less; terms != nil {
			terms[drawn][termDraw] = -less
		}
	}
	return late
}

// atlasView is what is the same for all candidates of a decision.
type atlasView struct {
	k                     *KVAtlas
	req                   *Request
	rtt, requests, usages float64 // means, for those who do not know
	delayed               float64 // requests that a second of work delays, see copyPrice
	novel                 float64 // tokens that nobody holds
	home                  int     // candidate where other routers may have sent them; -1 for none
	shared                float64 // how much that is to be believed, 0 to 1
	told                  bool    // others tell what they send
	unheard, late         float64 // tokens that they are sending to any worker; seconds for more, at most
}

func (k *KVAtlas) view(req *Request, candidates []*Candidate) atlasView {
	v := atlasView{k: k, req: req, rtt: mean(RTT, candidates), requests: mean(Requests, candidates), usages: mean(KVUsage, candidates), home: -1}
	waiting, own, heard, all, held := 0.0, 0.0, 0.0, 0.0, int32(0)
	v.unheard, v.late = math.Inf(1), math.Inf(1)
	for _, c := range candidates {
		l := &c.Load
		waiting += max(l.Waiting.Or(0), l.Queued.Or(0))
		held = max(held, c.Match.Usable)
		v.unheard = min(v.unheard, l.Unheard.Or(0))
		if l.Requests.Known && l.Running.Known && l.Waiting.Known {
			own += l.Requests.Value
			heard += l.Peers.Or(0)
			all += max(l.Requests.Value, l.Running.Value+l.Waiting.Value)
		}
	}
	if k.o.Work > 0 {
		v.delayed = (k.o.Work + waiting/float64(len(candidates))) * copyPrice(candidates, held)
	}
	v.novel = max(0, float64(req.Tokens)-float64(held))
	v.told = told(candidates)
	if k.o.Objective > 0 {
		v.late = unheardShare * k.o.Objective.Seconds()
	}
	if req.Novel == 0 || all <= own && heard == 0 {
		return v
	}
	v.shared = (1 - own/max(1, all)) * min(1, k.reuse/reuseFull)
	v.home = rendezvous(req.Novel, candidates, func(int) bool { return true })
	return v
}

// rendezvous returns the candidate, of those that qualify, that every router would
// choose for a block; -1 if none does.
func rendezvous(novel uint64, candidates []*Candidate, qualifies func(int) bool) int {
	chosen, highest := -1, uint64(0)
	for i, c := range candidates {
		if !qualifies(i) {
			continue
		}
		if h := mix(novel, xxh3.HashString(c.Name)); chosen < 0 || h > highest {
			chosen, highest = i, h
		}
	}
	return chosen
}

// explore returns the candidate for a request that all replicas which tell each
// other explore with, by the same hash, so that siblings which reach them at once
// are computed once more and not once each; -1 for the others.
func (v *atlasView) explore(candidates []*Candidate) int {
	if !v.told || v.req.Novel == 0 || float64(mix(v.req.Novel, exploreSalt)>>11)/(1<<53) >= v.k.o.Explore || !settled(candidates) {
		return -1
	}
	average := mean(Requests, candidates)
	least := math.Inf(1)
	for _, c := range candidates {
		least = min(least, c.Load.Requests.Or(average))
	}
	if least >= average/2 {
		return -1
	}
	return rendezvous(v.req.Novel, candidates, func(i int) bool { return candidates[i].Load.Requests.Or(average) <= least })
}

// draw returns the candidate that all routers which know the same take, of those
// that cost about as little as the best and hold as much as it.
func (v *atlasView) draw(candidates []*Candidate, costs []float64) int {
	best := 0
	for i, cost := range costs {
		if cost < costs[best] {
			best = i
		}
	}
	perToken, _ := v.k.speed(candidates[best].ID)
	limit := costs[best] + v.k.o.Tolerance*math.Abs(costs[best]) + drawShare*v.novel*perToken
	drawn := rendezvous(v.req.Novel, candidates, func(i int) bool {
		return costs[i] <= limit && candidates[i].Match.Usable >= candidates[best].Match.Usable
	})
	if drawn < 0 { // the limit is no number, as a signal was none: the Policy refuses such costs
		return best
	}
	return drawn
}

// copyPrice is the part of the work that one more copy of a prefix is charged with:
// all of it while few workers hold it, less the more do, as their requests will use
// the copy too.
func copyPrice(candidates []*Candidate, held int32) float64 {
	copies := 0.0
	for _, c := range candidates {
		if held > 0 && float64(c.Match.Usable) >= holderShare*float64(held) {
			copies++
		}
	}
	scarce := firstCopies / max(firstCopies, copies)
	return scarce * scarce
}

// terms returns what a candidate costs; ahead is this router's tokens queued
// there.
func (v *atlasView) terms(i int, c *Candidate, ahead float64) (t atlasCost) {
	k, l := v.k, &c.Load
	perToken, trust := k.speed(c.ID)
	perToken /= c.capability()
	fetched, transfer := k.transfer(v.req, c, perToken)
	uncached := max(1, float64(v.req.Tokens)-trust*float64(fetched))
	ahead += othersWaiting(l) * k.fleet.uncached
	usage := l.KVUsage.Or(v.usages)
	t = atlasCost{
		termQueue: ahead * perToken, termPrefill: uncached * perToken, termTransfer: transfer,
		termNetwork: l.RTT.Or(v.rtt) / 1000, termWork: v.delayed * uncached * perToken,
		termMemory:  usage + max(0, usage-memoryStart)*memoryWait,
		termBatch:   k.o.RequestTime.Seconds() * l.Requests.Or(v.requests),
		termUnheard: min(v.late, (l.Unheard.Or(0)-v.unheard)*perToken),
	}
	if i == v.home {
		t[termAgree] = -v.shared * min(v.novel, uncached) * perToken * (1 + v.delayed)
	}
	return t
}

// othersWaiting estimates how many requests of other routers wait in the engine:
// of those that wait, as many as of all that are there. Where the engine does not
// say how many are, what waits beyond one's own.
func othersWaiting(l *Load) float64 {
	if !l.Waiting.Known || !l.Queued.Known {
		return 0
	}
	if !l.Running.Known || !l.Requests.Known {
		return max(0, l.Waiting.Value-l.Queued.Value)
	}
	all := l.Running.Value + l.Waiting.Value
	if all <= l.Requests.Value {
		return 0
	}
	return l.Waiting.Value * (1 - l.Requests.Value/all)
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
	if p.k.o.Explore > 0 && len(candidates) > 1 && !told(candidates) && random.Float64() < p.k.o.Explore && settled(candidates) {
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

// told reports whether other replicas tell what they send: exploring is then in the
// costs.
func told(candidates []*Candidate) bool {
	for _, c := range candidates {
		if c.Load.Peers.Or(0) > 0 {
			return true
		}
	}
	return false
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
