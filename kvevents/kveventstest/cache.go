package kveventstest

import (
	"container/list"

	"github.com/kvatlas/kvatlas/kvevents"
)

// Group is one cache group.
type Group struct {
	// Kind is what the events say, "full_attention" if empty.
	Kind string
	// Window is the sliding window in tokens; 0 means full attention.
	Window int
}

// key is a block of a group.
type key struct {
	group int
	hash  uint64
}

// pool is a tier: physical blocks in the order of their last use.
type pool struct {
	size   int // 0: unbounded
	order  *list.List
	copies map[key][]*list.Element
}

func newPool(size int) *pool {
	return &pool{size: size, order: list.New(), copies: map[key][]*list.Element{}}
}

func (p *pool) has(k key) bool { return len(p.copies[k]) > 0 }

func (p *pool) touch(k key) {
	if c := p.copies[k]; len(c) > 0 {
		p.order.MoveToBack(c[0])
	}
}

// add takes a block for k, and returns the one it had to evict.
func (p *pool) add(k key) (evicted key, full bool) {
	if full = p.size > 0 && p.order.Len() >= p.size; full {
		oldest := p.order.Front()
		evicted = oldest.Value.(key)
		p.order.Remove(oldest)
		c := p.copies[evicted]
		for i, e := range c {
			if e == oldest {
				c = append(c[:i:i], c[i+1:]...)
				break
			}
		}
		if p.copies[evicted] = c; len(c) == 0 {
			delete(p.copies, evicted)
		}
	}
	p.copies[k] = append(p.copies[k], p.order.PushBack(k))
	return evicted, full
}

// Block names a held block.
type Block struct {
	Medium string
	Group  int
	Hash   uint64
}

// cache is the engine's memory of prompts.
type cache struct {
	o        Options
	gpu, cpu *pool
	late     []kvevents.Event // offloaded blocks, announced with the next step
}

func newCache(o Options) *cache {
	c := &cache{o: o, gpu: newPool(o.Blocks)}
	if o.CPUBlocks > 0 {
		c.cpu = newPool(o.CPUBlocks)
	}
	return c
}

// wanted returns the first block of the n that a group needs before position n.
func (g Group) wanted(n, blockSize int) int {
	if g.Window == 0 {
		return 0
	}
	return max(0, n-(g.Window-1+blockSize-1)/blockSize)
}

// match returns how many leading blocks can be reused, of at most limit.
func (c *cache) match(hashes []uint64, limit int, has func(key) bool) int {
	longest := limit
	for g, group := range c.o.Groups {
		if group.Window == 0 {
			n := 0
			for n < longest && has(key{g, hashes[n]}) {
				n++
			}
			longest = n
		}
	}
next:
	for n := longest; n > 0; n-- {
		for g, group := range c.o.Groups {
			if group.Window == 0 {
				continue
			}
			for i := group.wanted(n, c.o.BlockSize); i < n; i++ {
				if !has(key{g, hashes[i]}) {
					continue next
				}
			}
		}
		return n
	}
	return 0
}

// serve runs one prompt and returns the reused tokens and the step's events.
func (c *cache) serve(tokens []uint32, hashes []uint64) (hit int, events []kvevents.Event) {
	size := c.o.BlockSize
	late := c.late
	c.late = nil
	needed := 0
	for _, group := range c.o.Groups {
		needed += len(hashes) - group.wanted(len(hashes), size)
	}
	if c.gpu.size > 0 && needed > c.gpu.size {
		return 0, late // an engine cannot run it, and keeps nothing of it
	}
	cached := c.match(hashes, min((len(tokens)-1)/size, len(hashes)), func(k key) bool {
		return c.gpu.has(k) || c.cpu != nil && c.cpu.has(k)
	})
	for g, group := range c.o.Groups {
		// A span of blocks that must be computed or loaded ends where one is there.
		first, from := group.wanted(len(hashes), size), 0
		for i, h := range hashes {
			k := key{g, h}
			if there := i < cached && c.gpu.has(k); !there && !(i < cached && i < group.wanted(cached, size)) {
				continue
			}
			c.gpu.touch(k)
			events = c.store(events, g, group, tokens, hashes[:i], from, max(first, from))
			from = i + 1
		}
		events = c.store(events, g, group, tokens, hashes, from, max(first, from))
	}
	return cached * size, append(events, late...)
}

// store allocates the last of the hashes, from kept on, for a group, and
// announces what had to go and what came. The span of the event begins at
// from: a window group skips what lies before its window.
func (c *cache) store(events []kvevents.Event, g int, group Group, tokens []uint32, hashes []uint64, from, kept int) []kvevents.Event {
	if kept >= len(hashes) {
		return events
	}
	for _, h := range hashes[kept:] {
		if evicted, full := c.gpu.add(key{g, h}); full {
			events = append(events, c.event(kvevents.BlockRemoved, evicted.group, "GPU", evicted.hash))
		}
		c.offload(key{g, h})
	}
	size := c.o.BlockSize
	ev := c.event(kvevents.BlockStored, g, "GPU", hashes[kept:]...)
	ev.Tokens = tokens[from*size : len(hashes)*size]
	ev.BlockSize = size
	if from > 0 {
		ev.Parent, ev.HasParent = hashes[from-1], true
	}
	ev.ExtraKeys = make([][]kvevents.ExtraKey, len(ev.Hashes))
	ev.SlidingWindow = group.Window
	return append(events, ev)
}

// offload copies a block to the CPU tier; the news of it come a step late.
func (c *cache) offload(k key) {
	if c.cpu == nil || c.cpu.has(k) {
		return
	}
	if evicted, full := c.cpu.add(k); full {
		c.late = append(c.late, c.event(kvevents.BlockRemoved, evicted.group, "CPU", evicted.hash))
	}
	c.late = append(c.late, c.event(kvevents.BlockStored, k.group, "CPU", k.hash))
}

func (c *cache) event(kind kvevents.Kind, group int, medium string, hashes ...uint64) kvevents.Event {
	ev := kvevents.Event{Kind: kind, Hashes: hashes, Medium: []byte(medium), HasGroup: true, Group: int32(group)}
	if kind == kvevents.BlockStored && medium == "GPU" {
		ev.SpecKind = []byte(c.o.Groups[group].Kind)
	}
	return ev
}

// held counts the copies of every block, as the announcements so far make
// them: what is offloaded and not yet announced is left out.
func (c *cache) held() map[Block]int {
	all := map[Block]int{}
	for k, copies := range c.gpu.copies {
		all[Block{"GPU", k.group, k.hash}] = len(copies)
	}
	if c.cpu != nil {
		for k := range c.cpu.copies {
			all[Block{"CPU", k.group, k.hash}]++
		}
		for i := len(c.late) - 1; i >= 0; i-- {
			ev := c.late[i]
			b := Block{"CPU", int(ev.Group), ev.Hashes[0]}
			if ev.Kind == kvevents.BlockStored {
				if all[b]--; all[b] == 0 {
					delete(all, b)
				}
			} else {
				all[b]++
			}
		}
	}
	return all
}

// Track applies a batch to counts as a consumer should, for comparison with
// [Engine.Held]. A clear empties the GPU, the only pool that it is about here.
func Track(held map[Block]int, b *kvevents.Batch) {
	for i := range b.Events {
		ev := &b.Events[i]
		for _, h := range ev.Hashes {
			block := Block{string(ev.Medium), int(ev.Group), h}
			if block.Medium == "" {
				block.Medium = "GPU"
			}
			switch ev.Kind {
			case kvevents.BlockStored:
				held[block]++
			case kvevents.BlockRemoved:
				if held[block]--; held[block] <= 0 {
					delete(held, block)
				}
			}
		}
		if ev.Kind == kvevents.AllBlocksCleared {
			for block := range held {
				if block.Medium == "GPU" {
					delete(held, block)
				}
			}
		}
	}
}
