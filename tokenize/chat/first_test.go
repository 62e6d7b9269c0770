package chat

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSystemFirst(t *testing.T) {
	for _, c := range []struct {
		source    string
		first, ok bool
	}{
		{"{% for m in messages %}{{ m.content }}{% endfor %}", false, true},
		{"{{ bos_token }}{% if tools is defined or strftime_now is defined %}{{ raise_exception('no') }}{% endif %}", false, true},
		{"{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}{% endfor %}", true, true},
		{"{{ bos_token + 'x' }}", true, true},
		{"{{ strftime_now('%Y') }}", true, true},
		{"{% generation %}{% endgeneration %}", true, true},
		{"{{ messages | safe | upper }}", false, false},
	} {
		tpl, err := Parse(c.source, Options{SpecialTokens: map[string]string{"bos_token": "<s>"}})
		require.NoError(t, err)
		first, ok := tpl.SystemFirst()
		require.Equal(t, []bool{c.first, c.ok}, []bool{first, ok}, c.source)
	}
}
