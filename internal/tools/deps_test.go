package tools

import (
	"slices"
	"testing"
)

// allowed lists the modules that importers of the root module may get into
// their binaries, and why.
var allowed = map[string]string{
	"github.com/zeebo/xxh3":               "XXH3: a hash algorithm of the engines; content keys",
	"github.com/klauspost/cpuid/v2":       "of zeebo/xxh3",
	"golang.org/x/sys":                    "what the processor can do, for radix's digests",
	"github.com/cespare/xxhash/v2":        "XXH64: hashes of LoRA names and of other indexers",
	"github.com/vmihailenco/msgpack/v5":   "event payloads",
	"github.com/vmihailenco/tagparser/v2": "of vmihailenco/msgpack",
}

// allowedInTests lists those that only tests of the root module use. They
// reach importers' module graphs too, so they count.
var allowedInTests = map[string]string{
	"github.com/stretchr/testify":   "assertions",
	"github.com/davecgh/go-spew":    "of testify",
	"github.com/pmezard/go-difflib": "of testify",
	"go.yaml.in/yaml/v3":            "of testify",
	"gopkg.in/yaml.v3":              "of testify",
}

const self = "github.com/kvatlas/kvatlas"

// dependencies lists the modules of all packages outside the standard library
// that are built into the root module's packages, or with test into their
// tests.
func dependencies(t *testing.T, test bool) []string {
	t.Helper()
	args := []string{"list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}
	if test {
		args = append(args, "-test")
	}
	found := run(t, []string{"CGO_ENABLED=0"}, "go", append(args, "./...")...)
	slices.Sort(found)
	found = slices.Compact(found)
	if !slices.Contains(found, self) {
		t.Fatalf("go list does not list the module itself: %q", found)
	}
	return slices.DeleteFunc(found, func(path string) bool { return path == self })
}

func TestDependencies(t *testing.T) {
	for _, path := range dependencies(t, false) {
		if allowed[path] == "" {
			t.Errorf("%s reaches importers and is not in the list of allowed modules", path)
		}
	}
	for _, path := range dependencies(t, true) {
		if allowed[path] == "" && allowedInTests[path] == "" {
			t.Errorf("%s reaches importers' module graphs by a test and is not in the list of allowed modules", path)
		}
	}
}

// No package of the root module or of its dependencies has cgo code, even
// where cgo is on. (Some of the standard library has; it does without when
// cgo is off.)
func TestNoCgo(t *testing.T) {
	const format = `{{if and (not .Standard) .CgoFiles}}{{.ImportPath}} {{.CgoFiles}}{{end}}`
	for _, line := range run(t, []string{"CGO_ENABLED=1"}, "go", "list", "-deps", "-test", "-f", format, "./...") {
		t.Errorf(`imports "C": %s`, line)
	}
}
