package tokenize

import (
	"testing"
	"unicode/utf8"

	"github.com/kvatlas/kvatlas/tokenize/internal/unidata"
	"github.com/stretchr/testify/require"
)

func TestASCIITables(t *testing.T) {
	u := unidata.Load()
	const asked = unidata.L | unidata.N | unidata.M | unidata.P | unidata.S | unidata.Space
	for c := range utf8.RuneSelf {
		r := rune(c)
		require.Equal(t, u.Flags(r)&asked, asciiFlags[c], "%q", r)
		if r == '\r' || r == '\n' {
			require.Equal(t, newline, asciiClass[c])
			continue
		}
		class, _ := wideClass(u, string(r))
		require.Equal(t, class, asciiClass[c], "%q", r)
	}
}

// TestCovers checks that splitters which are said to leave nothing out don't,
// and that all go forward, on random texts.
func TestCovers(t *testing.T) {
	oneGoroutine(t)
	u, p := unidata.Load(), loadPools(t)
	for pattern, kind := range patterns {
		known := splitters[kind]
		for n := range 2000 {
			text := p.text(n)
			for i := 0; i < len(text); {
				start, end := known.split(u, text, i)
				if i > start || start > end || end == i && start != len(text) {
					t.Fatalf("%q at %d of %q: %d to %d", pattern, i, text, start, end)
				}
				if known.covers && i != start {
					t.Fatalf("%q leaves out %q", pattern, text[i:start])
				}
				i = end
			}
		}
	}
}
