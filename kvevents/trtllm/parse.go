package trtllm

import (
	"math"

	"github.com/kvatlas/kvatlas/internal/jsonevent"
	"github.com/kvatlas/kvatlas/internal/jsonscan"
	"github.com/kvatlas/kvatlas/kvevents"
)

// parsed is one event as it stands in JSON.
type parsed struct {
	jsonevent.Reader
	id, parent                   uint64
	window, layer                int64
	rank                         int32
	hasID, hasParent, hasRank    bool
	hasWindow, hasLayer, hasType bool
	hasBlocks, hasHashes         bool
	typ                          string
	hashes                       []uint64 // of blocks, or those removed, or the one updated
	blocks                       []block
	tokens                       []uint32
	moved                        bool
	from, to                     int64 // cache levels
}

// block is one stored block; its tokens are tokens[start:end].
type block struct {
	start, end int
	level      int64
	special    bool // has what a plain prompt has not
}

func (p *parsed) reset(s *jsonscan.Scanner) {
	*p = parsed{Reader: jsonevent.Reader{Scanner: s}, hashes: p.hashes[:0], blocks: p.blocks[:0], tokens: p.tokens[:0]}
}

// kind is what the event's type stands for; Unknown for "updated" too.
func (p *parsed) kind() kvevents.Kind {
	switch p.typ {
	case "stored":
		return kvevents.BlockStored
	case "removed":
		return kvevents.BlockRemoved
	case "created", "all_cleared":
		return kvevents.AllBlocksCleared
	}
	return kvevents.Unknown
}

// read reads the next value as an event.
func (p *parsed) read(lim kvevents.Limits) error {
	if p.Peek() != '{' {
		if _, err := p.Raw(); err != nil {
			return err
		}
		return p.Fail("an event is an object")
	}
	err := p.Object(func(key string) error {
		switch key {
		case "event_id":
			return p.Int(0, math.MaxInt64, func(v int64) { p.id, p.hasID = uint64(v), true })
		case "window_size":
			return p.Int(0, math.MaxInt64, func(v int64) { p.window, p.hasWindow = v, true })
		case "attention_dp_rank":
			return p.Int(0, maxRanks-1, func(v int64) { p.rank, p.hasRank = int32(v), true })
		case "layer_group_id":
			return p.Int(0, math.MaxInt32, func(v int64) { p.layer, p.hasLayer = v, true })
		case "hash_algo":
			return p.Skip()
		case "data":
			return p.data(lim)
		}
		return p.UnknownField()
	})
	if err == nil {
		p.check()
	}
	return err
}

// check looks at the event as a whole.
func (p *parsed) check() {
	switch {
	case !p.hasType:
		p.Bad(kvevents.ReasonNoType)
	case p.kind() == kvevents.BlockStored && !p.hasBlocks, p.kind() == kvevents.BlockRemoved && !p.hasHashes,
		p.typ == "updated" && p.moved && len(p.hashes) != 1:
		p.Bad(kvevents.ReasonMissingField)
	case p.kind() == kvevents.BlockStored && len(p.hashes) != len(p.blocks): // a hash beside the blocks' own
		p.Bad(kvevents.ReasonLength)
	}
}

func (p *parsed) data(lim kvevents.Limits) error {
	if p.Peek() != '{' {
		return p.Wrong(kvevents.ReasonNotAnEvent)
	}
	return p.Object(func(key string) (err error) {
		switch key {
		case "type":
			if p.Peek() != '"' {
				return p.Wrong(kvevents.ReasonNoType)
			}
			p.typ, err = p.Str()
			p.hasType = err == nil
			return err
		case "parent_hash":
			p.parent, p.hasParent, err = p.Hash()
			return err
		case "blocks":
			return p.list(&p.hasBlocks, func() error { return p.block(lim) })
		case "block_hashes":
			return p.list(&p.hasHashes, func() error { return p.appendHash(lim) })
		case "block_hash":
			return p.appendHash(lim)
		case "cache_level":
			return p.diff()
		case "priority", "num_blocks_per_cache_level":
			return p.Skip()
		}
		return p.UnknownField()
	})
}

// list reads the one list of an event: of blocks or of hashes.
func (p *parsed) list(has *bool, item func() error) error {
	if p.Peek() != '[' || p.hasBlocks || p.hasHashes {
		return p.Wrong(kvevents.ReasonFieldType)
	}
	*has = true
	return p.Array(item)
}

func (p *parsed) appendHash(lim kvevents.Limits) error {
	h, ok, err := p.Hash()
	if err != nil {
		return err
	}
	if !ok {
		p.Bad(kvevents.ReasonHash)
		return nil
	}
	if len(p.hashes) >= lim.Hashes {
		p.Bad(kvevents.ReasonLimit)
		return nil
	}
	p.hashes = append(p.hashes, h)
	return nil
}

// block reads one stored block.
func (p *parsed) block(lim kvevents.Limits) error {
	if p.Peek() != '{' {
		return p.Wrong(kvevents.ReasonFieldType)
	}
	x := block{start: len(p.tokens)}
	hashes := len(p.hashes)
	listed := false
	err := p.Object(func(key string) (err error) {
		switch key {
		case "block_hash":
			return p.appendHash(lim)
		case "tokens":
			if p.Peek() != '[' || listed {
				return p.Wrong(kvevents.ReasonFieldType)
			}
			listed = true
			return p.Array(func() error { return p.token(&x, lim) })
		case "cache_level":
			return p.Int(0, math.MaxInt32, func(v int64) { x.level = v })
		case "cache_salt", "mm_keys", "lora_id", "lora_name":
			raw, err := p.Raw()
			x.special = x.special || raw != "null" && raw != "[]"
			return err
		case "type", "priority":
			return p.Skip()
		}
		return p.UnknownField()
	})
	x.end = len(p.tokens)
	if len(p.hashes) != hashes+1 {
		p.Bad(kvevents.ReasonHash)
	} else if !listed {
		p.Bad(kvevents.ReasonMissingField)
	}
	p.blocks = append(p.blocks, x)
	return err
}

// token reads one token of a block: an object, or the id itself.
func (p *parsed) token(x *block, lim kvevents.Limits) error {
	id := func() error {
		if p.Peek() == '"' { // a multimodal digest
			x.special = true
			p.token32(0, lim)
			return p.Skip()
		}
		return p.Int(math.MinInt64, math.MaxInt64, func(v int64) {
			x.special = x.special || v < 0 || v > math.MaxUint32
			p.token32(uint32(v), lim)
		})
	}
	if p.Peek() != '{' {
		return id()
	}
	n := len(p.tokens)
	err := p.Object(func(key string) error {
		switch key {
		case "token_id":
			return id()
		case "token_extra_id":
			return p.Int(math.MinInt64, math.MaxInt64, func(v int64) { x.special = x.special || v != 0 })
		case "type":
			return p.Skip()
		}
		return p.UnknownField()
	})
	if len(p.tokens) != n+1 {
		p.Bad(kvevents.ReasonMissingField)
	}
	return err
}

func (p *parsed) token32(id uint32, lim kvevents.Limits) {
	if len(p.tokens) >= lim.Tokens {
		p.Bad(kvevents.ReasonLimit)
		return
	}
	p.tokens = append(p.tokens, id)
}

// diff reads a change of level, {"old_value":0,"new_value":1}; null is none.
func (p *parsed) diff() error {
	if p.Peek() == 'n' {
		return p.Skip()
	}
	if p.Peek() != '{' {
		return p.Wrong(kvevents.ReasonFieldType)
	}
	has := 0
	err := p.Object(func(key string) error {
		switch key {
		case "old_value":
			return p.Int(0, math.MaxInt32, func(v int64) { p.from = v; has |= 1 })
		case "new_value":
			return p.Int(0, math.MaxInt32, func(v int64) { p.to = v; has |= 2 })
		case "type":
			return p.Skip()
		}
		return p.UnknownField()
	})
	if p.moved = has == 3; !p.moved {
		p.Bad(kvevents.ReasonMissingField)
	}
	return err
}
