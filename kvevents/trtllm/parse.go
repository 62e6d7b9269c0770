package trtllm

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/kvatlas/kvatlas/internal/jsonscan"
	"github.com/kvatlas/kvatlas/kvevents"
)

// parsed is one event as it stands in JSON. A value of a wrong form is skipped and
// noted, so that the rest of the event can still be read: its number, above all.
type parsed struct {
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
	unknown                      int
	fault                        kvevents.Reason
}

// block is one stored block; its tokens are tokens[start:end].
type block struct {
	start, end int
	level      int64
	special    bool // has what a plain prompt has not
}

func (p *parsed) reset() {
	*p = parsed{hashes: p.hashes[:0], blocks: p.blocks[:0], tokens: p.tokens[:0]}
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

// bad notes the first fault.
func (p *parsed) bad(r kvevents.Reason) {
	if p.fault == 0 {
		p.fault = r
	}
}

// read reads an event from s. Its errors are those of s: what follows cannot be
// read either.
func (p *parsed) read(s *jsonscan.Scanner, lim kvevents.Limits) error {
	if s.Peek() != '{' {
		if _, err := s.Raw(); err != nil {
			return err
		}
		return s.Fail("an event is an object")
	}
	err := s.Object(func(key string) error {
		switch key {
		case "event_id":
			return p.integer(s, 0, math.MaxInt64, func(v int64) { p.id, p.hasID = uint64(v), true })
		case "window_size":
			return p.integer(s, 0, math.MaxInt64, func(v int64) { p.window, p.hasWindow = v, true })
		case "attention_dp_rank":
			return p.integer(s, 0, maxRanks-1, func(v int64) { p.rank, p.hasRank = int32(v), true })
		case "layer_group_id":
			return p.integer(s, 0, math.MaxInt32, func(v int64) { p.layer, p.hasLayer = v, true })
		case "hash_algo":
			return skip(s)
		case "data":
			return p.data(s, lim)
		}
		p.unknown++
		return skip(s)
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
		p.bad(kvevents.ReasonNoType)
	case p.kind() == kvevents.BlockStored && !p.hasBlocks, p.kind() == kvevents.BlockRemoved && !p.hasHashes,
		p.typ == "updated" && p.moved && len(p.hashes) != 1:
		p.bad(kvevents.ReasonMissingField)
	}
}

func (p *parsed) data(s *jsonscan.Scanner, lim kvevents.Limits) error {
	if s.Peek() != '{' {
		p.bad(kvevents.ReasonNotAnEvent)
		return skip(s)
	}
	return s.Object(func(key string) (err error) {
		switch key {
		case "type":
			if s.Peek() != '"' {
				p.bad(kvevents.ReasonNoType)
				return skip(s)
			}
			p.typ, err = s.Str()
			p.hasType = err == nil
			return err
		case "parent_hash":
			p.parent, p.hasParent, err = p.hash(s, true)
			return err
		case "blocks":
			return p.list(s, &p.hasBlocks, func() error { return p.block(s, lim) })
		case "block_hashes":
			return p.list(s, &p.hasHashes, func() error { return p.appendHash(s, lim) })
		case "block_hash":
			return p.appendHash(s, lim)
		case "cache_level":
			return p.diff(s)
		case "priority", "num_blocks_per_cache_level":
			return skip(s)
		}
		p.unknown++
		return skip(s)
	})
}

// list reads the one list of an event: of blocks or of hashes.
func (p *parsed) list(s *jsonscan.Scanner, has *bool, item func() error) error {
	if s.Peek() != '[' || p.hasBlocks || p.hasHashes {
		p.bad(kvevents.ReasonFieldType)
		return skip(s)
	}
	*has = true
	return s.Array(item)
}

func (p *parsed) appendHash(s *jsonscan.Scanner, lim kvevents.Limits) error {
	h, ok, err := p.hash(s, false)
	if err != nil || !ok {
		return err
	}
	if len(p.hashes) >= lim.Hashes {
		p.bad(kvevents.ReasonLimit)
		return nil
	}
	p.hashes = append(p.hashes, h)
	return nil
}

// block reads one stored block.
func (p *parsed) block(s *jsonscan.Scanner, lim kvevents.Limits) error {
	if s.Peek() != '{' {
		p.bad(kvevents.ReasonFieldType)
		return skip(s)
	}
	x := block{start: len(p.tokens)}
	hashes := len(p.hashes)
	listed := false
	err := s.Object(func(key string) (err error) {
		switch key {
		case "block_hash":
			return p.appendHash(s, lim)
		case "tokens":
			if s.Peek() != '[' || listed {
				p.bad(kvevents.ReasonFieldType)
				return skip(s)
			}
			listed = true
			return s.Array(func() error { return p.token(s, &x, lim) })
		case "cache_level":
			return p.integer(s, 0, math.MaxInt32, func(v int64) { x.level = v })
		case "cache_salt", "mm_keys", "lora_id", "lora_name":
			raw, err := s.Raw()
			x.special = x.special || raw != "null" && raw != "[]"
			return err
		case "type", "priority":
			return skip(s)
		}
		p.unknown++
		return skip(s)
	})
	x.end = len(p.tokens)
	if len(p.hashes) != hashes+1 {
		p.bad(kvevents.ReasonHash)
	} else if !listed {
		p.bad(kvevents.ReasonMissingField)
	}
	p.blocks = append(p.blocks, x)
	return err
}

// token reads one token of a block: an object, or the id itself.
func (p *parsed) token(s *jsonscan.Scanner, x *block, lim kvevents.Limits) error {
	id := func() error {
		if s.Peek() == '"' { // a multimodal digest
			x.special = true
			p.token32(0, lim)
			return skip(s)
		}
		return p.integer(s, math.MinInt64, math.MaxInt64, func(v int64) {
			x.special = x.special || v < 0 || v > math.MaxUint32
			p.token32(uint32(v), lim)
		})
	}
	if s.Peek() != '{' {
		return id()
	}
	n := len(p.tokens)
	err := s.Object(func(key string) error {
		switch key {
		case "token_id":
			return id()
		case "token_extra_id":
			return p.integer(s, math.MinInt64, math.MaxInt64, func(v int64) { x.special = x.special || v != 0 })
		case "type":
			return skip(s)
		}
		p.unknown++
		return skip(s)
	})
	if len(p.tokens) != n+1 {
		p.bad(kvevents.ReasonMissingField)
	}
	return err
}

func (p *parsed) token32(id uint32, lim kvevents.Limits) {
	if len(p.tokens) >= lim.Tokens {
		p.bad(kvevents.ReasonLimit)
		return
	}
	p.tokens = append(p.tokens, id)
}

// diff reads a change of level, {"old_value":0,"new_value":1}; null is none.
func (p *parsed) diff(s *jsonscan.Scanner) error {
	if s.Peek() == 'n' {
		return skip(s)
	}
	if s.Peek() != '{' {
		p.bad(kvevents.ReasonFieldType)
		return skip(s)
	}
	has := 0
	err := s.Object(func(key string) error {
		switch key {
		case "old_value":
			return p.integer(s, 0, math.MaxInt32, func(v int64) { p.from = v; has |= 1 })
		case "new_value":
			return p.integer(s, 0, math.MaxInt32, func(v int64) { p.to = v; has |= 2 })
		case "type":
			return skip(s)
		}
		p.unknown++
		return skip(s)
	})
	if p.moved = has == 3; !p.moved {
		p.bad(kvevents.ReasonMissingField)
	}
	return err
}

// integer reads a whole number within bounds and hands it to set; null sets
// nothing.
func (p *parsed) integer(s *jsonscan.Scanner, least, most int64, set func(int64)) error {
	raw, err := s.Raw()
	if err != nil || raw == "null" {
		return err
	}
	v, err := strconv.ParseInt(raw, 10, 64)
	if err != nil || v < least || v > most {
		p.bad(kvevents.ReasonFieldType)
		return nil
	}
	set(v)
	return nil
}

// hash reads a block hash: a number of 64 bits, signed or not; hex digits of a
// digest, of which the last 8 bytes count; or any other text, which is a name.
func (p *parsed) hash(s *jsonscan.Scanner, null bool) (h uint64, ok bool, err error) {
	if s.Peek() == '"' {
		text, err := s.Str()
		if err != nil {
			return 0, false, err
		}
		return textHash(text), true, nil
	}
	raw, err := s.Raw()
	if err != nil || raw == "null" && null {
		return 0, false, err
	}
	if h, err = strconv.ParseUint(raw, 10, 64); err != nil && strings.HasPrefix(raw, "-") {
		var signed int64
		signed, err = strconv.ParseInt(raw, 10, 64)
		h = uint64(signed)
	}
	if err != nil {
		p.bad(kvevents.ReasonHash)
		return 0, false, nil
	}
	return h, true, nil
}

func textHash(text string) uint64 {
	var digest [8]byte
	if n := len(text); n >= 16 && n%2 == 0 {
		if _, err := hex.Decode(digest[:], []byte(text[n-16:])); err == nil {
			return binary.BigEndian.Uint64(digest[:])
		}
	}
	return xxh3.HashString(text)
}

func skip(s *jsonscan.Scanner) error {
	_, err := s.Raw()
	return err
}
