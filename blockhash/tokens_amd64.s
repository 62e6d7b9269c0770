//go:build amd64 && !purego

#include "textflag.h"

// Both functions write groups of eight ids, so many a block, the next block
// stride bytes on. Each id is spread to a lane of eight bytes with its own
// bytes in 1 to 4. How many bits it has chooses an entry of the table, which
// holds the opcode in byte 0, and the top bit of those bytes that count.
// VPCOMPRESSB then pushes together what counts. The next group's place depends
// on nothing but an addition, so that groups overlap. 64 bytes are stored at a
// time.

// FINISH writes the lane Z1 with the opcode of table entry Z2 (Z28 keeps the
// opcode's bits) and moves on: Z1 | Z2 & Z28.
#define FINISH \
	VPMOVB2M Z2, K4 \
	VPTERNLOGQ $0xf8, Z28, Z2, Z1 \
	VPCOMPRESSB.Z Z1, K4, Z4 \
	VMOVDQU64 Z4, (DI) \
	KMOVQ K4, DX \
	POPCNTQ DX, DX \
	ADDQ DX, DI \
	ADDQ $32, SI

#define BEGIN \
	MOVQ dst+0(FP), BX \
	MOVQ stride+8(FP), R8 \
	MOVQ ids+16(FP), SI \
	MOVQ groups+24(FP), R9 \
	MOVQ blocks+32(FP), R10 \
	MOVQ trailer+40(FP), R11 \
	MOVQ lens+48(FP), R12 \
	MOVQ t+56(FP), AX \
	VMOVDQU64 0(AX), Z26 \
	VMOVDQU64 64(AX), Z27 \
	VPBROADCASTQ 192(AX), Z28 \
	KMOVQ 200(AX), K5

// BLOCK ends a block: the trailer, how long the ids are, the next one's place.
#define BLOCK(loop) \
	MOVQ R11, (DI) \
	SUBQ BX, DI \
	MOVQ DI, (R12) \
	ADDQ $8, R12 \
	ADDQ R8, BX \
	DECQ R10 \
	JNZ loop

// func pickleTokens8(dst *byte, stride int, ids *uint32, groups, blocks int, trailer uint64, lens *int, t *tokenTable) (big bool)
TEXT ·pickleTokens8(SB), NOSPLIT, $0-65
	BEGIN
	VPXORQ Z5, Z5, Z5

block:
	MOVQ BX, DI
	MOVQ R9, CX

group:
	VMOVDQU (SI), Y0
	VPORQ Y0, Y5, Y5
	VPERMB.Z Z0, Z27, K5, Z1 // id << 8
	VPLZCNTQ Z1, Z2
	VPSRLQ $3, Z2, Z2        // 3 to 6 by bytes, 8 for id 0
	VPERMQ Z26, Z2, Z2
	FINISH
	DECQ CX
	JNZ group
	BLOCK(block)

	VPMOVD2M Z5, K1 // ids of 2^31 and more
	KMOVW K1, DX
	TESTL DX, DX
	SETNE big+64(FP)
	VZEROUPPER
	RET

// func cborTokens8(dst *byte, stride int, ids *uint32, groups, blocks int, trailer uint64, lens *int, t *tokenTable)
TEXT ·cborTokens8(SB), NOSPLIT, $0-64
	BEGIN
	VPBROADCASTD 208(AX), Y24 // 24
	VPBROADCASTQ 216(AX), Z25 // entry of ids below 24

block:
	MOVQ BX, DI
	MOVQ R9, CX

group:
	VMOVDQU (SI), Y0
	VPCMPUD $1, Y24, Y0, K1 // id < 24
	VPMOVZXDQ Y0, Z2
	VPERMB.Z Z0, Z27, K5, Z1
	VPLZCNTQ Z2, Z2
	VPSRLQ $3, Z2, Z2
	VPERMQ Z26, Z2, Z2
	VMOVDQA64 Z25, K1, Z2
	FINISH
	DECQ CX
	JNZ group
	BLOCK(block)
	VZEROUPPER
	RET
