package conform

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/recorded"
	"github.com/kvatlas/kvatlas/internal/recording"
)

// Hash checks a file of block hashes: every case under every algorithm the
// engine was asked for, in one shot, lazily, and as a prefix that is extended.
func Hash(name string, r io.Reader) *Result {
	const check = "hash"
	file, err := io.ReadAll(r)
	if err != nil {
		return Broken(check, name, err)
	}
	switch engineOf(file) {
	case "sglang":
		return sglangHash(name, file)
	case "lmcache":
		if kind := lmcacheFile(file); kind != "hash" {
			return Broken(check, name, fmt.Errorf("a file of %s holds no hashes", kind))
		}
		return lmcacheHash(name, file)
	}
	f, err := recording.ReadHash(reader(file))
	if err != nil {
		return Broken(check, name, err)
	}
	seed := "seed unset"
	if f.Seed != nil {
		seed = fmt.Sprintf("seed %q", *f.Seed)
	}
	res := &Result{File: name, Check: check, What: fmt.Sprintf("%s %s, %s, %d prompts", f.Engine, f.Version, seed, len(f.Cases))}
	scheme, err := blockhash.SchemeFor(f.Engine, f.Version)
	if err != nil {
		return Broken(check, name, err)
	}
	if scheme.Assumed() {
		res.note("release %s is newer than any that was checked: taken as %s", f.Version, scheme)
	}
	for i := range f.Cases {
		c := &f.Cases[i]
		algorithms := make([]string, 0, len(c.Results))
		for a := range c.Results {
			algorithms = append(algorithms, a)
		}
		slices.Sort(algorithms)
		for _, a := range algorithms {
			if d := hashCase(f, c, a, scheme); d != nil {
				d.Where = fmt.Sprintf("case %q, %s%s", c.Name, a, d.Where)
				res.fail(*d)
			} else {
				res.pass()
			}
		}
		if len(algorithms) == 0 {
			res.fail(Difference{Where: fmt.Sprintf("case %q", c.Name), Want: "results", Got: "none"})
		}
	}
	return res.sound()
}

// hashCase returns nil when the case comes out as the engine had it.
func hashCase(f *recording.HashFile, c *recording.HashCase, algorithm string, scheme blockhash.Scheme) *Difference {
	want := c.Results[algorithm]
	h, err := hasherFor(f, c, algorithm, scheme)
	var got []byte
	if err == nil {
		got, err = h.AppendDigests(nil, recorded.Prompt(c))
	}
	if want.Error != "" || err != nil {
		if want.Error != "" && errors.Is(err, blockhash.ErrPrompt) {
			return nil // both refuse the prompt
		}
		d := &Difference{Want: fmt.Sprintf("%d hashes", len(want.Hashes)), Got: fmt.Sprint(err)}
		if want.Error != "" {
			d.Want = "a refusal of the prompt: the engine gave " + want.Error
			if err == nil {
				d.Got = fmt.Sprintf("%d hashes", len(got)/h.DigestSize())
			}
		}
		return d
	}
	if d := sameDigests(h, c, want, got); d != nil {
		return d
	}
	keys, err := h.AppendKeys(nil, recorded.Prompt(c))
	if d := sameKeys(want, keys, err, ", 64-bit form"); d != nil {
		return d
	}
	var chain blockhash.Chain
	if err := h.Start(&chain, recorded.Prompt(c)); err != nil {
		return &Difference{Where: ", lazily", Want: "a chain", Got: err.Error()}
	}
	if d := sameKeys(want, drain(&chain, nil), nil, ", lazily"); d != nil {
		return d
	}
	return extended(h, c, want)
}

// extended hashes a prefix of the prompt and then the rest, cut in the middle
// of a block. Prompt embeds cannot grow, so such a prompt is left whole.
func extended(h *blockhash.Hasher, c *recording.HashCase, want recording.HashResult) *Difference {
	if c.Embeds != nil || len(c.Tokens) < 2 {
		return nil
	}
	p := recorded.Prompt(c)
	cut := len(c.Tokens)/2 | 1
	whole := *p
	var rest []uint32
	var wide []int64
	if p.WideTokens != nil {
		p.WideTokens, wide = whole.WideTokens[:cut], whole.WideTokens[cut:]
	} else {
		p.Tokens, rest = whole.Tokens[:cut], whole.Tokens[cut:]
	}
	var chain blockhash.Chain
	if err := h.Start(&chain, p); err != nil {
		return &Difference{Where: ", extended", Want: "a chain", Got: err.Error()}
	}
	keys := drain(&chain, nil)
	if wide != nil {
		chain.ExtendWide(wide)
	} else {
		chain.Extend(rest)
	}
	keys = drain(&chain, keys)
	return sameKeys(want, keys, nil, fmt.Sprintf(", extended after %d tokens", cut))
}

func drain(c *blockhash.Chain, keys []uint64) []uint64 {
	for {
		k, ok := c.Next()
		if !ok {
			return keys
		}
		keys = append(keys, k)
	}
}

func hasherFor(f *recording.HashFile, c *recording.HashCase, algorithm string, scheme blockhash.Scheme) (*blockhash.Hasher, error) {
	a, err := blockhash.ParseAlgorithm(algorithm)
	if err != nil {
		return nil, err
	}
	o := blockhash.Options{
		Scheme: scheme, Algorithm: a, BlockSize: c.BlockSize, Lookahead: c.Lookahead, SharedObjects: c.SharedObjects,
	}
	if f.Seed != nil {
		o.Seed = blockhash.SeedText(*f.Seed)
	}
	h, err := blockhash.New(o)
	if err == nil {
		if want, got := f.NoneHash[algorithm], h.AppendRoot(nil); len(want) > 0 && !bytes.Equal(got, want) {
			return nil, fmt.Errorf("root %x, the engine has %x", got, want)
		}
		return h, nil
	}
	if f.Seed == nil {
		// A random root: nothing but the recording can tell it.
		o.Seed = blockhash.SeedRoot(f.NoneHash[algorithm])
		return blockhash.New(o)
	}
	return nil, err
}

func sameDigests(h *blockhash.Hasher, c *recording.HashCase, want recording.HashResult, got []byte) *Difference {
	size := h.DigestSize()
	if len(got) != size*len(want.Hashes) {
		return &Difference{Want: fmt.Sprintf("%d hashes", len(want.Hashes)), Got: fmt.Sprintf("%d hashes", len(got)/size)}
	}
	for i, w := range want.Hashes {
		if g := hex.EncodeToString(got[i*size : (i+1)*size]); g != w {
			return &Difference{
				Where: fmt.Sprintf(", block %d", i), Want: w, Got: g,
				About: about(h, c, i),
			}
		}
	}
	return nil
}

// about says what was hashed for a block, ours byte by byte, and what the engine
// says it put in.
func about(h *blockhash.Hasher, c *recording.HashCase, block int) string {
	text := fmt.Sprintf("block size %d, tokens %v", c.BlockSize, clip(c.Tokens[block*c.BlockSize:]))
	if c.ExtraKeys != nil {
		text += fmt.Sprintf(", the engine's extra keys %s", c.ExtraKeys)
	}
	if x, err := h.Explain(recorded.Prompt(c), block); err == nil {
		text += "\n" + strings.TrimRight(x.String(), "\n")
	}
	return text
}

func sameKeys(want recording.HashResult, got []uint64, err error, how string) *Difference {
	if err != nil {
		return &Difference{Where: how, Want: fmt.Sprintf("%d hashes", len(want.Hashes)), Got: err.Error()}
	}
	if len(got) != len(want.Hashes) {
		return &Difference{Where: how, Want: fmt.Sprintf("%d hashes", len(want.Hashes)), Got: fmt.Sprintf("%d hashes", len(got))}
	}
	for i, g := range got {
		w, err := wireKey(want, i)
		if err != nil || g != w {
			return &Difference{Where: fmt.Sprintf("%s, block %d", how, i), Want: fmt.Sprint(w), Got: fmt.Sprint(g)}
		}
	}
	return nil
}

// wireKey is the 64-bit form of a hash: as recorded, or the end of the digest
// where the engine was set to send digests.
func wireKey(want recording.HashResult, i int) (uint64, error) {
	if i < len(want.Wire) {
		if k, err := strconv.ParseUint(want.Wire[i], 10, 64); err == nil && len(want.Wire[i]) != len(want.Hashes[i]) {
			return k, nil
		}
	}
	digest, err := hex.DecodeString(want.Hashes[i])
	return blockhash.KeyOf(digest), err
}

func clip(tokens []int64) string {
	if len(tokens) > 16 {
		return fmt.Sprint(tokens[:16]) + "..."
	}
	return fmt.Sprint(tokens)
}

func loraNamed(name string) *blockhash.LoRA { return &blockhash.LoRA{Name: name} }
