//go:build amd64 && !purego

#include "textflag.h"
#include "tokens_amd64.h"

// func encodeIDs(dst *byte, ids *uint32, n int, cbor bool, t *idTable) (length int, big bool)
TEXT ·encodeIDs(SB), NOSPLIT, $0-49
	MOVQ t+32(FP), R9
	IDSETUP(R9)
	MOVQ n+16(FP), AX
	MOVQ ids+8(FP), DX
	MOVL $12, R10

	// R8 is the place while IDREST is at work.
	MOVQ dst+0(FP), CX
	CMPB cbor+24(FP), $0
	JNE cbor
	SUBQ $16, AX
	JLT picklerest

pickle:
	IDSTEP(PICKLEZEROS)
	SUBQ $12, AX
	JGE pickle

picklerest:
	ADDQ $16, AX

picklelast:
	CMPQ AX, R10
	CMOVQLT AX, R10
	MOVQ CX, R8
	IDREST(R10)
	MOVQ R8, CX
	IDLAST(PICKLEZEROS)
	ADDQ $48, DX
	SUBQ $12, AX
	JGT picklelast
	JMP done

cbor:
	SUBQ $16, AX
	JLT cborrest

cborstep:
	IDSTEP(CBORZEROS)
	SUBQ $12, AX
	JGE cborstep

cborrest:
	ADDQ $16, AX

cborlast:
	CMPQ AX, R10
	CMOVQLT AX, R10
	MOVQ CX, R8
	IDREST(R10)
	MOVQ R8, CX
	IDLAST(CBORZEROS)
	ADDQ $48, DX
	SUBQ $12, AX
	JGT cborlast

done:
	SUBQ dst+0(FP), CX
	MOVQ CX, length+40(FP)
	IDBIG(AX)
	SETNE big+48(FP)
	VZEROUPPER
	RET
