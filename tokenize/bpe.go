package tokenize

import "unicode/utf8"

// bpe is the model: it turns one piece of text into tokens by merging
// neighbours, lowest rank first, leftmost first among equals (tokenizers
// 0.22.0, models/bpe/word.rs).
type bpe struct {
	pairs  pairTable
	merged []uint32 // by rank: the token that the merge makes

	// words are the texts that are one token by themselves.
	words wordTable

	// bytes says that the symbols to start from are bytes and not
	// characters.
	bytes bool
	// ascii and wide give the token of a character (of a byte when bytes),
	// noToken when it has none.
	ascii [256]uint32
	wide  map[rune]uint32
	// fallback gives the token of each byte of a character without one.
	fallback *[256]uint32
	// unknown replaces what has no token otherwise; noToken drops it.
	// fuse makes one of neighbours.
	unknown uint32
	fuse    bool
}

const noToken = 1<<32 - 1

// symbols is the working memory of one merge: a list of symbols, by
// position, linked to their neighbours when it is long.
type symbols struct {
	id   []uint32
	size []uint32 // bytes of text, 0 once merged into the one before
	rank []uint32 // of the merge with the next symbol
	next []uint32
	prev []uint32
	heap []uint64 // rank<<32 | position
}

// start fills s with the symbols of text before any merge.
func (m *bpe) start(s *symbols, text string) {
	s.id, s.size = s.id[:0], s.size[:0]
	if m.bytes && m.unknown == noToken {
		for i := range len(text) {
			if id := m.ascii[text[i]]; id != noToken {
				s.id = append(s.id, id)
				s.size = append(s.size, 1)
			}
		}
		return
	}
	pending := uint32(0) // bytes of an unknown symbol that is not yet added
	for i := 0; i < len(text); {
		id, n := m.symbol(text, i)
		switch {
		case id != noToken:
			if pending > 0 {
				s.add(m.unknown, pending)
				pending = 0
			}
			s.add(id, uint32(n))
		case m.fallback != nil:
			for _, c := range []byte(text[i : i+n]) {
				s.add(m.fallback[c], 1)
			}
		case m.unknown != noToken:
			if pending > 0 && !m.fuse {
				s.add(m.unknown, pending)
				pending = 0
			}
			pending += uint32(n)
		}
		i += n
	}
	if pending > 0 {
		s.add(m.unknown, pending)
	}
}

func (m *bpe) symbol(text string, i int) (id uint32, n int) {
	if c := text[i]; m.bytes || c < utf8.RuneSelf {
		return m.ascii[c], 1
	}
	r, n := utf8.DecodeRuneInString(text[i:])
	if id, ok := m.wide[r]; ok {
		return id, n
	}
	return noToken, n
}

func (s *symbols) add(id, size uint32) {
	s.id = append(s.id, id)
	s.size = append(s.size, size)
}

// mostScanned is the number of symbols up to which looking through all of
// them for the lowest rank is faster than a heap.
const mostScanned = 48

// encode leaves the tokens of text, which is not empty, in s.id and their
// lengths in s.size.
func (m *bpe) encode(s *symbols, text string) {
	m.start(s, text)
	if len(s.id) < 2 {
		return
	}
	if cap(s.rank) < len(s.id) {
		s.rank = make([]uint32, 2*len(s.id))
	}
	s.rank = s.rank[:len(s.id)]
	last := len(s.id) - 1
	for i := range last {
		s.rank[i] = m.pairs.rank(s.id[i], s.id[i+1])
	}
	s.rank[last] = noRank
	if len(s.id) <= mostScanned {
		m.scan(s)
	} else {
		m.queue(s)
	}
}

// scan merges by looking for the lowest rank again after each merge.
func (m *bpe) scan(s *symbols) {
	id, size, rank := s.id, s.size[:len(s.id)], s.rank[:len(s.id)]
	for {
		best, at := uint32(noRank), -1
		for i, r := range rank {
			if r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			break
		}
		id[at] = m.merged[best]
		size[at] += size[at+1]
		id = append(id[:at+1], id[at+2:]...)
		size = append(size[:at+1], size[at+2:]...)
		rank = append(rank[:at+1], rank[at+2:]...)
		if at > 0 {
			rank[at-1] = m.pairs.rank(id[at-1], id[at])
		}
		if at+1 < len(id) {
			rank[at] = m.pairs.rank(id[at], id[at+1])
		} else {
			rank[at] = noRank
		}
	}
	s.id, s.size = id, size
}

// queue merges with a heap of candidates. An entry is stale when its
// position no longer has its rank.
func (m *bpe) queue(s *symbols) {
	n := len(s.id)
	if cap(s.next) < n {
		s.next, s.prev = make([]uint32, 2*n), make([]uint32, 2*n)
	}
	s.next, s.prev = s.next[:n], s.prev[:n]
	s.heap = s.heap[:0]
	for i := range n {
		s.next[i], s.prev[i] = uint32(i+1), uint32(i-1) // the first wraps around
		if s.rank[i] != noRank {
			s.heap = append(s.heap, uint64(s.rank[i])<<32|uint64(i))
		}
	}
	for i := len(s.heap)/2 - 1; i >= 0; i-- {
		sift(s.heap, i)
	}
	for len(s.heap) > 0 {
		top := s.heap[0]
		rank, at := uint32(top>>32), uint32(top)
		if s.size[at] == 0 || s.rank[at] != rank {
			s.pop()
			continue
		}
		right := s.next[at]
		after := s.next[right]
		s.id[at] = m.merged[rank]
		s.size[at] += s.size[right]
		s.size[right] = 0
		s.next[at] = after
		s.rank[at] = noRank
		if after < uint32(n) {
			s.prev[after] = at
			s.rank[at] = m.pairs.rank(s.id[at], s.id[after])
		}
		// The entry of this position is replaced in place when it has a
		// new rank, which saves a pop and a push.
		if r := s.rank[at]; r != noRank {
			s.heap[0] = uint64(r)<<32 | uint64(at)
			sift(s.heap, 0)
		} else {
			s.pop()
		}
		if before := s.prev[at]; before < uint32(n) {
			r := m.pairs.rank(s.id[before], s.id[at])
			if r != s.rank[before] {
				s.rank[before] = r
				if r != noRank {
					s.push(uint64(r)<<32 | uint64(before))
				}
			}
		}
	}
	kept := 0
	for i := range n {
		if s.size[i] > 0 {
			s.id[kept], s.size[kept] = s.id[i], s.size[i]
			kept++
		}
	}
	s.id, s.size = s.id[:kept], s.size[:kept]
}

func (s *symbols) pop() {
	last := len(s.heap) - 1
	s.heap[0] = s.heap[last]
	s.heap = s.heap[:last]
	sift(s.heap, 0)
}

func (s *symbols) push(v uint64) {
	s.heap = append(s.heap, v)
	h := s.heap
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if h[up] <= v {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = v
}

// sift moves h[i] down to its place in the heap.
func sift(h []uint64, i int) {
	if i >= len(h) {
		return
	}
	v := h[i]
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1] < h[down] {
			down++
		}
		if v <= h[down] {
			break
		}
		h[i] = h[down]
		i = down
	}
	h[i] = v
}
