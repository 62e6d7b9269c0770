// Package golden reads the recorded answers of real engines kept in the
// checkout's testdata folder.
//
// Names are logical: slash-separated paths below testdata without the ".gz"
// of the stored file, such as "vllm/hash/vllm-0.31.0-seed0.jsonl". Stored
// files may or may not be compressed; readers cannot tell.
//
// testdata is a module of its own, so that importers of this one do not
// download it. Programs that use this package therefore run from a checkout
// only, and get [ErrNoData] elsewhere.
//
// All functions are safe for concurrent use and keep no state besides the
// folder's location.
package golden

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

type constError string

func (e constError) Error() string { return string(e) }

// ErrNoData is returned when no testdata folder can be found: the program
// neither was built from a checkout that still exists nor runs inside one.
const ErrNoData = constError("golden: no testdata: it is not part of the module's download; run this from a checkout of the repository")

// TB is the part of [testing.TB] that this package needs. It is spelled out
// so that programs do not link package testing.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// marker is the file by which a testdata folder is recognized.
const marker = "PROVENANCE"

// Dir returns the path of the testdata folder. It looks beside this source
// file first, then upward from the working directory. The error is
// [ErrNoData] when neither has it.
func Dir() (string, error) { return dirOnce() }

var dirOnce = sync.OnceValues(findDir)

func findDir() (string, error) {
	// With -trimpath the file name is no path on this machine.
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if dir, ok := at(filepath.Join(filepath.Dir(file), "..", "..")); ok {
			return dir, nil
		}
	}
	return searchUpward()
}

// searchUpward looks for testdata in the working directory and its parents.
func searchUpward() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("%w (no working directory: %v)", ErrNoData, err)
	}
	for {
		if data, ok := at(dir); ok {
			return data, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", ErrNoData
		}
		dir = parent
	}
}

// at returns root's testdata folder if it is ours.
func at(root string) (string, bool) {
	dir := filepath.Join(root, "testdata")
	_, err := os.Stat(filepath.Join(dir, marker))
	return dir, err == nil
}

// Names returns the logical names that match pattern, sorted. The pattern is
// that of [path.Match], applied to whole names, so that "*" stays within one
// path segment. No match gives an empty result, not an error; a malformed
// pattern gives [path.ErrBadPattern].
func Names(pattern string) ([]string, error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("golden: pattern %q: %w", pattern, err)
	}
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	var names []string
	err = fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimSuffix(p, ".gz")
		if ok, _ := path.Match(pattern, name); ok {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("golden: %w", err)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Open opens the file of a logical name for reading, decompressed. The
// caller closes it. An unknown name gives an error that wraps
// [fs.ErrNotExist].
func Open(name string) (io.ReadCloser, error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	if !fs.ValidPath(name) {
		return nil, fmt.Errorf("golden: %q is no name of a file below testdata", name)
	}
	file := filepath.Join(dir, filepath.FromSlash(name))
	f, err := os.Open(file)
	if err == nil {
		return f, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("golden: %w", err)
	}
	f, zerr := os.Open(file + ".gz")
	if zerr != nil {
		return nil, fmt.Errorf("golden: no file %s or %[1]s.gz below testdata: %w", name, fs.ErrNotExist)
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("golden: %s.gz: %w", name, err)
	}
	return &zipped{z, f}, nil
}

// zipped closes the file together with its decompressor.
type zipped struct {
	*gzip.Reader
	file *os.File
}

func (z *zipped) Close() error {
	return errors.Join(z.Reader.Close(), z.file.Close())
}

// ReadFile returns the whole content of the file of a logical name,
// decompressed. The slice is the caller's.
func ReadFile(name string) ([]byte, error) {
	r, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		return nil, fmt.Errorf("golden: %s: %w", name, err)
	}
	return b.Bytes(), nil
}

// Files is [Names] for tests: it fails t when nothing matches, so that a
// renamed folder cannot turn a test into one that tests nothing.
func Files(t TB, pattern string) []string {
	t.Helper()
	names, err := Names(pattern)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if len(names) == 0 {
		t.Fatalf("golden: no file matches %q", pattern)
	}
	return names
}

// Read is [ReadFile] for tests: it fails t on an error.
func Read(t TB, name string) []byte {
	t.Helper()
	b, err := ReadFile(name)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return b
}
