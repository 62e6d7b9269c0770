// Command gen selects the vectors that package conformance carries from the
// checkout's testdata: go generate ./blockhash/conformance
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"regexp"

	"github.com/kvatlas/kvatlas/internal/golden"
)

// chosen are the cases that show something of their own and are short.
var chosen = regexp.MustCompile(`^(edge-values|beyond-int32|negative-placeholder|empty|shorter-than-a-block|` +
	`plain-vocab-(3|16)|salt-(2|empty-string)|lora-same-name-and-path|lora\+.*|` +
	`mm-same-image-twice-one-block.*|` +
	`prompt-embeds-float16|lookahead-.*)$`)

func main() {
	out, err := selection()
	if err == nil {
		err = os.WriteFile("vectors.jsonl.gz", out, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func selection() ([]byte, error) {
	names, err := golden.Names("vllm/hash/*.jsonl")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		data, err := golden.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(data) {
			var c struct {
				Header bool
				Name   string
			}
			if err := json.Unmarshal(line, &c); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if c.Header || chosen.MatchString(c.Name) {
				if _, err := z.Write(line); err != nil {
					return nil, err
				}
			}
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
