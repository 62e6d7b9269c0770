//go:build amd64 && !purego

package blockhash

// idTable says how ids are written. The layout is known to the assembly.
type idTable struct {
	entries [8]uint64 // by an eighth of the leading zeros of the lane: opcode, and the top bit of bytes that count
	shuffle [64]byte  // where bytes 1 to 4 of each lane come from
	opcode  uint64    // the bits of an entry that are opcode
	limit   uint32    // CBOR: ids below have no opcode
	_       uint32
	small   uint64 // CBOR: their entry
	bytes14 uint64 // a bit for each of bytes 1 to 4 of each lane
}

var pickleTable, cborTable = newIDTables()

func newIDTables() (pickle, cbor *idTable) {
	const (
		b0, b1, b2, b3, b4 = 1 << 7, 1 << 15, 1 << 23, 1 << 31, 1 << 39
		all                = b0 | b1 | b2 | b3 | b4
		bytes14            = 0x1e1e1e1e1e1e1e1e
	)
	// The lane of pickle is id<<8, so an id of one byte has 48 to 55 leading
	// zeros, one of four 24 to 31, and 0 has 64, which VPERMQ takes for 0.
	one, two, four := uint64(b0|b1|opInt1), uint64(b0|b1|b2|opInt2), uint64(all|opInt4)
	pickle = &idTable{entries: [8]uint64{0: one, 6: one, 5: two, 4: four, 3: four}, opcode: 0x7f, bytes14: bytes14}
	// CBOR counts the zeros of the id itself. Bytes are big-endian, so those
	// of a short id are the last.
	one, two, four = b0|b4|cborUint|24, b0|b3|b4|cborUint|25, all|cborUint|26
	cbor = &idTable{entries: [8]uint64{0: one, 7: one, 6: two, 5: four, 4: four}, opcode: 0x7f, bytes14: bytes14,
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

// encodeIDs writes groups of eight ids to dst, which needs room of 40 bytes a
// group and bulkRoom more, and returns how many bytes they took. big reports an
// id of 2^31 or more, which pickle writes wrongly.
//
//go:noescape
func encodeIDs(dst *byte, ids *uint32, groups int, cbor bool, t *idTable) (length int, big bool)

func (e *encoder) idTable() *idTable {
	if e.cbor {
		return cborTable
	}
	return pickleTable
}

// bulk writes as many ids as it can to out and returns how many and how many
// bytes they took.
func (e *encoder) bulk(out []byte, ids []uint32) (done, n int) {
	groups := len(ids) / 8
	if !hasVBMI2 || groups == 0 || len(out) < 40*groups+bulkRoom {
		return 0, 0
	}
	n, big := encodeIDs(&out[0], &ids[0], groups, e.cbor, e.idTable())
	if big {
		return 0, 0
	}
	return 8 * groups, n
}
