package lmcache

import (
	"slices"

	"github.com/kvatlas/kvatlas/blockhash"
)

// Lookup answers as LMCache's controller does: chunk by chunk, until one is held
// nowhere, the first holder of each is entered with the end of the chunk. An
// instance's number is therefore where the last chunk ends of which it was the
// first holder, which says nothing of what else it holds: [Controller.Prefixes]
// does. The error is [ErrHasher], or one of the prompt.
func (c *Controller) Lookup(tokens []uint32) (Layout, error) {
	return c.LookupPrompt(&blockhash.Prompt{Tokens: tokens})
}

// LookupPrompt is [Controller.Lookup] for a prompt. LMCache hashes nothing of it
// but the tokens; where it has multimodal items, LMCache puts their hashes in the
// place of tokens, which the caller must do too.
func (c *Controller) LookupPrompt(p *blockhash.Prompt) (layout Layout, err error) {
	layout = Layout{}
	err = c.walk(p, func(key Key, end int) bool { return c.place(&layout, key, end) })
	return layout, err
}

// LookupKeys is [Controller.Lookup] by the keys of a prompt's chunks, of chunk tokens each
// but for the last, which ends with the prompt.
func (c *Controller) LookupKeys(keys []Key, chunk, tokens int) Layout {
	layout := Layout{}
	c.walkKeys(keys, chunk, tokens, func(key Key, end int) bool { return c.place(&layout, key, end) })
	return layout
}

// place enters the first holder of a chunk.
func (c *Controller) place(layout *Layout, key Key, end int) bool {
	first := c.first(key)
	if first == nil {
		return false
	}
	p := Placement{InstanceID: first.worker.instance.id, Location: first.location, Tokens: int64(end)}
	for i := range *layout {
		if (*layout)[i].InstanceID == p.InstanceID {
			(*layout)[i] = p
			return true
		}
	}
	*layout = append(*layout, p)
	return true
}

// first returns the holder that LMCache's controller finds first, nil if there is
// none.
func (c *Controller) first(key Key) (first *store) {
	for _, s := range c.holders[key] {
		if first == nil || c.o.Rules == Batched && s.before(first) < 0 {
			first = s
		}
	}
	return first
}

// Prefix is how much of a prompt one worker holds from its start, chunk by chunk,
// on whatever locations.
type Prefix struct {
	InstanceID string
	WorkerID   int64
	Chunks     int
	Tokens     int
}

// Prefixes returns every worker that holds the first chunk at least, in order of
// registration. Errors are those of [Controller.Lookup].
func (c *Controller) Prefixes(tokens []uint32) ([]Prefix, error) {
	var s prefixes
	err := c.walk(&blockhash.Prompt{Tokens: tokens}, func(key Key, end int) bool { return s.next(c.holders[key], end) })
	return s.finish(), err
}

// PrefixesKeys is [Controller.Prefixes] by keys, see [Controller.LookupKeys].
func (c *Controller) PrefixesKeys(keys []Key, chunk, tokens int) []Prefix {
	var s prefixes
	c.walkKeys(keys, chunk, tokens, func(key Key, end int) bool { return s.next(c.holders[key], end) })
	return s.finish()
}

// prefixes are the workers still on the walk, and those that left it.
type prefixes struct {
	on     map[*worker]*Prefix
	all    []*worker
	result []Prefix
}

func (s *prefixes) next(holders []*store, end int) bool {
	if s.on == nil {
		s.on = map[*worker]*Prefix{}
		for _, h := range holders {
			if s.on[h.worker] == nil {
				s.on[h.worker] = &Prefix{InstanceID: h.worker.instance.id, WorkerID: h.worker.id}
				s.all = append(s.all, h.worker)
			}
		}
		slices.SortFunc(s.all, func(a, b *worker) int {
			return (&store{worker: a}).before(&store{worker: b})
		})
		s.result = make([]Prefix, len(s.all))
	}
	for i, w := range s.all {
		p := s.on[w]
		if p == nil {
			continue
		}
		if !slices.ContainsFunc(holders, func(h *store) bool { return h.worker == w }) {
			delete(s.on, w)
			continue
		}
		p.Chunks++
		p.Tokens = end
		s.result[i] = *p
	}
	return len(s.on) > 0
}

func (s *prefixes) finish() []Prefix { return s.result }

// walk calls f with the keys of a prompt's chunks and their ends until it has
// enough.
func (c *Controller) walk(p *blockhash.Prompt, f func(key Key, end int) bool) error {
	if c.o.Hasher == nil {
		return ErrHasher
	}
	var chain blockhash.Chain
	if err := c.o.Hasher.Start(&chain, p); err != nil {
		return err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	size := c.o.Hasher.BlockSize()
	for end := size; ; end += size {
		key, ok := chain.Next()
		if !ok || !f(Key{Bits: key}, min(end, p.Len())) {
			return nil
		}
	}
}

func (c *Controller) walkKeys(keys []Key, chunk, tokens int, f func(key Key, end int) bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i, key := range keys {
		if !f(key, min((i+1)*chunk, tokens)) {
			return
		}
	}
}

// peer finds who else holds chunks.
func (c *Controller) peer(m *BatchedP2PLookupMsg) PeerLayout {
	if c.o.Rules == Single {
		return c.peerSingle(m)
	}
	var first *store
	if len(m.Hashes) > 0 {
		for _, s := range c.holders[m.Hashes[0]] {
			if s.worker.instance.id != m.InstanceID && (first == nil || s.before(first) < 0) {
				first = s
			}
		}
	}
	if first == nil || first.worker.url == nil {
		return PeerLayout{}
	}
	p := PeerLayout{InstanceID: first.worker.instance.id, Location: first.location, PeerInitURL: *first.worker.url}
	for _, key := range m.Hashes {
		if _, ok := first.keys[key]; !ok {
			break
		}
		p.HitChunks++
	}
	return p
}

// peerSingle takes chunks while the first holder outside the asking instance is
// the same instance and location.
func (c *Controller) peerSingle(m *BatchedP2PLookupMsg) (p PeerLayout) {
	for _, key := range m.Hashes {
		holders := c.holders[key]
		i := slices.IndexFunc(holders, func(s *store) bool { return s.worker.instance.id != m.InstanceID })
		if i < 0 {
			break
		}
		at := holders[i].worker.instance.id
		if p.HitChunks > 0 && (p.InstanceID != at || p.Location != holders[i].location) {
			break
		}
		if p.HitChunks == 0 {
			p.InstanceID, p.Location = at, holders[i].location
			if w := c.find(at, m.WorkerID); w != nil && w.url != nil {
				p.PeerInitURL = *w.url
			}
		}
		p.HitChunks++
	}
	return p
}
