package recording

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/internal/golden"
)

func TestHashFile(t *testing.T) {
	f, err := ReadHash(bytes.NewReader(golden.Read(t, "vllm/hash/vllm-0.33.0-seed0.jsonl")))
	require.NoError(t, err)
	require.Equal(t, "vllm", f.Engine)
	require.Equal(t, "0.33.0", f.Version)
	require.Equal(t, "0", *f.Seed)
	require.Len(t, f.NoneHash["xxhash"], 16)
	require.Len(t, f.Cases, 109)
	byName := map[string]*HashCase{}
	for i := range f.Cases {
		byName[f.Cases[i].Name] = &f.Cases[i]
	}
	require.Len(t, byName["big-block-20000"].Tokens, 40000, "a formula written out")
	require.Len(t, byName["salt-70000-characters"].CacheSalt, 70000)
	require.Equal(t, 16, byName["prompt-embeds-float32"].EmbedsPerTok)
	require.Equal(t, int64(-100), byName["negative-placeholder"].Tokens[1])
	require.Equal(t, 2, byName["lookahead-2"].Lookahead)

	unset, err := ReadHash(bytes.NewReader(golden.Read(t, "vllm/hash/vllm-0.28.0-unset.jsonl")))
	require.NoError(t, err)
	require.Nil(t, unset.Seed)
}

func TestSession(t *testing.T) {
	s, err := ReadSession(bytes.NewReader(golden.Read(t, "vllm/server/0.32.0/truth-main.jsonl")))
	require.NoError(t, err)
	engine, version := s.Meta.Name()
	require.Equal(t, "vllm", engine)
	require.Equal(t, "0.32.0", version)
	requests, events := 0, int64(0)
	for _, op := range s.Ops {
		switch op.Op {
		case "request":
			requests++
			require.Len(t, op.Request.Tokens, op.Request.PromptTokens)
		case "event":
			require.Equal(t, events, op.Seq)
			require.NotEmpty(t, op.Payload)
			events++
		}
	}
	require.Equal(t, 69, requests)

	replay, err := ReadSession(bytes.NewReader(golden.Read(t, "vllm/server/0.32.0/replay-basic.jsonl")))
	require.NoError(t, err)
	require.Nil(t, replay.Meta)
	require.Equal(t, "replay_request", replay.Ops[0].Op)
	require.Len(t, replay.Ops[1].Frames, 4)
	require.Equal(t, replay.Ops[1].Frames[3], replay.Ops[1].Payload)
}

func TestRank(t *testing.T) {
	for line, want := range map[string]int{
		`{"data_parallel_rank":3}`:                     3,
		`{"headers":{"x-Data-Parallel-Rank":"1"}}`:     1,
		`{"note":"sent with X-data-parallel-rank: 1"}`: 1,
		`{"note":"rank 0"}`:                            0,
		`{"note":"crank 7"}`:                           -1,
		`{"dp_rank":1}`:                                1,
		`{"header":"X-data-parallel-rank: 1"}`:         1,
		`{"headers":{"X-data-parallel-rank":12345}}`:   -1,
		`{"model":"rank 1","lora_path":"rank-8"}`:      -1,
		`{"data_parallel_rank":null}`:                  -1,
		`{}`:                                           -1,
	} {
		line = `{"op":"request",` + line[1:]
		s, err := ReadSession(strings.NewReader(strings.Replace(line, ",}", "}", 1)))
		require.NoError(t, err, line)
		rank := -1
		if r := s.Ops[0].Request; r.HasRank {
			rank = r.Rank
		}
		require.Equal(t, want, rank, line)
	}
}

func TestTrace(t *testing.T) {
	tr, err := ReadTrace(bytes.NewReader(golden.Read(t, "vllm/truth/0.32.0/swa-diff.jsonl")))
	require.NoError(t, err)
	require.Len(t, tr.Groups, 2)
	require.Len(t, tr.Root, 32)
	require.Equal(t, 16, tr.HashBlockSize)
}

func TestPrompts(t *testing.T) {
	var p Prompts
	first := "q0"
	all, err := p.Add(&TraceOp{ID: first, Tokens: []int64{1, 2, 3}})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 3}, all)
	p.Finish(&TraceOp{ID: first, Output: []int64{4, 5}})
	p.Finish(&TraceOp{ID: "unknown", Output: []int64{4}})
	all, err = p.Add(&TraceOp{ID: "q1", Extend: &first, Take: 4, Tokens: []int64{9}})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 3, 4, 9}, all)
	_, err = p.Add(&TraceOp{ID: "q2", Extend: &first, Take: 6})
	require.ErrorContains(t, err, "extends")
	nobody := "nobody"
	_, err = p.Add(&TraceOp{ID: "q2", Extend: &nobody})
	require.ErrorContains(t, err, "extends")
}

// TestRefusals: what is not of the format is an error with its line, and never a panic.
func TestRefusals(t *testing.T) {
	const header = `{"header":true,"engine":"vllm","version":"0.31.0"}` + "\n"
	const trace = `{"engine":"vllm","version":"0.32.0","hash_block_size":16,"groups":[{}]}` + "\n"
	const meta = `{"op":"meta","engine":"vllm 0.32.0"}` + "\n"
	event := func(rank, seq int) string {
		return fmt.Sprintf(`{"op":"event","port_offset":%d,"seq":%d,"payload_b64":"kA=="}`+"\n", rank, seq)
	}
	read := map[string]func(string) error{
		"hash":    func(s string) error { _, err := ReadHash(strings.NewReader(s)); return err },
		"session": func(s string) error { _, err := ReadSession(strings.NewReader(s)); return err },
		"trace":   func(s string) error { _, err := ReadTrace(strings.NewReader(s)); return err },
	}
	for _, c := range []struct{ kind, text, want string }{
		{"hash", "", "empty file"},
		{"hash", "{", "line 1"},
		{"hash", "{}", "header"},
		{"hash", `{"header":true,"engine":"vllm","version":"1","none_hash":{"sha256":"zz"}}`, "none_hash"},
		{"hash", header + `{"name":"x","tokens_formula":{"n":-1,"m":1}}`, "tokens_formula"},
		{"hash", header + `{"name":"x","tokens_formula":{"n":99999999999,"m":1}}`, "tokens_formula"},
		{"hash", header + `{"name":"x","cache_salt_repeat":["x"]}`, "cache_salt_repeat"},
		{"hash", header + `{"name":"x","prompt_embeds":{"shape":[3,1],"data_b64":"AAAA"}}` + "\n" + `{"name":"y","prompt_embeds":{"shape":[0],"data_b64":""}}`, "line 3"},
		{"hash", header + `{"name":"x","prompt_embeds":{"data_b64":"%"}}`, "prompt_embeds"},
		{"hash", header + header, "line 2: a second header"},
		{"session", "\n\n", "empty file"},
		{"session", `{"x":1}`, `want "op"`},
		{"session", `{"op":"event","payload_b64":"%"}`, "payload"},
		{"session", `{"op":"replay_done","messages":"many"}`, "line 1"},
		{"session", `{"op":"request","prompt_token_ids":"none"}`, "line 1"},
		{"session", `{"op":"reset"}`, `op "reset" is not of this format`},
		{"session", meta + meta, "line 2: a meta line that is not the first"},
		{"session", event(0, 0) + meta, "line 2: a meta line that is not the first"},
		{"session", `{"op":"event","payload_b64":"kA=="}`, "an event without seq"},
		{"session", meta + event(0, 1), "rank 0: seq 1, want 0: the recording is not whole"},
		{"session", event(0, 4) + event(1, 0) + event(0, 5) + event(1, 2), "line 4: rank 1: seq 2, want 1"},
		{"session", meta + event(0, 0) + event(0, 0), "line 3: rank 0: seq 0, want 1"},
		{"session", `{"op":"event","frames":["","AAAAAAAAAAE=","kA=="]}` + "\n" + `{"op":"event","frames":["","AAAAAAAAAAM=","kA=="]}`, "seq 3, want 2"},
		{"session", `{"op":"event","seq":2,"frames":["","AAAAAAAAAAE=","kA=="]}`, "seq 2, but 1 in the frames"},
		{"trace", "", "empty file"},
		{"trace", "{}", "header"},
		{"trace", `{"engine":"vllm","version":"0.32.0","hash_block_size":16,"groups":[{}],"none_hash_hex":"x"}`, "none_hash_hex"},
		{"trace", trace + `{"op":"events","payload_b64":"%"}`, "line 2"},
		{"trace", trace + `{"op":"events","seq":0}` + "\n" + `{"op":"events","seq":2}`, "line 3: message 2, want 1: the recording is not whole"},
		{"trace", trace + `{"op":"query","id":"q0"}` + "\n" + `{"op":"arrive","id":"q2"}`, `line 3: prompt "q2", want "q1"`},
	} {
		require.ErrorContains(t, read[c.kind](c.text), c.want, c.text)
	}
}
