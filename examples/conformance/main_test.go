package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/internal/golden"
)

// file writes golden data where the command can open it.
func file(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(name))
	require.NoError(t, os.WriteFile(path, golden.Read(t, name), 0o644))
	return path
}

func command(args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = run(args, &o, &e)
	return status, o.String(), e.String()
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

func TestChecks(t *testing.T) {
	for _, c := range []struct{ check, name, last string }{
		{"hash", "vllm/hash/vllm-0.31.0-seed0.jsonl", "400 passed, 0 failed"},
		{"hash", "sglang/hash/sglang-0.5.22.jsonl", "93 passed, 0 failed"},
		{"hash", "lmcache/hash/lmcache-0.5.6-vllm-0.32.0-seed0.jsonl", "364 passed, 0 failed"},
		{"decode", "vllm/server/0.32.0/replay-basic.jsonl", "32 passed, 0 failed"},
		{"decode", "sglang/frames/frames-0.5.22.jsonl", "78 passed, 0 failed"},
		{"decode", "lmcache/messages/messages-0.5.6.jsonl", "156 passed, 0 failed"},
		{"decode", "lmcache/kv-events/kv-events-0.5.6-vllm-0.32.0.jsonl", "6 passed, 0 failed"},
		{"server", "vllm/server/0.32.0/truth-main.jsonl", "69 passed, 0 failed"},
		{"truth", "vllm/truth/0.32.0/u16.jsonl", "71 passed, 0 failed"},
		{"truth", "sglang/truth/0.5.23-unified-page16-hicache.jsonl", "90 passed, 0 failed"},
		{"truth", "lmcache/lookup/lookup-0.5.6-sha256_cbor.jsonl", "333 passed, 0 failed"},
		{"replay", "sglang/frames/frames-0.5.22.jsonl", "62 passed, 0 failed"},
	} {
		status, out, errs := command(c.check, file(t, c.name))
		require.Equal(t, c.last, lastLine(out), c.name)
		require.Zero(t, status, c.check)
		require.Empty(t, errs)
	}
}

func TestFailuresShowAndCount(t *testing.T) {
	path := file(t, "vllm/server/0.32.0/truth-main.jsonl")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Replace(data, []byte(`"cached_tokens":160`), []byte(`"cached_tokens":192`), 1), 0o644))
	status, out, _ := command("server", path, filepath.Join(t.TempDir(), "missing.jsonl"))
	require.Equal(t, 1, status)
	require.Equal(t, "68 passed, 2 failed", lastLine(out))
	require.Contains(t, out, "want 192 cached tokens\n       got  160")
	require.Contains(t, out, "no such file")
}

// TestNotChecked: a file that cannot be checked is told once, with the reason, and is no success.
func TestNotChecked(t *testing.T) {
	dir, ids := t.TempDir(), file(t, "tokenize/ids/tiny.jsonl")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"tokenize", dir, ids}, "FAIL " + ids + ": not checked: line 1: neither tiny.json nor tiny.json.gz is in " + dir + "\n"},
		{[]string{"hash", "/nonexist"}, "FAIL /nonexist: not checked: open /nonexist: no such file or directory\n"},
		{[]string{"hash", dir}, "FAIL " + dir + ": not checked: read " + dir + ": is a directory\n"},
	} {
		status, out, _ := command(c.args...)
		require.Equal(t, 1, status)
		require.Equal(t, c.want+"0 passed, 1 failed\n", out)
	}
	status, out, _ := command("tokenize", "-json", dir, ids)
	require.Equal(t, 1, status)
	require.Contains(t, out, `"unchecked":"line 1: neither tiny.json`)
}

func TestJSON(t *testing.T) {
	status, out, _ := command("truth", "-json", file(t, "vllm/truth/0.32.0/u16.jsonl"))
	require.Zero(t, status)
	first, last, _ := strings.Cut(out, "\n")
	var res struct {
		Check          string
		Passed, Failed int
	}
	require.NoError(t, json.Unmarshal([]byte(first), &res))
	require.Equal(t, "truth", res.Check)
	require.Equal(t, 71, res.Passed)
	require.Equal(t, "71 passed, 0 failed\n", last)
}

func TestGzip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "u16.jsonl.gz")
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(golden.Read(t, "vllm/truth/0.32.0/u16.jsonl"))
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(path, zipped.Bytes(), 0o644))
	_, out, _ := command("truth", path)
	require.Equal(t, "71 passed, 0 failed", lastLine(out))
}

func TestWrongCommands(t *testing.T) {
	for _, args := range [][]string{{}, {"dance"}, {"hash"}, {"hash", "-nonsense", "x"}} {
		status, out, errs := command(args...)
		require.Equal(t, 2, status, args)
		require.Empty(t, out)
		require.NotEmpty(t, errs)
	}
}
