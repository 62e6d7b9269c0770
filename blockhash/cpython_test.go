package blockhash

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCPython holds encoder and reference against what CPython's own pickler
// wrote (testdata/cpython/PROVENANCE).
func TestCPython(t *testing.T) {
	data, err := os.ReadFile("testdata/cpython/pickle.jsonl")
	require.NoError(t, err)
	provenance, err := os.ReadFile("testdata/cpython/PROVENANCE")
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	require.Contains(t, string(provenance), "sha256: "+hex.EncodeToString(sum[:]))

	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	for _, line := range lines[1:] {
		var c struct {
			Name   string
			Value  any
			Shared bool
			Len    int
			SHA256 string
		}
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		require.NoError(t, d.Decode(&c))
		v := treeOf(t, c.Value)
		ref := refPickle(v, c.Shared)
		require.Len(t, ref, c.Len, "reference: %s", c.Name)
		sum := sha256.Sum256(ref)
		require.Equal(t, c.SHA256, hex.EncodeToString(sum[:]), "reference: %s", c.Name)
		require.True(t, bytes.Equal(ref, encode(&encoder{sharing: c.Shared}, v)), c.Name)
	}
}

// treeOf turns a value of gen.py into a tree.
func treeOf(t *testing.T, v any) node {
	switch v := v.(type) {
	case nil:
		return nil
	case json.Number:
		n, err := v.Int64()
		require.NoError(t, err)
		return n
	case []any:
		l := list{}
		for _, item := range v {
			if m, ok := item.(map[string]any); ok && m["r"] != nil {
				r := treeOf(t, m["r"]).(list)
				for i := range r[2].(int64) {
					l = append(l, (r[0].(int64)+r[1].(int64)*i)%r[3].(int64))
				}
				continue
			}
			l = append(l, treeOf(t, item))
		}
		return l
	case map[string]any:
		n := 1
		if v["n"] != nil {
			n = int(treeOf(t, v["n"]).(int64))
		}
		if s, ok := v["s"].(string); ok {
			return text{strings.Repeat(s, n), v["c"] != nil}
		}
		b, err := hex.DecodeString(v["b"].(string))
		require.NoError(t, err)
		return bytes.Repeat(b, n)
	}
	t.Fatalf("unexpected %T", v)
	return nil
}
