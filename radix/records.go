package radix

import (
	"math/bits"
	"sync/atomic"
)

// A record lists who holds what of a page that several holders share: a count,
// then entries of three words. All holders of bits, a word of the set of
// holders, hold exactly the positions of mask. A holder is in one entry. Sixty
// workers with one system prompt are one entry. Records are immutable while a
// reader can reach them; a change makes another one.
type entry struct {
	word uint64 // which 64 holders
	bits uint64
	mask uint64
}

const (
	recordChunk = 1 << 15 // words
	maxEntries  = (recordChunk - 1) / 3
	maxChunks   = 1 << (32 - 15)
)

// records is the memory of records, in classes of size; all but chunks is the
// writer's.
type records struct {
	chunks  atomic.Pointer[[]*[recordChunk]uint64]
	_       apart
	next    uint32 // unused words of the last chunk
	classes [64][]uint32
	words   int // in use, rounded to classes
	scratch []entry
}

// sizeClass rounds a number of entries up to 2, 3, 4, 6, 8, 12, 16, 24...
func sizeClass(n int) (class, entries int) {
	if n <= 2 {
		return 0, 2
	}
	top := bits.Len(uint(n - 1)) // 2^(top-1) < n <= 2^top
	if n <= 3<<(top-2) {
		return 2*top - 3, 3 << (top - 2)
	}
	return 2*top - 2, 1 << top
}

func (r *records) chunkCount() int {
	if p := r.chunks.Load(); p != nil {
		return len(*p)
	}
	return 0
}

// record returns the entries' words: three each.
func (r *records) record(ref uint32) []uint64 {
	c := (*r.chunks.Load())[ref/recordChunk]
	at := ref % recordChunk
	n := uint32(c[at])
	return c[at+1 : at+1+3*n : at+1+3*n]
}

// put writes a record that no reader knows yet. It returns 0 when there is no
// room for it.
func (r *records) put(entries []entry) uint32 {
	if len(entries) > maxEntries {
		return 0
	}
	class, room := sizeClass(len(entries))
	room = min(room, maxEntries)
	size := uint32(1 + 3*room)
	var ref uint32
	if f := r.classes[class]; len(f) > 0 {
		ref, r.classes[class] = f[len(f)-1], f[:len(f)-1]
	} else {
		var chunks []*[recordChunk]uint64
		if p := r.chunks.Load(); p != nil {
			chunks = *p
		}
		if len(chunks) == 0 || r.next+size > recordChunk {
			if len(chunks) == maxChunks {
				return 0
			}
			grown := make([]*[recordChunk]uint64, len(chunks)+1)
			copy(grown, chunks)
			grown[len(chunks)] = new([recordChunk]uint64)
			r.chunks.Store(&grown)
			chunks = grown
			r.next = 0
			if len(chunks) == 1 {
				r.next = 1 // reference 0 is none
			}
		}
		ref = uint32(len(chunks)-1)*recordChunk + r.next
		r.next += size
	}
	r.words += int(size)
	c, at := (*r.chunks.Load())[ref/recordChunk], ref%recordChunk
	c[at] = uint64(len(entries))
	for i, e := range entries {
		o := at + 1 + 3*uint32(i)
		c[o], c[o+1], c[o+2] = e.word, e.bits, e.mask
	}
	return ref
}

// release gives back a record that no reader can reach.
func (r *records) release(ref uint32) {
	class, room := sizeClass(int((*r.chunks.Load())[ref/recordChunk][ref%recordChunk]))
	r.words -= 1 + 3*min(room, maxEntries)
	r.classes[class] = append(r.classes[class], ref)
}

// entries copies a page's entries into scratch memory.
func (r *records) entries(p *page) []entry {
	out := r.scratch[:0]
	switch ref := p.ref.Load(); refKind(ref) {
	case refOne:
		if m := p.mask.Load(); m != 0 {
			hid := refValue(ref)
			out = append(out, entry{uint64(hid / 64), 1 << (hid % 64), m})
		}
	case refList:
		words := r.record(refValue(ref))
		for i := 0; i < len(words); i += 3 {
			out = append(out, entry{words[i], words[i+1], words[i+2]})
		}
	}
	r.scratch = out
	return out
}

// masks returns the mask of one holder and the union of all.
func masks(entries []entry, hid uint32) (own, all uint64) {
	word, bit := uint64(hid/64), uint64(1)<<(hid%64)
	for i := range entries {
		e := &entries[i]
		all |= e.mask
		if e.word == word && e.bits&bit != 0 {
			own = e.mask
		}
	}
	return own, all
}

// withMask returns entries in which hid holds mask instead of what it held.
func withMask(entries []entry, hid uint32, mask uint64) []entry {
	word, bit := uint64(hid/64), uint64(1)<<(hid%64)
	placed := mask == 0
	for i := 0; i < len(entries); i++ {
		e := &entries[i]
		if e.word != word {
			continue
		}
		if e.bits&bit != 0 && e.mask != mask {
			if e.bits &^= bit; e.bits == 0 {
				entries[i] = entries[len(entries)-1]
				entries = entries[:len(entries)-1]
				i--
				continue
			}
		}
		if e.mask == mask && !placed {
			e.bits |= bit
			placed = true
		}
	}
	if !placed {
		entries = append(entries, entry{word, bit, mask})
	}
	return entries
}
