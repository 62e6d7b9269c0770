package kvevents

import (
	"slices"

	"github.com/zeebo/xxh3"
)

// waiting is a live batch that cannot be applied yet.
type waiting struct {
	seq     uint64
	conn    uint64
	time    float64
	payload []byte // a copy of our own
}

// pending holds waiting batches in the order of their sequence, each once.
type pending struct {
	all   []waiting
	bytes int
}

func (p *pending) empty() bool { return len(p.all) == 0 }

func (p *pending) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(p.all, seq, func(w waiting, seq uint64) int {
		switch {
		case w.seq < seq:
			return -1
		case w.seq > seq:
			return 1
		}
		return 0
	})
}

// add keeps a copy of the payload. It does nothing when the sequence is there.
func (p *pending) add(w waiting) {
	at, found := len(p.all), false
	if at > 0 && p.all[at-1].seq >= w.seq {
		at, found = p.find(w.seq)
	}
	if found {
		return
	}
	w.payload = append([]byte(nil), w.payload...)
	p.bytes += len(w.payload)
	p.all = slices.Insert(p.all, at, w)
}

// pop takes the first one out.
func (p *pending) pop() waiting {
	w := p.all[0]
	p.all[0] = waiting{}
	p.all = p.all[1:]
	p.bytes -= len(w.payload)
	if len(p.all) == 0 {
		p.all = nil // what has been popped from the front is never reused otherwise
	}
	return w
}

// drop removes what is dead.
func (p *pending) drop(dead func(waiting) bool) {
	p.all = slices.DeleteFunc(p.all, dead)
	p.bytes = 0
	for _, w := range p.all {
		p.bytes += len(w.payload)
	}
}

// fingerprints remembers the content of the last batches, to tell a duplicate
// from a batch of another publisher with the same number.
type fingerprints struct {
	ring [256]struct{ seqPlus1, hash uint64 }
}

func (f *fingerprints) put(seq, hash uint64) {
	f.ring[seq%uint64(len(f.ring))] = struct{ seqPlus1, hash uint64 }{seq + 1, hash}
}

// same reports whether the batch with this number had content of this hash; known is
// false when it is not remembered.
func (f *fingerprints) same(seq, hash uint64) (same, known bool) {
	if f == nil {
		return false, false
	}
	e := &f.ring[seq%uint64(len(f.ring))]
	return e.seqPlus1 == seq+1 && e.hash == hash, e.seqPlus1 == seq+1
}

// fingerprint is a hash of a payload.
func fingerprint(payload []byte) uint64 { return xxh3.Hash(payload) }
