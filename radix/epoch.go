package radix

import "sync/atomic"

// Readers take no lock. What a writer takes out of the structure may be read by
// a call that began before, so it is reused only after a grace period: when
// every reader that was inside at that time has left. Each call of a reader
// holds a cell in which it notes the epoch at which it began.
//
// In terms of the Go memory model: a reader enters (atomic) before it loads any
// link, and leaves (atomic) after its last read. A writer unlinks (atomic),
// raises the epoch (atomic) and reads the cells (atomic) before it writes the
// memory anew. A reader whose cell the writer saw empty, or newer, either has
// left, so that its reads happen before the new writes, or entered later and
// cannot reach what was unlinked. Hence plain loads of keys and records do not
// race with the plain stores that reuse their memory.

const readerCells = 128

type readerCell struct {
	epoch atomic.Uint64 // 0 = free
	_     [56]byte      // a cache line each
}

// apart keeps what readers load out of the cache lines that writers change all
// the time.
type apart [128]byte

type epochs struct {
	now      atomic.Uint64
	used     atomic.Uint32 // cells below may be in use
	overflow atomic.Int64  // readers without a cell: nothing is reused meanwhile
	_        apart
	cells    [readerCells]readerCell
}

// enter begins a reader's call. hint remembers a cell that was free.
func (e *epochs) enter(hint *uint32) (cell uint32) {
	now := e.now.Load()
	i := *hint
	for range readerCells {
		if i >= readerCells {
			i = 0
		}
		for used := e.used.Load(); used <= i; used = e.used.Load() {
			e.used.CompareAndSwap(used, i+1)
		}
		if c := &e.cells[i].epoch; c.Load() == 0 && c.CompareAndSwap(0, now) {
			*hint = i
			return i
		}
		i++
	}
	e.overflow.Add(1)
	return readerCells
}

// leave ends the call that entered with this cell.
func (e *epochs) leave(cell uint32) {
	if cell == readerCells {
		e.overflow.Add(-1)
		return
	}
	e.cells[cell].epoch.Store(0)
}

// oldest returns an epoch such that whatever was unlinked before it is out of
// every reader's reach.
func (e *epochs) oldest() uint64 {
	oldest := e.now.Load()
	if e.overflow.Load() > 0 {
		return 0
	}
	for i := range e.used.Load() {
		if v := e.cells[i].epoch.Load(); v != 0 && v < oldest {
			oldest = v
		}
	}
	return oldest
}
