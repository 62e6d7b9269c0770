//go:build amd64 && !purego

#include "textflag.h"

// Four keys: add the seed's halves to theirs, multiply the sums' halves, add up.
#define STEP(at, t, h, acc) \
	VMOVDQU at(SI), t      \
	VPADDD  at(DI), t, t   \
	VPSRLQ  $32, t, h      \
	VPMULUDQ h, t, t       \
	VPADDQ  t, acc, acc

#define STEPS(at) \
	STEP(at, Y4, Y5, Y0)     \
	STEP(at+32, Y6, Y7, Y1)  \
	STEP(at+64, Y8, Y9, Y2)  \
	STEP(at+96, Y10, Y11, Y3)

// func digestAVX2(keys, seed *[pageKeys]uint64) (sum uint64)
TEXT ·digestAVX2(SB), NOSPLIT, $0-24
	MOVQ keys+0(FP), SI
	MOVQ seed+8(FP), DI
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	STEPS(0)
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
	VZEROUPPER
	MOVQ AX, sum+16(FP)
	RET
