package unidata

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/kvatlas/kvatlas/internal/golden"
)

// TestFlags compares every code point with the answers of the library.
func TestFlags(t *testing.T) {
	var u struct {
		Classes map[string][][2]rune `json:"classes"`
	}
	if err := json.Unmarshal(golden.Read(t, "tokenize/unicode.json"), &u); err != nil {
		t.Fatal(err)
	}
	tables := Load()
	for name, flag := range map[string]Flags{
		"L": L, "N": N, "M": M, "P": P, "S": S, "Lu": Lu, "Lt": Lt, "Lm": Lm, "Lo": Lo, "Ll": Ll, "Han": Han, "space": Space,
	} {
		want := make(map[rune]bool)
		for _, r := range u.Classes[name] {
			for c := r[0]; c <= r[1]; c++ {
				want[c] = true
			}
		}
		for c := rune(0); c <= utf8.MaxRune; c++ {
			if got := tables.Flags(c)&flag != 0; got != want[c] {
				t.Fatalf("%U is %s: %v, want %v", c, name, got, want[c])
			}
		}
	}
	if tables.Flags(-1) != 0 || tables.Flags(1<<30) != 0 {
		t.Fatal("numbers that are no code points have flags")
	}
}

// FuzzNormal: the cutting into stretches changes nothing, normal text is
// left alone, and a second pass changes nothing.
func FuzzNormal(f *testing.F) {
	f.Add("e\u0301\u0323 한글 각 \u0344\u1e9b\u0323", byte(0))
	f.Add("a\u0315\u0300\u05ae\u0300\u0062", byte(2))
	f.Fuzz(func(t *testing.T, s string, form byte) {
		if !utf8.ValidString(s) {
			return
		}
		tables, fm := Load(), Form(form%4)
		var work, work2 []rune
		got := string(tables.AppendNormal(nil, fm, s, &work))
		if whole := string(tables.appendStretch(nil, fm, s, &work2)); got != whole {
			t.Fatalf("%+q: %+q in stretches, %+q whole", s, got, whole)
		}
		if tables.Normal(fm, s) && got != s {
			t.Fatalf("%+q is called normal, becomes %+q", s, got)
		}
		if again := string(tables.AppendNormal(nil, fm, got, &work)); again != got {
			t.Fatalf("%+q becomes %+q, then %+q", s, got, again)
		}
	})
}
