//go:build amd64 && !purego

package blockhash

import (
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// fenced returns n bytes with pages before and behind that end the process when
// they are touched.
func fenced(t *testing.T, n int) []byte {
	page := os.Getpagesize()
	body := (n + page - 1) / page * page
	mem, err := syscall.Mmap(-1, 0, body+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Munmap(mem) })
	require.NoError(t, syscall.Mprotect(mem[:page], syscall.PROT_NONE))
	require.NoError(t, syscall.Mprotect(mem[page+body:], syscall.PROT_NONE))
	return mem[page+body-n : page+body : page+body]
}

// TestBounds: the assembly reads ids and writes messages within their slices.
func TestBounds(t *testing.T) {
	if !hasVBMI2 {
		t.Skip("the processor has no AVX-512 VBMI2")
	}
	d := rand.New(rand.NewPCG(4, 4))
	for _, size := range []int{8, 16, 24, 40, 64, 256, 1000} {
		for blocks := range 9 {
			raw := fenced(t, 4*size*(blocks+1))
			ids := unsafe.Slice((*uint32)(unsafe.Pointer(&raw[0])), len(raw)/4)
			copy(ids, idsOfWidths(d, len(ids)))
			p := &Prompt{Tokens: ids}
			for a := range numAlgorithms {
				h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), Algorithm: a, BlockSize: size, Seed: SeedText("0")})
				c := Chain{eager: true}
				require.NoError(t, h.Start(&c, p))
				if f := &c.fast; f.on {
					f.buf, f.fastShape = fenced(t, len(f.buf)), fastShape{}
					require.NoError(t, h.Start(&c, p))
				}
				for i := range blocks + 1 {
					require.True(t, c.step(), i)
				}
				require.False(t, c.step())
				e := encoder{cbor: a.cbor()}
				out := fenced(t, 5*len(ids)+bulkRoom)
				e.bulk(out, ids)
			}
		}
	}
	for n := 1; n < 60; n++ {
		raw := fenced(t, 4*n)
		ids := unsafe.Slice((*uint32)(unsafe.Pointer(&raw[0])), n)
		copy(ids, idsOfWidths(d, n))
		for _, cbor := range []bool{false, true} {
			(&encoder{cbor: cbor}).bulk(fenced(t, idSlot*n+bulkRoom), ids)
		}
	}
}
