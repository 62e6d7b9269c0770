//go:build amd64 && !purego

#include "textflag.h"

// func compressTokens(dst *byte, ids *uint32, groups int, forms *tokenForms) (n int, big bool)
//
// Writes groups of eight ids. Each id gets eight bytes, of which byte 0 is an
// opcode and bytes 1 to 4 are the id's; how large the id is decides opcode and
// bytes that count; VPCOMPRESSB pushes those together. Stores 64 bytes at a
// time, so dst needs 64 bytes of room past the end.
//
// Z0 ids, Z1 shuffled ids and opcode, Z2 opcode, Z3 bytes that count, Z4
// result, Z5 all ids ored. Constants: Z16-Z18 limits, Z19-Z22 opcodes, Z23-Z26
// bytes that count, Z27 shuffle.
TEXT ·compressTokens(SB), NOSPLIT, $0-41
	MOVQ dst+0(FP), DI
	MOVQ ids+8(FP), SI
	MOVQ groups+16(FP), CX
	MOVQ forms+24(FP), AX
	MOVQ DI, BX
	VPBROADCASTQ 0(AX), Z16
	VPBROADCASTQ 8(AX), Z17
	VPBROADCASTQ 16(AX), Z18
	VPBROADCASTQ 24(AX), Z19
	VPBROADCASTQ 32(AX), Z20
	VPBROADCASTQ 40(AX), Z21
	VPBROADCASTQ 48(AX), Z22
	VPBROADCASTQ 56(AX), Z23
	VPBROADCASTQ 64(AX), Z24
	VPBROADCASTQ 72(AX), Z25
	VPBROADCASTQ 80(AX), Z26
	VBROADCASTI32X4 88(AX), Z27
	VPXORQ Z5, Z5, Z5

loop:
	VPMOVZXDQ (SI), Z0
	VPORQ Z0, Z5, Z5
	VPCMPUQ $6, Z16, Z0, K1 // id > limit
	VPCMPUQ $6, Z17, Z0, K2
	VPCMPUQ $6, Z18, Z0, K3
	VPSHUFB Z27, Z0, Z1
	VMOVDQA64 Z19, Z2
	VMOVDQA64 Z23, Z3
	VMOVDQA64 Z20, K1, Z2
	VMOVDQA64 Z24, K1, Z3
	VMOVDQA64 Z21, K2, Z2
	VMOVDQA64 Z25, K2, Z3
	VMOVDQA64 Z22, K3, Z2
	VMOVDQA64 Z26, K3, Z3
	VPORQ Z2, Z1, Z1
	VPMOVB2M Z3, K4
	VPCOMPRESSB.Z Z1, K4, Z4
	VMOVDQU64 Z4, (DI)
	KMOVQ K4, DX
	POPCNTQ DX, DX
	ADDQ DX, DI
	ADDQ $32, SI
	DECQ CX
	JNZ loop

	SUBQ BX, DI
	MOVQ DI, n+32(FP)
	VPBROADCASTQ 104(AX), Z0
	VPTESTMQ Z0, Z5, K1
	KMOVQ K1, DX
	TESTQ DX, DX
	SETNE big+40(FP)
	VZEROUPPER
	RET
