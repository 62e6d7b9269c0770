package tokenize

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

var wholeOptions = Options{IgnoreTruncation: true, IgnorePadding: true}

// TestBinary: what is read from the compact form gives the same ids, and the
// same compact form.
func TestBinary(t *testing.T) {
	oneGoroutine(t)
	p := loadPools(t)
	for name, load := range tokenizers(t) {
		t.Run(name, func(t *testing.T) {
			tok := load(t)
			form, err := tok.AppendBinary([]byte("before"))
			require.NoError(t, err)
			form = form[len("before"):]
			again, err := LoadBinary(form, tok.source, wholeOptions)
			require.NoError(t, err)
			second, err := again.AppendBinary(nil)
			require.NoError(t, err)
			require.Equal(t, sha256.Sum256(form), sha256.Sum256(second))
			s, streamErr := tok.NewStream(EncodeOptions{})
			s2, streamErr2 := again.NewStream(EncodeOptions{})
			require.Equal(t, streamErr, streamErr2)
			r := rand.New(rand.NewPCG(3, 4))
			for i := range 1500 {
				text, o := p.text(i), EncodeOptions{AddSpecialTokens: i%2 == 0}
				want, err := tok.AppendIDs(nil, text, o)
				require.NoError(t, err)
				got, err := again.AppendIDs(nil, text, o)
				require.NoError(t, err)
				require.True(t, equalIDs(want, got), "%q", text)
				if i%10 > 0 {
					continue
				}
				places, err := tok.AppendTokens(nil, text, o)
				places2, err2 := again.AppendTokens(nil, text, o)
				require.Equal(t, err, err2)
				require.Equal(t, places, places2)
				want, err = tok.AppendPairIDs(nil, text, "b "+text, o)
				require.NoError(t, err)
				got, err = again.AppendPairIDs(nil, text, "b "+text, o)
				require.NoError(t, err)
				require.Equal(t, want, got)
				if streamErr == nil {
					want, _ = streamed(t, s, r, text)
					got, _ = streamed(t, s2, r, text)
					require.True(t, equalIDs(want, got), "%q", text)
				}
			}
			t.Logf("%d bytes", len(form))
		})
	}
}

// TestBinaryVersion pins the form: files written by earlier builds must mean the same or
// be refused. Where this fails, raise the number in binaryVersion first.
func TestBinaryVersion(t *testing.T) {
	h := sha256.New()
	for _, name := range []string{"tiny", "qwen3", "mistral-v3"} {
		form, err := loadGolden(t, name).AppendBinary(nil)
		require.NoError(t, err)
		h.Write(form)
	}
	require.Equal(t, "kvatlas tokenizer 2\n", binaryVersion)
	require.Equal(t, "1eedc2a29bcfa186d4bbd8b505ae8465c817b6abec498ef4f273de5597c1cae1", fmt.Sprintf("%x", h.Sum(nil)))
}

func TestBinaryRefused(t *testing.T) {
	tok := loadGolden(t, "tiny")
	form, err := tok.AppendBinary(nil)
	require.NoError(t, err)
	refused := func(data []byte, source [sha256.Size]byte, o Options, want string) {
		t.Helper()
		_, err := LoadBinary(data, source, o)
		why, ok := errors.AsType[*CacheError](err)
		require.True(t, ok, "%v", err)
		require.Contains(t, why.Reason, want)
	}
	_, err = LoadBinary(form, sha256.Sum256(tokenizerJSON(t, "tiny")), wholeOptions)
	require.NoError(t, err)
	refused(form, sha256.Sum256(nil), wholeOptions, "another tokenizer.json")
	refused(nil, tok.source, wholeOptions, "it is none")
	refused([]byte("kvatlas tokenizer 1\n"), tok.source, wholeOptions, "another version")
	_, err = LoadBinary(form, tok.source, Options{MaxTextBytes: -1})
	require.ErrorContains(t, err, "negative")
	for i := 0; i < len(form); i += 1 + i/3 {
		bad := append([]byte(nil), form...)
		bad[i] ^= 1 << (i % 8)
		refused(bad, tok.source, wholeOptions, "")
		refused(form[:i], tok.source, wholeOptions, "")
	}
	refused(append(append([]byte(nil), form...), 0), tok.source, wholeOptions, "damaged")
}

// TestBinaryOptions: the compact form is refused for what its tokenizer.json
// is refused for, whatever it was loaded with when the form was made.
func TestBinaryOptions(t *testing.T) {
	for _, change := range []string{`{}`, `{"truncation":{"max_length":512}}`, `{"padding":{"pad_id":0}}`, `{"truncation":{"max_length":512},"padding":{"pad_id":0}}`} {
		data := changed(t, "tiny", change)
		tok, err := Load(data, wholeOptions)
		require.NoError(t, err)
		form, err := tok.AppendBinary(nil)
		require.NoError(t, err)
		for i := range 4 {
			o := Options{IgnoreTruncation: i&1 > 0, IgnorePadding: i&2 > 0}
			_, want := Load(data, o)
			_, err := LoadBinary(form, tok.source, o)
			require.Equal(t, want, err, "%s %+v", change, o)
			if _, refused := errors.AsType[*UnsupportedError](err); refused {
				continue
			}
			require.NoError(t, err)
			tok, err := Load(data, o) // a form made with fewer options loads with all
			require.NoError(t, err)
			again, err := tok.AppendBinary(nil)
			require.NoError(t, err)
			require.Equal(t, form, again)
		}
	}
}

// FuzzLoadBinary: no content makes a panic or an endless loop, even with the
// right sum.
func FuzzLoadBinary(f *testing.F) {
	tok, err := Load([]byte(`{"version":"1.0","added_tokens":[{"id":3,"content":"<s>","normalized":true,"special":true}],"normalizer":{"type":"NFC"},`+
		`"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true},"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`), Options{})
	require.NoError(f, err)
	f.Add(payload(f, tok))
	tok, err = Load([]byte(`{"version":"1.0","pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},`+
		`"model":{"type":"BPE","unk_token":"?","fuse_unk":true,"vocab":{"a":0,"▁":1,"▁a":2,"?":3},"merges":[["▁","a"]]}}`), Options{})
	require.NoError(f, err)
	f.Add(payload(f, tok))
	f.Add([]byte("\x00\x00\x01\x00\x00\xff\xff\xff\xff\x0f")) // a length that is negative in an int of 32 bits
	f.Fuzz(func(t *testing.T, content []byte) {
		source := sha256.Sum256(nil)
		rest := append(source[:], content...)
		sum := sha256.Sum256(rest)
		tok, err := LoadBinary(append(append([]byte(binaryVersion), sum[:]...), rest...), source, Options{})
		if err != nil {
			require.ErrorAs(t, err, new(*CacheError))
			return
		}
		for _, text := range []string{"", "ab a <s>b\u0301", " ▁\n\xff漢"} {
			_, err := tok.AppendIDs(nil, text, EncodeOptions{AddSpecialTokens: true})
			require.NoError(t, err)
			_, _ = tok.AppendTokens(nil, text, EncodeOptions{})
		}
		if s, err := tok.NewStream(EncodeOptions{}); err == nil {
			_, err = s.AppendIDs(nil, []byte("a b "))
			require.NoError(t, err)
		}
	})
}

func payload(t testing.TB, tok *Tokenizer) []byte {
	t.Helper()
	form, err := tok.AppendBinary(nil)
	require.NoError(t, err)
	return form[len(binaryVersion)+sums:]
}
