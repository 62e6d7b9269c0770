// Add puts a new recording into testdata: it compresses the file, stores it
// under its logical name and writes its line in PROVENANCE. It refuses to
// replace a recording: answers of engines are not edited.
//
//	go run ./internal/golden/add -engine vllm -version 0.34.0 -generator vllm/hash/gen/generate.py \
//	    -command 'PYTHONHASHSEED=0 python generate.py ...' FILE NAME
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/kvatlas/kvatlas/internal/golden"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("add: ")
	today := time.Now().UTC().Format(time.DateOnly)
	var p golden.Provenance
	p.Date = flag.String("date", today, "the day the file was made")
	flag.StringVar(&p.Engine, "engine", "", "whose answers these are, such as vllm")
	flag.StringVar(&p.Version, "version", "", "its release")
	flag.StringVar(&p.Generator, "generator", "", "what wrote the file: a script in a gen folder of testdata, or words")
	flag.StringVar(&p.Command, "command", "", "how it was run")
	flag.StringVar(&p.Beside, "beside", "", "another engine it ran in")
	flag.StringVar(&p.Edits, "edits", "", "what was changed afterwards")
	flag.Parse()
	if flag.NArg() != 2 || p.Engine == "" || p.Version == "" || p.Generator == "" || p.Command == "" {
		log.Fatal("usage: add -engine E -version V -generator G -command C FILE NAME")
	}
	p.File = flag.Arg(1)
	if err := add(flag.Arg(0), p); err != nil {
		log.Fatal(err)
	}
}

func add(file string, p golden.Provenance) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !fs.ValidPath(p.File) || p.File == "." {
		return fmt.Errorf("%q is no name of a file below testdata", p.File)
	}
	if _, err := golden.ReadFile(p.File); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already (%v); recordings are not replaced, give the new one another name", p.File, err)
	}
	p.Sum(content)

	dir, err := golden.Dir()
	if err != nil {
		return err
	}
	list := filepath.Join(dir, "PROVENANCE")
	old, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	lines, err := golden.ParseProvenance(old)
	if err != nil {
		return err
	}
	updated, err := golden.FormatProvenance(append(lines, p))
	if err != nil {
		return err
	}

	var z bytes.Buffer
	w, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
	if err != nil {
		return err
	}
	w.Write(content) // to memory; Close reports
	if err := w.Close(); err != nil {
		return err
	}
	target := filepath.Join(dir, filepath.FromSlash(p.File)) + ".gz"
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(target, z.Bytes(), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(list, updated, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d bytes, %d compressed, sha256 %s\n", p.File, p.Size, z.Len(), p.SHA256)
	return nil
}
