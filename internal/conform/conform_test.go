package conform

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/internal/recording"
)

// run checks every file that matches and fails the test on any difference.
func run(t *testing.T, pattern string, check func(name string, file []byte) *Result) (results map[string]*Result) {
	t.Helper()
	results = map[string]*Result{}
	for _, name := range golden.Files(t, pattern) {
		res := check(name, golden.Read(t, name))
		results[name] = res
		if res.Failed > 0 || res.Passed == 0 {
			var text strings.Builder
			res.Print(&text)
			t.Error(text.String())
		}
		require.False(t, incomplete(res), "%s: %v", name, res.Notes)
	}
	return results
}

func incomplete(res *Result) bool {
	return slices.ContainsFunc(res.Notes, func(n string) bool { return strings.HasPrefix(n, "incomplete: ") })
}

// TestHash: every recorded hash of every release, under every algorithm, in one
// shot, lazily and extended.
func TestHash(t *testing.T) {
	total := 0
	for _, res := range run(t, "vllm/hash/*.jsonl", func(name string, file []byte) *Result { return Hash(name, reader(file)) }) {
		require.Zero(t, res.Apart)
		require.Empty(t, res.Notes, res.File)
		total += res.Passed
	}
	require.Equal(t, 3236, total, "cases times algorithms")
}

// TestDecode: every recorded frame decodes, with the counts that another decoder
// counted.
func TestDecode(t *testing.T) {
	var want map[string]Counts
	require.NoError(t, json.Unmarshal(golden.Read(t, "vllm/server/COUNTS.json"), &want))
	got := map[string]Counts{}
	run(t, "vllm/server/*/*.jsonl", func(name string, file []byte) *Result {
		res, c := Decode(name, reader(file))
		got[strings.TrimPrefix(name, "vllm/server/")] = c
		return res
	})
	require.Equal(t, want, got)
	run(t, "vllm/truth/*/*.jsonl", func(name string, file []byte) *Result {
		res, _ := Decode(name, reader(file))
		return res
	})
}

// TestServer: every request of every live session, predicted from the events
// before it, to the token.
func TestServer(t *testing.T) {
	requests := 0
	for _, res := range run(t, "vllm/server/*/truth-*.jsonl", func(name string, file []byte) *Result {
		res, _ := Server(name, reader(file))
		return res
	}) {
		require.Zero(t, res.Apart, res.File)
		require.Zero(t, res.Bound, res.File)
		requests += res.Passed
	}
	require.Equal(t, 451, requests)
}

// documented are the look-ups that events cannot tell (testdata/vllm/truth/RULES.md, "Is the event
// stream sufficient?"): bound = several groups that the events of the release do
// not name, or full reports, where the prediction is an upper bound; late =
// events were still inside the engine; unknown = matched by content with
// salted or multimodal prompts among them on a release whose events do not tell
// those from plain ones. Before 0.30 the simple offload connector announces no
// stores, and removals as if of the device: predictions are a lower bound.
var documented = map[string]struct{ bound, apart int }{
	"truth/0.10.2/swa":              {bound: 1},
	"truth/0.13.0/mamba":            {bound: 4},
	"truth/0.13.0/mamba-mult":       {bound: 1},
	"truth/0.13.0/swa":              {bound: 1},
	"truth/0.29.0/u16-report":       {bound: 1},
	"truth/0.32.0/u16-report":       {bound: 1},
	"tiers/0.24.0/simple-small":     {bound: 4},  // the connector announces no stores
	"tiers/0.29.0/simple-small":     {bound: 85}, // 11 local, 74 external
	"truth/0.32.0/u16-steps":        {apart: 13}, // late
	"truth/0.10.2/u16-sha256-unset": {apart: 23}, // unknown, in the run by content
	"truth/0.13.0/u16-sha256-unset": {apart: 23}, // unknown, in the run by content
}

// TestTruth: every look-up of every trace of the engine's cache manager
// and of the real scheduler, with and without offload connectors.
func TestTruth(t *testing.T) {
	for _, pattern := range []string{"vllm/truth/*/*.jsonl", "vllm/scheduler/*/*.jsonl", "vllm/tiers/*/*.jsonl"} {
		for name, res := range run(t, pattern, func(name string, file []byte) *Result { return Truth(name, reader(file)) }) {
			config := strings.TrimSuffix(strings.TrimPrefix(name, "vllm/"), ".jsonl")
			want := documented[config]
			require.Equal(t, want.bound, res.Bound, "%s: only a bound", config)
			require.Equal(t, want.apart, res.Apart, "%s: unknowable", config)
		}
	}
}

// TestReplay and TestRestart pass the recordings of replays and restarts through a
// stream.
func TestReplay(t *testing.T) {
	total := 0
	for _, res := range run(t, "vllm/server/*/replay-*.jsonl", func(name string, file []byte) *Result { return Replay(name, reader(file)) }) {
		total += res.Passed
	}
	require.Equal(t, 250, total)
}

func TestRestart(t *testing.T) {
	total := 0
	for _, res := range run(t, "vllm/server/*/events-restart.jsonl", func(name string, file []byte) *Result { return Restart(name, reader(file)) }) {
		total += res.Passed
	}
	require.Equal(t, 31, total)
}

// TestTokenize: the vocabularies that are in the repository; what is not there is a
// failure.
func TestTokenize(t *testing.T) {
	dir, err := golden.Dir()
	require.NoError(t, err)
	toks := &Tokenizers{Dir: filepath.Join(dir, "tokenize", "tokenizers")}
	for _, name := range []string{"anthropic", "mistral-v3", "mistral-v3-first", "qwen3", "tiny"} {
		file := "tokenize/ids/" + name + ".jsonl"
		run(t, file, func(name string, file []byte) *Result { return Tokenize(toks, name, reader(file)) })
	}
	res := Tokenize(toks, "gemma3", reader(golden.Read(t, "tokenize/ids/gemma3.jsonl")))
	require.Zero(t, res.Passed)
	require.Equal(t, 1, res.Failed, "a file, once")
	require.Empty(t, res.Differences)
	require.Contains(t, res.Unchecked, "line 1: neither gemma3.json nor gemma3.json.gz is in ")
	for _, text := range []string{"", "x", "{}", `{"tokenizer":"tiny","text":"x"}`, `{"tokenizer":"../tiny","text":"x","ids":[1]}`} {
		require.NotZero(t, Tokenize(toks, "bad", strings.NewReader(text)).Failed, text)
	}
}

// TestLMCache: what is apart are Python's own hash and the database's extra keys.
func TestLMCache(t *testing.T) {
	passed := 0
	for _, res := range run(t, "lmcache/hash/*.jsonl", func(name string, file []byte) *Result { return Hash(name, reader(file)) }) {
		passed += res.Passed
	}
	require.Equal(t, 1560, passed)

	for _, c := range []struct {
		pattern       string
		check         func(name string, file []byte) *Result
		passed, apart int
	}{
		{"lmcache/messages/*.jsonl", decodeOf, 594, 3}, // HeartbeatRetMsg was not made
		{"lmcache/kv-events/*.jsonl", decodeOf, 6, 6},  // 4 that vLLM refuses, 2 of Python's hash
		{"lmcache/kv-events/*.jsonl", truthOf, 6, 6},   // the same
		{"lmcache/lookup/*.jsonl", truthOf, 2106, 0},
	} {
		passed, apart := 0, 0
		for _, res := range run(t, c.pattern, c.check) {
			passed, apart = passed+res.Passed, apart+res.Apart
		}
		require.Equal(t, c.passed, passed, c.pattern)
		require.Equal(t, c.apart, apart, c.pattern)
	}
}

// sglangBounds are the look-ups of SGLang's traces that its stream cannot tell
// (testdata/sglang/README.md, "Match rates").
var sglangBounds = map[string]int{
	"0.5.4-page1": 1,                      // pages hashed without their prefix
	"0.5.6-page1": 38, "0.5.6-page16": 38, // splits that are not announced again
	"0.5.9-page16-namespaces": 22, "0.5.18-page16-namespaces": 7, "0.5.20-unified-page16-namespaces": 6,
	"0.5.22-unified-page16-namespaces": 8, "0.5.23-unified-page16-namespaces": 6, // extra keys are in no hash
	"0.5.23-unified-page1-swa": 5, // freed windows are not announced
}

func TestSGLang(t *testing.T) {
	run(t, "sglang/hash/*.jsonl", func(name string, file []byte) *Result { return Hash(name, reader(file)) })
	for _, pattern := range []string{"sglang/frames/*.jsonl", "sglang/truth/*.jsonl"} {
		run(t, pattern, func(name string, file []byte) *Result { r, _ := Decode(name, reader(file)); return r })
	}
	replays := 0
	for _, res := range run(t, "sglang/frames/*.jsonl", replayOf) {
		replays += res.Passed
	}
	require.Equal(t, 558, replays)
	for name, res := range run(t, "sglang/truth/*.jsonl", func(name string, file []byte) *Result { return Truth(name, reader(file)) }) {
		config := strings.TrimSuffix(strings.TrimPrefix(name, "sglang/truth/"), ".jsonl")
		require.Equal(t, sglangBounds[config], res.Bound, config)
	}
}

// TestSGLangOtherFiles: what the recordings here happen not to have, but others of their
// format do: a post release with 0.5.6's splits, a prompt that the cache refused.
func TestSGLangOtherFiles(t *testing.T) {
	text := string(golden.Read(t, "sglang/truth/0.5.6-page16.jsonl"))
	post := strings.Replace(text, `"version":"0.5.6"`, `"version":"0.5.6.post2"`, 1)
	require.NotEqual(t, text, post)
	require.Equal(t, 38, truthOf("post", []byte(post)).Bound)
	require.Zero(t, truthOf("post", []byte(post)).Failed)

	hash := string(golden.Read(t, "sglang/hash/sglang-0.5.4.jsonl"))
	res := hashOf("refused", []byte(hash+`{"name":"refused","page_size":4,"tokens":[1,2,3,4],"eagle":true,"mode":"default","refused":"TypeError: x"}`+"\n"))
	require.Zero(t, res.Failed)
	require.Equal(t, 1, res.Apart)
}

// TestHarmWithoutPlainOnly shows what the declaration guards against: told that
// there are only plain prompts, which is not so, one of them is taken for one
// that another tenant's salt brought in.
func TestHarmWithoutPlainOnly(t *testing.T) {
	tr := mustTrace(t, "vllm/truth/0.10.2/u16-sha256-unset.jsonl")
	w, err := TraceWorker(tr)
	require.NoError(t, err)
	w.PlainOnly = true
	res := &Result{}
	r := traceRun{trace: tr, res: res}
	require.NoError(t, r.do(w))
	require.Equal(t, 1, res.Failed)
	require.Equal(t, "0 hit tokens", res.Differences[0].Want)
	require.Equal(t, "192 hit tokens", res.Differences[0].Got)
}

// TestDifferencesAreFound corrupts one answer of each kind.
func TestDifferencesAreFound(t *testing.T) {
	hash := golden.Read(t, "vllm/hash/vllm-0.31.0-seed0.jsonl")
	i := bytes.Index(hash, []byte(`"hashes": ["`)) + len(`"hashes": ["`)
	flipped := bytes.Clone(hash)
	flipped[i] = '0' + (flipped[i]-'0'+1)%10
	res := Hash("hash", reader(flipped))
	require.Equal(t, 1, res.Failed)
	require.Contains(t, res.Differences[0].Where, "block 0")

	server := golden.Read(t, "vllm/server/0.32.0/truth-main.jsonl")
	res, _ = Server("server", bytes.NewReader(bytes.Replace(server, []byte(`"cached_tokens":160`), []byte(`"cached_tokens":192`), 1)))
	require.Equal(t, 1, res.Failed)
	require.Equal(t, "192 cached tokens", res.Differences[0].Want)
	require.Equal(t, "160", res.Differences[0].Got)

	truth := golden.Read(t, "vllm/truth/0.32.0/u16.jsonl")
	replay := golden.Read(t, "vllm/server/0.32.0/replay-basic.jsonl")
	lines := bytes.SplitAfter(replay, []byte("\n")) // the request, then its replies
	res = Replay("replay", bytes.NewReader(bytes.Join(slices.Delete(lines, 2, 3), nil)))
	require.NotZero(t, res.Failed, "a reply left out")

	res = Truth("truth", bytes.NewReader(bytes.Replace(truth, []byte(`"hashes_tail":"`), []byte(`"hashes_tail":"00`), 1)))
	require.Equal(t, 1, res.Failed, "a changed last hash")
	var text strings.Builder
	res.Print(&text)
	require.Contains(t, text.String(), "FAIL truth")
}

// TestBrokenFiles: what is not a recording is a failure, not a panic or a pass.
func TestBrokenFiles(t *testing.T) {
	files := map[string]string{
		"empty": "", "not JSON": "hello\n", "array": "[1]\n", "no header": `{"name":"x"}` + "\n",
		"unknown engine":   `{"header":true,"engine":"elsewhere","version":"1.0"}` + "\n",
		"unknown release":  `{"header":true,"engine":"vllm","version":"0.9.0"}` + "\n",
		"trace, no groups": `{"engine":"vllm","version":"0.32.0","hash_block_size":16,"groups":[]}` + "\n",
		"trace, unknown op": `{"engine":"vllm","version":"0.32.0","hash_algo":"sha256","python_hash_seed":"0","hash_block_size":16,"scheduler_block_size":16,` +
			`"none_hash_hex":"1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c","groups":[{"kind":"full_attention","block_size":16}]}` + "\n" + `{"op":"dance"}` + "\n",
		"bad base64": `{"op":"event","frames":["%"]}` + "\n",
	}
	for what, text := range files {
		checks := map[string]func() *Result{
			"hash":    func() *Result { return Hash(what, strings.NewReader(text)) },
			"decode":  func() *Result { r, _ := Decode(what, strings.NewReader(text)); return r },
			"server":  func() *Result { r, _ := Server(what, strings.NewReader(text)); return r },
			"truth":   func() *Result { return Truth(what, strings.NewReader(text)) },
			"replay":  func() *Result { return Replay(what, strings.NewReader(text)) },
			"restart": func() *Result { return Restart(what, strings.NewReader(text)) },
		}
		for name, check := range checks {
			if name == "decode" && strings.HasPrefix(what, "trace, unknown op") {
				continue // it looks at messages only
			}
			res := check()
			if name == "hash" && what == "unknown engine" || res.Failed > 0 {
				require.NotEmpty(t, res.Unchecked, fmt.Sprint(what, name))
				continue
			}
			t.Errorf("%s file passes %s: %+v", what, name, res)
		}
	}
}

func mustTrace(t *testing.T, name string) *recording.Trace {
	t.Helper()
	tr, err := recording.ReadTrace(reader(golden.Read(t, name)))
	require.NoError(t, err)
	return tr
}

// TestServerAgainstItself: a recording that contradicts its own description fails.
func TestServerAgainstItself(t *testing.T) {
	text := string(golden.Read(t, "vllm/server/0.32.0/truth-main.jsonl"))
	for old, wrong := range map[string]string{`"block_size": 32`: `"block_size": 16`, `"hash_algo": "sha256"`: `"hash_algo": "sha256_cbor"`} {
		require.Contains(t, text, old)
		r, _ := Server("x", strings.NewReader(strings.Replace(text, old, wrong, 1)))
		require.NotZero(t, r.Failed, wrong)
	}
}

// TestServerUnknownRank: of two ranks, a request that nothing tells the rank of is apart
// where they would differ.
func TestServerUnknownRank(t *testing.T) {
	file := golden.Read(t, "vllm/server/0.32.0/truth-lora.jsonl")
	alone, _ := Server("x", reader(file))
	i := bytes.Index(file, []byte(`"payload_b64":"`))
	payload := file[i : i+bytes.IndexByte(file[i:], '}')]
	file = bytes.Replace(file, []byte("\n"), fmt.Appendf(nil, "\n{\"op\":\"event\",\"seq\":0,\"port_offset\":1,%s}\n", payload), 1)
	res, _ := Server("x", reader(file))
	require.Zero(t, res.Failed, res.Differences)
	require.Positive(t, res.Apart)
	require.Equal(t, alone.Passed, res.Passed+res.Apart)
}

// TestTraceAgainstItself: so does a trace. One that is cut off is right as far as it goes.
func TestTraceAgainstItself(t *testing.T) {
	text := string(golden.Read(t, "vllm/truth/0.24.0/u16.jsonl"))
	old := `"version":"0.24.0"`
	require.Contains(t, text, old)
	r := Truth("x", strings.NewReader(strings.Replace(text, old, `"version":"0.23.0"`, 1)))
	require.Equal(t, 1, r.Failed, "it hashes alike, but publishes arrays")
	require.Contains(t, r.Differences[0].Got, "by its events")

	for _, name := range []string{"vllm/truth/0.32.0/u16-steps.jsonl", "vllm/scheduler/0.32.0/u16-tight.jsonl", "vllm/tiers/0.32.0/off-chunk4.jsonl"} {
		lines := bytes.SplitAfter(golden.Read(t, name), []byte("\n"))
		for _, n := range []int{len(lines) / 4, len(lines) / 2, len(lines) - 2} {
			for n > 1 && !bytes.Contains(lines[n-1], []byte(`query"`)) {
				n-- // its events are in no message yet, perhaps
			}
			r := Truth(name, bytes.NewReader(bytes.Join(lines[:n], nil)))
			require.Zero(t, r.Failed, "%s, %d lines: %v", name, n, r.Differences)
			require.NotZero(t, r.Passed, name)
		}
	}
}

// TestLMCacheBesideNewerVLLM: a field that is not known is a fault of the reader in a known
// release only.
func TestLMCacheBesideNewerVLLM(t *testing.T) {
	known := golden.Read(t, "lmcache/kv-events/kv-events-0.5.6-vllm-0.32.0.jsonl")
	at := bytes.Index(known, []byte(`"payload_b64":"`)) + len(`"payload_b64":"`)
	end := at + bytes.IndexByte(known[at:], '"')
	payload, err := base64.StdEncoding.DecodeString(string(known[at:end]))
	require.NoError(t, err)
	var batch []any
	require.NoError(t, msgpack.Unmarshal(payload, &batch))
	batch[1].([]any)[0].(map[string]any)["origin"] = "kv"
	payload, err = msgpack.Marshal(batch)
	require.NoError(t, err)
	extended := slices.Concat(known[:at], []byte(base64.StdEncoding.EncodeToString(payload)), known[end:])
	require.Equal(t, 1, decodeOf("known", extended).Failed)
	require.Zero(t, decodeOf("newer", bytes.Replace(extended, []byte(`"vllm":"0.32.0"`), []byte(`"vllm":"0.34.0"`), 1)).Failed)
}
