package simulate

// cache is the block cache of one engine: blocks in use by requests, and freed
// blocks in the order in which they will be reused. Below it lies an optional
// cache in host memory.
type cache struct {
	size     int // tokens in a block
	kvBytes  float64
	capacity int
	used     int      // blocks held or reserved by requests
	blocks   []*block // by key
	free     list     // cached and unused, next to be reused first
	transfer float64

	hostCapacity int
	host         []*block // by key
	hostLRU      list

	log *[]cacheEvent // what the engine would publish
}

// block is a cached block. Copies of one content are not modelled.
type block struct {
	key        uint64
	refs       int
	ready      bool // computed, so that others may use it
	prev, next *block
}

// cacheEvent is a store or a removal on a medium.
type cacheEvent struct {
	key    uint64
	host   bool
	stored bool
}

// list is a doubly linked list of blocks.
type list struct {
	first, last *block
	n           int
}

func (l *list) push(b *block) {
	b.prev, b.next = l.last, nil
	if l.last != nil {
		l.last.next = b
	} else {
		l.first = b
	}
	l.last = b
	l.n++
}

func (l *list) remove(b *block) {
	if b.prev != nil {
		b.prev.next = b.next
	} else {
		l.first = b.next
	}
	if b.next != nil {
		b.next.prev = b.prev
	} else {
		l.last = b.prev
	}
	l.n--
}

func newCache(e *Engine, size, keys int, log *[]cacheEvent) *cache {
	return &cache{size: size, kvBytes: e.KVBytes, capacity: max(1, e.KVTokens/size), blocks: make([]*block, keys),
		hostCapacity: e.HostTokens / size, host: make([]*block, keys), log: log}
}

// hit returns the whole blocks of the prompt that need no computing, of which the
// first gpu ones lie on the device.
func (c *cache) hit(a *Arrival) (total, gpu int) {
	limit := min(len(a.Blocks), (a.Tokens-1)/c.size) // the last token is computed
	for total < limit {
		if b := c.blocks[a.Blocks[total]]; b != nil && b.ready {
			total++
			continue
		}
		break
	}
	gpu = total
	for total < limit && c.host[a.Blocks[total]] != nil {
		total++
	}
	return total, gpu
}

// admit takes the blocks that a request needs; false if they are not there. Blocks
// that running requests hold already need no room.
func (c *cache) admit(j *job) bool {
	a := j.arrival
	need := blocksFor(a.Tokens+a.Output, c.size)
	for _, key := range a.Blocks {
		if b := c.blocks[key]; b != nil && b.refs > 0 {
			need--
		}
	}
	if c.used+need > c.capacity && c.used > 0 {
		return false
	}
	total, gpu := c.hit(a)
	for i, key := range a.Blocks {
		b := c.blocks[key]
		switch {
		case b == nil:
			b = &block{key: key, ready: i < total} // from the host, or to compute
			c.blocks[key] = b
			if b.ready {
				*c.log = append(*c.log, cacheEvent{key: key, stored: true})
			}
		case b.refs == 0:
			c.free.remove(b)
		}
		if b.refs == 0 {
			c.used++
			need--
		}
		b.refs++
		j.held = append(j.held, b)
	}
	j.reserved = max(0, need) // a partial last block and the output
	c.used += j.reserved
	c.transfer += float64((total-gpu)*c.size) * c.kvBytes
	j.cached = total * c.size
	j.computed = j.cached
	for c.used+c.free.n > c.capacity && c.free.n > 0 {
		c.evict()
	}
	return true
}

// takeTransfer returns the bytes to load from the host since it was last asked.
func (c *cache) takeTransfer() float64 {
	t := c.transfer
	c.transfer = 0
	return t
}

func (c *cache) evict() {
	b := c.free.first
	c.free.remove(b)
	c.blocks[b.key] = nil
	*c.log = append(*c.log, cacheEvent{key: b.key})
	if c.hostCapacity == 0 {
		return
	}
	if old := c.host[b.key]; old != nil {
		c.hostLRU.remove(old)
		c.hostLRU.push(old)
		return
	}
	if c.hostLRU.n >= c.hostCapacity {
		old := c.hostLRU.first
		c.hostLRU.remove(old)
		c.host[old.key] = nil
		*c.log = append(*c.log, cacheEvent{key: old.key, host: true})
	}
	h := &block{key: b.key}
	c.host[b.key] = h
	c.hostLRU.push(h)
	*c.log = append(*c.log, cacheEvent{key: b.key, host: true, stored: true})
}

// computed makes the blocks that a chunk completes usable by others.
func (c *cache) computed(j *job, n int) {
	from, to := j.computed/c.size, (j.computed+n)/c.size
	for i := from; i < to && i < len(j.held); i++ {
		if b := j.held[i]; !b.ready {
			b.ready = true
			*c.log = append(*c.log, cacheEvent{key: b.key, stored: true})
		}
	}
}

// release frees a request's blocks, the tail first, as vLLM does.
func (c *cache) release(j *job) {
	c.used -= j.reserved
	for i := len(j.held) - 1; i >= 0; i-- {
		b := j.held[i]
		if b.refs--; b.refs > 0 {
			continue
		}
		c.used--
		if b.ready {
			c.free.push(b)
		} else {
			c.blocks[b.key] = nil
		}
	}
	j.held = nil
}
