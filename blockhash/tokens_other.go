//go:build !amd64 || purego

package blockhash

const bulkRoom = 8

// bulk is an optimization that other platforms do without.
func (e *encoder) bulk([]byte, []uint32) (n int, ok bool) { return 0, false }
