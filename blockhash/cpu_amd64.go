//go:build amd64 && !purego

package blockhash

func cpuid(leaf, sub uint32) (eax, ebx, ecx, edx uint32)
func xgetbv() uint32

// What the processor and the operating system offer beyond what every amd64
// has. Set once, before anything runs.
var hasSHA, hasVBMI2 = features()

func features() (sha, vbmi2 bool) {
	most, _, _, _ := cpuid(0, 0)
	if most < 7 {
		return false, false
	}
	const (
		ssse3, sse41, osxsave = 1 << 9, 1 << 19, 1 << 27 // leaf 1, ecx
		popcnt                = 1 << 23
		bmi2, avx2            = 1 << 8, 1 << 5 // leaf 7, ebx
		avx512f, avx512dq     = 1 << 16, 1 << 17
		shani, avx512bw       = 1 << 29, 1 << 30
		avx512vl              = 1 << 31
		avx512cd              = 1 << 28
		avx512vbmi            = 1 << 1 // leaf 7, ecx
		avx512vbmi2           = 1 << 6
		savesZMM              = 0xe6 // XCR0: SSE, AVX, opmask, ZMM
	)
	_, _, c1, _ := cpuid(1, 0)
	_, b7, c7, _ := cpuid(7, 0)
	sha = b7&shani != 0 && c1&ssse3 != 0 && c1&sse41 != 0
	const need = bmi2 | avx2 | avx512f | avx512dq | avx512bw | avx512vl | avx512cd
	const vbmi = avx512vbmi | avx512vbmi2
	vbmi2 = c1&osxsave != 0 && c1&popcnt != 0 && b7&need == need && c7&vbmi == vbmi && xgetbv()&savesZMM == savesZMM
	return sha, vbmi2
}
