package radix

import (
	"fmt"
	"slices"
	"sync"
)

// DefaultContentLimit is how many blocks a [ContentMap] remembers or waits for
// beyond what its worker holds.
const DefaultContentLimit = 1 << 18

// ContentMapOptions configures a [ContentMap].
type ContentMapOptions struct {
	// Limit bounds the blocks that are remembered although nobody holds them
	// (they may yet be parents), and the blocks that wait for their parent;
	// 0 = [DefaultContentLimit].
	Limit int
}

// ContentMap lets a worker be matched by content keys whose engine's block
// hashes cannot be computed from a prompt: a random root, an unknown adapter
// path, an opaque engine. It sits between the worker's events, which name blocks
// by engine hash, and the index, which holds them by content key: a key that
// both sides make from tokens and extra keys alone.
//
// The two are matched up when a block is announced. Engine hash and content key
// should name each other; where the events show that they do not, the map stays
// on the low side:
//   - one content key under several engine hashes (extra keys that the events
//     leave out): held only while every one of these hashes is held, since a
//     prompt may mean any of them;
//   - one engine hash under several content keys (unchained hashes): not held at
//     all until the worker holds no copy of it any more.
//
// Nothing tells when the events show only one of several, so that a content key
// can then count for a prompt that it does not fit: use content keys for
// prompts without extras where that matters.
//
// A map belongs to one worker and is safe for concurrent use. Make it with
// [NewContentMap]. It takes about 100 bytes a block beside the index.
type ContentMap struct {
	mu      sync.Mutex
	index   *Index
	worker  WorkerID
	limit   int
	set     bool // the worker's policy: a block is held once
	sweepAt int

	known   map[uint64]uint64   // engine hash -> content key
	first   map[uint64]uint64   // content key -> engine hash first seen
	more    map[uint64][]uint64 // content key -> its further engine hashes
	torn    map[uint64]struct{} // engine hashes of several content keys
	held    []contentHeld
	waiting map[uint64][]deferred // by the parent's engine hash
	stats   ContentStats
}

// contentHeld counts copies by engine hash.
type contentHeld struct {
	holder Holder
	count  map[uint64]uint32
}

type deferred struct {
	engine []uint64
	place  PlaceFunc
}

// PlaceFunc appends the content keys of an event's blocks, one for each of its
// hashes, given the content key of the block before them.
type PlaceFunc func(dst []uint64, parent uint64) []uint64

// ContentStats counts what a [ContentMap] could not do.
type ContentStats struct {
	Known     int    // engine hashes with a content key
	Waiting   int    // blocks that wait for their parent
	Dropped   uint64 // blocks not placed because too many waited
	Aliases   uint64 // content keys seen under a further engine hash
	Torn      uint64 // engine hashes seen under a further content key
	Unmatched uint64 // removals of blocks that were not held
}

// NewContentMap makes an empty map for a worker of x, which should feed the index
// through the map only. Its errors wrap [ErrOptions] or are [ErrUnknownWorker] or
// [ErrIndex].
func NewContentMap(x *Index, w WorkerID, o ContentMapOptions) (*ContentMap, error) {
	if o.Limit < 0 {
		return nil, fmt.Errorf("%w: content limit of %d blocks", ErrOptions, o.Limit)
	}
	if _, err := x.WorkerStats(w); err != nil {
		return nil, err
	}
	c := &ContentMap{index: x, worker: w, limit: o.Limit}
	if p := x.Profile(w); p != nil {
		c.set = p.copies == Set
	}
	if c.limit == 0 {
		c.limit = DefaultContentLimit
	}
	c.forget()
	return c, nil
}

func (c *ContentMap) forget() {
	c.known = make(map[uint64]uint64)
	c.first = make(map[uint64]uint64)
	c.more = make(map[uint64][]uint64)
	c.torn = make(map[uint64]struct{})
	c.waiting = make(map[uint64][]deferred)
	c.stats.Waiting = 0
	c.sweepAt = c.limit
}

// Parent returns the content key of an announced block, by its engine hash. It
// is known after the block's removal too, up to the map's limit.
func (c *ContentMap) Parent(engine uint64) (content uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settled(engine)
}

// settled is the content key of a hash that stands for one content only.
func (c *ContentMap) settled(engine uint64) (content uint64, ok bool) {
	content, ok = c.known[engine]
	if _, torn := c.torn[engine]; torn {
		return 0, false
	}
	return content, ok
}

// Store records copies of blocks whose content keys are known: content[i] is the
// key of engine[i]. With content nil the blocks are held by engine hash, and
// count as soon as their content keys become known (events without tokens).
func (c *ContentMap) Store(h Holder, engine, content []uint64) error {
	if content != nil && len(content) != len(engine) {
		return fmt.Errorf("%w: %d keys for %d engine hashes", ErrContent, len(content), len(engine))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.hold(h, engine); err != nil {
		return err
	}
	if content != nil {
		c.learn(engine, content)
	}
	return nil
}

// Defer records copies of blocks whose parent is not known yet. They count from
// the moment at which the parent's content key becomes known; place then makes
// theirs. It keeps a copy of engine, and place until it is called.
func (c *ContentMap) Defer(h Holder, parent uint64, engine []uint64, place PlaceFunc) error {
	if place == nil {
		return fmt.Errorf("%w: nothing that makes them", ErrContent)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.hold(h, engine); err != nil || len(engine) == 0 {
		return err
	}
	if key, ok := c.settled(parent); ok {
		c.learn(c.placed(key, deferred{engine, place}))
		return nil
	}
	if c.stats.Waiting+len(engine) > c.limit {
		c.stats.Dropped += uint64(len(engine))
		return nil
	}
	c.stats.Waiting += len(engine)
	c.waiting[parent] = append(c.waiting[parent], deferred{slices.Clone(engine), place})
	return nil
}

// Remove records that a copy of each block was given up.
func (c *ContentMap) Remove(h Holder, engine []uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, err := c.holder(h)
	if err != nil {
		return err
	}
	for _, e := range engine {
		if !c.removeOne(k, e) {
			c.stats.Unmatched++
		}
	}
	return nil
}

// RemoveAnywhere is Remove for an event that does not name the medium: a copy goes
// from each medium of the group that has one.
func (c *ContentMap) RemoveAnywhere(group int16, engine []uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range engine {
		found := false
		for i := range c.held {
			if k := &c.held[i]; k.holder.Group == group {
				found = c.removeOne(k, e) || found
			}
		}
		if !found {
			c.stats.Unmatched++
		}
	}
	return nil
}

// removeOne takes a copy of a block out, if there is one.
func (c *ContentMap) removeOne(k *contentHeld, e uint64) bool {
	switch n := k.count[e]; n {
	case 0:
		return false
	case 1:
		key, shown := c.shown(k, e)
		delete(k.count, e)
		if shown {
			_ = c.index.Remove(k.holder, []uint64{key})
		}
		c.mend(e)
	default:
		k.count[e] = n - 1
	}
	return true
}

// Clear forgets what the worker holds on the given media, or on all if none is
// given; which content a hash stands for stays known.
func (c *ContentMap) Clear(on ...Medium) error {
	if len(on) == 0 {
		on = nil
	}
	return c.clear(on)
}

// EngineClear is [Index.EngineClear] for a worker matched by content.
func (c *ContentMap) EngineClear(behind bool) error {
	on, err := c.index.clearedBy(c.worker, behind)
	if err != nil {
		return err
	}
	return c.clear(on)
}

func (c *ContentMap) clear(on []Medium) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if on == nil {
		if err := c.index.Clear(c.worker); err != nil {
			return err
		}
	} else if len(on) > 0 {
		if err := c.index.Clear(c.worker, on...); err != nil {
			return err
		}
	}
	for i := range c.held {
		if on == nil || slices.Contains(on, c.held[i].holder.Medium) {
			clear(c.held[i].count)
		}
	}
	if on == nil { // what waited for its parent is not held any more
		clear(c.waiting)
		c.stats.Waiting = 0
	}
	for e := range c.torn {
		c.mend(e)
	}
	return nil
}

// Reset forgets everything, also what hashes stand for: the engine restarted.
func (c *ContentMap) Reset() error {
	if err := c.clear(nil); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	return nil
}

// Stats returns the map's counts.
func (c *ContentMap) Stats() ContentStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Known = len(c.known)
	return s
}

func (c *ContentMap) holder(h Holder) (*contentHeld, error) {
	if h.Worker != c.worker {
		return nil, ErrUnknownWorker
	}
	for i := range c.held {
		if c.held[i].holder == h {
			return &c.held[i], nil
		}
	}
	if err := c.index.Store(h, nil); err != nil { // validates the holder
		return nil, err
	}
	c.held = append(c.held, contentHeld{h, make(map[uint64]uint32)})
	return &c.held[len(c.held)-1], nil
}

// hold adds a copy of each block and shows those whose content is known.
func (c *ContentMap) hold(h Holder, engine []uint64) error {
	k, err := c.holder(h)
	if err != nil {
		return err
	}
	for _, e := range engine {
		n := k.count[e]
		if n > 0 && c.set {
			continue
		}
		k.count[e] = n + 1
		if n > 0 {
			continue
		}
		if key, shown := c.shown(k, e); shown {
			_ = c.index.Store(k.holder, []uint64{key})
		}
	}
	return nil
}

// shown tells under which content key a hash that is held counts, if it does:
// all hashes of the key are held, and none is torn.
func (c *ContentMap) shown(k *contentHeld, e uint64) (key uint64, ok bool) {
	key, ok = c.known[e]
	if !ok {
		return 0, false
	}
	return key, c.present(k, key)
}

func (c *ContentMap) present(k *contentHeld, key uint64) bool {
	e, ok := c.first[key]
	if !ok || !c.whole(k, e) {
		return false
	}
	for _, e := range c.more[key] {
		if !c.whole(k, e) {
			return false
		}
	}
	return true
}

func (c *ContentMap) whole(k *contentHeld, e uint64) bool {
	_, torn := c.torn[e]
	return !torn && k.count[e] > 0
}

// learn matches hashes up with content keys, and places what waited for them, which
// may release further blocks in turn.
func (c *ContentMap) learn(engine, content []uint64) {
	type found struct{ engine, content []uint64 }
	for todo := []found{{engine, content}}; len(todo) > 0; {
		f := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for i, e := range f.engine {
			c.match(e, f.content[i])
		}
		for _, e := range f.engine {
			key, ok := c.settled(e)
			if !ok || len(c.waiting[e]) == 0 {
				continue
			}
			blocks := c.waiting[e]
			delete(c.waiting, e)
			for _, d := range blocks {
				c.stats.Waiting -= len(d.engine)
				if engine, content := c.placed(key, d); engine != nil {
					todo = append(todo, found{engine, content})
				}
			}
		}
	}
	if len(c.known) > c.sweepAt {
		c.sweep()
	}
}

// placed gives blocks that waited their content keys; none if they have none.
func (c *ContentMap) placed(parent uint64, d deferred) (engine, content []uint64) {
	keys := d.place(nil, parent)
	if len(keys) != len(d.engine) {
		c.stats.Dropped += uint64(len(d.engine))
		return nil, nil
	}
	return d.engine, keys
}

// match makes content the key of hash e, keeping the index in step.
func (c *ContentMap) match(e, content uint64) {
	old, ok := c.known[e]
	if ok && old == content {
		return
	}
	if _, torn := c.torn[e]; torn {
		return
	}
	if ok { // a second content: hide the first until no copy is left
		c.withdraw(old)
		c.torn[e] = struct{}{}
		c.stats.Torn++
		return
	}
	c.known[e] = content
	if _, ok := c.first[content]; ok {
		c.withdraw(content)
		c.more[content] = append(c.more[content], e)
		c.stats.Aliases++
	} else {
		c.first[content] = e
	}
	for i := range c.held {
		if k := &c.held[i]; c.present(k, content) {
			_ = c.index.Store(k.holder, []uint64{content})
		}
	}
}

// withdraw takes a content key out of the index wherever it is held.
func (c *ContentMap) withdraw(content uint64) {
	for i := range c.held {
		if k := &c.held[i]; c.present(k, content) {
			_ = c.index.Remove(k.holder, []uint64{content})
		}
	}
}

// mend makes a torn hash usable again when no copy of it is left. Its content is
// forgotten, since it is not known which one comes back; but where the content
// has other hashes, this one goes on hiding it.
func (c *ContentMap) mend(e uint64) {
	if _, torn := c.torn[e]; !torn {
		return
	}
	for i := range c.held {
		if c.held[i].count[e] > 0 {
			return
		}
	}
	delete(c.torn, e)
	if key := c.known[e]; len(c.more[key]) == 0 {
		delete(c.known, e)
		delete(c.first, key)
	}
}

// sweep forgets the content of hashes that nobody holds. Keys of several hashes
// stay: forgetting one hash would show the others.
func (c *ContentMap) sweep() {
next:
	for e, key := range c.known {
		if _, torn := c.torn[e]; torn || len(c.more[key]) > 0 {
			continue
		}
		for i := range c.held {
			if c.held[i].count[e] > 0 {
				continue next
			}
		}
		delete(c.known, e)
		delete(c.first, key)
	}
	c.sweepAt = max(c.limit, 2*len(c.known))
}
