package chat

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSumsAreWritten: a sum that is printed is the sum.
func TestSumsAreWritten(t *testing.T) {
	in := &Input{Messages: &List{Items: []Value{&Dict{}}}}
	for _, sum := range []string{
		"'a'", "'a' + 'b'", "'a' + ('b' + 'c') + 'd'", "'a' + 'b' * 2 + 'c'", "1 + 2", "1 + 2.5 + 3", "[1] + [2] + [3]", "'a' + 'b' ~ 1 + 'c'",
		"'1' + '2' + '3' + '4' + '5' + '6' + '7' + '8'", "'1' + '2' + '3' + '4' + '5' + '6' + '7' + '8' + '9' + '0' + 'x'",
		"'a' + 1", "'a' + 'b' + 1 + 'c'", "1 + 'a'", "[1] + 'a'", "'a' + none", "'a' + undefined_name", "undefined_name + 'a'", "'a' + undefined_name.x",
		"'a' + raise_exception('no') + 1", "'a' + 1 + raise_exception('no')", "('<b>' | safe) + 'a'", "'a' + ('<b>' | safe)", "(1, 2) + (3,)", "'' + ''",
	} {
		render := func(source string) (string, error) {
			tpl, err := Parse(source, Options{})
			require.NoError(t, err)
			out, err := tpl.AppendRender([]byte("before "), in)
			return string(out), err
		}
		want, wantErr := render("{% set x = " + sum + " %}{{ x }}")
		got, err := render("{{ " + sum + " }}")
		require.Equal(t, wantErr, err, sum)
		require.Equal(t, want, got, sum)
	}
}
