//go:build amd64 && !purego

#include "textflag.h"

// The round constants of FIPS 180-4, then the initial state in the order that
// SHA256RNDS2 wants (ABEF and CDGH, the last letter lowest), then the shuffle
// that swaps the bytes of each word.

DATA ·sha256Constants+0(SB)/8, $0x71374491428a2f98
DATA ·sha256Constants+8(SB)/8, $0xe9b5dba5b5c0fbcf
DATA ·sha256Constants+16(SB)/8, $0x59f111f13956c25b
DATA ·sha256Constants+24(SB)/8, $0xab1c5ed5923f82a4
DATA ·sha256Constants+32(SB)/8, $0x12835b01d807aa98
DATA ·sha256Constants+40(SB)/8, $0x550c7dc3243185be
DATA ·sha256Constants+48(SB)/8, $0x80deb1fe72be5d74
DATA ·sha256Constants+56(SB)/8, $0xc19bf1749bdc06a7
DATA ·sha256Constants+64(SB)/8, $0xefbe4786e49b69c1
DATA ·sha256Constants+72(SB)/8, $0x240ca1cc0fc19dc6
DATA ·sha256Constants+80(SB)/8, $0x4a7484aa2de92c6f
DATA ·sha256Constants+88(SB)/8, $0x76f988da5cb0a9dc
DATA ·sha256Constants+96(SB)/8, $0xa831c66d983e5152
DATA ·sha256Constants+104(SB)/8, $0xbf597fc7b00327c8
DATA ·sha256Constants+112(SB)/8, $0xd5a79147c6e00bf3
DATA ·sha256Constants+120(SB)/8, $0x1429296706ca6351
DATA ·sha256Constants+128(SB)/8, $0x2e1b213827b70a85
DATA ·sha256Constants+136(SB)/8, $0x53380d134d2c6dfc
DATA ·sha256Constants+144(SB)/8, $0x766a0abb650a7354
DATA ·sha256Constants+152(SB)/8, $0x92722c8581c2c92e
DATA ·sha256Constants+160(SB)/8, $0xa81a664ba2bfe8a1
DATA ·sha256Constants+168(SB)/8, $0xc76c51a3c24b8b70
DATA ·sha256Constants+176(SB)/8, $0xd6990624d192e819
DATA ·sha256Constants+184(SB)/8, $0x106aa070f40e3585
DATA ·sha256Constants+192(SB)/8, $0x1e376c0819a4c116
DATA ·sha256Constants+200(SB)/8, $0x34b0bcb52748774c
DATA ·sha256Constants+208(SB)/8, $0x4ed8aa4a391c0cb3
DATA ·sha256Constants+216(SB)/8, $0x682e6ff35b9cca4f
DATA ·sha256Constants+224(SB)/8, $0x78a5636f748f82ee
DATA ·sha256Constants+232(SB)/8, $0x8cc7020884c87814
DATA ·sha256Constants+240(SB)/8, $0xa4506ceb90befffa
DATA ·sha256Constants+248(SB)/8, $0xc67178f2bef9a3f7
DATA ·sha256Constants+256(SB)/8, $0x510e527f9b05688c
DATA ·sha256Constants+264(SB)/8, $0x6a09e667bb67ae85
DATA ·sha256Constants+272(SB)/8, $0x1f83d9ab5be0cd19
DATA ·sha256Constants+280(SB)/8, $0x3c6ef372a54ff53a
DATA ·sha256Constants+288(SB)/8, $0x0405060700010203
DATA ·sha256Constants+296(SB)/8, $0x0c0d0e0f08090a0b
GLOBL ·sha256Constants(SB), RODATA|NOPTR, $304

// X1 is ABEF, X2 is CDGH, X3 to X6 the schedule, X0 what RNDS2 reads, X7 is
// scratch, X8 the byte swap, X9 and X10 the state before a block. Two messages
// side by side have A in X1 to X6, B in X9 to X14.

// ROUNDS does four rounds of state s0, s1 with the schedule words in m.
#define ROUNDS(m, k, s0, s1) \
	MOVO m, X0 \
	PADDD k(AX), X0 \
	SHA256RNDS2 X0, s0, s1 \
	PSHUFD $0x0e, X0, X0 \
	SHA256RNDS2 X0, s1, s0

// EXTEND makes the next four schedule words in d from the last sixteen, the
// latest of which are in c, those before in b.
#define EXTEND(b, c, d) \
	MOVO c, X7 \
	PALIGNR $4, b, X7 \
	PADDD X7, d \
	SHA256MSG2 c, d

#define LOAD(off, p, m) \
	MOVOU off(p), m \
	PSHUFB X8, m

// BLOCK hashes the block at SI into X1, X2 and steps over it.
#define BLOCK \
	MOVO X1, X9 \
	MOVO X2, X10 \
	LOAD(0, SI, X3) \
	ROUNDS(X3, 0, X1, X2) \
	LOAD(16, SI, X4) \
	ROUNDS(X4, 16, X1, X2) \
	SHA256MSG1 X4, X3 \
	LOAD(32, SI, X5) \
	ROUNDS(X5, 32, X1, X2) \
	SHA256MSG1 X5, X4 \
	LOAD(48, SI, X6) \
	ROUNDS(X6, 48, X1, X2) \
	EXTEND(X5, X6, X3) \
	SHA256MSG1 X6, X5 \
	ROUNDS(X3, 64, X1, X2) \
	EXTEND(X6, X3, X4) \
	SHA256MSG1 X3, X6 \
	ROUNDS(X4, 80, X1, X2) \
	EXTEND(X3, X4, X5) \
	SHA256MSG1 X4, X3 \
	ROUNDS(X5, 96, X1, X2) \
	EXTEND(X4, X5, X6) \
	SHA256MSG1 X5, X4 \
	ROUNDS(X6, 112, X1, X2) \
	EXTEND(X5, X6, X3) \
	SHA256MSG1 X6, X5 \
	ROUNDS(X3, 128, X1, X2) \
	EXTEND(X6, X3, X4) \
	SHA256MSG1 X3, X6 \
	ROUNDS(X4, 144, X1, X2) \
	EXTEND(X3, X4, X5) \
	SHA256MSG1 X4, X3 \
	ROUNDS(X5, 160, X1, X2) \
	EXTEND(X4, X5, X6) \
	SHA256MSG1 X5, X4 \
	ROUNDS(X6, 176, X1, X2) \
	EXTEND(X5, X6, X3) \
	SHA256MSG1 X6, X5 \
	ROUNDS(X3, 192, X1, X2) \
	EXTEND(X6, X3, X4) \
	SHA256MSG1 X3, X6 \
	ROUNDS(X4, 208, X1, X2) \
	EXTEND(X3, X4, X5) \
	ROUNDS(X5, 224, X1, X2) \
	EXTEND(X4, X5, X6) \
	ROUNDS(X6, 240, X1, X2) \
	PADDD X9, X1 \
	PADDD X10, X2 \
	ADDQ $64, SI

// FINAL writes the digest of state s0, s1 (ABEF, CDGH).
#define FINAL(s0, s1, out) \
	PSHUFD $0x1b, s0, X7 \
	PSHUFD $0xb1, s1, s1 \
	MOVO X7, s0 \
	PBLENDW $0xf0, s1, s0 \
	PALIGNR $8, X7, s1 \
	PSHUFB X8, s0 \
	PSHUFB X8, s1 \
	MOVOU s0, (out) \
	MOVOU s1, 16(out)

// func sha256Padded(out *[32]byte, message *byte, blocks int)
// Writes the SHA-256 of a message that is padded already.
TEXT ·sha256Padded(SB), NOSPLIT, $0-24
	MOVQ out+0(FP), DI
	MOVQ message+8(FP), SI
	MOVQ blocks+16(FP), CX
	LEAQ ·sha256Constants(SB), AX
	MOVOU 256(AX), X1
	MOVOU 272(AX), X2
	MOVOU 288(AX), X8

loop:
	BLOCK
	DECQ CX
	JNZ loop

	FINAL(X1, X2, DI)
	RET

// func sha256PaddedPair(outA, outB *[32]byte, a, b *byte, blocks, more int)
// Writes the SHA-256 of two messages, side by side for as many blocks as both
// have; a has more blocks yet.
TEXT ·sha256PaddedPair(SB), NOSPLIT, $64-48
	MOVQ outA+0(FP), DI
	MOVQ outB+8(FP), R9
	MOVQ a+16(FP), SI
	MOVQ b+24(FP), R8
	MOVQ blocks+32(FP), CX
	LEAQ ·sha256Constants(SB), AX
	MOVOU 256(AX), X1
	MOVOU 272(AX), X2
	MOVOU 288(AX), X8
	MOVO X1, X9
	MOVO X2, X10

pair:
	MOVOU X1, 0(SP)
	MOVOU X2, 16(SP)
	MOVOU X9, 32(SP)
	MOVOU X10, 48(SP)

	LOAD(0, SI, X3)
	ROUNDS(X3, 0, X1, X2)
	LOAD(0, R8, X11)
	ROUNDS(X11, 0, X9, X10)
	LOAD(16, SI, X4)
	ROUNDS(X4, 16, X1, X2)
	SHA256MSG1 X4, X3
	LOAD(16, R8, X12)
	ROUNDS(X12, 16, X9, X10)
	SHA256MSG1 X12, X11
	LOAD(32, SI, X5)
	ROUNDS(X5, 32, X1, X2)
	SHA256MSG1 X5, X4
	LOAD(32, R8, X13)
	ROUNDS(X13, 32, X9, X10)
	SHA256MSG1 X13, X12
	LOAD(48, SI, X6)
	ROUNDS(X6, 48, X1, X2)
	EXTEND(X5, X6, X3)
	SHA256MSG1 X6, X5
	LOAD(48, R8, X14)
	ROUNDS(X14, 48, X9, X10)
	EXTEND(X13, X14, X11)
	SHA256MSG1 X14, X13
	ROUNDS(X3, 64, X1, X2)
	EXTEND(X6, X3, X4)
	SHA256MSG1 X3, X6
	ROUNDS(X11, 64, X9, X10)
	EXTEND(X14, X11, X12)
	SHA256MSG1 X11, X14
	ROUNDS(X4, 80, X1, X2)
	EXTEND(X3, X4, X5)
	SHA256MSG1 X4, X3
	ROUNDS(X12, 80, X9, X10)
	EXTEND(X11, X12, X13)
	SHA256MSG1 X12, X11
	ROUNDS(X5, 96, X1, X2)
	EXTEND(X4, X5, X6)
	SHA256MSG1 X5, X4
	ROUNDS(X13, 96, X9, X10)
	EXTEND(X12, X13, X14)
	SHA256MSG1 X13, X12
	ROUNDS(X6, 112, X1, X2)
	EXTEND(X5, X6, X3)
	SHA256MSG1 X6, X5
	ROUNDS(X14, 112, X9, X10)
	EXTEND(X13, X14, X11)
	SHA256MSG1 X14, X13
	ROUNDS(X3, 128, X1, X2)
	EXTEND(X6, X3, X4)
	SHA256MSG1 X3, X6
	ROUNDS(X11, 128, X9, X10)
	EXTEND(X14, X11, X12)
	SHA256MSG1 X11, X14
	ROUNDS(X4, 144, X1, X2)
	EXTEND(X3, X4, X5)
	SHA256MSG1 X4, X3
	ROUNDS(X12, 144, X9, X10)
	EXTEND(X11, X12, X13)
	SHA256MSG1 X12, X11
	ROUNDS(X5, 160, X1, X2)
	EXTEND(X4, X5, X6)
	SHA256MSG1 X5, X4
	ROUNDS(X13, 160, X9, X10)
	EXTEND(X12, X13, X14)
	SHA256MSG1 X13, X12
	ROUNDS(X6, 176, X1, X2)
	EXTEND(X5, X6, X3)
	SHA256MSG1 X6, X5
	ROUNDS(X14, 176, X9, X10)
	EXTEND(X13, X14, X11)
	SHA256MSG1 X14, X13
	ROUNDS(X3, 192, X1, X2)
	EXTEND(X6, X3, X4)
	SHA256MSG1 X3, X6
	ROUNDS(X11, 192, X9, X10)
	EXTEND(X14, X11, X12)
	SHA256MSG1 X11, X14
	ROUNDS(X4, 208, X1, X2)
	EXTEND(X3, X4, X5)
	ROUNDS(X12, 208, X9, X10)
	EXTEND(X11, X12, X13)
	ROUNDS(X5, 224, X1, X2)
	EXTEND(X4, X5, X6)
	ROUNDS(X13, 224, X9, X10)
	EXTEND(X12, X13, X14)
	ROUNDS(X6, 240, X1, X2)
	ROUNDS(X14, 240, X9, X10)

	MOVOU 0(SP), X7
	PADDD X7, X1
	MOVOU 16(SP), X7
	PADDD X7, X2
	MOVOU 32(SP), X7
	PADDD X7, X9
	MOVOU 48(SP), X7
	PADDD X7, X10
	ADDQ $64, SI
	ADDQ $64, R8
	DECQ CX
	JNZ pair

	FINAL(X9, X10, R9)
	MOVQ more+40(FP), CX
	TESTQ CX, CX
	JZ done

rest:
	BLOCK
	DECQ CX
	JNZ rest

done:
	FINAL(X1, X2, DI)
	RET

// func cpuid(leaf, sub uint32) (eax, ebx, ecx, edx uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-24
	MOVL leaf+0(FP), AX
	MOVL sub+4(FP), CX
	CPUID
	MOVL AX, eax+8(FP)
	MOVL BX, ebx+12(FP)
	MOVL CX, ecx+16(FP)
	MOVL DX, edx+20(FP)
	RET

// func xgetbv() uint32
// The low half of XCR0: which registers the operating system saves.
TEXT ·xgetbv(SB), NOSPLIT, $0-4
	XORL CX, CX
	XGETBV
	MOVL AX, ret+0(FP)
	RET
