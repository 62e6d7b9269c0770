package conformance

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/internal/golden"
)

// ours is the library's own hasher.
func ours(v *Vector) ([][]byte, error) {
	h, err := v.Hasher()
	if err != nil {
		return nil, err
	}
	digests, err := h.AppendDigests(nil, &v.Prompt)
	var list [][]byte
	for ; len(digests) > 0; digests = digests[h.DigestSize():] {
		list = append(list, digests[:h.DigestSize()])
	}
	return list, err
}

func TestOurs(t *testing.T) {
	sum := Run(t, ours)
	require.Zero(t, sum.Failed+sum.Skipped)
	require.Greater(t, sum.Passed, 500)
	require.Len(t, Vectors(), sum.Passed)
}

// TestAll reads every file of the checkout.
func TestAll(t *testing.T) {
	for _, name := range golden.Files(t, "vllm/hash/*.jsonl") {
		list, err := Read(bytes.NewReader(golden.Read(t, name)))
		require.NoError(t, err)
		require.Zero(t, Run(t, ours, list...).Failed)
	}
}

// recorder is a TB that collects.
type recorder struct{ texts []string }

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.texts = append(r.texts, fmt.Sprintf(format, args...))
}

// TestDifferences: a hasher that is wrong, short, or refuses is reported; the
// 64-bit form is accepted; what is not claimed is counted.
func TestDifferences(t *testing.T) {
	list := Vectors()
	i := 0
	for len(list[i].Digests) < 2 {
		i++
	}
	v := list[i]
	for name, c := range map[string]struct {
		hash Hash
		want Summary
		text string
	}{
		"wrong": {func(v *Vector) ([][]byte, error) {
			d, err := ours(v)
			d[1] = bytes.Repeat([]byte{1}, len(d[1]))
			return d, err
		}, Summary{Failed: 1}, "STOP"},
		"short": {func(v *Vector) ([][]byte, error) {
			d, err := ours(v)
			return d[1:][:0], err
		}, Summary{Failed: 1}, "got 0 blocks"},
		"error": {func(v *Vector) ([][]byte, error) { return nil, io.EOF }, Summary{Failed: 1}, "EOF"},
		"skip":  {func(v *Vector) ([][]byte, error) { return nil, ErrSkip }, Summary{Skipped: 1}, ""},
		"keys": {func(v *Vector) ([][]byte, error) {
			d, err := ours(v)
			for i := range d {
				d[i] = d[i][len(d[i])-8:]
			}
			return d, err
		}, Summary{Passed: 1}, ""},
	} {
		var r recorder
		require.Equal(t, c.want, Run(&r, c.hash, v), name)
		require.Contains(t, strings.Join(r.texts, "\n"), c.text, name)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, text := range []string{
		"{", `{"tokens": "x"}`, `{"tokens_formula": {"n": 1000000000000, "m": 1}}`, `{"tokens_formula": {"n": 1}}`,
		`{"prompt_embeds": {"shape": []}}`, `{"prompt_embeds": {"data_b64": "?"}}`, `{"cache_salt_repeat": ["x", 1e12]}`,
		`{"results": {"sha256": {"hashes": ["zz"]}}}`, `{"results": {"sha256": {"wire": ["-1"]}}}`,
	} {
		_, err := Read(strings.NewReader(text))
		require.Error(t, err, text)
		require.True(t, strings.HasPrefix(err.Error(), "conformance: line 1: "), err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"header": true, "engine": "vllm", "version": "0.31.0", "none_hash": {"sha256": "00"}}` + "\n" +
		`{"name": "x", "block_size": 2, "tokens": [1, 2], "results": {"sha256": {"hashes": ["00"], "wire": ["1"]}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Read(strings.NewReader(text))
		if err == nil {
			Run(&recorder{}, ours, append(list, Vector{})...)
		}
	})
}
