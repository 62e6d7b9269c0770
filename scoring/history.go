package scoring

import (
	"sync"
	"time"
)

// HistoryOptions are the options of [NewHistory]. The zero value is llm-d's
// approximate mode.
type HistoryOptions struct {
	// Capacity is the number of blocks remembered for each worker, least
	// recently used first to go; 0 means 31,250 (llm-d).
	Capacity int
	// TTL forgets blocks not used for so long; 0 keeps them until Capacity
	// pushes them out. Dynamo's approximate mode has 120 s.
	TTL time.Duration
	// BlockTokens is the number of tokens in a block; 0 means 64, llm-d's
	// floor.
	BlockTokens int
	// MaxTokens is how much of a prompt is matched at most; 0 means 131,072
	// (llm-d), negative means all.
	MaxTokens int
	// Now is the clock, for tests and simulations; nil means [time.Now]. A
	// clock that goes back stands still instead.
	Now func() time.Time
}

// History remembers which prompts were sent where, for engines that publish no
// events: the approximate mode of llm-d and Dynamo. A prompt is a chain of keys,
// each naming its block and everything before it; the keys may be an engine's
// hashes, content keys or those of [AppendTextKeys].
//
// Create it with [NewHistory]. It is safe for concurrent use behind one lock.
// Memory is at most Capacity entries of about 100 bytes for each worker that
// was sent anything; [History.Remove] frees a worker's.
//
// What it says is a guess: the engine may have evicted the blocks, or computed
// others that this router does not know of.
type History struct {
	o      HistoryOptions
	blocks int // matched at most

	mu      sync.Mutex
	now     time.Time
	workers slots[lru]
}

// lru is the memory of one worker: a map into a list in slots.
type lru struct {
	slots       []lruSlot
	index       map[uint64]int32
	first, last int32 // least and most recently used
	free        int32
}

type lruSlot struct {
	key        uint64
	prev, next int32
	used       time.Time
}

// NewHistory returns an empty history. The error is an [*OptionError].
func NewHistory(o HistoryOptions) (*History, error) {
	if o.Capacity < 0 || o.Capacity > 1<<30 {
		return nil, optionErrorf("Capacity", "is %d; 1 to %d blocks are possible (0 takes the default)", o.Capacity, 1<<30)
	}
	if o.TTL < 0 || o.BlockTokens < 0 {
		return nil, optionErrorf("TTL, BlockTokens", "negative; 0 takes the default")
	}
	if o.Capacity == 0 {
		o.Capacity = 31250
	}
	if o.BlockTokens == 0 {
		o.BlockTokens = 64
	}
	if o.MaxTokens == 0 {
		o.MaxTokens = 131072
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &History{o: o, blocks: o.MaxTokens / o.BlockTokens}
	if o.MaxTokens < 0 {
		h.blocks = 1<<31 - 1
	}
	return h, nil
}

// Sent remembers that a prompt went to a worker: its keys become the most
// recently used ones there, the first block last, so that a prefix outlives what
// hangs on it. Keys beyond MaxTokens are not remembered.
func (h *History) Sent(w WorkerID, keys []uint64) {
	if !h.lock() {
		return
	}
	defer h.mu.Unlock()
	l := h.workers.get(w)
	if l == nil {
		l = &lru{index: map[uint64]int32{}, first: -1, last: -1, free: -1}
		h.workers.put(w, l)
	}
	keys = keys[:min(len(keys), h.blocks, h.o.Capacity)]
	for i := len(keys) - 1; i >= 0; i-- {
		l.use(keys[i], h.now, h.o.Capacity)
	}
	l.expire(h.now, h.o.TTL)
}

// Match sets the match of every candidate, by ID, from the history: all blocks
// count as on the GPU, and at most n-1 of the prompt's n tokens as usable. It
// reads only: being asked for does not keep a block. It also sets
// [Load.CacheSize] to the number of blocks remembered. The request may be nil.
func (h *History) Match(req *Request, keys []uint64, candidates []Candidate) {
	if !h.lock() {
		unmatched(candidates)
		return
	}
	defer h.mu.Unlock()
	keys = keys[:min(len(keys), h.blocks)]
	for i := range candidates {
		c := &candidates[i]
		l := h.workers.get(c.ID)
		n := 0
		if l != nil {
			l.expire(h.now, h.o.TTL)
			for n < len(keys) && l.has(keys[n]) {
				n++
			}
		}
		c.Match = Match{Blocks: [NumMedia]int32{GPU: int32(n)}, Score: float64(n),
			Usable: usable(req, n, h.o.BlockTokens)}
		c.Load.CacheSize = Known(0)
		if l != nil {
			c.Load.CacheSize = Known(float64(len(l.index)))
		}
	}
}

// unmatched forgets what candidates hold, where nothing is known of it.
func unmatched(candidates []Candidate) {
	for i := range candidates {
		candidates[i].Match, candidates[i].Load.CacheSize = Match{}, Gauge{}
	}
}

// usable caps the tokens of n blocks at n-1 of the prompt, in whole blocks.
func usable(req *Request, blocks, size int) int32 {
	tokens := blocks * size
	if req != nil && req.Tokens > 0 && tokens > req.Tokens-1 {
		tokens = (req.Tokens - 1) / size * size
	}
	return int32(tokens)
}

// Remove forgets a worker, after it went away or restarted.
func (h *History) Remove(w WorkerID) {
	if !h.lock() {
		return
	}
	defer h.mu.Unlock()
	h.workers.remove(w)
}

// Restarted forgets what was sent to a worker before a time: it came back with an
// empty cache under its old name. What was sent since is kept.
func (h *History) Restarted(w WorkerID, at time.Time) {
	if !h.lock() {
		return
	}
	defer h.mu.Unlock()
	l := h.workers.get(w)
	for l != nil && l.first >= 0 && l.slots[l.first].used.Before(at) {
		l.drop()
	}
}

// Blocks returns how many blocks of a worker are remembered.
func (h *History) Blocks(w WorkerID) int {
	if !h.lock() {
		return 0
	}
	defer h.mu.Unlock()
	if l := h.workers.get(w); l != nil {
		l.expire(h.now, h.o.TTL)
		return len(l.index)
	}
	return 0
}

// lock reports whether there is a history, locks it and reads the clock.
func (h *History) lock() bool {
	if h == nil || h.o.Now == nil {
		return false
	}
	h.mu.Lock()
	if now := h.o.Now(); now.After(h.now) {
		h.now = now
	}
	return true
}

func (l *lru) has(key uint64) bool {
	_, ok := l.index[key]
	return ok
}

// use makes a key the most recently used one.
func (l *lru) use(key uint64, now time.Time, capacity int) {
	i, ok := l.index[key]
	if ok {
		l.unlink(i)
	} else {
		if len(l.index) >= capacity {
			l.drop()
		}
		if l.free >= 0 {
			i, l.free = l.free, l.slots[l.free].next
		} else {
			l.slots = append(l.slots, lruSlot{})
			i = int32(len(l.slots) - 1)
		}
		l.slots[i].key = key
		l.index[key] = i
	}
	s := &l.slots[i]
	s.used, s.prev, s.next = now, l.last, -1
	if l.last >= 0 {
		l.slots[l.last].next = i
	} else {
		l.first = i
	}
	l.last = i
}

func (l *lru) unlink(i int32) {
	s := &l.slots[i]
	if s.prev >= 0 {
		l.slots[s.prev].next = s.next
	} else {
		l.first = s.next
	}
	if s.next >= 0 {
		l.slots[s.next].prev = s.prev
	} else {
		l.last = s.prev
	}
}

// drop forgets the least recently used key.
func (l *lru) drop() {
	i := l.first
	l.unlink(i)
	delete(l.index, l.slots[i].key)
	l.slots[i].next, l.free = l.free, i
}

func (l *lru) expire(now time.Time, ttl time.Duration) {
	for ttl > 0 && l.first >= 0 && now.Sub(l.slots[l.first].used) >= ttl {
		l.drop()
	}
}
