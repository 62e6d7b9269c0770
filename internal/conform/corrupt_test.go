package conform

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/internal/golden"
)

// corrupted are the checks of SGLang's and LMCache's files.
var corrupted = []struct {
	pattern string
	check   func(name string, file []byte) *Result
	// field is what a value is changed of.
	field string
	// harmless reports a line of which a change shows nothing, with the reason.
	harmless func(line string) string
}{
	{"sglang/hash/*.jsonl", hashOf, `"events": ["`, caseApart},
	{"sglang/truth/*.jsonl", truthOf, `"payload_b64":"`, sglangHarmless},
	{"sglang/truth/*.jsonl", decodeOf, `"payload_b64":"`, sglangHarmless},
	{"sglang/frames/*.jsonl", decodeOf, `"frames":["`, nil},
	{"sglang/frames/*.jsonl", replayOf, `"frames":["`, nil},
	{"lmcache/hash/*.jsonl", hashOf, `"chunks":[[`, pythonHash},
	{"lmcache/messages/*.jsonl", decodeOf, `"payload_b64":"`, nil},
	{"lmcache/kv-events/*.jsonl", decodeOf, `"payload_b64":"`, pythonHash},
	{"lmcache/kv-events/*.jsonl", truthOf, `"payload_b64":"`, pythonHash},
	{"lmcache/lookup/*.jsonl", truthOf, `"layout_info":[["`, nil},
}

func hashOf(name string, file []byte) *Result   { return Hash(name, reader(file)) }
func truthOf(name string, file []byte) *Result  { return Truth(name, reader(file)) }
func replayOf(name string, file []byte) *Result { return Replay(name, reader(file)) }
func decodeOf(name string, file []byte) *Result {
	r, _ := Decode(name, reader(file))
	return r
}

func pythonHash(line string) string {
	if strings.Contains(line, `"builtin"`) {
		return "Python's own hash is not computed"
	}
	return ""
}

// sglangHarmless: what the cache was told changes nothing of what it announced.
func sglangHarmless(line string) string {
	for _, op := range []string{"insert", "evict", "evict_window", "load_back", "reset"} {
		if strings.Contains(line, `"op":"`+op+`"`) {
			return "no consumer sees it"
		}
	}
	return ""
}

// caseApart: cases beside the regular ones are missed by nobody.
func caseApart(line string) string {
	for _, regular := range []string{`"page-`, `"extra-key-0`, `"header"`} {
		if strings.Contains(line, regular) {
			return ""
		}
	}
	return "a case of its own"
}

func TestCorruptedCopiesFail(t *testing.T) {
	for _, c := range corrupted {
		rng := rand.New(rand.NewPCG(20, 26))
		files := golden.Files(t, c.pattern)
		tried := 0
		for _, name := range files {
			file := golden.Read(t, name)
			require.Zero(t, c.check(name, file).Failed, name)
			lines := bytes.SplitAfter(bytes.TrimSuffix(file, []byte("\n")), []byte("\n"))
			for range 6 {
				i := rng.IntN(len(lines))
				if c.harmless != nil && c.harmless(string(lines[i])) != "" {
					continue
				}
				tried++
				for how, changed := range map[string][][]byte{
					"left out": slices.Delete(slices.Clone(lines), i, i+1),
					"cut off":  slices.Replace(slices.Clone(lines), i, i+1, append(slices.Clone(lines[i][:len(lines[i])/2]), '\n')),
				} {
					res := c.check(name, bytes.Join(changed, nil))
					replay := strings.Contains(string(lines[i]), `"op":"replay"`) // says nothing of the messages
					if res.Failed == 0 && !(how == "left out" && (incomplete(res) || replay)) {
						t.Errorf("%s: line %d %s: passes: %.200s", name, i+1, how, lines[i])
					}
				}
				at := bytes.Index(lines[i], []byte(c.field))
				if at < 0 {
					continue
				}
				at += len(c.field)
				end := at + bytes.IndexAny(lines[i][at:], `"]`)
				if end-at < 6 {
					continue
				}
				flipped := bytes.Clone(lines[i])
				if strings.HasPrefix(c.field, `"payload`) {
					at += 16 // the message's time
				}
				if end-at < 6 {
					continue
				}
				k := at + rng.IntN(end-at-3)
				flipped[k] = other(flipped[k])
				res := c.check(name, bytes.Join(slices.Replace(slices.Clone(lines), i, i+1, flipped), nil))
				if res.Failed == 0 {
					t.Errorf("%s: line %d, byte %d flipped: passes: %.300s", name, i+1, k, lines[i])
				}
			}
		}
		require.Greater(t, tried, 4, c.pattern)
	}
}

// TestPartsPass: where lines do not build on each other, some of them are as right as all, and
// a wrong one is as wrong.
func TestPartsPass(t *testing.T) {
	for _, c := range []struct {
		pattern     string
		check       func(name string, file []byte) *Result
		old, wrong  string
		always, one string // lines that others need; a line to be left alone with them
	}{
		{"sglang/hash/*.jsonl", hashOf, `"events": ["`, `"events": ["1`, "", `"page-4-one`},
		{"lmcache/hash/*.jsonl", hashOf, `"chunks":[[0,`, `"chunks":[[1,`, `"kind":"case"`, `sha256_cbor`},
		{"lmcache/messages/*.jsonl", decodeOf, `"decoded":{"`, `"decoded":{"x`, "", `LookupMsg`},
		{"lmcache/kv-events/*.jsonl", decodeOf, `"tokens":[`, `"tokens":[7,`, "", `sha256_cbor`},
	} {
		noted, alone := false, 0
		for _, name := range golden.Files(t, c.pattern) {
			lines := bytes.SplitAfter(golden.Read(t, name), []byte("\n"))
			part := func(keep func(i int, line string) bool) []byte {
				out := bytes.Clone(lines[0])
				for i, line := range lines[1:] {
					if c.always != "" && strings.Contains(string(line), c.always) || keep(i, string(line)) {
						out = append(out, line...)
					}
				}
				return out
			}
			odd := part(func(i int, _ string) bool { return i%2 == 1 })
			res := c.check(name, odd)
			require.Zero(t, res.Failed, "%s: %v", name, res.Differences)
			require.Positive(t, res.Passed, name)
			noted = noted || incomplete(res)
			require.Contains(t, string(odd), c.old, name)
			require.NotZero(t, c.check(name, bytes.ReplaceAll(odd, []byte(c.old), []byte(c.wrong))).Failed, name)

			found := false
			one := part(func(_ int, line string) bool {
				first := !found && strings.Contains(line, c.one)
				found = found || first
				return first
			})
			if res := c.check(name, one); found {
				require.Zero(t, res.Failed, "%s: %v", name, res.Differences)
				require.Equal(t, 1, res.Passed+res.Apart, name)
				alone++
			}
		}
		require.True(t, noted, c.pattern)
		require.Positive(t, alone, c.pattern)
	}
}

// other returns another character of the same kind.
func other(c byte) byte {
	switch {
	case c >= '0' && c < '9', c >= 'a' && c < 'f', c >= 'A' && c < 'Z':
		return c + 1
	case c == '9':
		return '0'
	}
	return 'A'
}
