package tools

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// maxZip is what an importer of a module may have to download. Of the root's, about
// half is code, a third its tests.
const maxZip = 3 << 19

// What importers download is the commit's content, less nested modules. Each
// module must stay small; the recorded data must be in none of them.
func TestModuleZips(t *testing.T) {
	for _, dir := range modules(t) {
		if dir == "testdata" {
			continue // nobody imports it
		}
		file := filepath.Join(root, dir, "go.mod")
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		path := modfile.ModulePath(content)
		if want := strings.TrimSuffix("github.com/kvatlas/kvatlas/"+dir, "/."); path != want {
			t.Errorf("%s declares %q, its folder asks for %q", file, path, want)
		}
		sub := dir
		if sub == "." {
			sub = ""
		}
		var b bytes.Buffer
		err = modzip.CreateFromVCS(&b, module.Version{Path: path, Version: "v0.0.0"}, root, "HEAD", sub)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		t.Logf("%s: %d bytes", path, b.Len())
		if b.Len() < maxZip {
			continue
		}
		t.Errorf("%s: the module zip has %d bytes, allowed are %d; its largest files:", path, b.Len(), maxZip)
		r, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.File {
			if f.CompressedSize64 > maxZip/20 {
				t.Errorf("  %s: %d", f.Name, f.CompressedSize64)
			}
		}
	}
}
