package kvevents

import (
	"bytes"
	"slices"
	"unsafe"
)

// Clone returns a copy of the batch that borrows nothing: it stays valid when the
// payload and b change. Decode does not reuse its memory, nor should it.
func (b *Batch) Clone() *Batch {
	c := &Batch{
		Timestamp: b.Timestamp, Rank: b.Rank, HasRank: b.HasRank, Events: slices.Clone(b.Events), Malformed: slices.Clone(b.Malformed),
		UnknownTypes: b.UnknownTypes, UnknownFields: b.UnknownFields, Position: b.Position,
	}
	for i := range c.Events {
		c.Events[i].own()
	}
	return c
}

// own makes everything that an event refers to its own.
func (ev *Event) own() {
	for _, text := range ev.texts() {
		*text = bytes.Clone(*text)
	}
	ev.Hashes, ev.Tokens, ev.TokenHashes = slices.Clone(ev.Hashes), slices.Clone(ev.Tokens), slices.Clone(ev.TokenHashes)
	ev.ExtraKeys = slices.Clone(ev.ExtraKeys)
	for i, keys := range ev.ExtraKeys {
		ev.ExtraKeys[i] = slices.Clone(keys)
		for j := range ev.ExtraKeys[i] {
			text := &ev.ExtraKeys[i][j].Text
			*text = bytes.Clone(*text)
		}
	}
	ev.Lookahead = slices.Clone(ev.Lookahead)
	for i, ids := range ev.Lookahead {
		ev.Lookahead[i] = slices.Clone(ids)
	}
}

func (ev *Event) texts() [8]*[]byte {
	return [8]*[]byte{&ev.Type, &ev.LoRAName, &ev.Medium, &ev.SpecKind, &ev.Locality, &ev.Ownership, &ev.SessionID, &ev.CacheSalt}
}

// Size returns about how many bytes the batch and what it refers to take.
func (b *Batch) Size() int {
	n := int(unsafe.Sizeof(*b)) + len(b.Malformed)*int(unsafe.Sizeof(Malformed{}))
	for i := range b.Events {
		ev := &b.Events[i]
		n += int(unsafe.Sizeof(*ev)) + 8*(len(ev.Hashes)+len(ev.TokenHashes)) + 4*len(ev.Tokens)
		for _, text := range ev.texts() {
			n += len(*text)
		}
		const slice = int(unsafe.Sizeof([]byte(nil)))
		for _, keys := range ev.ExtraKeys {
			n += slice
			for _, k := range keys {
				n += int(unsafe.Sizeof(k)) + len(k.Text)
			}
		}
		for _, ids := range ev.Lookahead {
			n += slice + 4*len(ids)
		}
	}
	return n
}
