package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed peers.py
var peersScript string

// peers runs the Python libraries in a process of their own. It gets our ids
// too, so that nothing is compared that doesn't give the same.
func peers(names []string, text string) error {
	dir, err := os.MkdirTemp("", "bench-tokenize")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte(text), 0o600); err != nil {
		return err
	}
	source, err := filepath.Abs(*folder)
	if err != nil {
		return err
	}
	for _, name := range names {
		ids, err := json.Marshal(encode(load(name), nil, text))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".ids"), ids, 0o600); err != nil {
			return err
		}
	}
	cmd := exec.Command(*python, append([]string{"-c", peersScript, source, dir}, names...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "TOKENIZERS_PARALLELISM=false", "RAYON_NUM_THREADS=1", "LITELLM_LOCAL_MODEL_COST_MAP=True")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", *python, err)
	}
	return nil
}
