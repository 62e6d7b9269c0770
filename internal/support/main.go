// Support writes the README's table of what is supported: engine by engine and era
// by era from the schemes of package blockhash, with what the recordings of that
// era in testdata show. Engines known from documents have their rows from a table
// here.
//
//	go run ./internal/support    (make support)
package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/conform"
	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/internal/release"
	"github.com/kvatlas/kvatlas/kvevents"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("support: ")
	data, err := golden.Dir()
	if err != nil {
		log.Fatal(err)
	}
	readme := filepath.Join(filepath.Dir(data), "README.md")
	old, err := os.ReadFile(readme)
	if err != nil {
		log.Fatal(err)
	}
	updated, err := update(old)
	if err == nil {
		err = os.WriteFile(readme, updated, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

const begin, end = "<!-- made by make support -->\n", "<!-- end of what make support makes -->\n"

// update replaces the table between the marks.
func update(readme []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(readme, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return nil, errors.New("README.md has no marks of the table")
	}
	t, err := table()
	if err != nil {
		return nil, err
	}
	return slices.Concat(before, []byte(begin), []byte(t), []byte(end), after), nil
}

// documents are the engines of which nothing was recorded.
var documents = map[string]struct{ hash, events, rule, source string }{
	"tensorrt-llm": {"opaque: by content, plain prompts only", "JSON over HTTP, or streamed maps", "leading blocks, an upper bound", "kvevents/trtllm/doc.go"},
	"dynamo":       {"", "JSON, msgpack, envelopes, or streamed maps", "leading blocks, an upper bound", "kvevents/dynamo/doc.go"},
	"mooncake":     {"", "RFC 1527, the master's messages", "leading blocks, an upper bound", "kvevents/mooncake/doc.go"},
}

// names are the engines as they write themselves.
var names = map[string]string{
	"vllm": "vLLM", "sglang": "SGLang", "lmcache": "LMCache in process", "lmcache-server": "LMCache multiprocess",
	"tensorrt-llm": "TensorRT-LLM", "dynamo": "Dynamo", "mooncake": "Mooncake",
}

// evidence is what is recorded of an era.
type evidence struct {
	kinds  map[string][]string // releases by folder
	events []formOf
	rules  []string
}

// formOf is what one release's events look like: their encoding, and what they have
// beside the oldest fields.
type formOf struct {
	release string
	parts   []string
}

func table() (string, error) {
	found, err := collect()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| engine | releases | block hash | events | hits | verified by recordings of |\n|---|---|---|---|---|---|\n")
	last := ""
	for _, s := range blockhash.Schemes() {
		name := names[s.Engine()]
		if name == "" {
			return "", fmt.Errorf("engine %q has no name here", s.Engine())
		}
		shown := name
		if name == last {
			shown = ""
		}
		last = name
		releases := s.Since() + " to " + s.Through()
		if s.Since() == s.Through() {
			releases = s.Since()
		}
		hash, events, rule, how := s.Summary(), "", "", ""
		if d, ok := documents[s.Engine()]; ok != s.FromDocuments() {
			return "", fmt.Errorf("%v: from documents is %v, but it is among those here: %v", s, s.FromDocuments(), ok)
		} else if ok {
			if s.Engine() == "tensorrt-llm" {
				releases = "all"
			}
			hash = cmp.Or(d.hash, hash)
			events, rule, how = d.events, d.rule, fmt.Sprintf("**from documents**, no engine: [sources](%s)", d.source)
		} else {
			e := found[s]
			if e == nil {
				return "", fmt.Errorf("%v: nothing is recorded of it", s)
			}
			folder := strings.TrimSuffix(s.Engine(), "-server")
			events, rule, how = e.eventText(), e.ruleText(s.Engine()), e.how("testdata/"+folder)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", shown, releases, hash, events, rule, how)
	}
	return b.String(), nil
}

// collect reads every recording that has a line in PROVENANCE.
func collect() (map[blockhash.Scheme]*evidence, error) {
	dir, err := golden.Dir()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "PROVENANCE"))
	if err != nil {
		return nil, err
	}
	lines, err := golden.ParseProvenance(text)
	if err != nil {
		return nil, err
	}
	found := map[blockhash.Scheme]*evidence{}
	for _, l := range lines {
		kind := strings.SplitN(l.File, "/", 3)
		if !strings.HasSuffix(l.File, ".jsonl") || len(kind) < 3 || names[kind[0]] == "" {
			continue
		}
		engines := []string{kind[0]}
		if kind[0] == "lmcache" && kind[1] != "lookup" && kind[1] != "messages" {
			engines = append(engines, "lmcache-server")
		}
		file, err := golden.ReadFile(l.File)
		if err != nil {
			return nil, err
		}
		facts := conform.FactsOf(file)
		for _, engine := range engines {
			s, err := blockhash.SchemeFor(engine, l.Version)
			if err != nil {
				if engine == "lmcache-server" { // it came later
					continue
				}
				return nil, fmt.Errorf("%s: %w", l.File, err)
			}
			e := found[s]
			if e == nil {
				e = &evidence{kinds: map[string][]string{}}
				found[s] = e
			}
			e.add(kind[1], l.Version, &facts)
		}
	}
	return found, nil
}

func (e *evidence) add(kind, release string, f *conform.Facts) {
	if !slices.Contains(e.kinds[kind], release) {
		e.kinds[kind] = append(e.kinds[kind], release)
	}
	for _, r := range f.Rules {
		if !slices.Contains(e.rules, r) {
			e.rules = append(e.rules, r)
		}
	}
	if f.Wire == 0 {
		return
	}
	i := slices.IndexFunc(e.events, func(o formOf) bool { return o.release == release })
	if i < 0 {
		e.events = append(e.events, formOf{release: release})
		i = len(e.events) - 1
	}
	for _, part := range partsOf(f) {
		if !slices.Contains(e.events[i].parts, part) {
			e.events[i].parts = append(e.events[i].parts, part)
		}
	}
}

func partsOf(f *conform.Facts) []string {
	parts := []string{"arrays"}
	if f.Wire&kvevents.WireMap != 0 {
		parts[0] = "maps"
	}
	for _, x := range []struct {
		field kvevents.Field
		name  string
	}{
		{kvevents.FieldMedium, "medium"}, {kvevents.FieldExtraKeys, "extra keys"}, {kvevents.FieldGroup, "cache groups"},
		{kvevents.FieldCacheSalt, "salt"}, {kvevents.FieldLoRAName, "LoRA name"}, {kvevents.FieldSessionID, "session id"},
		{kvevents.FieldLookahead, "lookahead"},
	} {
		if f.Fields.Has(x.field) {
			parts = append(parts, x.name)
		}
	}
	return parts
}

// eventText joins what the events of the era's releases have; what the first that
// was recorded has not, with the release that does.
func (e *evidence) eventText() string {
	slices.SortFunc(e.events, func(a, b formOf) int { return release.Compare(a.release, b.release) })
	var all, seen []string
	for i, f := range e.events {
		for _, part := range f.parts {
			if slices.Contains(seen, part) {
				continue
			}
			if seen = append(seen, part); i > 0 {
				part += " from " + f.release
			}
			all = append(all, part)
		}
	}
	return cmp.Or(strings.Join(all, ", "), "not recorded")
}

// rules are in the order in which the table has them.
var rules = []string{
	"full attention", "sliding window", "chunked local", "mamba", "partial hits", "pages", "EAGLE", "LoRA", "format dynamo",
	"offload", "host tier", "namespaces (a bound)", "freed windows (a bound)", "0.5.6's splits (a bound)",
}

func (e *evidence) ruleText(engine string) string {
	slices.SortFunc(e.rules, func(a, b string) int { return cmp.Compare(slices.Index(rules, a), slices.Index(rules, b)) })
	switch {
	case len(e.rules) > 0:
		return strings.Join(e.rules, ", ")
	case len(e.events) > 0 && engine == "lmcache":
		return "chunks beyond the local hit (a bound: no removals)"
	case len(e.events) > 0:
		return "chunks beyond the local hit"
	}
	return "not recorded"
}

// how lists the folders with the releases that are in them.
func (e *evidence) how(folder string) string {
	var parts []string
	for _, kind := range []string{"hash", "truth", "scheduler", "tiers", "server", "frames", "kv-events", "messages", "lookup"} {
		if releases := e.kinds[kind]; len(releases) > 0 {
			slices.SortFunc(releases, release.Compare)
			parts = append(parts, fmt.Sprintf("[%s](%s/%[1]s) %[3]s", kind, folder, strings.Join(releases, " ")))
		}
	}
	return strings.Join(parts, "; ")
}
