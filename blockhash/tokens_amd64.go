//go:build amd64 && !purego

package blockhash

// idStep is how many ids are written at a time, in slots of idSlot bytes each:
// an opcode, and the bytes of the id.
const (
	idStep = 12
	idSlot = 5
)

// idTable says how ids are written. The layout is known to the assembly.
type idTable struct {
	less    [64]byte // CBOR: taken from the lowest byte of an id, so that 0 is left of those without an opcode
	from    [64]byte // where each byte of the slots comes from
	zeros   [64]byte // and the leading zeros that decide about it
	keep    [64]byte // which plus the zeros is negative if the byte counts
	opcodes [64]byte // by leading zeros
	slots   uint64   // a bit for the opcode of each slot
}

var pickleTable, cborTable = newIDTables()

func newIDTables() (pickle, cbor *idTable) {
	// An id of one byte has at least 24 leading zeros, one of two 16.
	const always, two, four = 0x80, 256 - 24, 256 - 16
	pickle = newIDTable([3]byte{opInt1, opInt2, opInt4}, [4]byte{0, 1, 2, 3}, [idSlot]byte{always, always, two, four, four})
	// CBOR is big-endian, and ids below 24, of which 0 is left with 32 leading
	// zeros, have no opcode.
	const opcode = 256 - 32
	cbor = newIDTable([3]byte{cborUint | 24, cborUint | 25, cborUint | 26}, [4]byte{3, 2, 1, 0},
		[idSlot]byte{opcode, four, four, two, always})
	for at := 0; at < len(cbor.less); at += 4 {
		cbor.less[at] = 23
	}
	return pickle, cbor
}

func newIDTable(opcodes [3]byte, order [4]byte, keep [idSlot]byte) *idTable {
	t := new(idTable)
	for i := range idStep {
		at := i * idSlot
		t.slots |= 1 << at
		copy(t.keep[at:], keep[:])
		for j := range idSlot {
			t.zeros[at+j] = byte(4 * i)
		}
		for j, b := range order {
			t.from[at+1+j] = byte(4*i) + b
		}
	}
	// Half of the table is enough for ids below 2^31: place 0 is that of 32.
	for i := range t.opcodes {
		zeros := (i-1)%32 + 1
		t.opcodes[i] = opcodes[min(max(0, 3-zeros/8), 2)]
	}
	t.opcodes[0] = opcodes[0]
	return t
}

// bulkRoom is what writing several ids at once needs past their end, the
// padding of SHA-256 included.
const bulkRoom = 64 + shaRoom

// bulkLeast ids gain from being written together.
const bulkLeast = 4

// encodeIDs writes n ids, at least one, to dst, which needs room of five bytes
// each and bulkRoom more, and returns how many bytes they took. big reports an
// id of 2^31 or more, which pickle writes wrongly.
//
//go:noescape
func encodeIDs(dst *byte, ids *uint32, n int, cbor bool, t *idTable) (length int, big bool)

func (e *encoder) idTable() *idTable {
	if e.cbor {
		return cborTable
	}
	return pickleTable
}

// bulk writes ids to out and returns how many bytes they took, or false if this
// is not the way to write them.
func (e *encoder) bulk(out []byte, ids []uint32) (n int, ok bool) {
	if !hasVBMI2 || len(ids) < bulkLeast || len(out) < idSlot*len(ids)+bulkRoom {
		return 0, false
	}
	n, big := encodeIDs(&out[0], &ids[0], len(ids), e.cbor, e.idTable())
	return n, !big
}
