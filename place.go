package kvatlas

import (
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/radix"
)

// place is where a worker's blocks are and how prompts are looked up there. It never
// changes: another one replaces it when the worker's events tell more of its engine.
type place struct {
	domain *domain
	id     radix.WorkerID // in the domain's index
	mode   Mode
	// adapters is the worker under which blocks of adapters are known by content, in the
	// same index; see domain.adapters.
	adapters radix.WorkerID
	// open are the features that the releases which the engine may be of hash in
	// different ways: prompts that have one are unknown, for the reason why.
	open blockhash.Features
	why  string
}

// unit is the tokens of a key, 0 without a place.
func (p *place) unit() int {
	if p == nil {
		return 0
	}
	return p.domain.key.unit
}

// residence is a place that a worker can have.
type residence struct {
	key     domainKey
	profile *radix.Profile
	open    blockhash.Features
	why     string
}

// move gives the worker a place. Its blocks stay if they are known there by the same
// keys; else they are those of its history, which are all there before anybody can
// look: what was held once is not held now. The caller holds w.mu.
func (w *worker) move(to residence) error {
	old := w.at.Load()
	d, err := w.domains.take(to.key)
	if err != nil {
		return err
	}
	if to.key.unit == 1 && w.domains.options.MaxBytes == 0 {
		w.log.Warn("blocks of 1 token: the index keeps an entry for each token in the caches; Options.IndexBytes bounds it")
	}
	p := &place{domain: d, open: to.open, why: to.why}
	if to.key.content || to.key.relay {
		p.mode = ByContent
	}
	if old != nil && old.domain.index == d.index && old.domain.key.plainAlike(to.key) {
		p.id, p.adapters = old.id, old.adapters
		if (old.domain.adapters == nil) != (d.adapters == nil) {
			w.leaveAdapters(old)
			if err := w.enterAdapters(p, to.profile); err != nil {
				w.domains.give(d)
				return err
			}
		}
		if w.content != nil {
			w.content.keys = d.eventKeys()
		}
		w.at.Store(p)
		w.domains.give(old.domain)
		return nil
	}
	w.leave()
	if p.id, err = d.index.AddWorker(w.Name, to.profile); err != nil {
		w.domains.give(d)
		return err
	}
	switch {
	case to.key.nodes:
		w.nodes = newNodeState(p, w)
	case p.mode == ByContent:
		w.content, err = newContentState(d, p.id, w)
	}
	if err == nil {
		err = w.enterAdapters(p, to.profile)
	}
	if err == nil {
		w.lasting = ""
		err = w.replay(p)
	}
	if err != nil {
		w.vacate(p)
		return err
	}
	w.at.Store(p)
	return nil
}

// leave gives the worker's place up, with everything that it held. The caller holds
// w.mu.
func (w *worker) leave() {
	w.forget()
	if p := w.at.Swap(nil); p != nil {
		w.vacate(p)
	}
}

// enterAdapters prepares to know blocks of adapters by content, where the place needs it.
func (w *worker) enterAdapters(p *place, profile *radix.Profile) (err error) {
	if p.domain.adapters == nil {
		return nil
	}
	if p.adapters, err = p.domain.index.AddWorker("\x00adapters of "+w.Name, profile); err != nil {
		return err
	}
	table, err := radix.NewContentMap(p.domain.index, p.adapters, radix.ContentMapOptions{})
	w.adapters = &contentState{keys: p.domain.adapters, table: table, w: w}
	return err
}

func (w *worker) leaveAdapters(p *place) {
	if w.adapters != nil {
		p.domain.index.RemoveWorker(p.adapters)
		w.adapters = nil
	}
}

func (w *worker) vacate(p *place) {
	w.leaveAdapters(p)
	p.domain.index.RemoveWorker(p.id)
	w.domains.give(p.domain)
	w.content, w.nodes = nil, nil
}
