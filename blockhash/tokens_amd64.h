// Ids are encoded twelve at a time, in slots of five bytes, opcode first. The
// leading zeros of an id say how many bytes it takes; they go to each byte of
// its slot, where adding a constant leaves the top bit of those bytes that
// count, and in the first they choose the opcode. VPCOMPRESSB then pushes
// together what counts. The next step's place depends on nothing but an
// addition, so that steps overlap. 64 bytes are stored at a time.
//
// CX is the place, DX the ids; BX is scratch. Z5 collects the ids. K6 and K7
// are the bytes and ids of a block's last step.

#define IDSETUP(table) \
	VMOVDQU64 0(table), Z20   \ // CBOR: the least id with an opcode but one
	VMOVDQU64 64(table), Z21  \ // where a slot's bytes come from
	VMOVDQU64 128(table), Z22 \ // where its zeros come from
	VMOVDQU64 192(table), Z23 \ // makes negative what counts
	VMOVDQU64 256(table), Z24 \ // opcodes
	KMOVQ 320(table), K5      \ // their bytes
	VPXORQ Z5, Z5, Z5

// IDREST sets the masks for a last step of so many ids, at most twelve.
#define IDREST(n) \
	MOVQ $-1, BX \
	BZHIQ n, BX, CX \
	KMOVQ CX, K7 \
	LEAQ (n)(n*4), CX \
	BZHIQ CX, BX, BX \
	KMOVQ BX, K6

// IDBIG compares: not equal when there was an id of 2^31 or more.
#define IDBIG(r) \
	VPMOVD2M Z5, K1 \
	KMOVW K1, r \
	TESTL r, r

#define PICKLEZEROS(ids, less, zeros) VPLZCNTD ids, zeros

#define CBORZEROS(ids, less, zeros) \
	VPSUBUSB less, ids, zeros \
	VPLZCNTD zeros, zeros

#define SLOTS \
	VPORQ Z0, Z5, Z5 \
	VPERMB Z0, Z21, Z2 \
	VPERMB Z1, Z22, Z3 \
	VPERMB Z24, Z3, K5, Z2

#define WRITE \
	VPMOVB2M Z4, K4 \
	VPCOMPRESSB.Z Z2, K4, Z2 \
	VMOVDQU64 Z2, (CX) \
	MOVEON

#define MOVEON \
	KMOVQ K4, BX \
	POPCNTQ BX, BX \
	ADDQ BX, CX

// IDSTEP encodes twelve ids, and reads sixteen.
#define IDSTEP(ZEROS) \
	VMOVDQU64 (DX), Z0 \
	ZEROS(Z0, Z20, Z1) \
	SLOTS \
	VPADDB Z23, Z3, Z4 \
	WRITE \
	ADDQ $48, DX

// IDLAST encodes what is left.
#define IDLAST(ZEROS) \
	VMOVDQU32.Z (DX), K7, Z0 \
	ZEROS(Z0, Z20, Z1) \
	SLOTS \
	VPADDB.Z Z23, Z3, K6, Z4 \
	WRITE

// IDFOUR encodes what is left if it is four ids, in half the width.
#define IDFOUR(ZEROS) \
	VMOVDQU (DX), X0 \
	ZEROS(X0, X20, X1) \
	VPORQ Z0, Z5, Z5 \
	VPERMB Y0, Y21, Y2 \
	VPERMB Y1, Y22, Y3 \
	VPERMB Y24, Y3, K5, Y2 \
	VPADDB.Z Y23, Y3, K6, Y4 \
	VPMOVB2M Y4, K4 \
	VPCOMPRESSB.Z Y2, K4, Y2 \
	VMOVDQU Y2, (CX) \
	MOVEON
