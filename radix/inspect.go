package radix

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"math/bits"
)

// Holding is one holder of a key, with the copies it has announced.
type Holding struct {
	Holder
	Copies int
}

// Holders iterates over who holds a key, for debugging: it copies under the
// writers' lock.
func (x *Index) Holders(key uint64) iter.Seq[Holding] {
	x.mu.Lock()
	var out []Holding
	if pos := x.find(normal(key)); pos != 0 {
		byHid := x.holdersByHid()
		for _, e := range x.recs.entries(x.arena.page(pos)) {
			if e.mask>>(pos%pageKeys)&1 == 0 {
				continue
			}
			for b := e.bits; b != 0; b &= b - 1 {
				if h := byHid[uint32(e.word)*64+uint32(bits.TrailingZeros64(b))]; h != nil {
					out = append(out, Holding{h.Holder, 1 + int(x.copies.get(copyKey(h.hid, pos)))})
				}
			}
		}
	}
	x.mu.Unlock()
	return func(yield func(Holding) bool) {
		for _, h := range out {
			if !yield(h) {
				return
			}
		}
	}
}

func (x *Index) holdersByHid() map[uint32]*holder {
	byHid := make(map[uint32]*holder)
	for _, k := range x.workers {
		if k != nil {
			for _, h := range k.holders {
				byHid[h.hid] = h
			}
		}
	}
	return byHid
}

// each calls f for what one holder holds, a page at a time, with the caller's
// lock held.
func (x *Index) each(h *holder, f func(key uint64, copies uint32) bool) {
	for p := uint32(1); p < uint32(x.arena.count)*slabPages; p++ {
		pos := p * pageKeys
		own, _ := masks(x.recs.entries(x.arena.page(pos)), h.hid)
		for ; own != 0; own &= own - 1 {
			at := pos + uint32(bits.TrailingZeros64(own))
			if !f(x.key(at), 1+x.copies.get(copyKey(h.hid, at))) {
				return
			}
		}
	}
}

// Dump writes what each worker holds as text, at most limit keys a holder, for
// debugging. The format may change. It holds the writers' lock meanwhile.
func (x *Index) Dump(w io.Writer, limit int) error {
	if !x.made() {
		return ErrIndex
	}
	if w == nil {
		return fmt.Errorf("%w: nothing to dump to", ErrOptions)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%d blocks in %d bytes, %d pages of records, %d segments\n", x.live, x.bytes(), x.recs.chunkCount(), x.table.memory.taken)
	for _, k := range x.workers {
		if k == nil {
			continue
		}
		for _, h := range k.holders {
			fmt.Fprintf(out, "%q %s group %d: %d blocks, %d further copies\n", k.name, x.media.names[h.Medium], h.Group, h.blocks.Load(), h.copies)
			n := 0
			x.each(h, func(key uint64, copies uint32) bool {
				if n++; n > limit {
					return false
				}
				fmt.Fprintf(out, "\t%016x x%d\n", key, copies)
				return true
			})
		}
	}
	return out.Flush()
}
