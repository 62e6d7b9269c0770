// Command conformance checks this module against recorded answers of real
// engines, or somebody's recordings against this module:
//
//	go run github.com/kvatlas/kvatlas/examples/conformance@latest CHECK [-json] FILE...
//
// CHECK is one of
//
//	hash     block hashes (testdata/vllm/hash, sglang/hash, lmcache/hash)
//	decode   raw frames, replays, truth files: every event decodes; SGLang's are of
//	         the right hash; LMCache's controller messages and events
//	server   truth sessions of live servers: predicted against reported cached tokens
//	truth    truth traces of the cache manager and the scheduler: predicted against actual hit tokens;
//	         LMCache's events and its controller's answers
//	replay   recordings of replays: layouts, sequences, end marker, what was truncated
//	restart  recordings of an engine killed and restarted: one restart, at the right message
//	tokenize TOKENIZER_DIR: token ids, by the tokenizers DIR/NAME.json or DIR/NAME.json.gz
//
// The engine is taken from a file's header. Files may be compressed (.gz). Each gets a line, with the first differences
// below it, or with the reason why it was not checked: not to be read, of another format, its tokenizer missing or
// refused. The last line is "N passed, N failed". The exit status is 0 only
// when nothing failed, 1 when something did, 2 when the command was wrong. A
// case that is not supported is a failure, and a file that was not checked is one.
package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/kvatlas/kvatlas/internal/conform"
)

// checks are the subcommands.
var checks = map[string]func(name string, r io.Reader) *conform.Result{
	"hash": conform.Hash,
	"decode": func(name string, r io.Reader) *conform.Result {
		res, _ := conform.Decode(name, r)
		return res
	},
	"server": func(name string, r io.Reader) *conform.Result {
		res, _ := conform.Server(name, r)
		return res
	},
	"truth":   conform.Truth,
	"replay":  conform.Replay,
	"restart": conform.Restart,

	"tokenize": nil, // made when the folder of tokenizers is known
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	usage := func(problem string) int {
		names := make([]string, 0, len(checks))
		for n := range checks {
			names = append(names, n)
		}
		slices.Sort(names)
		fmt.Fprintf(stderr, "conformance: %s\nusage: conformance %s [-json] [TOKENIZER_DIR] FILE...\n", problem, strings.Join(names, "|"))
		return 2
	}
	if len(args) == 0 {
		return usage("which check?")
	}
	check, ok := checks[args[0]]
	if !ok {
		return usage(fmt.Sprintf("unknown check %q", args[0]))
	}
	flags := flag.NewFlagSet("conformance "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	asJSON := flags.Bool("json", false, "print one JSON object a file instead of text")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	files := flags.Args()
	if args[0] == "tokenize" && len(files) > 0 {
		dir := &conform.Tokenizers{Dir: files[0]}
		check = func(name string, r io.Reader) *conform.Result { return conform.Tokenize(dir, name, r) }
		files = files[1:]
	}
	if len(files) == 0 {
		return usage("no files")
	}
	out := bufio.NewWriter(stdout)
	defer out.Flush()
	passed, failed := 0, 0
	for _, name := range files {
		res := checkFile(args[0], check, name)
		passed, failed = passed+res.Passed, failed+res.Failed
		if *asJSON {
			json.NewEncoder(out).Encode(res)
		} else {
			res.Print(out)
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		return 1
	}
	return 0
}

func checkFile(kind string, check func(string, io.Reader) *conform.Result, name string) *conform.Result {
	f, err := os.Open(name)
	if err != nil {
		return conform.Broken(kind, name, err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			return conform.Broken(kind, name, err)
		}
	}
	return check(name, r)
}
