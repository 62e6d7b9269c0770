//go:build amd64 && !purego

package blockhash

// tokenTable says how ids are written. The layout is known to the assembly.
type tokenTable struct {
	entries [8]uint64 // by an eighth of the leading zeros of the lane: opcode, and the top bit of bytes that count
	shuffle [64]byte  // where bytes 1 to 4 of each lane come from
	_       [64]byte
	opcode  uint64 // the bits of an entry that are opcode
	bytes14 uint64 // a bit for each of bytes 1 to 4 of each lane
	limit   uint32 // CBOR: ids below have no opcode
	_       uint32
	small   uint64 // CBOR: their entry
}

var pickleTable, cborTable = newTokenTables()

func newTokenTables() (pickle, cbor *tokenTable) {
	const (
		b0, b1, b2, b3, b4 = 1 << 7, 1 << 15, 1 << 23, 1 << 31, 1 << 39
		all                = b0 | b1 | b2 | b3 | b4
		bytes14            = 0x1e1e1e1e1e1e1e1e
	)
	// The lane of pickle is id<<8, so an id of one byte has 48 to 55 leading
	// zeros, one of four 24 to 31, and 0 has 64, which VPERMQ takes for 0.
	one, two, four := uint64(b0|b1|opInt1), uint64(b0|b1|b2|opInt2), uint64(all|opInt4)
	pickle = &tokenTable{entries: [8]uint64{0: one, 6: one, 5: two, 4: four, 3: four}, opcode: 0x7f, bytes14: bytes14}
	// CBOR counts the zeros of the id itself. Bytes are big-endian, so those
	// of a short id are the last.
	one, two, four = b0|b4|cborUint|24, b0|b3|b4|cborUint|25, all|cborUint|26
	cbor = &tokenTable{entries: [8]uint64{0: one, 7: one, 6: two, 5: four, 4: four}, opcode: 0x7f, bytes14: bytes14,
		limit: 24, small: b4}
	for lane := range byte(8) {
		for i := range byte(4) {
			pickle.shuffle[8*lane+1+i] = 4*lane + i
			cbor.shuffle[8*lane+1+i] = 4*lane + 3 - i
		}
	}
	return pickle, cbor
}

// bulkRoom is what writing several ids at once needs past their end, the
// padding of SHA-256 included.
const bulkRoom = 64 + shaRoom

// pickleTokens8 and cborTokens8 write blocks of groups of eight ids, the first
// to dst, the next stride bytes on, with the trailer after each, and how much
// the ids of each block took to lens. A block needs room of 40 bytes a group
// and bulkRoom more. big reports an id of 2^31 or more, which pickleTokens8
// writes wrongly.
//
//go:noescape
func pickleTokens8(dst *byte, stride int, ids *uint32, groups, blocks int, trailer uint64, lens *int, t *tokenTable) (big bool)

//go:noescape
func cborTokens8(dst *byte, stride int, ids *uint32, groups, blocks int, trailer uint64, lens *int, t *tokenTable)

// tokens8 is one of these.
func (e *encoder) tokens8(dst []byte, stride int, ids []uint32, groups, blocks int, trailer uint64, lens *int) (ok bool) {
	if e.cbor {
		cborTokens8(&dst[0], stride, &ids[0], groups, blocks, trailer, lens, cborTable)
		return true
	}
	return !pickleTokens8(&dst[0], stride, &ids[0], groups, blocks, trailer, lens, pickleTable)
}

// bulk writes as many ids as it can to out and returns how many and how many
// bytes they took.
func (e *encoder) bulk(out []byte, ids []uint32) (done, n int) {
	groups := len(ids) / 8
	if !hasVBMI2 || groups == 0 || len(out) < groups*40+bulkRoom || !e.tokens8(out, 0, ids, groups, 1, 0, &n) {
		return 0, 0
	}
	return groups * 8, n
}
