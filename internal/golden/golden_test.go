package golden

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

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
	file := Read(t, marker)
	lines, err := ParseProvenance(file)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := FormatProvenance(lines); err != nil || !bytes.Equal(again, file) {
		t.Errorf("PROVENANCE is not sorted, or not written as FormatProvenance writes it (%v)", err)
	}
	var listed []string
	for _, p := range lines {
		listed = append(listed, p.File)
		if p.Engine == "" || p.Generator == "" || p.Command == "" {
			t.Errorf("%s: line without engine, generator or command", p.File)
		}
		if p.Date != nil {
			if _, err := time.Parse(time.DateOnly, *p.Date); err != nil {
				t.Errorf("%s: %v", p.File, err)
			}
		}
		if dir, _ := path.Split(p.Generator); path.Base(dir) == "gen" {
			if _, err := ReadFile(p.Generator); err != nil {
				t.Errorf("%s: generator: %v", p.File, err)
			}
		}
		content, err := ReadFile(p.File)
		if err != nil {
			t.Errorf("PROVENANCE names a file that is not there: %v", err)
		} else if err := p.Check(content); err != nil {
			t.Error(err)
		}
	}
	for name, n := range counts(listed) {
		if n > 1 {
			t.Errorf("PROVENANCE names %s %d times", name, n)
		}
	}
	for name, n := range counts(dataFiles(t)) {
		if n > 1 {
			t.Errorf("testdata/%s is there twice, compressed and not", name)
		}
		if !slices.Contains(listed, name) {
			t.Errorf("testdata/%s has no line in PROVENANCE", name)
		}
	}
}

func counts(names []string) map[string]int {
	n := make(map[string]int, len(names))
	for _, name := range names {
		n[name]++
	}
	return n
}

func TestProvenanceCheck(t *testing.T) {
	p := Provenance{File: "x"}
	p.Sum([]byte("abc"))
	for content, ok := range map[string]bool{"abc": true, "abd": false, "ab": false, "": false} {
		if err := p.Check([]byte(content)); (err == nil) != ok {
			t.Errorf("Check(%q): %v", content, err)
		}
	}
	for _, bad := range []string{"{", "[]", `{"file":1}`, `{"fil":"a"}`, "{}\nx"} {
		if lines, err := ParseProvenance([]byte(bad)); err == nil {
			t.Errorf("ParseProvenance(%q): %v", bad, lines)
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
