package tools

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the repository's top folder, where the root module is.
const root = "../.."

// run gives the lines a command prints, run in the repository's top folder.
func run(t *testing.T, env []string, name string, args ...string) []string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, stderr.Bytes())
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}

// modules lists the folders of all committed modules, "." first.
func modules(t *testing.T) []string {
	t.Helper()
	var dirs []string
	for _, file := range run(t, nil, "git", "ls-files", "--", "go.mod", "*/go.mod") {
		dirs = append(dirs, filepath.ToSlash(filepath.Dir(file)))
	}
	slices.Sort(dirs)
	if len(dirs) == 0 || dirs[0] != "." {
		t.Fatalf("no root module among %q", dirs)
	}
	return dirs
}
