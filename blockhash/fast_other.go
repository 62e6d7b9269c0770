//go:build !amd64 || purego

package blockhash

// fast is an optimization that other platforms do without.
type fast struct{}

func (c *Chain) setFast()                         {}
func (c *Chain) fastMessage(int) []byte           { return nil }
func (c *Chain) hashAhead(int) ([]byte, []uint64) { return nil, nil }
