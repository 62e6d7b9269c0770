package tokenize

import "math/bits"

// pairTable maps two token ids to the rank of the merge that joins them, by
// open addressing with linear probing. A slot of 8 bytes holds both ids
// (21 bits each) and the rank plus one (22 bits), so that a zero slot is
// free.
type pairTable struct {
	slots []uint64
	shift uint8
}

const (
	idBits   = 21
	rankBits = 64 - 2*idBits

	// maxTokens and maxMerges are the largest vocabulary and list of
	// merges that are loaded.
	maxTokens = 1 << idBits
	maxMerges = 1<<rankBits - 1

	// noRank says that no merge joins two symbols.
	noRank = 1<<32 - 1
)

func newPairTable(n int) pairTable {
	size := max(bits.Len(uint(n+n/2)), 4)
	return pairTable{slots: make([]uint64, 1<<size), shift: uint8(64 - size)}
}

func (t *pairTable) put(left, right, rank uint32) {
	key := uint64(left)<<idBits | uint64(right)
	for i := hashPair(key) >> t.shift; ; i = (i + 1) & uint64(len(t.slots)-1) {
		if s := t.slots[i]; s == 0 || s>>rankBits == key {
			t.slots[i] = key<<rankBits | uint64(rank+1)
			return
		}
	}
}

// rank returns the rank of the merge of left and right, or noRank.
func (t *pairTable) rank(left, right uint32) uint32 {
	key := uint64(left)<<idBits | uint64(right)
	for i := hashPair(key) >> t.shift; ; i++ {
		s := t.slots[i&uint64(len(t.slots)-1)]
		if s == 0 {
			return noRank
		}
		if s>>rankBits == key {
			return uint32(s&(1<<rankBits-1)) - 1
		}
	}
}

// mergePair is what a merge joins. A merge whose pair a later one joins too
// is not there: it never applies.
type mergePair struct {
	left, right uint32
	there       bool
}

// byRank gives the pairs of n merges.
func (t *pairTable) byRank(n int) []mergePair {
	pairs := make([]mergePair, n)
	for _, s := range t.slots {
		if s != 0 {
			key := s >> rankBits
			pairs[s&(1<<rankBits-1)-1] = mergePair{uint32(key >> idBits), uint32(key & (1<<idBits - 1)), true}
		}
	}
	return pairs
}

func hashPair(key uint64) uint64 { return key * 0x9E3779B97F4A7C15 }
