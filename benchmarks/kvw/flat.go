package main

import (
	"math/bits"
	"sync"
)

// flat is the naive baseline: one map from a block's hash to a bit set of at
// most 64 workers, behind one lock. It relies on the engine's hash naming the
// whole prefix, so it keeps no tree.
type flat struct {
	mu sync.RWMutex
	m  map[uint64]uint64
}

func init() {
	backends["flat"] = func(*workload) backend { return &flat{m: map[uint64]uint64{}} }
}

func (f *flat) apply(o *op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	bit := uint64(1) << o.worker
	for _, h := range o.hashes {
		if o.kind == store {
			f.m[h] |= bit
		} else if w := f.m[h] &^ bit; w == 0 {
			delete(f.m, h)
		} else {
			f.m[h] = w
		}
	}
}

type flatReader struct {
	*flat
	h []uint64
}

func (f *flat) reader() reader { return &flatReader{flat: f} }

func (f *flatReader) prepare(h []uint64) { f.h = append(f.h[:0], h...) }

func (f *flatReader) find() (best, total uint32) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	alive := ^uint64(0)
	h := f.h
	for i, x := range h {
		still := alive & f.m[x]
		if still != alive && i > 0 {
			gone := uint32(bits.OnesCount64(alive &^ still))
			total += gone * uint32(i)
			best = uint32(i)
		}
		if alive = still; alive == 0 {
			return best, total
		}
	}
	return uint32(len(h)), total + uint32(len(h)*bits.OnesCount64(alive))
}
