package kvatlas

import (
	"slices"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// eventKeys makes keys of what events tell: of content, or hashes that the events do
// not carry.
type eventKeys interface {
	BlockSize() int
	AppendEventKeys(dst []uint64, s *blockhash.Span) ([]uint64, error)
}

// contentState gives the blocks that a worker announces content keys. Its owner
// is the worker, whose mutex is held in every call.
type contentState struct {
	keys  eventKeys
	table *radix.ContentMap
	w     *worker

	buf    []uint64
	extras [][]blockhash.Extra
	flat   []blockhash.Extra
}

func newContentState(d *domain, id radix.WorkerID, w *worker) (*contentState, error) {
	table, err := radix.NewContentMap(d.index, id, radix.ContentMapOptions{})
	if err != nil {
		return nil, err
	}
	return &contentState{keys: d.eventKeys(), table: table, w: w}, nil
}

// store records announced blocks under content keys. Blocks whose parent was not
// announced yet wait for it; blocks that the event does not describe (no
// tokens, a masked group, an adapter before events named it) are held by the
// engine's hash alone and match nothing: that undercounts.
func (c *contentState) store(h radix.Holder, e *kvevents.Event) error {
	if !c.placeable(e) {
		return c.unplaced(h, e.Hashes)
	}
	span := blockhash.Span{
		Parent: blockhash.ContentRoot, Tokens: e.Tokens, Extras: c.extrasOf(e), Lookahead: e.Lookahead,
		LoRA: e.HasLoRAID || len(e.LoRAName) > 0, LoRAName: e.LoRAName, CacheSalt: e.CacheSalt, TokenHashes: e.TokenHashes,
	}
	if e.HasParent {
		parent, ok := c.table.Parent(e.Parent)
		if !ok {
			return c.wait(h, e, span)
		}
		span.Parent = parent
	}
	keys, err := c.keys.AppendEventKeys(c.buf[:0], &span)
	if err != nil {
		return c.unplaced(h, e.Hashes)
	}
	c.buf = keys
	if c.w.speculation != nil && h.Medium == radix.GPU {
		c.w.speculation.Stored(c.w.serial, keys)
	}
	return c.table.Store(h, e.Hashes, keys)
}

// placeable tells whether an event describes each of its blocks.
func (c *contentState) placeable(e *kvevents.Event) bool {
	unit := c.keys.BlockSize()
	if e.TokenHashes != nil {
		return len(e.TokenHashes) == len(e.Hashes) && (e.BlockSize == unit || e.BlockSize == 0)
	}
	return e.TokenForm == kvevents.TokensPlain && e.BlockSize == unit && len(e.Tokens) == unit*len(e.Hashes)
}

// unplaced holds blocks by the engine's hash alone: they match as far as earlier
// events said what that stands for.
func (c *contentState) unplaced(h radix.Holder, hashes []uint64) error {
	for _, hash := range hashes {
		if _, ok := c.table.Parent(hash); !ok {
			c.w.stats.Unplaced++
		}
	}
	return c.table.Store(h, hashes, nil)
}

// wait keeps the span until its parent's content is known.
func (c *contentState) wait(h radix.Holder, e *kvevents.Event, s blockhash.Span) error {
	s = cloneSpan(s)
	blocks := uint64(len(e.Hashes))
	return c.table.Defer(h, e.Parent, e.Hashes, func(dst []uint64, parent uint64) []uint64 {
		s.Parent = parent
		keys, err := c.keys.AppendEventKeys(dst, &s)
		if err != nil {
			c.w.stats.Unplaced += blocks
			return nil
		}
		if c.w.speculation != nil && h.Medium == radix.GPU {
			c.w.speculation.Stored(c.w.serial, keys[len(dst):])
		}
		return keys
	})
}

func (c *contentState) remove(h radix.Holder, e *kvevents.Event) error {
	if c.w.speculation != nil && h.Medium == radix.GPU {
		c.buf = c.buf[:0]
		for _, hash := range e.Hashes {
			if key, ok := c.table.Parent(hash); ok {
				c.buf = append(c.buf, key)
			}
		}
		c.w.speculation.Removed(c.w.serial, c.buf)
	}
	if c.w.documented() && len(e.Medium) == 0 {
		return c.table.RemoveAnywhere(h.Group, e.Hashes)
	}
	return c.table.Remove(h, e.Hashes)
}

// extrasOf turns the extra keys of an event into those of a span, in memory
// that the next call reuses.
func (c *contentState) extrasOf(e *kvevents.Event) [][]blockhash.Extra {
	if e.ExtraKeys == nil {
		return nil
	}
	c.extras, c.flat = c.extras[:0], c.flat[:0]
	for _, block := range e.ExtraKeys {
		from := len(c.flat)
		for _, k := range block {
			kind := blockhash.ExtraOther
			if int(k.Kind) < len(extraKinds) {
				kind = extraKinds[k.Kind]
			}
			c.flat = append(c.flat, blockhash.Extra{Kind: kind, Text: k.Text, Offset: k.Offset})
		}
		// A growing flat leaves earlier blocks in the old array: still theirs.
		c.extras = append(c.extras, c.flat[from:len(c.flat):len(c.flat)])
	}
	return c.extras
}

var extraKinds = [...]blockhash.ExtraKind{
	kvevents.ExtraOther: blockhash.ExtraOther,
	kvevents.ExtraText:  blockhash.ExtraText,
	kvevents.ExtraItem:  blockhash.ExtraItem,
	kvevents.ExtraBytes: blockhash.ExtraBytes,
	kvevents.ExtraInt:   blockhash.ExtraInt,
}

// cloneSpan copies everything that belongs to the batch or the payload.
func cloneSpan(s blockhash.Span) blockhash.Span {
	s.Tokens = slices.Clone(s.Tokens)
	s.Extras = slices.Clone(s.Extras)
	for i, block := range s.Extras {
		s.Extras[i] = slices.Clone(block)
		for j := range s.Extras[i] {
			s.Extras[i][j].Text = slices.Clone(s.Extras[i][j].Text)
		}
	}
	s.LoRAName, s.CacheSalt, s.TokenHashes = slices.Clone(s.LoRAName), slices.Clone(s.CacheSalt), slices.Clone(s.TokenHashes)
	s.Lookahead = slices.Clone(s.Lookahead)
	for i, ids := range s.Lookahead {
		s.Lookahead[i] = slices.Clone(ids)
	}
	return s
}
