package tokenize

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/tokenize/internal/unidata"
	"github.com/stretchr/testify/require"
)

// tokenizers gives what loads every vocabulary and every variant.
func tokenizers(t testing.TB) iter.Seq2[string, func(t testing.TB) *Tokenizer] {
	return func(yield func(string, func(t testing.TB) *Tokenizer) bool) {
		for _, file := range golden.Files(t, "tokenize/random/*.txt") {
			name := strings.TrimSuffix(path.Base(file), ".txt")
			if strings.HasPrefix(name, "variant-") || strings.HasPrefix(name, "offsets-") || strings.HasPrefix(name, "pairs-") {
				continue
			}
			if !yield(name, func(t testing.TB) *Tokenizer { return loadGolden(t, name) }) {
				return
			}
		}
		for name, load := range variants(t) {
			if !yield("variant-"+name, load) {
				return
			}
		}
	}
}

// streamed encodes text cut at random, and returns how often it was encoded
// before its end.
func streamed(t testing.TB, s *Stream, r *rand.Rand, text string) (ids []uint32, parts int) {
	t.Helper()
	s.gather = 1 + r.IntN(64)
	rest := []byte(text)
	for len(rest) > 0 {
		n := min(len(rest), r.IntN(40))
		piece := bytes.Clone(rest[:n])
		before := len(ids)
		var err error
		ids, err = s.AppendIDs(ids, piece)
		require.NoError(t, err)
		clear(piece) // it is not kept
		rest = rest[n:]
		if len(ids) > before {
			parts++
		}
	}
	ids, err := s.Finish(ids)
	require.NoError(t, err)
	return ids, parts
}

// noStream are the tokenizers that have no stream, by what stands against it.
var noStream = map[string]string{
	"variant-no-regex":          "pre_tokenizer",
	"variant-nfkc-replace":      "normalizer",
	"variant-flags-normalized":  "added_tokens",
	"variant-spm-unknown":       "model",
	"variant-spm-unknown-fused": "model",
	"variant-spm-dropped":       "model",
	"variant-spm-ignore-merges": "model",
}

// TestStream: in whatever pieces a text comes, its ids are those of the whole.
func TestStream(t *testing.T) {
	oneGoroutine(t)
	p := loadPools(t)
	for name, load := range tokenizers(t) {
		t.Run(name, func(t *testing.T) {
			tok := load(t)
			s, err := tok.NewStream(EncodeOptions{AddSpecialTokens: true})
			if part := noStream[name]; part != "" {
				refused, ok := errors.AsType[*NoStreamError](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, part, refused.Part)
				return
			}
			require.NoError(t, err)
			r := rand.New(rand.NewPCG(7, uint64(len(name))))
			parts := 0
			var text string
			for i := range 3000 {
				if text += p.text(i); i%3 != 0 {
					continue
				}
				if i%7 == 0 {
					text += "\xff\xe2\x82 a\xe3\x80\n\xed\xa0\x80"
				}
				want, err := tok.AppendIDs(nil, text, EncodeOptions{AddSpecialTokens: true})
				require.NoError(t, err)
				got, n := streamed(t, s, r, text)
				require.True(t, equalIDs(want, got), "%q:\n got %v\nwant %v", text, got, want)
				parts += n
				text = ""
			}
			require.Greater(t, parts, 1000)
		})
	}
}

// TestStreamReachesFar: what stands far from a cut decides nothing there.
func TestStreamReachesFar(t *testing.T) {
	oneGoroutine(t)
	var texts []string
	for _, unit := range []string{"a", " ", "\n", "a \n", "。", "字", "字。", "1", "12 ", "!", "-=\n", "é", "e\u0301", "\u0301", "'s ", "\t\t", " \u00a0x", "▁", "▁ ", "<|", "\xff ", "か\u3099、"} {
		texts = append(texts, strings.Repeat(unit, 300), "<|im_end|>"+strings.Repeat(unit, 77)+" x\n"+strings.Repeat(unit, 5))
	}
	for name, load := range tokenizers(t) {
		if noStream[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			tok := load(t)
			s, err := tok.NewStream(EncodeOptions{})
			require.NoError(t, err)
			r := rand.New(rand.NewPCG(1, 2))
			for _, text := range texts {
				got, _ := streamed(t, s, r, text)
				require.True(t, equalIDs(ids(t, tok, text), got), "%.100q", text)
			}
		})
	}
}

// TestStreamIsBounded: of a long text no more is held than behind its last
// cut, and nothing is allocated.
func TestStreamIsBounded(t *testing.T) {
	text := []byte(benchText(t, 400_000))
	for _, name := range []string{"tiny", "qwen3", "mistral-v3"} {
		tok := loadGolden(t, name)
		s, err := tok.NewStream(EncodeOptions{})
		require.NoError(t, err)
		dst := make([]uint32, 0, 1<<20)
		all := func() {
			for rest := text; len(rest) > 0; {
				n := min(len(rest), 10_000)
				if dst, err = s.AppendIDs(dst[:0], rest[:n]); err != nil || cap(s.held) > 2*StreamBytes {
					t.Fatal(name, err, cap(s.held))
				}
				rest = rest[n:]
			}
			if dst, err = s.Finish(dst[:0]); err != nil {
				t.Fatal(name, err)
			}
		}
		all()
		if !raceEnabled && !viewCopies {
			require.Zero(t, testing.AllocsPerRun(3, all), name)
		}
	}
}

func TestStreamErrors(t *testing.T) {
	tok, err := Load(tokenizerJSON(t, "tiny"), Options{MaxTextBytes: StreamBytes + 10})
	require.NoError(t, err)
	s, err := tok.NewStream(EncodeOptions{AddSpecialTokens: true})
	require.NoError(t, err)
	// A text is as long as it likes, a word is not.
	got, err := s.AppendIDs(nil, bytes.Repeat([]byte("word "), StreamBytes))
	require.NoError(t, err)
	require.NotEmpty(t, got)
	for range 2 {
		got, err = s.AppendIDs([]uint32{1}, bytes.Repeat([]byte("w"), 2*StreamBytes))
		require.ErrorIs(t, err, ErrTextTooLong)
		require.Equal(t, []uint32{1}, got)
	}
	got, err = s.Finish([]uint32{1})
	require.ErrorIs(t, err, ErrTextTooLong)
	require.Equal(t, []uint32{1}, got)
	s.Reset()
	got, err = s.AppendIDs(nil, []byte("two words"))
	require.NoError(t, err)
	got, err = s.Finish(got)
	require.NoError(t, err)
	require.Equal(t, ids(t, tok, "two words"), got)

	tok = variants(t)["no-regex"](t)
	_, err = tok.NewStream(EncodeOptions{})
	require.ErrorContains(t, err, "cannot be encoded in pieces: pre_tokenizer: no pattern splits at white space; encode them whole")
}

func TestAppendIDsFrom(t *testing.T) {
	tok := loadGolden(t, "mistral-v3")
	text := benchText(t, 200_000)
	want, err := tok.AppendIDs([]uint32{7}, text, EncodeOptions{AddSpecialTokens: true})
	require.NoError(t, err)
	for _, r := range []io.Reader{strings.NewReader(text), iotest.HalfReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
		got, err := tok.AppendIDsFrom([]uint32{7}, r, EncodeOptions{AddSpecialTokens: true})
		require.NoError(t, err)
		require.True(t, equalIDs(want, got))
	}
	got, err := tok.AppendIDsFrom([]uint32{7}, iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(text))), EncodeOptions{})
	require.ErrorIs(t, err, iotest.ErrTimeout)
	require.Equal(t, []uint32{7}, got)
	want, err = tok.AppendIDs(nil, "", EncodeOptions{AddSpecialTokens: true})
	require.NoError(t, err)
	got, err = tok.AppendIDsFrom(nil, strings.NewReader(""), EncodeOptions{AddSpecialTokens: true})
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestCharactersAtCuts: what cuts rely on holds for each character in each
// normal form.
func TestCharactersAtCuts(t *testing.T) {
	oneGoroutine(t)
	u := unidata.Load()
	normal := func(f unidata.Form, s string) []rune { return []rune(string(u.AppendNormal(nil, f, s, new([]rune)))) }
	for _, f := range []unidata.Form{unidata.NFC, unidata.NFD, unidata.NFKC, unidata.NFKD} {
		for r := rune(0); r <= 0x10FFFF; r++ {
			if 0xD800 <= r && r <= 0xDFFF {
				continue
			}
			is := normal(f, string(r))
			last := is[len(is)-1]
			if u.Flags(r)&unidata.Space == 0 {
				require.Zero(t, u.Flags(last)&unidata.Space, "%U in form %d ends with white space", r, f)
			}
			if steady(r) && (r < 0x80 || f == unidata.NFC || f == unidata.NFKC) {
				require.NotZero(t, u.Flags(last)&(unidata.L|unidata.N), "%U in form %d ends with no letter or digit", r, f)
			}
		}
		for _, r := range widePunctuation + asciiSpace {
			is := normal(f, string(r))
			require.Len(t, is, 1)
			require.NotEqual(t, '\'', is[0])
			if r >= 0x80 {
				require.NotZero(t, u.Flags(is[0])&unidata.P, "%U in form %d is no punctuation", r, f)
			}
			for _, before := range []string{"a", "é", "e\u0301", "か", "가", "字", "1"} {
				require.Equal(t, append(normal(f, before), is...), normal(f, before+string(r)))
			}
		}
	}
}

// FuzzStream: any text in any pieces gives the ids of the whole.
func FuzzStream(f *testing.F) {
	p := loadPools(f)
	for i := range 30 {
		f.Add(p.text(i), uint64(i))
	}
	var loaded []*Tokenizer
	for _, name := range []string{"tiny", "qwen3", "anthropic", "mistral-v3", "mistral-v3-first"} {
		loaded = append(loaded, loadGolden(f, name))
	}
	all := variants(f)
	for _, name := range []string{"flags", "lower-first", "nfd", "nfkd-lower", "prefix-space", "tekken", "digits", "metaspace-always-split", "spm-nfkc-lower", "spm-normalized-tokens"} {
		loaded = append(loaded, all[name](f))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		for _, tok := range loaded {
			s, err := tok.NewStream(EncodeOptions{})
			require.NoError(t, err)
			got, _ := streamed(t, s, r, text)
			require.True(t, equalIDs(ids(t, tok, text), got), "%q", text)
		}
	})
}
