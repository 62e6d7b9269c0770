package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
)

// op is a line of a recorded session; its format is described beside the data.
type op struct {
	Op string `json:"op"`

	// Of the first line, "meta".
	Engine    string  `json:"engine"` // "vllm 0.32.0"
	BlockSize int     `json:"block_size"`
	HashAlgo  string  `json:"hash_algo"`
	Seed      *string `json:"pythonhashseed"`

	// Of "event".
	Seq     uint64 `json:"seq"`
	Topic   string `json:"topic"`
	Payload []byte `json:"payload_b64"`

	// Of "request".
	Tokens       []uint32 `json:"prompt_token_ids"`
	Salt         *string  `json:"cache_salt"`
	LoRAName     *string  `json:"lora_name"`
	LoRAPath     *string  `json:"lora_path"`
	CachedTokens *int     `json:"cached_tokens"`
}

func (o *op) prompt() blockhash.Prompt {
	p := blockhash.Prompt{Tokens: o.Tokens}
	if o.Salt != nil {
		p.CacheSalt = *o.Salt
	}
	if o.LoRAName != nil {
		p.LoRA = &blockhash.LoRA{Name: *o.LoRAName}
		if o.LoRAPath != nil {
			p.LoRA.Path = *o.LoRAPath
		}
	}
	return p
}

// cached is what the engine reported; releases up to 0.20 leave a 0 out.
func (o *op) cached() int {
	if o.CachedTokens == nil {
		return 0
	}
	return *o.CachedTokens
}

// unzip reads a file below the data folder.
func unzip(data, name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(data, filepath.FromSlash(name)+".gz"))
	if err != nil {
		return nil, fmt.Errorf("recordings are found with -data: %w", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return io.ReadAll(z)
}

// readSession reads a session and describes the worker it was recorded from.
func readSession(data, name string) (ops []op, w kvatlas.Worker, err error) {
	text, err := unzip(data, name)
	if err != nil {
		return nil, w, err
	}
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var o op
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, w, fmt.Errorf("%s: line %d: %w", name, len(ops)+1, err)
		}
		ops = append(ops, o)
	}
	if len(ops) == 0 || ops[0].Op != "meta" {
		return nil, w, fmt.Errorf("%s: want a session that begins with its meta line", name)
	}
	meta := &ops[0]
	w.Engine, w.Release, _ = strings.Cut(meta.Engine, " ")
	w.BlockSize = meta.BlockSize
	if meta.Seed != nil {
		w.Seed = blockhash.SeedText(*meta.Seed)
	}
	w.Algorithm, err = blockhash.ParseAlgorithm(meta.HashAlgo)
	return ops[1:], w, err
}
