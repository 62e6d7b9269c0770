package conformance

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/blockhash"
)

// TestWheels: random requests, hashed by the functions in vLLM's wheels
// (testdata/wheel/gen.py), among them eras and combinations that the
// repository's recordings lack: xxhash before 0.17, lookahead with embeddings.
// The functions were asked for one adapter without a path, which LoRARequest
// refuses in the engine: so do we.
func TestWheels(t *testing.T) {
	provenance, err := os.ReadFile("testdata/wheel/PROVENANCE")
	require.NoError(t, err)
	files, refused := 0, 0
	known := func(v *Vector) ([][]byte, error) {
		got, err := ours(v)
		if l := v.Prompt.LoRA; l != nil && l.Path == "" && errors.Is(err, blockhash.ErrPrompt) {
			refused++
			return nil, ErrSkip
		}
		return got, err
	}
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
		digest := sha256.Sum256(data)
		require.Equal(t, p.Sum, hex.EncodeToString(digest[:]), p.File)
		list, err := Read(bytes.NewReader(data))
		require.NoError(t, err)
		sum := Run(t, known, list...)
		require.Zero(t, sum.Failed)
		require.Equal(t, 240, sum.Passed+sum.Skipped, p.File)
		files++
	}
	require.Equal(t, 4, refused, "one prompt, four algorithms")
	have, err := filepath.Glob("testdata/wheel/*.jsonl.gz")
	require.NoError(t, err)
	require.Len(t, have, files, "every file has a line in PROVENANCE")
}
