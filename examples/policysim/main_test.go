package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/scoring/simulate"
)

func TestJSONLines(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "mine.jsonl")
	require.NoError(t, os.WriteFile(trace, []byte(`{"timestamp":0,"input_length":40,"output_length":3,"hash_ids":[1,2]}
{"timestamp":900,"input_length":40,"output_length":3,"hash_ids":[1,2]}
`), 0o600))
	config := filepath.Join(dir, "config.json")
	require.NoError(t, os.WriteFile(config, []byte(`{"policies":"kvatlas,random","seeds":"1,2","block":16,"json":true,"workers":3}`), 0o600))
	var out bytes.Buffer
	require.NoError(t, run([]string{"-config", config, "-trace", trace, "-seeds", "7", "-svg", dir}, &out, io.Discard))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2, "the flag wins over the file")
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &got))
	for _, field := range []string{"scenario", "policy", "seed", "load", "goodput", "ttft_p50_ms", "ttft_p99_ms", "hit_rate", "load_max_over_mean", "prefill_tokens_computed"} {
		require.Contains(t, got, field)
	}
	require.Equal(t, "mine", got["scenario"])
	require.Equal(t, "kvatlas", got["policy"])
	require.EqualValues(t, 7, got["seed"])
	require.EqualValues(t, 0.4, got["hit_rate"])
	svg, err := os.ReadFile(filepath.Join(dir, "mine.svg"))
	require.NoError(t, err)
	require.Contains(t, string(svg), "</svg>")

	out.Reset()
	require.NoError(t, run([]string{"-trace", trace, "-block", "16", "-policies", "random", "-spread", "1"}, &out, io.Discard))
	require.Contains(t, out.String(), "goodput/s")
	require.Contains(t, out.String(), "mine-spread")
	engine := filepath.Join(dir, "engine.json")
	require.NoError(t, os.WriteFile(engine, []byte(`{"KVTokens": 64, "HostTokens": 1000}`), 0o600))
	out.Reset()
	require.NoError(t, run([]string{"-trace", trace, "-block", "16", "-policies", "random", "-workers", "1", "-engine", engine, "-noise", "0",
		"-joins", "0.5", "-leaves", "0.6", "-autoscale", "3", "-routers", "2", "-peer-lag", "0.02", "-json"}, &out, io.Discard))
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	require.Zero(t, got["hit_rate"], "the second request goes to the worker that joined")
	require.Greater(t, got["router_us"], 0.0)
	log := filepath.Join(dir, "server.log")
	require.NoError(t, os.WriteFile(log, []byte("INFO 09-14 10:00:02 Received request a: max_tokens=4, prompt_token_ids: [1, 2, 3]\n"), 0o600))
	out.Reset()
	require.NoError(t, run([]string{"-vllm-log", log, "-block", "2"}, &out, io.Discard))
	require.Contains(t, out.String(), `"input_length":3,"output_length":4`)
}

func TestSpread(t *testing.T) {
	arrivals := []simulate.Arrival{{At: 1}, {At: 1}, {At: 1}, {At: 2}, {At: 2}, {At: 9}, {At: 9}}
	spread(arrivals, 3)
	var at []float64
	for _, a := range arrivals {
		at = append(at, a.At)
	}
	require.InDeltaSlice(t, []float64{1, 4. / 3, 5. / 3, 2, 3.5, 9, 10.5}, at, 1e-9)
}

func TestSummary(t *testing.T) {
	dir := t.TempDir()
	saved, plots := filepath.Join(dir, "saved.jsonl"), filepath.Join(dir, "plots")
	var out bytes.Buffer
	require.NoError(t, printJSON(&out, []line{
		{Scenario: "mine", Load: 2, Policy: "kvatlas", Seed: 1, Goodput: 2, GoodShare: 0.5, UniqueTokens: 10, PrefillTokens: 15, Routers: 1},
		{Scenario: "mine", Load: 2, Policy: "kvatlas", Seed: 2, Goodput: 4, GoodShare: 0.7, UniqueTokens: 10, PrefillTokens: 25, Routers: 1},
		{Scenario: "mine", Load: 2, Policy: "kvatlas", Seed: 1, Goodput: 1.5, Routers: 4},
		{Scenario: "mine", Load: 2, Policy: "kvatlas", Seed: 1, Goodput: 2.7, Routers: 4, PeerLag: 20},
		{Scenario: "mine", Load: 2, Policy: "kvatlas", Seed: 1, Goodput: 3, Routers: 4, PeerLag: 2},
		{Scenario: "mine", Load: 2, Policy: "random", Seed: 1, Goodput: 1, Routers: 1},
		{Scenario: "mine", Load: 2, Policy: "roundrobin", Seed: 1, Goodput: 2, Routers: 1},
		{Scenario: "mine", Load: 1, Policy: "kvatlas", Seed: 1, Goodput: 3, UniqueTokens: 1, Routers: 1},
		{Scenario: "mine", Load: 1, Policy: "random", Seed: 1, Goodput: 4, Routers: 1},
		{Scenario: "mine", Load: 1, Policy: "roundrobin", Seed: 1, Goodput: 2, Routers: 1},
	}))
	require.NoError(t, os.WriteFile(saved, out.Bytes(), 0o600))
	out.Reset()
	require.NoError(t, run([]string{"-summary", saved, "-svg", plots}, &out, io.Discard))
	require.Contains(t, out.String(), "| mine | 1 | 3.00 (0.000) | random | 4.00 | 0.750 | roundrobin | 1.500 |")
	require.Contains(t, out.String(), "| mine | 2 | 3.00 (0.600) | roundrobin | 2.00 | 1.500 | random | 3.000 | 0 / 0 | 0 / 0 | 0.00 | 2.00 | 0.0 | 0.500 | 1.000 | 0.900 |")
	require.Contains(t, out.String(), " many routers / one | telling, 2 ms / one | telling, 20 ms / one |\n|---|")
	require.Contains(t, out.String(), "| mine | 1.200 | random | 1.500 | roundrobin |")
	svg, err := os.ReadFile(filepath.Join(plots, "mine.svg"))
	require.NoError(t, err)
	require.Contains(t, string(svg), "kvatlas (4 routers)")
	require.Contains(t, string(svg), "kvatlas (4 routers) telling, 20 ms")
	require.Error(t, run([]string{"-summary", "main_test.go"}, &out, io.Discard))
}

func TestRefuses(t *testing.T) {
	for _, args := range [][]string{{"-scenario", "none"}, {"-policies", "none", "-scenario", "burst"}, {"-seeds", "x"}, {"-loads", "-1"}, {"word"},
		{"-trace", "/does/not/exist"}, {"-config", "/does/not/exist"}, {"-traces", "/does/not/exist", "-scenario", "synthetic"}, {"-bad"},
		{"-joins", "x"}, {"-leaves", "-1"}, {"-autoscale", "2"}, {"-engine", "/does/not/exist"}, {"-engine", "main_test.go"}, {"-ttft", "-1"}, {"-peer-lag", "-1"}, {"-noise", "2"}} {
		require.Error(t, run(args, io.Discard, io.Discard), args)
	}
}
