package radix

import "math/rand/v2"

// A page that somebody holds all of has a digest of its 64 keys, so that a look-up
// of a long prompt, most of which lies in such pages, compares the digest of its own
// keys and reads one word of the index where it would read eight cache lines. The
// digest is NH, the hash inside UMAC and XXH3: keys and a random seed are added and
// multiplied by halves of 32 bits. Keys are hashes of 64 bits already; of two pages
// of different keys, about one pair in 2^58 has equal digests where a single key
// differs, and one in 2^64 where more do, as they do behind it in a chain. (Of two keys
// with one half in common, which hashes seldom have, it is one in 2^32.) Nobody
// outside knows the seed, so that nobody can tell such a pair.
//
// It is set before a holder's mask says that it holds the whole page, and taken back
// before a key of the page changes. 0 means that there is none: keys are compared.
// Readers load it behind the mask: before, it may be that of keys which lay there last.

// digestSeed returns a seed for an index.
func digestSeed() (seed [pageKeys]uint64) {
	for i := range seed {
		seed[i] = rand.Uint64()
	}
	return seed
}

// digestGo is what the vector code does, by the letter.
func digestGo(keys, seed *[pageKeys]uint64) (sum uint64) {
	for i, k := range keys {
		lo, hi := uint32(k)+uint32(seed[i]), uint32(k>>32)+uint32(seed[i]>>32)
		sum += uint64(lo) * uint64(hi)
	}
	return sum
}

// seal gives a page its digest if a holder is about to hold all of it.
func (x *Index) seal(pg *page, pos uint32, mask uint64) {
	if mask == ^uint64(0) && hasDigest && pg.digest.Load() == 0 {
		pg.digest.Store(digest(x.arena.pageOf(pos), &x.seed))
	}
}

// unseal takes a page's digest back, before a key of it changes.
func (p *page) unseal() {
	if p.digest.Load() != 0 {
		p.digest.Store(0)
	}
}

// sealed tells whether a page, which is held as a whole, has the digest of keys.
func (x *Index) sealed(pg *page, keys *[pageKeys]uint64) bool {
	sum := pg.digest.Load()
	return sum != 0 && digest(keys, &x.seed) == sum
}

// same returns how many of pages, which are held as a whole, have the keys of a prompt; of
// are those that lie there.
func (x *Index) same(pages []page, keys, of []uint64) (n int) {
	for n < len(pages) {
		if hasDigest {
			if n += digests(keys[n*pageKeys:], &x.seed, pages[n:]); n == len(pages) || pages[n].digest.Load() != 0 {
				break
			}
		}
		at := n * pageKeys
		if *(*[pageKeys]uint64)(keys[at:]) != *(*[pageKeys]uint64)(of[at:]) {
			break
		}
		n++
	}
	return n
}
