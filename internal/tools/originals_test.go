package tools

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// originals maps folders of testdata to those of the collection they were
// copied from.
var originals = map[string]string{
	"vllm/hash":      "hash",
	"vllm/server":    "server",
	"vllm/truth":     "truth",
	"vllm/scheduler": "scheduler",
	"vllm/tiers":     "tiers",
	"sglang":         "sglang",
	"lmcache":        "lmcache",
	"tokenize":       "tokenize",
}

// Where the collection lies beside the checkout, the copies must equal it.
// Elsewhere the sums in PROVENANCE, which other tests check, stand for it.
func TestCopiesEqualOriginals(t *testing.T) {
	collection := filepath.Join(root, "..", "shared", "golden")
	if _, err := os.Stat(collection); errors.Is(err, fs.ErrNotExist) {
		t.Skip("no collection of originals beside the checkout; the sums in testdata/PROVENANCE are checked all the same")
	}
	for dir, from := range originals {
		data := filepath.Join(root, "testdata", filepath.FromSlash(dir))
		compared := 0
		err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				if d.Name() == "gen" {
					return fs.SkipDir
				}
				return nil
			}
			rel, err := filepath.Rel(data, path)
			if err != nil {
				return err
			}
			if filepath.Ext(rel) == ".md" {
				return nil // prose is ours to improve
			}
			name := strings.TrimSuffix(rel, ".gz")
			want, err := content(filepath.Join(collection, from, name))
			if errors.Is(err, fs.ErrNotExist) {
				return nil // made here
			}
			if err != nil {
				return err
			}
			got, err := content(filepath.Join(data, name))
			if err != nil {
				return err
			}
			compared++
			if !bytes.Equal(got, want) {
				t.Errorf("testdata/%s/%s is not the original", dir, filepath.ToSlash(name))
			}
			return nil
		})
		if err != nil {
			t.Errorf("testdata/%s: %v", dir, err)
		}
		if compared == 0 {
			t.Errorf("testdata/%s: nothing to compare", dir)
		}
	}
}

// content reads a file, or its compressed form where only that exists.
func content(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	b, err = os.ReadFile(path + ".gz")
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
