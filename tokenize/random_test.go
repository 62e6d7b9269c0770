package tokenize

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"path"
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/stretchr/testify/require"
)

// pools is what random texts are made of, see random_texts.py.
type pools struct {
	Pieces map[string][]string `json:"pieces"`
	Modes  [][]string          `json:"modes"`
	Blocks [][2]rune           `json:"blocks"`
}

// splitmix is the generator of random_texts.py.
type splitmix uint64

func (r *splitmix) below(n int) int {
	*r += 0x9E3779B97F4A7C15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return int((z ^ z>>31) % uint64(n))
}

// text makes the text of a number as make() of random_texts.py does.
func (p *pools) text(number int) string {
	r := splitmix(uint64(number)*0x2545F4914F6CDD1D + 20261129)
	mode := p.Modes[r.below(len(p.Modes))]
	var out strings.Builder
	for range 1 + r.below(1+r.below(60)) {
		name := mode[r.below(len(mode))]
		var piece string
		if name == "code points" {
			block := p.Blocks[r.below(len(p.Blocks))]
			var runes []rune
			for range 1 + r.below(6) {
				c := block[0] + rune(r.below(int(block[1]-block[0])+1))
				if 0xD800 <= c && c <= 0xDFFF {
					c = 0xFFFD
				}
				runes = append(runes, c)
			}
			piece = string(runes)
		} else {
			pieces := p.Pieces[name]
			piece = pieces[r.below(len(pieces))]
		}
		if r.below(24) == 0 {
			piece = strings.Repeat(piece, 1+r.below(70))
		}
		if r.below(24) == 0 {
			runes := []rune(piece)
			piece = string(runes[:r.below(len(runes)+1)])
		}
		out.WriteString(piece)
	}
	return out.String()
}

// oneGoroutine skips long comparisons under the race detector, which has
// nothing to find in them; they run without it.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine: compared without the race detector")
	}
}

func loadPools(t testing.TB) *pools {
	t.Helper()
	var p pools
	require.NoError(t, json.Unmarshal(golden.Read(t, "tokenize/random/pools.json"), &p))
	return &p
}

func digest(ids []uint32) string {
	h := sha256.New()
	for _, id := range ids {
		h.Write(binary.LittleEndian.AppendUint32(nil, id))
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// checkDigests encodes the texts of all numbers and compares.
func checkDigests(t *testing.T, tok *Tokenizer, p *pools, file string) {
	t.Helper()
	want := strings.Fields(string(golden.Read(t, file)))
	require.Len(t, want, 10000)
	wrong := 0
	var ids []uint32
	for i, w := range want {
		text := p.text(i)
		var err error
		ids, err = tok.AppendIDs(ids[:0], text, EncodeOptions{AddSpecialTokens: i%2 == 0})
		require.NoError(t, err)
		if digest(ids) != w {
			if wrong++; wrong < 4 {
				t.Errorf("text %d %.300q: %v", i, text, clip(ids))
			}
		}
	}
	require.Zero(t, wrong, "of 10000 texts")
}

// TestRandom compares ten thousand random texts for each vocabulary with
// what the library gave for them.
func TestRandom(t *testing.T) {
	oneGoroutine(t)
	p := loadPools(t)
	for _, file := range golden.Files(t, "tokenize/random/*.txt") {
		name := strings.TrimSuffix(path.Base(file), ".txt")
		if strings.HasPrefix(name, "variant-") || strings.HasPrefix(name, "offsets-") || strings.HasPrefix(name, "pairs-") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			checkDigests(t, loadGolden(t, name), p, file)
		})
	}
}

// TestVariants does the same for tokenizers that differ from a real one in
// single components: those that no vocabulary at hand has.
func TestVariants(t *testing.T) {
	oneGoroutine(t)
	p := loadPools(t)
	for name, load := range variants(t) {
		t.Run(name, func(t *testing.T) {
			checkDigests(t, load(t), p, "tokenize/random/variant-"+name+".txt")
		})
	}
}

// TestPairs compares two thousand pairs of texts for each vocabulary.
func TestPairs(t *testing.T) {
	oneGoroutine(t)
	p := loadPools(t)
	for _, file := range golden.Files(t, "tokenize/random/pairs-*.txt") {
		name := strings.TrimPrefix(strings.TrimSuffix(path.Base(file), ".txt"), "pairs-")
		t.Run(name, func(t *testing.T) {
			var tok *Tokenizer
			if variant, ok := strings.CutPrefix(name, "variant-"); ok {
				tok = variants(t)[variant](t)
			} else {
				tok = loadGolden(t, name)
			}
			want := strings.Fields(string(golden.Read(t, file)))
			require.Len(t, want, 2000)
			for i, w := range want {
				got, err := tok.AppendPairIDs([]uint32{7}, p.text(i), p.text(i+5000), EncodeOptions{AddSpecialTokens: i%2 == 0})
				require.NoError(t, err)
				require.Equal(t, w, digest(got[1:]), "%d %q %q", i, p.text(i), p.text(i+5000))
			}
		})
	}
}

// variants gives what loads each of them.
func variants(t testing.TB) map[string]func(t testing.TB) *Tokenizer {
	t.Helper()
	var list map[string]struct {
		Base    string                     `json:"base"`
		Replace map[string]json.RawMessage `json:"replace"`
		Without []string                   `json:"without"`
	}
	require.NoError(t, json.Unmarshal(golden.Read(t, "tokenize/random/variants.json"), &list))
	loads := make(map[string]func(t testing.TB) *Tokenizer)
	for name, v := range list {
		loads[name] = func(t testing.TB) *Tokenizer {
			config := make(map[string]json.RawMessage)
			require.NoError(t, json.Unmarshal(tokenizerJSON(t, v.Base), &config))
			model := make(map[string]json.RawMessage)
			require.NoError(t, json.Unmarshal(config["model"], &model))
			for key, value := range v.Replace {
				if key != "model" {
					config[key] = value
					continue
				}
				require.NoError(t, json.Unmarshal(value, &model))
			}
			if len(v.Without) > 0 {
				vocab := make(map[string]int)
				require.NoError(t, json.Unmarshal(model["vocab"], &vocab))
				for _, token := range v.Without {
					delete(vocab, token)
				}
				model["vocab"] = marshal(t, vocab)
			}
			config["model"] = marshal(t, model)
			tok, err := Load(marshal(t, config), Options{})
			require.NoError(t, err)
			return tok
		}
	}
	return loads
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return b
}
