package simulate

import (
	"math"
	"slices"
	"time"
)

// Result is what a simulation came to.
type Result struct {
	// Requests were sent, Good of them met both objectives, Unfinished were
	// still open 300 s after the last arrival.
	Requests, Good, Unfinished int
	// Goodput is Good a second of arrivals.
	Goodput float64
	// TTFT percentiles in seconds, over requests that got a first token.
	TTFT50, TTFT95, TTFT99 float64
	// HitRate is the part of all prompt tokens that was not computed.
	HitRate float64
	// LoadMaxOverMean compares the most loaded worker with the mean: requests
	// waiting or running there, averaged over the time that it was there.
	LoadMaxOverMean float64
	// PrefillTokens were computed; UniqueTokens would have been by one worker
	// with an unlimited cache.
	PrefillTokens, UniqueTokens int
	// JoinSeconds is the time until the first worker that joined later got 80 %
	// of the mean share of requests, over the last 10 s; -1 if it never did, 0
	// if none joined.
	JoinSeconds float64
	// Workers is the largest number of workers at a time, and WorkerSeconds the
	// sum of the times that they were there, to compare autoscaled fleets.
	Workers       int
	WorkerSeconds float64
	// RouterTime is the wall-clock time of a decision on average: matching,
	// scoring and picking; 0 unless Config.MeasureRouter.
	RouterTime time.Duration
}

// tally collects a result.
type tally struct {
	c      *Config
	trace  *Trace
	ttft   []float64
	good   int
	done   int
	cached int
	prompt int

	joinAt    float64
	shares    []share // requests since the join, newest last
	joinReach float64
}

type share struct {
	at    float64
	fresh bool
}

func newTally(c *Config, t *Trace) *tally {
	r := &tally{c: c, trace: t, joinAt: math.Inf(1), joinReach: -1}
	if len(c.Joins) > 0 {
		r.joinAt = slices.Min(c.Joins)
	}
	return r
}

// joinWindow is the time over which the share of a fresh worker is measured.
const joinWindow = 10

func (r *tally) sent(w *worker, _ *Arrival, now float64) {
	if now < r.joinAt || r.joinReach >= 0 {
		return
	}
	r.shares = append(r.shares, share{now, w.id == r.c.Workers})
	for r.shares[0].at < now-joinWindow {
		r.shares = r.shares[1:]
	}
	fresh := 0
	for _, s := range r.shares {
		if s.fresh {
			fresh++
		}
	}
	// At least one request for each worker, or a first lucky one decides.
	workers := r.c.Workers + 1
	if len(r.shares) >= 2*workers && float64(fresh)*float64(workers) >= 0.8*float64(len(r.shares)) {
		r.joinReach = now - r.joinAt
	}
}

func (r *tally) firstToken(fl *flight, j *job) {
	r.ttft = append(r.ttft, fl.first-fl.sentAt+r.c.RTT)
	r.cached += j.cached
	r.prompt += j.arrival.Tokens
}

func (r *tally) finished(fl *flight, j *job, now float64) {
	r.done++
	tpot := 0.0
	if j.arrival.Output > 1 {
		tpot = (now - fl.first) / float64(j.arrival.Output-1)
	}
	if fl.first-fl.sentAt+r.c.RTT <= r.c.TTFT && tpot <= r.c.TPOT {
		r.good++
	}
}

func (r *tally) finish(f *fleet, end float64) *Result {
	slices.Sort(r.ttft)
	at := func(p float64) float64 {
		if len(r.ttft) == 0 {
			return 0
		}
		return r.ttft[max(0, int(math.Ceil(p*float64(len(r.ttft))))-1)]
	}
	out := &Result{Requests: f.sent, Good: r.good, Unfinished: f.open, Goodput: float64(r.good) / max(end, 1e-9),
		TTFT50: at(0.5), TTFT95: at(0.95), TTFT99: at(0.99), UniqueTokens: uniqueTokens(f.trace, f.keys)}
	if r.prompt > 0 {
		out.HitRate = float64(r.cached) / float64(r.prompt)
	}
	highest, sum, n := 0.0, 0.0, 0
	for _, w := range f.workers {
		out.PrefillTokens += w.computed
		until := f.now
		if !w.alive {
			until = w.left
		}
		if until <= w.joined {
			continue
		}
		w.account(f.now)
		load := w.requests / (until - w.joined)
		highest, sum, n = max(highest, load), sum+load, n+1
		out.WorkerSeconds += until - w.joined
	}
	if sum > 0 {
		out.LoadMaxOverMean = highest / (sum / float64(n))
	}
	out.Workers = f.peak
	if f.sent > 0 {
		out.RouterTime = f.deciding / time.Duration(f.sent)
	}
	if len(r.c.Joins) > 0 {
		out.JoinSeconds = r.joinReach
	}
	return out
}

// uniqueTokens counts what one worker with an unlimited cache would compute.
func uniqueTokens(t *Trace, keys int) int {
	seen, total := make([]bool, keys), 0
	for i := range t.Arrivals {
		a := &t.Arrivals[i]
		hit := 0
		for hit < min(len(a.Blocks), (a.Tokens-1)/t.BlockSize) && seen[a.Blocks[hit]] {
			hit++
		}
		total += a.Tokens - hit*t.BlockSize
		for _, k := range a.Blocks {
			seen[k] = true
		}
	}
	return total
}
