package radix

import (
	"slices"
	"sync/atomic"
)

// holder is the writer's side of a [Holder]: a number that pages' entries use.
// A cleared holder gets a fresh number; the old one means nothing to readers
// from that instant on, and a sweep removes it from the pages.
type holder struct {
	Holder
	hid     uint32
	blocks  atomic.Int64 // different keys held
	copies  uint64       // further copies held
	last    uint32       // position last stored: where the next is likely to go
	removed uint32       // position last removed: the next is likely beside it
	open    uint32       // page that takes the holder's small pieces
}

// worker is the writer's side of a worker.
type worker struct {
	id      WorkerID
	name    string
	profile *Profile
	holders []*holder // replaced, never changed
	stats   WorkerStats
}

func (k *worker) holder(m Medium, group int16) *holder {
	for _, h := range k.holders {
		if h.Medium == m && h.Group == group {
			return h
		}
	}
	return nil
}

// view is what readers know of workers, holders and media. It is immutable and
// replaced as a whole.
type view struct {
	workers []workerView // ascending by slot
	bySlot  []int32      // slot -> index in workers, -1 = none
	ids     []WorkerID   // by holder number
	plain   []uint64     // holders of workers that are matched by one prefix
	joint   []int32      // the other workers that hold anything
	media   int
	weights [MaxMedia]float64
	names   []string
}

type workerView struct {
	id      WorkerID
	name    string
	profile *Profile
	holders []*holder
	// plain says that one prefix tells everything: one holder, on the device, in
	// the one group of a full-attention layout with blocks of one unit.
	plain bool
}

func (v *view) worker(w WorkerID) (*workerView, int) {
	slot := int(w & 0xffff)
	if slot >= len(v.bySlot) || v.bySlot[slot] < 0 {
		return nil, -1
	}
	i := int(v.bySlot[slot])
	if v.workers[i].id != w {
		return nil, -1
	}
	return &v.workers[i], i
}

// publish makes a view of the writer's state. Its cost is that of a copy of the
// lists of workers and holders.
func (x *Index) publish() {
	v := &view{
		workers: make([]workerView, 0, len(x.byName)),
		bySlot:  make([]int32, len(x.workers)),
		ids:     make([]WorkerID, len(x.hids)*64),
		plain:   make([]uint64, len(x.hids)),
		media:   len(x.media.names),
		weights: x.media.weights,
		names:   slices.Clip(x.media.names),
	}
	for slot, k := range x.workers {
		v.bySlot[slot] = -1
		if k == nil {
			continue
		}
		i := int32(len(v.workers))
		v.bySlot[slot] = i
		w := workerView{id: k.id, name: k.name, profile: k.profile, holders: k.holders}
		for _, h := range k.holders {
			v.ids[h.hid] = k.id
		}
		p := k.profile
		l := &p.layouts[0]
		if len(k.holders) <= 1 && len(p.layouts) == 1 && l.kind == FullAttention && l.step == 1 && len(l.groups) == 1 {
			w.plain = true
			for _, h := range k.holders {
				if h.Medium == GPU && (p.anyGroup || h.Group == l.groups[0] || h.Group == NoGroup) {
					v.plain[h.hid/64] |= 1 << (h.hid % 64)
				} else {
					w.plain = false
				}
			}
		}
		if !w.plain && (len(k.holders) > 0 || !p.stops) {
			v.joint = append(v.joint, i)
		}
		v.workers = append(v.workers, w)
	}
	x.view.Store(v)
}
