package kvatlas

import (
	"slices"
	"time"

	"github.com/kvatlas/kvatlas/scoring"
)

// Trip follows one request from the choice of its worker to its end, so that the
// next decisions know what is under way: the worker's load, the blocks that are
// about to be there, how fast it is and how good predictions are. Get it from
// [Atlas.Begin] and report each step, from one goroutine at a time. A copy is the
// same trip, but does not see what was reported to the other. The zero value does
// nothing.
type Trip struct {
	a      *Atlas
	flight scoring.Flight
	claims scoring.SpecTicket
	seen   scoring.Observation // Worker, AheadTokens, PromptTokens, CachedTokens
	worker string
	id     uint64 // among those of all replicas
	sent   time.Time
	ttft   time.Duration
}

// Begin says that the request of a choice is sent to the chosen worker. The
// request and what it refers to must be as they were for [Atlas.Route].
//
// A worker that was removed since gives [scoring.ErrUnknownWorker]; the Trip then
// does nothing, and the request may be sent all the same.
func (a *Atlas) Begin(req *Request, c *Choice) (Trip, error) {
	if req == nil || c == nil {
		return Trip{}, ErrNil
	}
	chosen := c.Decision.Chosen
	if chosen == nil {
		return Trip{}, ErrNoWorkers
	}
	t := Trip{a: a, worker: c.Worker, sent: a.now(), seen: scoring.Observation{
		Worker: chosen.ID, AheadTokens: int(chosen.Load.PrefillTokens.Or(0)),
		PromptTokens: req.Prompt.Len(), CachedTokens: int(chosen.Match.Usable), ReportedTokens: -1,
	}}
	i := c.Match.Find(c.Worker)
	if i >= 0 && c.Match.Workers[i].Unknown != "" {
		t.seen.CachedTokens = -1 // nothing was predicted
	}
	var err error
	if t.flight, err = a.flights.Begin(chosen.ID, scoring.Sent{PromptTokens: t.seen.PromptTokens, CachedTokens: max(t.seen.CachedTokens, 0)}); err != nil {
		return Trip{}, err
	}
	told := scoring.PeerNote{Observation: t.seen}
	if a.speculation != nil && i >= 0 {
		if keys, ok := c.Match.keysFor(i, req); ok {
			t.claims = a.speculation.Sent(chosen.ID, keys)
			if told.BlockSize = c.Match.places[i].unit(); a.options.Tell != nil && told.BlockSize > 0 {
				told.Keys = slices.Clone(keys[min(len(keys), max(0, t.seen.CachedTokens)/told.BlockSize):])
			}
		}
	}
	t.tell(scoring.PeerSent, told)
	return t, nil
}

// FirstToken says that the prompt has been computed. For a request that is not
// streamed leave it out.
func (t *Trip) FirstToken() {
	if t.a == nil {
		return
	}
	if t.ttft != 0 {
		return // reported before
	}
	t.ttft = t.a.now().Sub(t.sent)
	_ = t.flight.FirstToken()
	t.claims.FirstToken()
	t.tell(scoring.PeerFirstToken, scoring.PeerNote{})
}

// Output says how many tokens have been generated so far.
func (t *Trip) Output(tokens int) { _ = t.flight.Output(tokens) }

// Served says that another worker than the chosen one serves the request, after
// a retry; one that was removed and added again is another one. It returns
// [ErrUnknownWorker] for one that is not known; the request then stays where it was.
func (t *Trip) Served(name string) error {
	if t.a == nil {
		return nil
	}
	w, err := t.a.find(name)
	if err != nil {
		return err
	}
	if w.serial == t.seen.Worker {
		return nil
	}
	if err := t.flight.Served(w.serial, 0); err != nil {
		return err
	}
	t.claims.Fail()
	t.tell(scoring.PeerFailed, scoring.PeerNote{})
	t.worker, t.seen.Worker, t.seen.CachedTokens, t.ttft = name, w.serial, -1, 0
	t.tell(scoring.PeerSent, scoring.PeerNote{Observation: t.seen})
	return nil
}

// Finish says that the request is complete, and how many cached tokens the engine
// reported (usage.prompt_tokens_details.cached_tokens); negative if it did not
// say.
func (t *Trip) Finish(cached int) {
	if t.a == nil {
		return
	}
	if t.flight.Finish() != nil {
		return // ended before
	}
	t.claims.Done()
	w := t.server()
	if w != nil && t.seen.PromptTokens > w.BlockSize {
		w.heard.CompareAndSwap(heardEmpty, heardSilent) // what still announces nothing is not empty
	}
	if t.seen.CachedTokens < 0 { // nothing was predicted for the worker that served it
		t.tell(scoring.PeerFinished, scoring.PeerNote{})
		return
	}
	t.seen.ReportedTokens, t.seen.TTFT = cached, t.ttft
	t.tell(scoring.PeerFinished, scoring.PeerNote{Observation: t.seen})
	if w != nil && cached >= 0 {
		_ = t.a.Reported(t.worker, t.seen.CachedTokens, cached)
	}
	if t.a.learner != nil {
		t.a.learner.FirstToken(t.seen)
		if t.server() == nil { // the fleet learns from it, and nobody will ask for this one
			t.a.learner.Forget(t.seen.Worker)
		}
	}
}

// server is the worker that serves the request; nil if it was removed, though one of its
// name may be there again.
func (t *Trip) server() *worker {
	if w := t.a.current().byName[t.worker]; w != nil && w.serial == t.seen.Worker {
		return w
	}
	return nil
}

// Fail says that the request ended without an answer.
func (t *Trip) Fail() {
	if t.flight.Fail() != nil {
		return // ended before
	}
	t.claims.Fail()
	t.tell(scoring.PeerFailed, scoring.PeerNote{})
}
