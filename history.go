package kvatlas

import "github.com/kvatlas/kvatlas/kvevents"

// history is what a worker announced while it was not known, or not sure, what its
// engine is: batches of a bounded number of bytes, in order. The zero value keeps
// nothing. The oldest go first, and any clear takes all: what is forgotten of a
// beginning can only make counts too low, since a removal of what was never stored
// changes nothing.
type history struct {
	on      bool      // copies of what is applied are kept too
	before  *restored // what a snapshot says was held before all of them
	batches []*kvevents.Batch
	bytes   int
}

// maxHistory is how many bytes of batches a worker keeps.
const maxHistory = 4 << 20

// keep adds a copy of a batch and returns how many were given up for it. Batches that
// are applied already are not worth that: if they become too many, none is kept any
// more.
func (h *history) keep(b *kvevents.Batch, waits bool) (forgotten uint64) {
	h.bytes += b.Size()
	if h.bytes > maxHistory && !waits {
		*h = history{}
		return 0
	}
	h.batches = append(h.batches, b.Clone())
	for h.bytes > maxHistory {
		h.bytes -= h.batches[0].Size()
		h.batches[0] = nil
		h.batches = h.batches[1:]
		forgotten++
		h.before = nil // removals of it may be among them
	}
	return forgotten
}

// drop forgets the batches: what they announced is gone.
func (h *history) drop() { h.batches, h.bytes, h.before = nil, 0, nil }

// waiting returns how many batches wait to be applied.
func (h *history) waiting() int {
	if h.on {
		return 0 // they are applied
	}
	return len(h.batches)
}

// replay applies the history at the worker's new place.
func (w *worker) replay(p *place) error {
	if err := w.enterRestored(p); err != nil {
		return err
	}
	before := w.stats
	w.again = w.history.on
	defer func() { w.again = false }()
	for _, b := range w.history.batches {
		if err := w.enter(p, b); err != nil {
			return err
		}
	}
	if w.again { // counted when they came
		before.Unplaced = w.stats.Unplaced
		w.stats = before
	}
	return nil
}
