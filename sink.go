package kvatlas

import "github.com/kvatlas/kvatlas/kvevents"

// Sink returns what a [kvevents.Stream] of the worker feeds: its batches are
// applied in order, and what it forgets is forgotten. It is a [kvevents.Confirmer], for
// [Atlas.ReadSnapshot], and a [kvevents.Emptier]. The sink stays valid when the worker is
// removed; it then does nothing. It is as safe for concurrent use as the Atlas.
func (a *Atlas) Sink(name string) (kvevents.Sink, error) {
	w, err := a.find(name)
	if err != nil {
		return nil, err
	}
	return sink{a, w}, nil
}

type sink struct {
	a *Atlas
	w *worker
}

// Apply ignores the error: only a worker that was removed gives one.
func (s sink) Apply(_ uint64, b *kvevents.Batch) {
	if b == nil {
		return
	}
	defer s.a.done(StageApply, s.a.timed(), 0)
	_ = s.w.locked(func() error {
		if err := s.w.apply(b); err != nil || s.w.at.Load() == nil {
			return err
		}
		s.w.position = b.Position
		return nil
	})
}

func (s sink) Clear(cause kvevents.ClearCause) {
	_ = s.w.locked(func() error {
		if cause == kvevents.ClearRestart {
			return s.w.reset()
		}
		if cause == kvevents.ClearRemoved {
			defer s.w.heard.Store(nothingHeard)
		}
		return s.w.clear(s.w.at.Load(), nil)
	})
}

// Empty is the stream's word that the engine has published nothing so far.
func (s sink) Empty() { s.w.heard.CompareAndSwap(nothingHeard, heardEmpty) }

func (s sink) Lost(l kvevents.Loss) {
	_ = s.w.locked(func() error {
		s.w.heard.Store(heardEvents)
		s.w.stats.Losses++
		s.w.stats.LostBatches += l.Batches()
		if s.w.position.Missing = true; l.Removals { // perhaps too much is held
			s.w.position = kvevents.Position{}
			s.w.excess.Store(true)
		}
		return nil
	})
}

// Handler returns what a [kvevents.Subscriber] feeds: the batches of a source go
// to the worker of its replica and rank. A source without such a worker changes
// nothing, so add workers here before their targets there.
func (a *Atlas) Handler() kvevents.Handler { return handler{a} }

type handler struct{ a *Atlas }

func (h handler) sink(src kvevents.Source) (sink, bool) {
	w, ok := h.a.current().bySource[src]
	return sink{h.a, w}, ok
}

func (h handler) Apply(src kvevents.Source, seq uint64, b *kvevents.Batch) {
	if s, ok := h.sink(src); ok {
		s.Apply(seq, b)
	}
}

func (h handler) Clear(src kvevents.Source, c kvevents.ClearCause) {
	if s, ok := h.sink(src); ok {
		s.Clear(c)
	}
}

func (h handler) Empty(src kvevents.Source) {
	if s, ok := h.sink(src); ok {
		s.Empty()
	}
}

func (h handler) Lost(l kvevents.Loss) {
	if s, ok := h.sink(kvevents.Source{Worker: l.Worker, Rank: l.Rank}); ok {
		s.Lost(l)
	}
}
