package radix

import (
	"math/bits"
	"slices"
)

// hidWord is a word of 64 holder numbers, all of one medium and group, so that
// the holders of one page's blocks lie in few words.
type hidWord struct {
	medium Medium
	group  int16
	used   uint64
}

// newHolder gives a worker a holder number for a medium and group. It returns
// nil when there are too many holders.
func (x *Index) newHolder(k *worker, m Medium, group int16) *holder {
	at := slices.IndexFunc(x.hids, func(w hidWord) bool {
		return w.medium == m && w.group == group && w.used != ^uint64(0)
	})
	if at < 0 {
		at = len(x.hids)
		x.hids = append(x.hids, hidWord{medium: m, group: group})
	}
	bit := bits.TrailingZeros64(^x.hids[at].used)
	x.hids[at].used |= 1 << bit
	h := &holder{Holder: Holder{k.id, m, group}, hid: uint32(at*64 + bit)}
	k.holders = append(slices.Clone(k.holders), h)
	x.publish()
	return h
}

// discard makes a holder's number mean nothing; a sweep will free it. The caller
// takes it from its worker and publishes.
func (x *Index) discard(h *holder) {
	x.sweep.dead = append(x.sweep.dead, h.hid)
}

// Clear forgets what a worker holds on the given media, or on all of them if
// none is given. It may be called at any time, and repeatedly: by the operator,
// or where it is known that a cache was reset. For an engine's clear event see
// [Index.EngineClear]. Readers see all of it or nothing, at a cost that does not
// depend on the number of blocks; their memory is given back by the writes that
// follow, or by [Index.Tidy].
func (x *Index) Clear(w WorkerID, on ...Medium) error {
	if !x.made() {
		return ErrIndex
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.worker(w)
	if k == nil {
		return ErrUnknownWorker
	}
	if len(on) == 0 {
		on = nil
	}
	x.clear(k, on)
	return nil
}

func (x *Index) clear(k *worker, on []Medium) {
	k.stats.Clears++
	kept := make([]*holder, 0, len(k.holders))
	for _, h := range k.holders {
		if on != nil && !slices.Contains(on, h.Medium) {
			kept = append(kept, h)
			continue
		}
		k.stats.Copies -= h.copies
		x.discard(h)
	}
	if len(kept) < len(k.holders) {
		k.holders = kept
		x.publish()
	}
}

// EngineClear applies an AllBlocksCleared event, which does not say what was
// cleared, by the worker's [ClearPolicy]. behind says that the event followed
// an event of another medium than the device in its message.
func (x *Index) EngineClear(w WorkerID, behind bool) error {
	if !x.made() {
		return ErrIndex
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.worker(w)
	if k == nil {
		return ErrUnknownWorker
	}
	x.clear(k, k.cleared(behind))
	return nil
}

func (x *Index) clearedBy(w WorkerID, behind bool) ([]Medium, error) {
	if !x.made() {
		return nil, ErrIndex
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.worker(w)
	if k == nil {
		return nil, ErrUnknownWorker
	}
	return k.cleared(behind), nil
}

// cleared lists the media that an engine's clear empties; nil = all, an empty
// list = none.
func (k *worker) cleared(behind bool) []Medium {
	switch policy := k.profile.clear; {
	case policy == ClearAll, policy == ClearAuto && k.profile.connector != SimpleOffload:
		return nil
	case policy == ClearDevice || !behind:
		return []Medium{GPU}
	}
	others := []Medium{}
	for _, h := range k.holders {
		if h.Medium != GPU {
			others = append(others, h.Medium)
		}
	}
	return others
}

// sweep removes discarded holders from the pages, some pages a write.
type sweep struct {
	dead []uint32 // holder numbers that wait for the next pass
	now  []uint32 // those of the pass that runs
	set  []uint64 // the same as a bit set
	next uint32   // page
}

// sweepStep looks at up to n pages.
func (x *Index) sweepStep(n int) {
	s := &x.sweep
	if len(s.now) == 0 {
		if len(s.dead) == 0 {
			return
		}
		s.now, s.dead = s.dead, s.now[:0]
		s.set = slices.Grow(s.set[:0], len(x.hids))[:len(x.hids)]
		clear(s.set)
		for _, hid := range s.now {
			s.set[hid/64] |= 1 << (hid % 64)
		}
		s.next = 1
	}
	end := uint32(x.arena.count) * slabPages
	for ; n > 0 && s.next < end; n-- {
		x.sweepPage(s.next)
		s.next++
	}
	if s.next >= end {
		// Readers in the past may still know these numbers from an old view.
		for _, hid := range s.now {
			x.retired.push(retiredHolder, hid, x.epochs.now.Load())
		}
		s.now = s.now[:0]
	}
}

// in returns which of a word of 64 holders the running pass removes.
func (s *sweep) in(word uint64) uint64 {
	if word < uint64(len(s.set)) {
		return s.set[word]
	}
	return 0
}

func (x *Index) sweepPage(p uint32) {
	pos := p * pageKeys
	pg := x.arena.page(pos)
	switch ref := pg.ref.Load(); refKind(ref) {
	case refOne:
		if hid := refValue(ref); x.sweep.in(uint64(hid/64))>>(hid%64)&1 != 0 {
			own := pg.mask.Load()
			x.dropCopies(hid, pos, own)
			pg.become(refEmpty, 0)
			x.live -= bits.OnesCount64(own)
			x.bury(pos, own, 0)
		}
	case refList:
		entries := x.recs.entries(pg)
		touched, left := uint64(0), uint64(0)
		kept := entries[:0]
		for _, e := range entries {
			gone := e.bits & x.sweep.in(e.word)
			if gone != 0 {
				touched |= e.mask
				for b := gone; b != 0; b &= b - 1 {
					x.dropCopies(uint32(e.word)*64+uint32(bits.TrailingZeros64(b)), pos, e.mask)
				}
			}
			if e.bits &^= gone; e.bits != 0 {
				left |= e.mask
				kept = append(kept, e)
			}
		}
		if touched != 0 {
			x.setEntries(pg, refValue(ref), kept)
			x.live -= bits.OnesCount64(touched &^ left)
			x.bury(pos, touched, left)
		}
	}
}

// Tidy gives back the memory of what was cleared and removed. Writes do the same
// bit by bit; it is for a quiet index, and holds the writers' lock in slices.
func (x *Index) Tidy() {
	for {
		x.mu.Lock()
		x.sweepStep(256)
		x.reclaim()
		done := len(x.sweep.now) == 0 && len(x.sweep.dead) == 0
		x.mu.Unlock()
		if done {
			return
		}
	}
}
