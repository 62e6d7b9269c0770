//go:build amd64 && !purego

#include "textflag.h"

// Ids are encoded eight at a time. Each is spread to a lane of eight bytes with
// its own bytes in 1 to 4. How many bits it has chooses an entry of the table,
// which holds the opcode in byte 0, and the top bit of those bytes that count.
// VPCOMPRESSB then pushes together what counts. The next group's place depends
// on nothing but an addition, so that groups overlap. 64 bytes are stored at a
// time.
//
// CX is the place, DX the ids, R9 the table, AX the number of groups; BX is
// scratch. Z5 collects the ids.

#define IDSETUP \
	VMOVDQU64 0(R9), Z26      \ // entries
	VMOVDQU64 64(R9), Z27     \ // where bytes come from
	VPBROADCASTQ 128(R9), Z28 \ // the bits of an entry that are opcode
	VPBROADCASTD 136(R9), Y24 \ // 24
	VPBROADCASTQ 144(R9), Z25 \ // the entry of ids below
	KMOVQ 152(R9), K5         \ // bytes 1 to 4 of each lane
	VPXORQ Z5, Z5, Z5

// IDBIG compares: not equal when there was an id of 2^31 or more.
#define IDBIG(r) \
	VPMOVD2M Z5, K1 \
	KMOVW K1, r \
	TESTL r, r

// IDSTORE writes the lane Z1 with table entry Z2 and moves on.
#define IDSTORE \
	VPMOVB2M Z2, K4 \
	VPTERNLOGQ $0xf8, Z28, Z2, Z1 \ // Z1 | Z2 & Z28
	VPCOMPRESSB.Z Z1, K4, Z4 \
	VMOVDQU64 Z4, (CX) \
	KMOVQ K4, BX \
	POPCNTQ BX, BX \
	ADDQ BX, CX \
	ADDQ $32, DX

#define PICKLEIDS(group) \
group: \
	VMOVDQU (DX), Y0 \
	VPORQ Y0, Y5, Y5 \
	VPERMB.Z Z0, Z27, K5, Z1 \ // id << 8
	VPLZCNTQ Z1, Z2 \
	VPSRLQ $3, Z2, Z2 \        // 3 to 6 by bytes, 8 for id 0
	VPERMQ Z26, Z2, Z2 \
	IDSTORE \
	DECQ AX \
	JNZ group

#define CBORIDS(group) \
group: \
	VMOVDQU (DX), Y0 \
	VPCMPUD $1, Y24, Y0, K1 \  // id < 24
	VPMOVZXDQ Y0, Z2 \
	VPERMB.Z Z0, Z27, K5, Z1 \ // the bytes of id, the highest first
	VPLZCNTQ Z2, Z2 \
	VPSRLQ $3, Z2, Z2 \
	VPERMQ Z26, Z2, Z2 \
	VMOVDQA64 Z25, K1, Z2 \
	IDSTORE \
	DECQ AX \
	JNZ group

// func encodeIDs(dst *byte, ids *uint32, groups int, cbor bool, t *idTable) (length int, big bool)
TEXT ·encodeIDs(SB), NOSPLIT, $0-49
	MOVQ t+32(FP), R9
	IDSETUP
	MOVQ groups+16(FP), AX
	MOVQ dst+0(FP), CX
	MOVQ ids+8(FP), DX
	CMPB cbor+24(FP), $0
	JNE cbor
	PICKLEIDS(pickles)
	JMP done

cbor:
	CBORIDS(cbors)

done:
	SUBQ dst+0(FP), CX
	MOVQ CX, length+40(FP)
	IDBIG(AX)
	SETNE big+48(FP)
	VZEROUPPER
	RET

// XXH3-128 (xxhash.h) of a chain of messages, each of which has the hash of
// the one before near its start. That hash does not go through memory: the
// first four words of a message are put together in AX, BX, CX and R11, so
// that all the rest of it is read and multiplied while the hash before is
// still being made.
//
// SI is the message, R9 its length, DI where digests go, R8 the table; R12 and
// R13 are the two halves of the hash.

#define START 192     // in the table, behind the secret
#define PRIME1 200
#define PRIME2 208
#define PRIME4 224
#define PRIME32 248
#define AVALANCHE 256

// FOLD adds the folded product of DX and R14 under the secret to sum.
#define FOLD(k0, k1, sum) \
	XORQ k0(R8), DX \
	XORQ k1(R8), R14 \
	MULXQ R14, R14, R15 \
	XORQ R15, R14 \
	ADDQ R14, sum

// MIX takes in two pairs of words.
#define MIX(a0, a1, b0, b1, ka0, ka1, kb0, kb1) \
	MOVQ b0, DX \
	MOVQ b1, R14 \
	LEAQ (DX)(R14*1), R10 \
	FOLD(kb0, kb1, R12) \
	MOVQ a0, DX \
	MOVQ a1, R14 \
	LEAQ (DX)(R14*1), R15 \
	XORQ R15, R12 \
	FOLD(ka0, ka1, R13) \
	XORQ R10, R13

#define AVALANCHEOF(h) \
	MOVQ h, R14 \
	SHRQ $37, R14 \
	XORQ R14, h \
	IMULQ AVALANCHE(R8), h \
	MOVQ h, R14 \
	SHRQ $32, R14 \
	XORQ R14, h

// STRIPE adds the stripe in Z2 under the secret at s to the accumulators: the
// products to Z0, the data to Z1, which SWAP adds to the neighbours' lanes.
#define STRIPE(s) \
	VPXORQ s, Z2, Z3 \
	VPSRLQ $32, Z3, Z4 \
	VPMULUDQ Z3, Z4, Z4 \
	VPADDQ Z4, Z0, Z0 \
	VPADDQ Z2, Z1, Z1

#define SWAP \
	VPSHUFD $0x4e, Z1, Z1 \
	VPADDQ Z1, Z0, Z0 \
	VPXORQ Z1, Z1, Z1

// STRIPES adds R13 stripes, at least one, from R14 on, with the secret from DX on.
#define STRIPES(loop) \
loop: \
	VMOVDQU64 (R14), Z2 \
	STRIPE((DX)) \
	ADDQ $64, R14 \
	ADDQ $8, DX \
	DECQ R13 \
	JNZ loop

#define SCRAMBLE \
	SWAP \
	VPSRLQ $47, Z0, Z4 \
	VPTERNLOGQ $0x96, 128(R8), Z4, Z0 \
	VPSRLQ $32, Z0, Z4 \
	VPMULUDQ Z0, Z31, Z0 \
	VPMULUDQ Z4, Z31, Z4 \
	VPSLLQ $32, Z4, Z4 \
	VPADDQ Z4, Z0, Z0

// MERGE takes in two accumulators.
#define MERGE(i) \
	MOVQ acc-96+i(SP), DX \
	MOVQ acc-88+i(SP), R14 \
	MOVQ DX, AX \
	MOVQ R14, BX \
	FOLD(i+11, i+19, R13) \
	MOVQ AX, DX \
	MOVQ BX, R14 \
	FOLD(i+117, i+125, R12)

// func xxh3Chain(digests *byte, ring *byte, room int, ids *uint32, groups, n int, cbor bool, prefix int, trailer uint64, trailing int, parent *[16]byte, idt *idTable, t *xxh3Table) (big bool)
//
// A message of the ring has its length in the eight bytes before it. Each is
// encoded three rounds before it is hashed, where the message hashed in the
// round before was.
TEXT ·xxh3Chain(SB), NOSPLIT, $96-105
	MOVQ idt+88(FP), R9
	IDSETUP
	MOVQ room+16(FP), BX
	MOVQ ring+8(FP), SI
	LEAQ (SI)(BX*4), AX
	MOVQ AX, end-8(SP)
	MOVQ ids+24(FP), DX
	MOVQ DX, next-16(SP)
	MOVQ digests+0(FP), DI
	MOVQ t+96(FP), R8
	MOVQ parent+80(FP), AX
	MOVQ 0(AX), R12
	MOVQ 8(AX), R13
	VPBROADCASTQ PRIME32(R8), Z31
	ADDQ $3, n+40(FP)
	MOVQ n+40(FP), R11
	MOVQ R11, rounds-24(SP)
	MOVQ $77, R10 // from this length on the digest's place is not read from the end
	CMPB cbor+48(FP), $0
	JEQ pickle
	MOVQ $66, R10

pickle:
	MOVQ R10, safe-32(SP)

	// SI is the place to encode to.
round:
	CMPQ n+40(FP), $3
	JLE encoded
	MOVQ groups+32(FP), AX
	MOVQ next-16(SP), DX
	MOVQ prefix+56(FP), CX
	ADDQ SI, CX
	CMPB cbor+48(FP), $0
	JNE cborids
	PICKLEIDS(pickles)
	JMP trailer

cborids:
	CBORIDS(cbors)

trailer:
	MOVQ DX, next-16(SP)
	MOVQ trailer+64(FP), AX
	MOVQ AX, (CX)
	SUBQ SI, CX
	ADDQ trailing+72(FP), CX
	MOVQ CX, (SI)

encoded:
	ADDQ room+16(FP), SI
	CMPQ SI, end-8(SP)
	CMOVQEQ ring+8(FP), SI
	MOVQ rounds-24(SP), R11
	SUBQ n+40(FP), R11
	CMPQ R11, $3
	JLT nexttime
	MOVQ (SI), R9
	ADDQ $8, SI

	// The first four words: what every message begins with, the hash before,
	// the first bytes after it.
	CMPB cbor+48(FP), $0
	JNE cbor
	LEAQ -11(R9), AX // length of the frame
	SHLQ $24, AX
	ORQ $0x950580, AX
	MOVQ R12, BX
	SHLQ $40, BX
	MOVQ $0x1043000000, DX
	ORQ DX, BX
	MOVQ R12, CX
	SHRQ $24, R13, CX
	MOVQ 29(SI), R11
	SHRQ $24, R11, R13
	MOVQ R13, R11
	JMP words

cbor:
	MOVQ R12, AX
	SHLQ $16, AX
	ORQ $0x5083, AX
	MOVQ R12, BX
	SHRQ $48, R13, BX
	MOVQ 18(SI), CX
	SHRQ $48, CX, R13
	MOVQ R13, CX
	MOVQ 24(SI), R11

words:
	CMPQ R9, $240
	JHI long
	MOVQ R9, R13
	IMULQ PRIME1(R8), R13
	XORL R12, R12
	CMPQ R9, $128
	JHI medium
	CMPQ R9, safe-32(SP)
	JLT short

mixed:
	CMPQ R9, $96
	JLS upto96
	MIX(48(SI), 56(SI), -64(SI)(R9*1), -56(SI)(R9*1), 96, 104, 112, 120)

upto96:
	CMPQ R9, $64
	JLS upto64
	MIX(32(SI), 40(SI), -48(SI)(R9*1), -40(SI)(R9*1), 64, 72, 80, 88)

upto64:
	CMPQ R9, $32
	JLS upto32
	MIX(CX, R11, -32(SI)(R9*1), -24(SI)(R9*1), 32, 40, 48, 56)

upto32:
	MIX(AX, BX, -16(SI)(R9*1), -8(SI)(R9*1), 0, 8, 16, 24)

final:
	LEAQ (R12)(R13*1), AX
	IMULQ PRIME1(R8), R13
	IMULQ PRIME4(R8), R12
	IMULQ PRIME2(R8), R9
	ADDQ R13, R12
	ADDQ R9, R12
	MOVQ AX, R13
	AVALANCHEOF(R12)
	AVALANCHEOF(R13)
	NEGQ R12

digest:
	BSWAPQ R12
	BSWAPQ R13
	MOVQ R12, (DI)
	MOVQ R13, 8(DI)
	ADDQ $16, DI
	SUBQ $8, SI

nexttime:
	DECQ n+40(FP)
	JNZ round
	IDBIG(AX)
	SETNE big+104(FP)
	VZEROUPPER
	RET

	// Words from the end are 48 bytes from it at most, or 32. If the digest is
	// among them, the first words go to memory.
short:
	CMPQ R9, $64
	JHI tomemory
	LEAQ 16(R9), R14
	CMPQ R14, safe-32(SP)
	JGE mixed

tomemory:
	MOVQ AX, 0(SI)
	MOVQ BX, 8(SI)
	MOVQ CX, 16(SI)
	MOVQ R11, 24(SI)
	JMP mixed

medium:
	MIX(AX, BX, CX, R11, 0, 8, 16, 24)
	MIX(32(SI), 40(SI), 48(SI), 56(SI), 32, 40, 48, 56)
	MIX(64(SI), 72(SI), 80(SI), 88(SI), 64, 72, 80, 88)
	MIX(96(SI), 104(SI), 112(SI), 120(SI), 96, 104, 112, 120)
	AVALANCHEOF(R12)
	AVALANCHEOF(R13)
	CMPQ R9, $160
	JLO end
	MIX(128(SI), 136(SI), 144(SI), 152(SI), 3, 11, 19, 27)
	CMPQ R9, $192
	JLO end
	MIX(160(SI), 168(SI), 176(SI), 184(SI), 35, 43, 51, 59)
	CMPQ R9, $224
	JLO end
	MIX(192(SI), 200(SI), 208(SI), 216(SI), 67, 75, 83, 91)

end:
	MIX(-16(SI)(R9*1), -8(SI)(R9*1), -32(SI)(R9*1), -24(SI)(R9*1), 103, 111, 119, 127)
	JMP final

	// The first stripe comes last in its block of 16, so that what depends on
	// the hash before comes late.
long:
	VMOVDQU64 START(R8), Z0
	VPXORQ Z1, Z1, Z1
	LEAQ -1(R9), R12
	SHRQ $6, R12 // stripes but the last
	MOVQ $16, R13
	CMPQ R12, R13
	CMOVQLT R12, R13
	SUBQ R13, R12
	MOVQ R13, R10
	DECQ R13
	LEAQ 64(SI), R14
	LEAQ 8(R8), DX
	STRIPES(first)
	VMOVDQU64 (SI), Z2
	VMOVQ AX, X6
	VPINSRQ $1, BX, X6, X6
	VMOVQ CX, X7
	VPINSRQ $1, R11, X7, X7
	VINSERTI128 $1, X7, Y6, Y6
	VINSERTI64X4 $0, Y6, Z2, Z2
	STRIPE((R8))
	CMPQ R10, $16
	JLT last

more:
	SCRAMBLE
	MOVQ R8, DX
	CMPQ R12, $16
	JLT rest
	SUBQ $16, R12
	MOVQ $16, R13
	STRIPES(block)
	JMP more

rest:
	MOVQ R12, R13
	TESTQ R13, R13
	JZ last
	STRIPES(tail)

last:
	VMOVDQU64 -64(SI)(R9*1), Z2
	STRIPE(121(R8))
	SWAP
	VMOVDQU64 Z0, acc-96(SP)
	MOVQ R9, R12
	IMULQ PRIME2(R8), R12
	NOTQ R12
	MOVQ R9, R13
	IMULQ PRIME1(R8), R13
	MERGE(0)
	MERGE(16)
	MERGE(32)
	MERGE(48)
	AVALANCHEOF(R12)
	AVALANCHEOF(R13)
	JMP digest
