// Package release orders the releases that our own tables and recordings name.
package release

import (
	"cmp"
	"strings"
)

// Compare orders releases by their numbers, such as "0.9.2" before "0.10.0"; one that
// goes on, such as "0.4.6.post5", comes after what it goes on from. Its parts must have
// no leading zeros.
func Compare(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		if c := cmp.Or(cmp.Compare(len(x[i]), len(y[i])), cmp.Compare(x[i], y[i])); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}
