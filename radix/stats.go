package radix

import "unsafe" // for Sizeof only

// WorkerStats is what an index counts for one worker.
type WorkerStats struct {
	Stored    uint64 // keys announced
	Removed   uint64 // keys given up, unmatched ones included
	Unmatched uint64 // removals of keys that were not held
	Repeated  uint64 // announcements that the copy policy did not count
	Copies    uint64 // copies held now beyond the first of each key
	Clears    uint64 // clears applied
	Evicted   uint64 // blocks forgotten for [Options.MaxBytes]
	Held      []Held // what is held now; order of first appearance
}

// Held is how many different keys one worker holds on a medium in a group.
type Held struct {
	Medium Medium
	Group  int16
	Blocks int
}

// Stats are counts over a whole index.
type Stats struct {
	Workers     int
	Memberships int // (worker, medium, group, key) held
	Copies      uint64
	Unmatched   uint64
	// Blocks is how many different keys are held by anybody, and were by what was
	// cleared or removed of which the memory has not come back yet ([Index.Tidy]).
	Blocks int
	// Bytes is the memory that the index has taken for blocks: keys, pages,
	// table, records and copies. It does not shrink, but is reused. The next such
	// memory is set aside ahead of its use (see LAYOUT.md), which is not counted.
	Bytes int
	// Lost counts blocks that found no room and are therefore not known.
	Lost uint64
	// Evicted counts blocks that the byte limit made the index forget.
	Evicted uint64
}

// WorkerStats returns the counts of one worker.
func (x *Index) WorkerStats(w WorkerID) (WorkerStats, error) {
	if !x.made() {
		return WorkerStats{}, ErrIndex
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.worker(w)
	if k == nil {
		return WorkerStats{}, ErrUnknownWorker
	}
	s := k.stats
	s.Held = make([]Held, 0, len(k.holders))
	for _, h := range k.holders {
		s.Held = append(s.Held, Held{h.Medium, h.Group, int(h.blocks.Load())})
	}
	return s, nil
}

// Stats returns the counts over all workers.
func (x *Index) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := Stats{Blocks: x.live, Bytes: x.bytes(), Lost: x.lost, Evicted: x.evicted}
	for _, k := range x.workers {
		if k == nil {
			continue
		}
		s.Workers++
		s.Copies += k.stats.Copies
		s.Unmatched += k.stats.Unmatched
		for _, h := range k.holders {
			s.Memberships += int(h.blocks.Load())
		}
	}
	return s
}

// bytes is the memory taken for blocks.
func (x *Index) bytes() int {
	return x.arena.memory.bytes() +
		x.table.memory.bytes() + len(x.table.dir.Load().parts)*int(unsafe.Sizeof(part{})) +
		x.recs.chunkCount()*recordChunk*8 +
		len(x.copies.slots)*int(unsafe.Sizeof(copySlot{})) +
		cap(x.retired.queue)*int(unsafe.Sizeof(retiree{}))
}
