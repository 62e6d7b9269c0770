package conformance

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWheels: random requests, hashed by the functions in vLLM's wheels
// (testdata/wheel/gen.py), among them eras and combinations that the
// repository's recordings lack: xxhash before 0.17, lookahead with embeddings.
func TestWheels(t *testing.T) {
	provenance, err := os.ReadFile("testdata/wheel/PROVENANCE")
	require.NoError(t, err)
	files := 0
	for line := range bytes.Lines(provenance) {
		var p struct {
			File string
			Sum  string `json:"sha256_of_content"`
		}
		require.NoError(t, json.Unmarshal(line, &p))
		f, err := os.Open(filepath.Join("testdata/wheel", p.File))
		require.NoError(t, err)
		z, err := gzip.NewReader(f)
		require.NoError(t, err)
		data, err := io.ReadAll(z)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		sum := sha256.Sum256(data)
		require.Equal(t, p.Sum, hex.EncodeToString(sum[:]), p.File)
		list, err := Read(bytes.NewReader(data))
		require.NoError(t, err)
		require.Equal(t, Summary{Passed: 240}, Run(t, ours, list...), p.File)
		files++
	}
	have, err := filepath.Glob("testdata/wheel/*.jsonl.gz")
	require.NoError(t, err)
	require.Len(t, have, files, "every file has a line in PROVENANCE")
}
