// Package corpus is the text that tokenizers are measured with and tested on.
package corpus

import (
	"fmt"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// Text is English and source code in halves, together of that size: the
// comments of Go's own net/http, then its code. The error says that the Go
// installation has no sources.
func Text(size int) (string, error) {
	files, err := filepath.Glob(filepath.Join(build.Default.GOROOT, "src", "net", "http", "*.go"))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", fmt.Errorf("corpus: no Go sources in %s", build.Default.GOROOT)
	}
	var prose, code strings.Builder
	set := token.NewFileSet()
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		f, err := parser.ParseFile(set, name, src, parser.ParseComments)
		if err != nil {
			return "", err
		}
		for _, c := range f.Comments {
			prose.WriteString(c.Text() + "\n")
		}
		if !strings.HasSuffix(name, "_bundle.go") {
			code.Write(src)
		}
	}
	half := func(s string) string { return strings.Repeat(s, 1+size/2/len(s))[:size/2] }
	return strings.ToValidUTF8(half(prose.String())+half(code.String()), ""), nil
}
