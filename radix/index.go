package radix

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
)

// WorkerID names a worker of one index. IDs are small, and are not handed out
// again until 65,536 removals later.
type WorkerID uint32

// MaxWorkers is the number of workers that an index holds at a time.
const MaxWorkers = 1 << 16

// NoGroup is the group of blocks whose events name none.
const NoGroup int16 = -1

// Holder is what holds a block: a worker, on a medium, in a cache group. The
// zero value of the last two is the device and group 0; events without a group
// use [NoGroup].
type Holder struct {
	Worker WorkerID
	Medium Medium
	Group  int16
}

// Options configures an [Index]. The zero value is usable.
type Options struct {
	// Weights gives blocks a value by the name of their medium, within 0..1;
	// media that are not listed have their default weight.
	Weights map[string]float64
	// UnknownWeight is the weight of media that are neither known nor listed;
	// 0 = [DefaultUnknownWeight]. List a medium with weight 0 to ignore it.
	UnknownWeight float64
}

// Index tells which worker holds which block. Make it with [New]; it must not be
// copied. All methods are safe for concurrent use. Operations on one worker take
// effect in the order in which they are called, so call them from one goroutine
// a worker, in the order of the worker's events.
type Index struct {
	mu      sync.RWMutex
	media   media
	workers []*worker // by slot; nil = free
	gens    []uint16  // by slot
	free    []uint32
	byName  map[string]WorkerID
	order   []WorkerID // live workers, ascending by slot
}

type worker struct {
	id      WorkerID
	name    string
	profile *Profile
	holders []*copies
	stats   WorkerStats
}

// copies counts the copies of each key of one holder.
type copies struct {
	medium Medium
	group  int16
	count  map[uint64]uint32
}

// New makes an empty index. Its errors wrap [ErrOptions].
func New(o Options) (*Index, error) {
	x := &Index{byName: make(map[string]WorkerID)}
	unknown := o.UnknownWeight
	if unknown == 0 {
		unknown = DefaultUnknownWeight
	}
	if math.IsNaN(unknown) || unknown < 0 || unknown > 1 {
		return nil, fmt.Errorf("%w: unknown weight %v is not within 0..1", ErrOptions, unknown)
	}
	if err := x.media.init(o.Weights, unknown); err != nil {
		return nil, err
	}
	return x, nil
}

// Medium finds or registers a medium by its name on the wire, in any case; ""
// is the device. Names beyond [MaxMedia] share the last medium. It does not
// allocate for names that are registered.
func (x *Index) Medium(name string) Medium {
	x.mu.RLock()
	m, ok := x.media.lookup(name)
	x.mu.RUnlock()
	if ok {
		return m
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.media.register(name)
}

// MediumName returns the name of a medium in upper case, "" if not registered.
func (x *Index) MediumName(m Medium) string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if int(m) < len(x.media.names) {
		return x.media.names[m]
	}
	return ""
}

// Weight returns the weight of a medium.
func (x *Index) Weight(m Medium) float64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if int(m) < len(x.media.names) {
		return x.media.weights[m]
	}
	return 0
}

// AddWorker registers a worker under a name, or finds the one of that name and
// gives it the profile. A nil profile stands for an engine of which nothing is
// known: its blocks are matched in whatever group they are, and no tokens are
// predicted.
func (x *Index) AddWorker(name string, p *Profile) (WorkerID, error) {
	if p == nil {
		p = unknownProfile
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if id, ok := x.byName[name]; ok {
		x.workers[id&0xffff].profile = p
		return id, nil
	}
	var slot uint32
	if n := len(x.free); n > 0 {
		slot, x.free = x.free[0], x.free[1:]
	} else if slot = uint32(len(x.workers)); slot == MaxWorkers {
		return 0, ErrTooManyWorkers
	} else {
		x.workers = append(x.workers, nil)
		x.gens = append(x.gens, 0)
	}
	id := WorkerID(uint32(x.gens[slot])<<16 | slot)
	x.workers[slot] = &worker{id: id, name: name, profile: p}
	x.byName[name] = id
	x.reorder()
	return id, nil
}

// RemoveWorker forgets a worker and all it holds. It reports whether the worker
// was registered. Its ID is invalid from then on.
func (x *Index) RemoveWorker(w WorkerID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.worker(w)
	if k == nil {
		return false
	}
	slot := uint32(w) & 0xffff
	x.workers[slot] = nil
	x.gens[slot]++
	x.free = append(x.free, slot)
	delete(x.byName, k.name)
	x.reorder()
	return true
}

func (x *Index) reorder() {
	order := make([]WorkerID, 0, len(x.workers))
	for _, k := range x.workers {
		if k != nil {
			order = append(order, k.id)
		}
	}
	x.order = order
}

// Worker finds a worker by name.
func (x *Index) Worker(name string) (WorkerID, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	id, ok := x.byName[name]
	return id, ok
}

// WorkerName returns the name of a worker, "" if it is not registered.
func (x *Index) WorkerName(w WorkerID) string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if k := x.worker(w); k != nil {
		return k.name
	}
	return ""
}

// Profile returns a worker's profile, nil if the worker is not registered or has
// none.
func (x *Index) Profile(w WorkerID) *Profile {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if k := x.worker(w); k != nil && k.profile != unknownProfile {
		return k.profile
	}
	return nil
}

// Workers iterates over the workers registered when the iteration starts.
func (x *Index) Workers() iter.Seq2[WorkerID, string] {
	return func(yield func(WorkerID, string) bool) {
		x.mu.RLock()
		order := x.order // replaced, never changed
		x.mu.RUnlock()
		for _, id := range order {
			if name := x.WorkerName(id); name != "" && !yield(id, name) {
				return
			}
		}
	}
}

func (x *Index) worker(w WorkerID) *worker {
	slot := uint32(w) & 0xffff
	if int(slot) >= len(x.workers) || x.workers[slot] == nil || x.workers[slot].id != w {
		return nil
	}
	return x.workers[slot]
}

func (x *Index) holder(h Holder) (*worker, error) {
	k := x.worker(h.Worker)
	if k == nil {
		return nil, ErrUnknownWorker
	}
	if int(h.Medium) >= len(x.media.names) || h.Group < NoGroup || h.Group > MaxGroup {
		return nil, ErrHolder
	}
	return k, nil
}

func (k *worker) copies(m Medium, group int16) *copies {
	for _, c := range k.holders {
		if c.medium == m && c.group == group {
			return c
		}
	}
	return nil
}

// Store records that a holder announced a copy of each of keys. It returns
// [ErrUnknownWorker] or [ErrHolder] and then changes nothing.
func (x *Index) Store(h Holder, keys []uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	k, err := x.holder(h)
	if err != nil {
		return err
	}
	c := k.copies(h.Medium, h.Group)
	if c == nil {
		c = &copies{medium: h.Medium, group: h.Group, count: make(map[uint64]uint32)}
		k.holders = append(k.holders, c)
	}
	for _, key := range keys {
		switch n := c.count[key]; {
		case n == 0:
			c.count[key] = 1
		case k.profile.copies == Set || n == math.MaxUint32:
			k.stats.Repeated++
		default:
			c.count[key] = n + 1
			k.stats.Copies++
		}
	}
	k.stats.Stored += uint64(len(keys))
	return nil
}

// Remove records that a holder gave up a copy of each of keys. Keys that it does
// not hold are counted in [WorkerStats.Unmatched]. A removal with [NoGroup]
// takes copies that were stored without a group, no others. It returns
// [ErrUnknownWorker] or [ErrHolder] and then changes nothing.
func (x *Index) Remove(h Holder, keys []uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	k, err := x.holder(h)
	if err != nil {
		return err
	}
	c := k.copies(h.Medium, h.Group)
	k.stats.Removed += uint64(len(keys))
	if c == nil {
		k.stats.Unmatched += uint64(len(keys))
		return nil
	}
	for _, key := range keys {
		switch n := c.count[key]; n {
		case 0:
			k.stats.Unmatched++
		case 1:
			delete(c.count, key)
		default:
			c.count[key] = n - 1
			k.stats.Copies--
		}
	}
	return nil
}

// Clear forgets what a worker holds on the given media, or on all of them if
// none is given. It may be called at any time, and repeatedly: by the operator,
// or where it is known that a cache was reset. For an engine's clear event see
// [Index.EngineClear].
func (x *Index) Clear(w WorkerID, on ...Medium) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.worker(w)
	if k == nil {
		return ErrUnknownWorker
	}
	if len(on) == 0 {
		on = nil
	}
	k.clear(on)
	return nil
}

func (k *worker) clear(on []Medium) {
	for _, c := range k.holders {
		if on != nil && !slices.Contains(on, c.medium) {
			continue
		}
		for _, n := range c.count {
			k.stats.Copies -= uint64(n - 1)
		}
		clear(c.count)
	}
	k.stats.Clears++
}

// EngineClear applies an AllBlocksCleared event, which does not say what was
// cleared, by the worker's [ClearPolicy]. behind says that the event followed
// an event of another medium than the device in its message.
func (x *Index) EngineClear(w WorkerID, behind bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.worker(w)
	if k == nil {
		return ErrUnknownWorker
	}
	k.clear(k.cleared(behind))
	return nil
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
	for _, c := range k.holders {
		if c.medium != GPU {
			others = append(others, c.medium)
		}
	}
	return others
}
