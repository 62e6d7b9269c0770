package main

import (
	"fmt"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// corpus is English and source code in halves, together of that size: the
// comments of Go's own net/http, then its code.
func corpus(size int) string {
	files, err := filepath.Glob(filepath.Join(build.Default.GOROOT, "src", "net", "http", "*.go"))
	check(err)
	if len(files) == 0 {
		check(fmt.Errorf("no Go sources in %s", build.Default.GOROOT))
	}
	var prose, code strings.Builder
	set := token.NewFileSet()
	for _, name := range files {
		src, err := os.ReadFile(name)
		check(err)
		f, err := parser.ParseFile(set, name, src, parser.ParseComments)
		check(err)
		for _, c := range f.Comments {
			prose.WriteString(c.Text() + "\n")
		}
		if !strings.HasSuffix(name, "_bundle.go") {
			code.Write(src)
		}
	}
	for prose.Len() < size/2 {
		prose.WriteString(prose.String())
	}
	return strings.ToValidUTF8(prose.String()[:size/2]+code.String()[:size/2], "")
}
