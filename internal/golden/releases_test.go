package golden_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/golden"
)

// The releases that make golden knows are those that blockhash vouches for,
// and each has vectors of its era.
func TestReleases(t *testing.T) {
	var known []string
	for line := range strings.Lines(string(golden.Read(t, "vllm/hash/gen/releases.txt"))) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) < 2 {
			t.Fatalf("releases.txt: want a release and a file, have %q", line)
		}
		release, file := fields[0], fields[1]
		known = append(known, release)
		golden.Files(t, "vllm/hash/"+file+".jsonl")
		scheme, err := blockhash.SchemeFor("vllm", release)
		if err != nil || scheme.Assumed() {
			t.Errorf("releases.txt lists %s, blockhash says: %v, %v", release, scheme, err)
		}
	}
	for _, scheme := range blockhash.Schemes() {
		if scheme.Engine() == "vllm" && !slices.Contains(known, scheme.Through()) {
			t.Logf("%v was read, not run, up to %s", scheme, scheme.Through())
		}
	}
	for _, name := range golden.Files(t, "vllm/hash/vllm-*.jsonl") {
		release, _, _ := strings.Cut(strings.TrimPrefix(name, "vllm/hash/vllm-"), "-")
		if !slices.Contains(known, release) {
			t.Errorf("%s is of a release that releases.txt does not list", name)
		}
	}
}
