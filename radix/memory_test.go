package radix

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReserve(t *testing.T) {
	var r reserve[segment]
	seen := map[*segment]bool{}
	for n := 1; n <= 2000; n++ { // 32 MB: single ones, then several chunks
		s := r.next()
		require.False(t, seen[s], "handed out twice")
		seen[s] = true
		for i := range s {
			if b := &s[i]; b.slots[0]|b.slots[5]|uint64(b.overflow.Swap(uint32(n))) != 0 {
				t.Fatal("not zero")
			}
		}
	}
	require.Equal(t, 2000*buckets*64, r.bytes())
	for s := range seen { // they do not overlap
		for i := range s {
			if s[0].overflow.Load() != s[i].overflow.Load() {
				t.Fatal("overlap")
			}
		}
	}
}

// Chunks are bytes to the collector, which would not see a pointer in them.
func TestReservedHoldNoPointers(t *testing.T) {
	var walk func(reflect.Type) bool
	walk = func(p reflect.Type) bool {
		switch p.Kind() {
		case reflect.Struct:
			for i := range p.NumField() {
				if walk(p.Field(i).Type) {
					return true
				}
			}
			return false
		case reflect.Array:
			return walk(p.Elem())
		}
		return p.Kind() == reflect.UnsafePointer || p.Kind() > reflect.Complex128
	}
	require.False(t, walk(reflect.TypeFor[slab]()))
	require.False(t, walk(reflect.TypeFor[segment]()))
	require.True(t, walk(reflect.TypeFor[part]()))
}
