package jsonscan

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzScanner: what the scanner reads as a string is what encoding/json
// reads, and what it skips as a value is one.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{`"a\n\u00e9\ud83d\ude00"`, `{"a":[1,{"b":null}],"c":"]"}`, `"\ud800"`, `[[[]]]`, `-1.5e3`, "\"\x01\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		if !utf8.ValidString(data) {
			return
		}
		s := New(data)
		if got, err := s.Str(); err == nil && s.End() {
			var want string
			require.NoError(t, json.Unmarshal([]byte(data), &want))
			require.Equal(t, want, got)
		}
		s = New(data)
		raw, err := s.Raw()
		if err == nil && s.End() {
			require.True(t, json.Valid([]byte(data)), "%q", data)
			require.Equal(t, strings.Trim(data, " \t\r\n"), raw)
		} else if json.Valid([]byte(data)) {
			require.Regexp(t, "lone surrogate|too deeply", err.Error())
		}
	})
}
