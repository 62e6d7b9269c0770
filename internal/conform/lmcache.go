package conform

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/recorded"
	"github.com/kvatlas/kvatlas/internal/recording"
)

// lmcacheHeader is the first line of a file of LMCache's chunk hashes.
type lmcacheHeader struct {
	LMCache string            `json:"lmcache"`
	VLLM    string            `json:"vllm"`
	Seed    *string           `json:"python_hash_seed"`
	Root    map[string]string `json:"none_hash"`
	Server  map[string]string `json:"token_hasher_none_hash"`
}

// lmcacheLine is a prompt ("case"), the chunks of one by one algorithm ("chunks"), or
// by the hasher of the server ("token_hasher").
type lmcacheLine struct {
	Kind      string          `json:"kind"`
	Name      string          `json:"name"`
	Tokens    []int64         `json:"tokens"`
	Algorithm string          `json:"algorithm"`
	Case      string          `json:"case"`
	ChunkSize int             `json:"chunk_size"`
	Partial   bool            `json:"save_unfull_chunk"`
	Chunks    json.RawMessage `json:"chunks"`
	Hashes    json.RawMessage `json:"hashes"`
}

// hashes returns what LMCache answered, one text a chunk; ok is false where it
// refused.
func (l *lmcacheLine) hashes(tokens int) (all []string, ok bool) {
	if l.Kind == "token_hasher" {
		return all, json.Unmarshal(l.Hashes, &all) == nil
	}
	var chunks [][3]any // start, end, hash
	if json.Unmarshal(l.Chunks, &chunks) != nil {
		return nil, false
	}
	for i, c := range chunks {
		text, ok := c[2].(string)
		start, end := float64(i*l.ChunkSize), float64(min((i+1)*l.ChunkSize, tokens))
		if !ok || c[0] != start || c[1] != end {
			return nil, false
		}
		all = append(all, text)
	}
	return all, true
}

// lmcacheHash checks a file of chunk hashes. Python's own hash ("builtin") is not
// reproduced, and the database's extra keys, which no LMCache passes, are not
// either: both are counted apart.
func lmcacheHash(name string, file []byte) *Result {
	const check = "hash"
	res := &Result{File: name, Check: check}
	var h lmcacheHeader
	prompts := map[string][]int64{}
	found := map[string]int{} // lines by kind and algorithm
	err := recording.Lines(reader(file), func(n int, line []byte) error {
		if n == 1 {
			if err := json.Unmarshal(line, &h); err != nil {
				return err
			}
			res.What = fmt.Sprintf("LMCache %s beside vLLM %s", h.LMCache, h.VLLM)
			return nil
		}
		var l lmcacheLine
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		if l.Kind != "case" {
			found[l.Kind+" "+l.Algorithm]++
		}
		switch {
		case l.Kind == "case":
			prompts[l.Name] = l.Tokens
		case l.Algorithm == "builtin", l.Kind == "extra_keys":
			res.Apart++
		case l.Kind == "chunks" || l.Kind == "token_hasher":
			tokens, ok := prompts[l.Case]
			if !ok {
				return fmt.Errorf("case %q was not given", l.Case)
			}
			if d := h.check(&l, tokens); d != nil {
				d.Where = fmt.Sprintf("%s of %q, chunks of %d, %s%s", l.Kind, l.Case, l.ChunkSize, l.Algorithm, d.Where)
				res.fail(*d)
			} else {
				res.pass()
			}
		default:
			return fmt.Errorf("kind %q is not known", l.Kind)
		}
		return nil
	})
	if err == nil && len(prompts) == 0 {
		err = errors.New("no cases")
	}
	if err != nil {
		return Broken(check, name, err)
	}
	res.What += fmt.Sprintf(", %d prompts", len(prompts))
	res.incomplete(h.missing(found, len(prompts)))
	return res.sound()
}

// missing says which lines are: each algorithm that LMCache offered has every prompt, with
// and without its last chunk that is not full, and extra keys of four kinds.
func (h *lmcacheHeader) missing(found map[string]int, prompts int) (missing []string) {
	want := map[string]int{}
	for algorithm, root := range h.Root {
		if _, err := rootOf(root); err == nil || algorithm == "builtin" {
			want["chunks "+algorithm], want["extra_keys "+algorithm] = 2*prompts, 4
		}
	}
	for algorithm, root := range h.Server {
		if _, err := rootOf(root); err == nil {
			want["token_hasher "+algorithm] = prompts
		}
	}
	for what, n := range want {
		if found[what] < n {
			missing = append(missing, fmt.Sprintf("%s: %d lines of %d", what, n-found[what], n))
		}
	}
	return missing
}

func (h *lmcacheHeader) check(l *lmcacheLine, tokens []int64) *Difference {
	want, answered := l.hashes(len(tokens))
	hasher, err := h.hasher(l)
	p := &blockhash.Prompt{}
	p.Tokens, p.WideTokens = recorded.Tokens(tokens)
	var chain blockhash.Chain
	if err == nil {
		err = hasher.Start(&chain, p)
	}
	if !answered || err != nil {
		if !answered && err != nil {
			return nil // both refuse
		}
		return &Difference{Want: fmt.Sprintf("%d hashes, answered: %v", len(want), answered), Got: fmt.Sprint(err)}
	}
	for i, w := range want {
		key, ok := chain.Next()
		got := strconv.FormatUint(key, 10)
		if strings.HasPrefix(w, "0x") {
			got = "0x" + hex.EncodeToString(chain.Digest())
		}
		if !ok || got != w {
			return &Difference{Where: fmt.Sprintf(", chunk %d", i), Want: w, Got: got}
		}
	}
	if _, more := chain.Next(); more {
		return &Difference{Want: fmt.Sprintf("%d chunks", len(want)), Got: "more"}
	}
	return nil
}

func (h *lmcacheHeader) hasher(l *lmcacheLine) (*blockhash.Hasher, error) {
	engine, roots := "lmcache", h.Root
	if l.Kind == "token_hasher" {
		engine, roots = "lmcache-server", h.Server
	}
	scheme, err := blockhash.SchemeFor(engine, h.LMCache)
	if err != nil {
		return nil, err
	}
	beside, err := blockhash.SchemeFor("vllm", h.VLLM)
	if err != nil {
		return nil, err
	}
	algorithm, err := blockhash.ParseAlgorithm(strings.TrimSuffix(l.Algorithm, "_64bit")) // an alias in LMCache
	if err != nil {
		return nil, err
	}
	o := blockhash.Options{Scheme: scheme, Algorithm: algorithm, BlockSize: l.ChunkSize, PartialChunk: l.Partial, Beside: beside}
	if h.Seed != nil {
		o.Seed = blockhash.SeedText(*h.Seed)
	}
	hasher, err := blockhash.New(o)
	if errors.Is(err, blockhash.ErrRoot) && h.Seed == nil {
		root, err := rootOf(roots[l.Algorithm])
		if err != nil {
			return nil, err
		}
		o.Seed = blockhash.SeedRoot(root)
		return blockhash.New(o)
	}
	return hasher, err
}

// rootOf reads a root as the file has it: digest bytes in hex, or the integer made of
// the first eight, which are all that LMCache chains then.
func rootOf(text string) ([]byte, error) {
	if digits, ok := strings.CutPrefix(text, "0x"); ok {
		return hex.DecodeString(digits)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return append(binary.BigEndian.AppendUint64(nil, n), make([]byte, 8)...), err
}
