package radix

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe" // for Sizeof only
)

// WorkerID names a worker of one index. An ID becomes invalid when its worker is
// removed, and is not handed out again until 65,536 removals later.
type WorkerID uint32

// MaxWorkers is the number of workers that an index holds at a time.
const MaxWorkers = 1 << 16

// MaxBlocks is the number of different blocks that an index holds at most.
const MaxBlocks = maxSlabs * slabKeys

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
	// Weights gives blocks a value by the name of their medium, within 0..1, once each;
	// media that are not listed have their default weight.
	Weights map[string]float64
	// UnknownWeight is the weight of media that are neither known nor listed;
	// 0 = [DefaultUnknownWeight]. List a medium with weight 0 to ignore it.
	UnknownWeight float64
	// ExpectedBlocks is how many different blocks the index will hold, over all
	// workers; 0 = not known. It saves the work of growing there: about a tenth
	// of the cost of filling an index.
	ExpectedBlocks int
	// MaxBytes bounds the memory taken for blocks; 0 = what [MaxBlocks] take. At
	// the limit the workers that hold the most forget some blocks, which is counted
	// (Evicted) and makes their answers smaller, never larger; one that holds less
	// than half as many as the largest forgets none, nor does what it shares with
	// others go. The limit is
	// kept to within a slab of about half a mebibyte, of which at least two are
	// allowed, and huge pages of two where the system gives them; about a third of
	// it goes to tables.
	MaxBytes int
}

// Index tells which worker holds which block. Make it with [New]: methods of a nil
// or zero Index return [ErrIndex], and those without an error are not for one. It
// must not be copied. All methods are safe for concurrent use. Operations on one worker take
// effect in the order in which they are called, so call them from one goroutine
// a worker, in the order of the worker's events.
//
// Writers share one lock. Readers take none: [Index.Match] and
// [Index.Prefixes] neither wait for writers nor hold them up.
//
// The key 0 is kept as another constant, so that the two are one key.
type Index struct {
	epochs epochs
	seed   [pageKeys]uint64 // of digests
	view   atomic.Pointer[view]
	moves  atomic.Uint64 // pages moved, see packer
	table  table
	arena  arena
	recs   records

	mu      sync.Mutex // of all below, and of what is the writer's above
	media   media
	workers []*worker // by slot; nil = free
	gens    []uint16  // by slot
	free    []uint32  // slots
	byName  map[string]WorkerID
	hids    []hidWord
	retired retired
	since   int // keys written since the last reclaim
	sweep   sweep
	pack    packer
	evict   evictor
	live    int // positions held by anybody
	copies  copyTable
	lost    uint64 // keys that found no room
	evicted uint64 // keys forgotten for the byte limit
	batches [2]batch
	burial  burial
	touched uint64 // keeps the compiler from dropping early loads
}

// New makes an empty index. Its errors wrap [ErrOptions].
func New(o Options) (*Index, error) {
	x := &Index{byName: make(map[string]WorkerID), seed: digestSeed()}
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
	x.epochs.now.Store(1)
	if o.ExpectedBlocks < 0 || o.ExpectedBlocks > MaxBlocks {
		return nil, fmt.Errorf("%w: %d expected blocks, want 0..%d", ErrOptions, o.ExpectedBlocks, MaxBlocks)
	}
	x.table.init(rand.Uint64(), o.ExpectedBlocks)
	x.arena.limit = maxSlabs
	if o.MaxBytes < 0 {
		return nil, fmt.Errorf("%w: %d bytes at most", ErrOptions, o.MaxBytes)
	}
	if o.MaxBytes > 0 {
		// A slab's keys need slots for all of them, in segments half full.
		const each = int(unsafe.Sizeof(slab{})) + slabKeys*9
		x.arena.limit = min(max(2, o.MaxBytes/each), maxSlabs)
	}
	x.publish()
	return x, nil
}

// made tells whether New made the index.
func (x *Index) made() bool { return x != nil && x.view.Load() != nil }

// Medium finds or registers a medium by its name on the wire, in any case; ""
// is the device. Names beyond [MaxMedia] share the last medium. It does not
// allocate for names that are registered.
func (x *Index) Medium(name string) Medium {
	if name == "" {
		return GPU
	}
	name = name[:min(len(name), maxMediumName)]
	for i, known := range x.view.Load().names {
		if strings.EqualFold(known, name) {
			return Medium(i)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.media.register(name)
	x.publish()
	return m
}

// MediumName returns the name of a medium in upper case, "" if not registered.
func (x *Index) MediumName(m Medium) string {
	if v := x.view.Load(); int(m) < v.media {
		return v.names[m]
	}
	return ""
}

// Weight returns the weight of a medium.
func (x *Index) Weight(m Medium) float64 {
	if v := x.view.Load(); int(m) < v.media {
		return v.weights[m]
	}
	return 0
}

// AddWorker registers a worker under a name, or finds the one of that name and
// gives it the profile. A nil profile stands for an engine of which nothing is
// known: its blocks are matched in whatever group they are, and no tokens are
// predicted; a zero one is refused with [ErrProfile].
func (x *Index) AddWorker(name string, p *Profile) (WorkerID, error) {
	if !x.made() {
		return 0, ErrIndex
	}
	if p == nil {
		p = unknownProfile
	}
	if len(p.layouts) == 0 {
		return 0, fmt.Errorf("%w: not made with NewProfile", ErrProfile)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	defer x.publish()
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
	return id, nil
}

// RemoveWorker forgets a worker and all it holds. It reports whether the worker
// was registered. Its ID is invalid from then on. Readers see all of it or
// nothing; the memory is given back by the writes that follow.
func (x *Index) RemoveWorker(w WorkerID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.worker(w)
	if k == nil {
		return false
	}
	slot := uint32(w) & 0xffff
	for _, h := range k.holders {
		x.discard(h)
	}
	x.workers[slot] = nil
	x.gens[slot]++
	x.free = append(x.free, slot)
	delete(x.byName, k.name)
	x.publish()
	return true
}

// Worker finds a worker by name.
func (x *Index) Worker(name string) (WorkerID, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, ok := x.byName[name]
	return id, ok
}

// WorkerName returns the name of a worker, "" if it is not registered.
func (x *Index) WorkerName(w WorkerID) string {
	if k, _ := x.view.Load().worker(w); k != nil {
		return k.name
	}
	return ""
}

// Profile returns a worker's profile, nil if the worker is not registered or has
// none.
func (x *Index) Profile(w WorkerID) *Profile {
	if k, _ := x.view.Load().worker(w); k != nil && k.profile != unknownProfile {
		return k.profile
	}
	return nil
}

// Workers iterates over the workers registered when the iteration starts.
func (x *Index) Workers() iter.Seq2[WorkerID, string] {
	return func(yield func(WorkerID, string) bool) {
		v := x.view.Load()
		for i := range v.workers {
			if !yield(v.workers[i].id, v.workers[i].name) {
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

// check finds a holder's worker and validates the rest.
func (x *Index) check(h Holder) (*worker, error) {
	k := x.worker(h.Worker)
	if k == nil {
		return nil, ErrUnknownWorker
	}
	if int(h.Medium) >= len(x.media.names) || h.Group < NoGroup || h.Group > MaxGroup {
		return nil, ErrHolder
	}
	return k, nil
}
