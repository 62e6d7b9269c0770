package kvatlas

import (
	"fmt"

	"github.com/kvatlas/kvatlas/kvevents"
)

// Sink returns what a [kvevents.Stream] of the worker feeds: its batches are
// applied in order, and what it forgets is forgotten. The sink stays valid when
// the worker is removed; it then does nothing. It is as safe for concurrent use
// as the Atlas.
func (a *Atlas) Sink(name string) (kvevents.Sink, error) {
	w, ok := a.fleet.Load().byName[name]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnknownWorker, name)
	}
	return sink{w}, nil
}

type sink struct{ w *worker }

// Apply ignores the error: only a worker that was removed gives one.
func (s sink) Apply(_ uint64, b *kvevents.Batch) {
	_ = s.w.locked(func() error { return s.w.apply(b) })
}

func (s sink) Clear(cause kvevents.ClearCause) {
	_ = s.w.locked(func() error {
		if cause == kvevents.ClearRestart {
			return s.w.reset()
		}
		return s.w.clear(nil)
	})
}

func (s sink) Lost(l kvevents.Loss) {
	_ = s.w.locked(func() error {
		s.w.stats.Losses++
		s.w.stats.LostBatches += l.Batches()
		return nil
	})
}
