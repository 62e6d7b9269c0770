//go:build amd64 && !purego

package blockhash

// tokenForms says how compressTokens writes ids: the class of an id is the
// number of limits that it is above. The layout is known to the assembly.
type tokenForms struct {
	limits  [3]uint64
	heads   [4]uint64 // opcode, in byte 0
	counts  [4]uint64 // 0xff in the bytes that count
	shuffle [16]byte  // for two ids: where bytes 1 to 4 come from
	bigBit  uint64    // ids with this bit are not to be written so
}

const (
	gone   = 0x80 // shuffle index of a zero byte
	never  = 1<<63 - 1
	signed = 1 << 31
)

var (
	pickleForms = tokenForms{
		limits:  [3]uint64{255, 65535, never},
		heads:   [4]uint64{opInt1, opInt2, opInt4, 0},
		counts:  [4]uint64{0xffff, 0xffffff, 0xff_ffff_ffff, 0},
		shuffle: [16]byte{gone, 0, 1, 2, 3, gone, gone, gone, gone, 8, 9, 10, 11, gone, gone, gone},
		bigBit:  signed, // would be negative as int32
	}
	cborForms = tokenForms{
		limits:  [3]uint64{23, 255, 65535},
		heads:   [4]uint64{0, cborUint | 24, cborUint | 25, cborUint | 26},
		counts:  [4]uint64{0xff_0000_0000, 0xff_0000_00ff, 0xff_ff00_00ff, 0xff_ffff_ffff},
		shuffle: [16]byte{gone, 3, 2, 1, 0, gone, gone, gone, gone, 11, 10, 9, 8, gone, gone, gone},
	}
)

// compressTokens writes groups of eight ids to dst, which must have 64 bytes
// of room past what is written: at most 40 bytes a group. It returns how much
// was written and whether an id had forms.bigBit, in which case it is wrong.
//
//go:noescape
func compressTokens(dst *byte, ids *uint32, groups int, forms *tokenForms) (n int, big bool)

// bulk writes as many ids as it can to out and returns how many and how many
// bytes they took.
func (e *encoder) bulk(out []byte, ids []uint32) (done, n int) {
	groups := len(ids) / 8
	if !hasVBMI2 || groups == 0 || len(out) < groups*40+64 {
		return 0, 0
	}
	forms := &pickleForms
	if e.cbor {
		forms = &cborForms
	}
	n, big := compressTokens(&out[0], &ids[0], groups, forms)
	if big {
		return 0, 0
	}
	return groups * 8, n
}
