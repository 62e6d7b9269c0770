package kvatlas

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// WorkerStats counts what became of a worker's events.
type WorkerStats struct {
	// Batches and Events that were applied, and by kind.
	Batches, Events          uint64
	Stored, Removed, Cleared uint64
	// Malformed events were left out, UnknownTypes skipped.
	Malformed, UnknownTypes uint64
	// Undecodable payloads changed nothing.
	Undecodable uint64
	// Losses that a stream reported to the worker's [Atlas.Sink], and the batches
	// they span.
	Losses, LostBatches uint64
	// Unheard says that no event of the worker came yet, see [WorkerMatch].
	Unheard bool
	// Restored blocks were taken from a snapshot ([Atlas.ReadSnapshot]).
	Restored uint64
	// Contradiction is what the events say against the worker's description, such
	// as another block size or another hash; empty if nothing. Its prompts are
	// matched by content then, where the events allow it, or have no known match.
	Contradiction string
	// Held batches wait until it is known what an automatic worker is
	// ([Worker.Auto]); Forgotten ones were given up because too many did.
	Held, Forgotten uint64
	// Assumed says that the worker's release is newer than every one that was
	// checked, so that it is taken for the newest.
	Assumed bool
	// Limitation says what the engine's release gets wrong in its events; empty for
	// most.
	Limitation string
	// FromDocuments says that nothing was compared with this engine itself, see
	// [FromDocuments].
	FromDocuments bool
	// Unplaced blocks could not be given a content key, for want of their
	// parent, tokens or positions. Only those of LMCache in mode ByHash.
	Unplaced uint64
	// Chunks are held by the worker's LMCache as far as its events tell, Decayed
	// ones no longer count ([LMCache.Decay], [LMCache.MaxChunks]).
	Chunks, Decayed uint64
	// ChunkContradiction is what LMCache's events say against [Worker.LMCache]; empty
	// if nothing. Its chunks do not count then.
	ChunkContradiction string
}

// Apply decodes one published message of a worker (the last of its frames) and
// applies its events in order. Messages must come in the order of their
// sequence, without gaps: see package kvevents for the stream that sees to it.
//
// A payload that cannot be decoded changes nothing and is an error; a malformed
// event costs itself only and is counted. The payload is not kept.
func (a *Atlas) Apply(name string, payload []byte) error {
	defer a.done(StageApply, a.timed(), 0)
	return a.onWorker(name, func(w *worker) error {
		var dec kvevents.Decoder
		if err := dec.Decode(payload, &w.batch); err != nil {
			w.stats.Undecodable++
			return fmt.Errorf("kvatlas: worker %s: %w", quoted(name), err)
		}
		return w.apply(&w.batch)
	})
}

// ApplyBatch applies a batch that was decoded already; it is not kept.
func (a *Atlas) ApplyBatch(name string, b *kvevents.Batch) error {
	if b == nil {
		return ErrNil
	}
	defer a.done(StageApply, a.timed(), 0)
	return a.onWorker(name, func(w *worker) error { return w.apply(b) })
}

// Clear forgets what a worker holds on the media of the given names (in any case; ""
// is the device), or on all if none is given: for operators, and where it is known
// that a cache was reset before the engine says so, as it does only with its next
// step. It may be called at any time and repeatedly. While it is not known what an
// automatic worker is, all that waits is forgotten, whatever its medium.
//
// Known names are GPU, CPU, STORAGE, those of Options.Weights and those that events
// have named. Another one is an [ErrMedium], and nothing is forgotten.
func (a *Atlas) Clear(name string, media ...string) error {
	return a.onWorker(name, func(w *worker) error {
		p := w.at.Load()
		if p == nil || len(media) == 0 {
			return w.clear(p, nil)
		}
		var on []radix.Medium
		for _, m := range media {
			switch id, ok := p.domain.medium(m); {
			case ok:
				on = append(on, id)
			case !a.weighs(m): // else nothing is there yet
				return fmt.Errorf("%w: %s (worker %s)", ErrMedium, quoted(m), quoted(name))
			}
		}
		if len(on) == 0 {
			return nil
		}
		return w.clear(p, on)
	})
}

// weighs tells whether the options name a medium.
func (a *Atlas) weighs(medium string) bool {
	for name := range a.options.Weights {
		if strings.EqualFold(name, medium) {
			return true
		}
	}
	return false
}

// Reset forgets everything about a worker's cache, also what its hashes stand
// for: its engine restarted. A stream does so by itself ([Atlas.Sink]).
func (a *Atlas) Reset(name string) error {
	return a.onWorker(name, (*worker).reset)
}

// Stats returns the counters of a worker, and those of its index.
func (a *Atlas) Stats(name string) (WorkerStats, radix.WorkerStats, error) {
	var s WorkerStats
	var x radix.WorkerStats
	err := a.onWorker(name, func(w *worker) error {
		s = w.stats
		w.tell(&s)
		if p := w.at.Load(); p != nil {
			x, _ = p.domain.index.WorkerStats(p.id)
		}
		return nil
	})
	return s, x, err
}

// tell fills in what is not counted.
func (w *worker) tell(s *WorkerStats) {
	if w.chunks != nil {
		w.chunks.describe(s)
	}
	s.FromDocuments, s.Unheard = w.documented(), w.unheard()
	s.Assumed, s.Contradiction, s.Limitation = w.assumed(), w.contradiction, w.limitation()
	s.Held = uint64(w.history.waiting())
}

// onWorker finds a worker and runs f on it, locked.
func (a *Atlas) onWorker(name string, f func(*worker) error) error {
	w, err := a.find(name)
	if err != nil {
		return err
	}
	return w.locked(func() error { return f(w) })
}

// locked runs f while nothing else changes the worker's blocks, and not at all
// when the worker was removed.
func (w *worker) locked(f func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return fmt.Errorf("%w: %s", ErrUnknownWorker, quoted(w.Name))
	}
	return f()
}

// clear forgets the blocks on the given media, or on all.
func (w *worker) clear(p *place, on []radix.Medium) error {
	w.forget()
	w.history.drop()
	w.position = kvevents.Position{}
	if len(on) == 0 {
		defer w.excess.Store(false) // after the blocks are gone
	}
	if w.chunks != nil && (len(on) == 0 || slices.Contains(on, radix.CPU)) {
		if err := w.chunks.clear(); err != nil {
			return err
		}
	}
	switch {
	case p == nil:
		return nil
	case w.nodes != nil: // one medium only
		w.nodes.clear()
		return p.domain.index.Clear(p.id)
	case w.content != nil:
		return w.content.table.Clear(on...)
	}
	if w.adapters != nil {
		if err := w.adapters.table.Clear(on...); err != nil {
			return err
		}
	}
	return p.domain.index.Clear(p.id, on...)
}

// reset forgets everything: what the engine held, and what it was found to be.
func (w *worker) reset() error {
	if err := w.clear(w.at.Load(), nil); err != nil {
		return err
	}
	if w.chunks != nil {
		if err := w.chunks.reset(); err != nil {
			return err
		}
	}
	for _, c := range [...]*contentState{w.content, w.adapters} {
		if c != nil {
			if err := c.table.Reset(); err != nil {
				return err
			}
		}
	}
	return w.anew()
}

// apply takes a batch; the caller holds w.mu. It waits while it is not known what the
// engine is.
func (w *worker) apply(b *kvevents.Batch) error {
	w.heard.Store(heardEvents)
	w.position = kvevents.Position{}
	if r := w.history.before; r != nil && !r.confirmed {
		w.history.before = nil // it is not known what came between
	}
	w.watch(b)
	p := w.at.Load()
	switch {
	case p == nil && w.contradiction == "" || w.history.on:
		w.stats.Forgotten += w.history.keep(b, p == nil)
	case p == nil:
		w.history.drop() // of which this one would be missing
	}
	if p == nil {
		return nil
	}
	return w.enter(p, b)
}

// enter applies a batch to the index.
func (w *worker) enter(p *place, b *kvevents.Batch) error {
	w.stats.Batches++
	w.stats.Malformed += uint64(len(b.Malformed))
	w.stats.UnknownTypes += uint64(b.UnknownTypes)
	behind := false // an event of another medium than the device came before
	for i := range b.Events {
		e := &b.Events[i]
		if e.Kind == kvevents.Unknown || e.Kind > kvevents.AllBlocksCleared {
			continue
		}
		if e.Kind != kvevents.AllBlocksCleared && e.HasGroup && (e.Group < 0 || e.Group > radix.MaxGroup) {
			w.stats.Malformed++ // no such group: counting it for another would promise blocks that are not there
			continue
		}
		w.stats.Events++
		if w.chunks != nil && w.chunks.takes(e) {
			behind = true
			if w.again {
				continue // in a place of their own, as before
			}
			if err := w.applyChunks(e); err != nil {
				return fmt.Errorf("kvatlas: worker %s: %s of LMCache: %w", quoted(w.Name), e.Kind, err)
			}
			continue
		}
		h := p.holder(e)
		if h.Medium == radix.GPU && e.Short() {
			w.stats.Malformed++ // hashes or tokens are wrong, nothing tells which
			continue
		}
		behind = behind || h.Medium != radix.GPU
		var err error
		switch e.Kind {
		case kvevents.BlockStored:
			w.stats.Stored++
			if w.nodes == nil { // a node has any size
				w.checkBlocks(p, h, e)
			}
			err = w.store(p, h, e)
		case kvevents.BlockRemoved:
			w.stats.Removed++
			err = w.remove(p, h, e, b.Events[i+1:])
		case kvevents.AllBlocksCleared:
			w.stats.Cleared++
			if len(e.Medium) > 0 { // those that say which pool
				err = w.clear(p, []radix.Medium{h.Medium})
			} else {
				err = w.engineClear(p, behind)
			}
			if w.excess.Load() && err == nil && w.empty(p) {
				w.excess.Store(false)
			}
		}
		if err != nil {
			return fmt.Errorf("kvatlas: worker %s: %s: %w", quoted(w.Name), e.Kind, err)
		}
	}
	if b.UnknownTypes > 0 && !w.empty(p) {
		w.excess.Store(true) // one may have removed something
	}
	return nil
}

// empty tells whether nothing is known of the worker's cache.
func (w *worker) empty(p *place) bool {
	x, err := p.domain.index.WorkerStats(p.id)
	return err == nil && w.chunks == nil && w.adapters == nil &&
		!slices.ContainsFunc(x.Held, func(h radix.Held) bool { return h.Blocks > 0 })
}

func (p *place) holder(e *kvevents.Event) radix.Holder {
	h := radix.Holder{Worker: p.id, Group: radix.NoGroup}
	if len(e.Medium) > 0 {
		h.Medium = p.domain.index.Medium(string(e.Medium))
	}
	if e.HasGroup {
		h.Group = int16(e.Group)
	}
	return h
}

func (w *worker) store(p *place, h radix.Holder, e *kvevents.Event) error {
	if w.nodes != nil {
		return w.nodes.store(h, e)
	}
	if w.content != nil {
		return w.content.store(h, e)
	}
	if w.speculation != nil && h.Medium == radix.GPU {
		w.speculation.Stored(w.serial, e.Hashes)
	}
	if w.adapters != nil && len(e.LoRAName) > 0 {
		h := h
		h.Worker = p.adapters
		if err := w.adapters.store(h, e); err != nil {
			return err
		}
	}
	if e.HasParent {
		return p.domain.index.StoreAfter(h, e.Parent, e.Hashes)
	}
	return p.domain.index.Store(h, e.Hashes)
}

func (w *worker) remove(p *place, h radix.Holder, e *kvevents.Event, after []kvevents.Event) error {
	if w.nodes != nil {
		return w.nodes.remove(h, e, after)
	}
	if w.content != nil {
		return w.content.remove(h, e)
	}
	if w.speculation != nil && h.Medium == radix.GPU {
		w.speculation.Removed(w.serial, e.Hashes)
	}
	if w.adapters != nil {
		h := h
		h.Worker = p.adapters
		if err := w.adapters.table.Remove(h, e.Hashes); err != nil {
			return err
		}
	}
	return p.domain.index.Remove(h, e.Hashes)
}

// forget drops the claims of requests under way: the cache they were for is gone.
func (w *worker) forget() {
	if w.speculation != nil {
		w.speculation.Forget(w.serial)
	}
}

func (w *worker) engineClear(p *place, behind bool) error {
	w.forget()
	if w.chunks != nil && w.Cache.Clear != radix.ClearDevice {
		if err := w.chunks.clear(); err != nil {
			return err
		}
	}
	if w.nodes != nil {
		w.nodes.clear()
	}
	if w.content != nil {
		return w.content.table.EngineClear(behind)
	}
	if w.adapters != nil {
		if err := w.adapters.table.EngineClear(behind); err != nil {
			return err
		}
	}
	return p.domain.index.EngineClear(p.id, behind)
}
