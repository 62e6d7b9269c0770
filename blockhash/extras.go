package blockhash

import "crypto/sha256"

// The tags of extra keys from vLLM 0.31 on.
const (
	tagLoRA   = "lora"
	tagItem   = "mm"
	tagSalt   = "cache_salt"
	tagEmbeds = "prompt_embeds"
)

// itemCursor walks over the items of a prompt as blocks go by.
type itemCursor struct {
	items []Item
	next  int // first item that a block to come can overlap
}

// overlapping returns the items that overlap [start, end): those that end
// after start and begin before end. start must not go back.
func (c *itemCursor) overlapping(start, end int) []Item {
	for c.next < len(c.items) && c.items[c.next].Offset+c.items[c.next].Length <= start {
		c.next++
	}
	last := c.next
	for last < len(c.items) && c.items[last].Offset < end {
		last++
	}
	return c.items[c.next:last]
}

// extra writes the extra keys of the block at start whose hash covers tokens
// to end: adapter, items, salt, embeddings, in this order; None if there are
// none (generate_block_hash_extra_keys in vLLM).
func (c *Chain) extra(start, end int) {
	e, p, era := &c.enc, &c.prompt, c.h.era
	items := c.items.overlapping(start, end)
	salted := start == 0 && p.CacheSalt != ""
	embeds := p.Embeds != nil && era.embeds != embedsIgnored
	n := len(items)
	for _, has := range [...]bool{p.LoRA != nil, salted, embeds} {
		if has {
			n++
		}
	}
	if n == 0 {
		e.none()
		return
	}
	e.tuple(n)
	if p.LoRA != nil {
		c.lora(p.LoRA)
	}
	for i := range items {
		c.itemKey(&items[i], start)
	}
	if salted {
		c.salt(p.CacheSalt)
	}
	if embeds {
		c.embeds(p.Embeds, start, end)
	}
	e.endTuple(n)
}

func (c *Chain) lora(l *LoRA) {
	e := &c.enc
	switch {
	case c.h.era.tagged:
		e.tuple(3)
		e.tag(tagLoRA)
		e.text(l.Name)
		e.text(l.Path)
		e.endTuple(3)
	case c.h.era.loraID:
		e.int(l.ID)
	default:
		e.text(l.Name)
	}
}

func (c *Chain) itemKey(it *Item, start int) {
	e := &c.enc
	switch {
	case c.h.era.tagged:
		e.tuple(3)
		e.tag(tagItem)
		e.text(it.Identifier)
		e.int(int64(it.Offset - start))
		e.endTuple(3)
	case c.h.era.mmOffset:
		e.tuple(2)
		e.text(it.Identifier)
		e.int(int64(it.Offset - start))
		e.endTuple(2)
	default:
		e.text(it.Identifier)
	}
}

func (c *Chain) salt(salt string) {
	e := &c.enc
	if !c.h.era.tagged {
		e.text(salt)
		return
	}
	e.tuple(2)
	e.tag(tagSalt)
	e.text(salt)
	e.endTuple(2)
}

func (c *Chain) embeds(em *Embeds, start, end int) {
	e, rows := &c.enc, em.rows(start, end)
	if c.h.era.embeds == embedsRaw {
		e.bytes(rows)
		return
	}
	c.scratch = sha256.Sum256(rows)
	c.embedsKey(c.scratch[:])
}

// embedsKey writes the digest of embeddings as a key.
func (c *Chain) embedsKey(digest []byte) {
	e := &c.enc
	if !c.h.era.tagged {
		e.bytes(digest)
		return
	}
	e.tuple(2)
	e.tag(tagEmbeds)
	e.bytes(digest)
	e.endTuple(2)
}

// rows returns the bytes of tokens start to end, of as many as there are, as
// slicing a tensor does.
func (em *Embeds) rows(start, end int) []byte {
	n := len(em.Data) / em.BytesPerToken
	start, end = min(start, n), min(end, n)
	return em.Data[start*em.BytesPerToken : end*em.BytesPerToken]
}
