//go:build amd64 && !purego

#include "textflag.h"
#include "go_asm.h"

// Four keys: add the seed's halves to theirs, multiply the sums' halves.
#define STEP(at, sum, half) \
	VMOVDQU  at(SI), sum       \
	VPADDD   at(DI), sum, sum  \
	VPSHUFD  $0xb1, sum, half  \
	VPMULUDQ half, sum, sum

#define STEPS(at) \
	STEP(at, Y4, Y5)     \
	STEP(at+32, Y6, Y7)  \
	STEP(at+64, Y8, Y9)  \
	STEP(at+96, Y10, Y11) \
	VPADDQ Y4, Y0, Y0    \
	VPADDQ Y6, Y1, Y1    \
	VPADDQ Y8, Y2, Y2    \
	VPADDQ Y10, Y3, Y3

// func digestsAVX2(keys *uint64, seed *[pageKeys]uint64, pages *page, n int) (same int, last uint64)
TEXT ·digestsAVX2(SB), NOSPLIT, $0-48
	MOVQ keys+0(FP), SI
	MOVQ seed+8(FP), DI
	MOVQ pages+16(FP), BX
	MOVQ n+24(FP), CX
	XORL DX, DX

next:
	STEP(0, Y0, Y4)
	STEP(32, Y1, Y5)
	STEP(64, Y2, Y6)
	STEP(96, Y3, Y7)
	STEPS(128)
	STEPS(256)
	STEPS(384)
	VPADDQ Y1, Y0, Y0
	VPADDQ Y3, Y2, Y2
	VPADDQ Y2, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDQ X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPADDQ X1, X0, X0
	VMOVQ X0, AX
	CMPQ  AX, page_digest(BX)
	JNE   done
	TESTQ AX, AX
	JEQ   done
	INCQ  DX
	ADDQ  $512, SI
	ADDQ  $page__size, BX
	DECQ  CX
	JNZ   next

done:
	VZEROUPPER
	MOVQ DX, same+32(FP)
	MOVQ AX, last+40(FP)
	RET

// The first 3 - i words from word i on are ones: which of four keys are left.
DATA tails<>+0(SB)/8, $-1
DATA tails<>+8(SB)/8, $-1
DATA tails<>+16(SB)/8, $-1
DATA tails<>+24(SB)/8, $0
DATA tails<>+32(SB)/8, $0
DATA tails<>+40(SB)/8, $0
GLOBL tails<>(SB), RODATA|NOPTR, $48

// func equalAVX2(a, b *uint64, n int) int
TEXT ·equalAVX2(SB), NOSPLIT, $0-32
	MOVQ a+0(FP), SI
	MOVQ b+8(FP), DI
	MOVQ n+16(FP), CX
	XORL R8, R8 // a bit for each key that is equal
	XORL R9, R9 // keys looked at
	MOVQ CX, DX
	ANDQ $~3, DX
	JEQ  tail

four:
	VMOVDQU   (SI)(R9*8), Y0
	VPCMPEQQ  (DI)(R9*8), Y0, Y0
	VMOVMSKPD Y0, AX
	SHLXQ     R9, AX, AX
	ORQ       AX, R8
	ADDQ      $4, R9
	CMPQ      R9, DX
	JNE       four

tail:
	MOVQ CX, DX
	ANDQ $3, DX
	JEQ  done
	LEAQ tails<>(SB), BX
	NEGQ DX
	VMOVDQU    24(BX)(DX*8), Y1
	VPMASKMOVQ (SI)(R9*8), Y1, Y0
	VPMASKMOVQ (DI)(R9*8), Y1, Y2
	VPCMPEQQ   Y2, Y0, Y0
	VMOVMSKPD  Y0, AX
	SHLXQ      R9, AX, AX
	ORQ        AX, R8

done:
	VZEROUPPER
	NOTQ    R8
	TZCNTQ  R8, AX
	CMPQ    AX, CX
	CMOVQGT CX, AX
	MOVQ    AX, ret+24(FP)
	RET
