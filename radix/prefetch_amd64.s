//go:build amd64 && !purego

#include "textflag.h"

// func prefetch(at []*bucket) (touched uint64)
TEXT ·prefetch(SB), NOSPLIT, $0-32
	MOVQ at_base+0(FP), AX
	MOVQ at_len+8(FP), CX
	MOVQ $0, touched+24(FP)
	TESTQ CX, CX
	JEQ  done

next:
	MOVQ (AX), DX
	BYTE $0x0F; BYTE $0x0D; BYTE $0x0A // PREFETCHW (DX), which the assembler does not know
	ADDQ $8, AX
	DECQ CX
	JNZ  next

done:
	RET

// func askKeys(first *uint64, lines int)
TEXT ·askKeys(SB), NOSPLIT, $0-16
	MOVQ first+0(FP), AX
	MOVQ lines+8(FP), CX

line:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	DECQ CX
	JNZ  line
	RET

// func askPage(pg *page)
TEXT ·askPage(SB), NOSPLIT, $0-8
	MOVQ pg+0(FP), AX
	PREFETCHT0 (AX)
	RET
