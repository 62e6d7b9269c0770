//go:build amd64 && !purego

#include "textflag.h"

// Both functions write groups of eight ids. Each id is spread to a lane of
// eight bytes with its own bytes in 1 to 4. How many bits it has chooses an
// entry of the table, which holds the opcode in byte 0, and the top bit of
// those bytes that count. VPCOMPRESSB then pushes together what counts. The
// next group's place depends on nothing but an addition, so that groups
// overlap. 64 bytes are stored at a time, and 128 zeros after the last: dst
// needs 192 bytes of room past the end.

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

// func pickleTokens8(dst *byte, ids *uint32, groups int, t *tokenTable) (n int, big bool)
TEXT ·pickleTokens8(SB), NOSPLIT, $0-41
	MOVQ dst+0(FP), DI
	MOVQ ids+8(FP), SI
	MOVQ groups+16(FP), CX
	MOVQ t+24(FP), AX
	MOVQ DI, BX
	VMOVDQU64 0(AX), Z26   // table
	VMOVDQU64 64(AX), Z27  // where bytes come from
	VPBROADCASTQ 192(AX), Z28
	KMOVQ 200(AX), K5      // bytes 1 to 4 of each lane
	VPXORQ Z5, Z5, Z5
	VPXORQ Z6, Z6, Z6

pickle:
	VMOVDQU (SI), Y0
	VPORQ Y0, Y5, Y5
	VPERMB.Z Z0, Z27, K5, Z1 // id << 8
	VPLZCNTQ Z1, Z2
	VPSRLQ $3, Z2, Z2        // 3 to 6 by bytes, 8 for id 0
	VPERMQ Z26, Z2, Z2
	FINISH
	DECQ CX
	JNZ pickle

	VMOVDQU64 Z6, (DI)
	VMOVDQU64 Z6, 64(DI)
	SUBQ BX, DI
	MOVQ DI, n+32(FP)
	VPMOVD2M Z5, K1 // ids of 2^31 and more
	KMOVW K1, DX
	TESTL DX, DX
	SETNE big+40(FP)
	VZEROUPPER
	RET

// func cborTokens8(dst *byte, ids *uint32, groups int, t *tokenTable) (n int)
TEXT ·cborTokens8(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ ids+8(FP), SI
	MOVQ groups+16(FP), CX
	MOVQ t+24(FP), AX
	MOVQ DI, BX
	VMOVDQU64 0(AX), Z26
	VMOVDQU64 64(AX), Z27
	VPBROADCASTQ 192(AX), Z28
	KMOVQ 200(AX), K5
	VPBROADCASTD 208(AX), Y24 // 24
	VPBROADCASTQ 216(AX), Z25 // entry of ids below 24
	VPXORQ Z6, Z6, Z6

cbor:
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
	JNZ cbor

	VMOVDQU64 Z6, (DI)
	VMOVDQU64 Z6, 64(DI)
	SUBQ BX, DI
	MOVQ DI, n+32(FP)
	VZEROUPPER
	RET
