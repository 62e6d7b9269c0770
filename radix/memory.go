package radix

import "unsafe"

// A look-up touches a few cache lines far from each other, so that with pages of
// 4 KiB it waits for the page table at each. Slabs and segments therefore lie in
// chunks for which the kernel is asked for huge pages, once there are enough of
// them: the kernel gives a chunk's memory huge page by huge page as it is first
// used, and a small index should not take one.
const (
	hugePage = 2 << 20
	hugeFrom = 1 << 20 // bytes handed out one by one
	growth   = 4       // a chunk is at least this part of what there is
)

// reserve hands out zero values that hold no pointers, and takes none back.
type reserve[T any] struct {
	taken int
	rest  []T // of the last chunk, not touched yet
}

func (r *reserve[T]) next() *T {
	size := int(unsafe.Sizeof(*new(T)))
	held := r.taken * size
	r.taken++
	if held < hugeFrom {
		return new(T)
	}
	if len(r.rest) == 0 {
		chunk := hugeBytes(max(2*hugePage, held/growth&^(hugePage-1)))
		r.rest = unsafe.Slice((*T)(unsafe.Pointer(&chunk[0])), len(chunk)/size)
	}
	v := &r.rest[0]
	r.rest = r.rest[1:]
	return v
}

// bytes is the memory of what was handed out.
func (r *reserve[T]) bytes() int { return r.taken * int(unsafe.Sizeof(*new(T))) }
