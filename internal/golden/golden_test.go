package golden

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// provenance is one line of testdata/PROVENANCE.
type provenance struct {
	File      string  // logical name
	Engine    string  // whose answers these are
	Version   string  // its release
	Generator string  // what wrote the file
	Command   string  // how it was run
	Date      *string // null where the maker did not note it
	Edits     string  // what was changed afterwards
	Beside    string  // another engine it ran in
	SHA256    string  // of the uncompressed content
	Size      int     // uncompressed bytes
}

func readProvenance(t *testing.T) []provenance {
	t.Helper()
	var entries []provenance
	lines := bufio.NewScanner(bytes.NewReader(Read(t, "PROVENANCE")))
	for lines.Scan() {
		var p provenance
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil {
			t.Fatalf("PROVENANCE: %v in %s", err, lines.Text())
		}
		entries = append(entries, p)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return entries
}

// dataFiles lists every file that must have an entry: all of testdata except
// prose, the module file and the generators.
func dataFiles(t *testing.T) []string {
	t.Helper()
	dir, err := Dir()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	err = fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "gen":
			return fs.SkipDir
		case d.IsDir() || path.Ext(p) == ".md" || p == "go.mod" || p == marker:
			return nil
		}
		names = append(names, strings.TrimSuffix(p, ".gz"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// The recorded answers must not drift: change the code, not the answers. New
// engine behaviour is a new file with an entry of its own.
func TestProvenance(t *testing.T) {
	var listed []string
	for _, p := range readProvenance(t) {
		listed = append(listed, p.File)
		if p.Engine == "" || p.Generator == "" || p.Command == "" {
			t.Errorf("%s: entry without engine, generator or command", p.File)
		}
		if dir, gen := path.Split(p.Generator); path.Base(dir) == "gen" {
			if _, err := ReadFile(p.Generator); err != nil {
				t.Errorf("%s: generator %s: %v", p.File, gen, err)
			}
		}
		content, err := ReadFile(p.File)
		if err != nil {
			t.Errorf("PROVENANCE names a file that is not there: %v", err)
			continue
		}
		sum := sha256.Sum256(content)
		if got := hex.EncodeToString(sum[:]); got != p.SHA256 || len(content) != p.Size {
			t.Errorf("%s: %d bytes with sum %s, PROVENANCE says %d and %s",
				p.File, len(content), got, p.Size, p.SHA256)
		}
	}
	if !slices.IsSorted(listed) || len(slices.Compact(slices.Clone(listed))) != len(listed) {
		t.Error("PROVENANCE is not sorted by file, or names one twice")
	}
	for _, name := range dataFiles(t) {
		if _, ok := slices.BinarySearch(listed, name); !ok {
			t.Errorf("testdata/%s has no entry in PROVENANCE", name)
		}
	}
}

func TestNames(t *testing.T) {
	names := Files(t, "vllm/hash/*-seed0.jsonl")
	if !slices.IsSorted(names) || !slices.Contains(names, "vllm/hash/vllm-0.31.0-seed0.jsonl") {
		t.Errorf("names: %v", names)
	}
	// "*" stays within a segment; names have no ".gz".
	for _, pattern := range []string{"vllm/*.jsonl", "vllm/hash/*.gz", "*", "none/*"} {
		for _, name := range must(Names(pattern)) {
			if strings.Count(name, "/") != strings.Count(pattern, "/") || path.Ext(name) == ".gz" {
				t.Errorf("pattern %q gives %s", pattern, name)
			}
		}
	}
	if _, err := Names("["); !errors.Is(err, path.ErrBadPattern) {
		t.Errorf("bad pattern: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, name := range []string{"vllm/hash/none.jsonl", "", "../go.mod", "/etc/hosts", "vllm/../PROVENANCE", "vllm"} {
		if b, err := ReadFile(name); err == nil {
			t.Errorf("ReadFile(%q) gives %d bytes", name, len(b))
		}
	}
	if _, err := Open("vllm/hash/none.jsonl"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

// Outside a checkout the error says what is missing.
func TestSearchUpward(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b")
	for _, dir := range []string{deep, filepath.Join(root, "testdata")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(deep)
	if dir, err := searchUpward(); !errors.Is(err, ErrNoData) {
		t.Fatalf("found %s: %v", dir, err)
	}
	if err := os.WriteFile(filepath.Join(root, "testdata", marker), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dir, err := searchUpward()
	if err != nil {
		t.Fatal(err)
	}
	if rel, err := filepath.Rel(dir, deep); err != nil || rel != filepath.Join("..", "a", "b") {
		t.Errorf("found %s from %s", dir, deep)
	}
}

// failing records what a test would be told.
type failing struct{ message string }

func (f *failing) Helper()                        {}
func (f *failing) Fatalf(format string, _ ...any) { f.message = format; panic(f) }

func TestFilesFailsOnNoMatch(t *testing.T) {
	var tb failing
	defer func() {
		if recover() == nil || !strings.Contains(tb.message, "no file matches") {
			t.Errorf("an empty match passes: %q", tb.message)
		}
	}()
	Files(&tb, "vllm/nothing/*.jsonl")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
