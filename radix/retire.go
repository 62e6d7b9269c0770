package radix

// What no new reader can reach waits here for those that can.
type retiredKind uint8

const (
	retiredLine retiredKind = iota
	retiredRecord
	retiredHolder
)

type retiree struct {
	epoch uint64
	id    uint32
	kind  retiredKind
}

type retired struct {
	queue []retiree // a ring would save nothing: it is emptied often
	head  int
	lines int    // of the entries that wait
	epoch uint64 // of the newest entry
}

func (r *retired) push(kind retiredKind, id uint32, epoch uint64) {
	r.queue = append(r.queue, retiree{epoch, id, kind})
	if kind == retiredLine {
		r.lines++
	}
	r.epoch = epoch
}

func (x *Index) retire(kind retiredKind, id uint32) {
	x.retired.push(kind, id, x.epochs.now.Load())
}

// reclaim reuses what has outlived its readers.
func (x *Index) reclaim() {
	x.since = 0
	r := &x.retired
	if n := len(x.table.old); n > 0 {
		r.epoch = max(r.epoch, x.table.old[n-1].epoch)
	} else if r.head == len(r.queue) {
		return
	}
	if r.epoch == x.epochs.now.Load() {
		x.epochs.now.Store(r.epoch + 1) // what was unlinked is out of new readers' reach
	}
	oldest := x.epochs.oldest()
	x.table.settle(oldest)
	for ; r.head < len(r.queue) && r.queue[r.head].epoch < oldest; r.head++ {
		switch e := r.queue[r.head]; e.kind {
		case retiredLine:
			r.lines--
			x.arena.freeLine(e.id)
		case retiredRecord:
			x.recs.release(e.id)
		case retiredHolder:
			x.hids[e.id/64].used &^= 1 << (e.id % 64)
		}
	}
	switch {
	case r.head == len(r.queue):
		r.queue, r.head = r.queue[:0], 0
	case r.head > 4096 && r.head > len(r.queue)/2:
		r.queue = r.queue[:copy(r.queue, r.queue[r.head:])]
		r.head = 0
	}
}
