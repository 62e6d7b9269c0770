//go:build amd64 && !purego

#include "textflag.h"

#include "tokens_amd64.h"

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

// STRIPE adds the stripe in Z8 under the secret at s to the accumulators: the
// products to Z6, the data to Z7, which SWAP adds to the neighbours' lanes.
#define STRIPE(s) \
	VPXORQ s, Z8, Z9 \
	VPSRLQ $32, Z9, Z10 \
	VPMULUDQ Z9, Z10, Z10 \
	VPADDQ Z10, Z6, Z6 \
	VPADDQ Z8, Z7, Z7

#define SWAP \
	VPSHUFD $0x4e, Z7, Z7 \
	VPADDQ Z7, Z6, Z6 \
	VPXORQ Z7, Z7, Z7

// NEXTSTRIPE adds the stripe at R10 with the secret at R11 and moves on.
#define NEXTSTRIPE \
	VMOVDQU64 (R10), Z8 \
	STRIPE((R11)) \
	ADDQ $64, R10 \
	ADDQ $8, R11

// STRIPES adds R14 stripes, if any.
#define STRIPES(four, few, one, none) \
	SUBQ $4, R14 \
	JLT few \
four: \
	VMOVDQU64 (R10), Z8 \
	STRIPE((R11)) \
	VMOVDQU64 64(R10), Z8 \
	STRIPE(8(R11)) \
	VMOVDQU64 128(R10), Z8 \
	STRIPE(16(R11)) \
	VMOVDQU64 192(R10), Z8 \
	STRIPE(24(R11)) \
	ADDQ $256, R10 \
	ADDQ $32, R11 \
	SUBQ $4, R14 \
	JGE four \
few: \
	ADDQ $4, R14 \
	JZ none \
one: \
	NEXTSTRIPE \
	DECQ R14 \
	JNZ one \
none:

#define SCRAMBLE \
	SWAP \
	VPSRLQ $47, Z6, Z10 \
	VPTERNLOGQ $0x96, 128(R8), Z10, Z6 \
	VPSRLQ $32, Z6, Z10 \
	VPMULUDQ Z6, Z31, Z6 \
	VPMULUDQ Z10, Z31, Z10 \
	VPSLLQ $32, Z10, Z10 \
	VPADDQ Z10, Z6, Z6

// ENCODE encodes a block of AX steps and a last one to CX. Meanwhile it adds
// stripes of the message being hashed, of which there are R14: what encoding
// and hashing take of the processor adds up, but not the time they wait.
#define ENCODE(ZEROS, both, alone, steps, last, more, done) \
	TESTQ R14, R14 \
	JZ alone \
	MOVQ R14, R9 \
	CMPQ AX, R14 \
	CMOVQLT AX, R9 \
	SUBQ R9, R14 \
	SUBQ R9, AX \
	TESTQ R9, R9 \
	JZ alone \
both: \
	IDSTEP(ZEROS) \
	NEXTSTRIPE \
	DECQ R9 \
	JNZ both \
alone: \
	TESTQ AX, AX \
	JZ last \
steps: \
	IDSTEP(ZEROS) \
	DECQ AX \
	JNZ steps \
last: \
	CMPQ rest+56(FP), $4 \
	JNE more \
	IDFOUR(ZEROS) \
	JMP done \
more: \
	IDLAST(ZEROS)

// MERGE takes in two accumulators.
#define MERGE(i) \
	MOVQ acc-128+i(SP), DX \
	MOVQ acc-120+i(SP), R14 \
	MOVQ DX, AX \
	MOVQ R14, BX \
	FOLD(i+11, i+19, R13) \
	MOVQ AX, DX \
	MOVQ BX, R14 \
	FOLD(i+117, i+125, R12)

// func xxh3Chain(digests *byte, keys *uint64, ring *byte, room, lead int, ids *uint32, steps, rest, n int, cbor bool, prefix int, trailer uint64, trailing int, long bool, parent *[16]byte, idt *idTable, t *xxh3Table) (big bool)
//
// Each message is encoded some rounds before it is hashed, in the slot of the
// message hashed in the round before. The eight bytes before a slot say where
// the message ends in it, the eight before those where it starts.
TEXT ·xxh3Chain(SB), NOSPLIT, $128-137
	MOVQ idt+120(FP), R9
	IDSETUP(R9)
	MOVQ rest+56(FP), AX
	IDREST(AX)
	MOVQ lead+32(FP), BX
	MOVQ n+64(FP), R11
	ADDQ BX, R11
	MOVQ R11, n+64(FP) // rounds
	SUBQ BX, R11
	MOVQ R11, hashed-24(SP) // in rounds up to this
	INCQ BX
	IMULQ room+24(FP), BX
	MOVQ ring+16(FP), SI
	VMOVDQU64 (SI), Z16
	ADDQ SI, BX
	MOVQ BX, end-8(SP)
	MOVQ ids+40(FP), DX
	MOVQ DX, next-16(SP)
	MOVQ digests+0(FP), DI
	MOVQ keys+8(FP), AX
	MOVQ AX, key-56(SP)
	MOVQ t+128(FP), R8
	MOVQ parent+112(FP), AX
	MOVQ 0(AX), R12
	MOVQ 8(AX), R13
	VPBROADCASTQ PRIME32(R8), Z31
	MOVQ $77, R10 // from this length on the digest's place is not read from the end
	CMPB cbor+72(FP), $0
	JEQ pickle
	MOVQ $66, R10

pickle:
	MOVQ R10, safe-32(SP)

	// SI is the slot to encode to, CX where the message starts.
round:
	MOVQ next-16(SP), DX
	MOVQ SI, CX
	XORL R14, R14
	CMPB long+104(FP), $0
	JEQ encode

	// Where ids read and bytes written lie alike in their pages the processor
	// takes the one for the other and waits.
	MOVQ SI, BX
	SUBQ DX, BX
	ANDQ $4095, BX
	MOVQ $0, -16(SI)
	CMPQ BX, $1536 // bytes that may still be on their way to the cache, and some
	JHI placed
	ADDQ $2048, CX
	MOVQ $2048, -16(SI)

placed:
	VMOVDQU64 Z16, (CX)
	MOVQ n+64(FP), AX
	CMPQ AX, hashed-24(SP)
	JGT encode

	// Stripes of the message to be hashed can be added already, R14 of them: as
	// far as the secret goes, but for the first, which waits for the hash
	// before, and the last.
	MOVQ SI, R10
	ADDQ room+24(FP), R10
	CMPQ R10, end-8(SP)
	CMOVQEQ ring+16(FP), R10
	MOVQ -8(R10), AX
	SUBQ -16(R10), AX
	CMPQ AX, $240
	JLS encode
	ADDQ -16(R10), R10
	VMOVDQU64 START(R8), Z6
	VPXORQ Z7, Z7, Z7
	ADDQ $64, R10
	LEAQ 8(R8), R11
	DECQ AX
	SHRQ $6, AX // stripes but the last
	MOVQ $16, R14
	CMPQ AX, R14
	CMOVQLT AX, R14
	DECQ R14

encode:
	MOVQ n+64(FP), AX
	CMPQ AX, lead+32(FP)
	JLE encoded
	MOVQ steps+48(FP), AX
	ADDQ prefix+80(FP), CX
	CMPB cbor+72(FP), $0
	JNE cborids
	ENCODE(PICKLEZEROS, pickleboth, picklealone, picklesteps, picklelast, picklemore, trailer)
	JMP trailer

cborids:
	ENCODE(CBORZEROS, cborboth, cboralone, cborsteps, cborlast, cbormore, trailer)

trailer:
	MOVQ rest+56(FP), BX
	LEAQ (DX)(BX*4), DX
	MOVQ DX, next-16(SP)
	MOVQ trailer+88(FP), AX
	MOVQ AX, (CX)
	SUBQ SI, CX
	ADDQ trailing+96(FP), CX
	MOVQ CX, -8(SI)

encoded:
	ADDQ room+24(FP), SI
	CMPQ SI, end-8(SP)
	CMOVQEQ ring+16(FP), SI
	MOVQ n+64(FP), AX
	CMPQ AX, hashed-24(SP)
	JGT nexttime
	MOVQ -8(SI), R9
	MOVQ SI, slot-48(SP)
	CMPB long+104(FP), $0
	JEQ first
	SUBQ -16(SI), R9
	ADDQ -16(SI), SI
	STRIPES(first4, first3, first1, first)

	// The first four words: what every message begins with, the hash before,
	// the first bytes after it.
	CMPB cbor+72(FP), $0
	JNE cbor
	LEAQ -11(R9), AX // length of the frame
	SHLQ $24, AX
	ORQ $0x950580, AX
	MOVQ R12, BX
	SHLQ $40, BX
	MOVQ $0x1043000000, DX
	ORQ DX, BX
	MOVQ R12, CX
	SHRQ $24, CX
	MOVQ R13, DX
	SHLQ $40, DX
	ORQ DX, CX
	MOVQ 29(SI), R11
	SHLQ $40, R11
	SHRQ $24, R13
	ORQ R13, R11
	JMP words

cbor:
	MOVQ R12, AX
	SHLQ $16, AX
	ORQ $0x5083, AX
	SHRQ $48, R12
	MOVQ R13, BX
	SHLQ $16, BX
	ORQ R12, BX
	MOVQ 18(SI), CX
	SHLQ $16, CX
	SHRQ $48, R13
	ORQ R13, CX
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
	MOVQ key-56(SP), AX
	MOVQ R13, (AX)
	ADDQ $8, AX
	MOVQ AX, key-56(SP)
	BSWAPQ R12
	BSWAPQ R13
	MOVQ R12, (DI)
	MOVQ R13, 8(DI)
	ADDQ $16, DI
	MOVQ slot-48(SP), SI

nexttime:
	DECQ n+64(FP)
	JNZ round
	IDBIG(AX)
	SETNE big+136(FP)
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

	// The first stripe comes last of those that are under the secret, so that
	// what depends on the hash before comes late.
long:
	VMOVDQU64 (SI), Z8
	VMOVQ AX, X11
	VPINSRQ $1, BX, X11, X11
	VMOVQ CX, X12
	VPINSRQ $1, R11, X12, X12
	VINSERTI128 $1, X12, Y11, Y11
	VINSERTI64X4 $0, Y11, Z8, Z8
	STRIPE((R8))
	LEAQ -1(R9), R12
	SHRQ $6, R12 // stripes but the last

more:
	SUBQ $16, R12
	JLT last
	SCRAMBLE
	MOVQ R8, R11
	MOVQ $16, R14
	CMPQ R12, R14
	CMOVQLT R12, R14
	STRIPES(more4, more3, more1, more0)
	JMP more

last:
	VMOVDQU64 -64(SI)(R9*1), Z8
	STRIPE(121(R8))
	SWAP
	VMOVDQU64 Z6, acc-128(SP)
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
