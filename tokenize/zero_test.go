package tokenize

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNotMade: what no constructor made says so, whatever it is asked, and keeps dst.
func TestNotMade(t *testing.T) {
	made := loadGolden(t, "tiny")
	for _, tok := range []*Tokenizer{nil, new(Tokenizer)} {
		for name, f := range map[string]func(dst []uint32) ([]uint32, error){
			"AppendIDs": func(dst []uint32) ([]uint32, error) { return tok.AppendIDs(dst, "a", EncodeOptions{}) },
			"AppendIDs, \"\"": func(dst []uint32) ([]uint32, error) {
				return tok.AppendIDs(dst, "", EncodeOptions{AddSpecialTokens: true})
			},
			"AppendIDsBytes": func(dst []uint32) ([]uint32, error) { return tok.AppendIDsBytes(dst, nil, EncodeOptions{}) },
			"AppendPairIDs":  func(dst []uint32) ([]uint32, error) { return tok.AppendPairIDs(dst, "a", "b", EncodeOptions{}) },
			"AppendIDsFrom": func(dst []uint32) ([]uint32, error) {
				return tok.AppendIDsFrom(dst, strings.NewReader("a"), EncodeOptions{})
			},
			"NewStream": func(dst []uint32) ([]uint32, error) { _, err := tok.NewStream(EncodeOptions{}); return dst, err },
			"NewCache":  func(dst []uint32) ([]uint32, error) { _, err := tok.NewCache(CacheOptions{}); return dst, err },
			"AppendTokens": func(dst []uint32) ([]uint32, error) {
				_, err := tok.AppendTokens(nil, "a", EncodeOptions{})
				return dst, err
			},
			"AppendBinary": func(dst []uint32) ([]uint32, error) { _, err := tok.AppendBinary(nil); return dst, err },
		} {
			dst, err := f([]uint32{7})
			require.Equal(t, error(ErrTokenizer), err, name)
			require.Equal(t, []uint32{7}, dst, name)
		}
	}
	for _, s := range []*Stream{nil, new(Stream)} {
		_, err := s.AppendIDs(nil, []byte("a"))
		require.Equal(t, error(ErrTokenizer), err)
		_, err = s.Finish(nil)
		require.Equal(t, error(ErrTokenizer), err)
		s.Reset()
	}
	for _, c := range []*Cache{nil, new(Cache)} {
		_, err := c.AppendIDs(nil, "a", EncodeOptions{}, "")
		require.Equal(t, error(ErrTokenizer), err)
		require.Zero(t, c.Stats())
	}
	_, err := made.AppendIDs(nil, "", EncodeOptions{})
	require.NoError(t, err)
}
