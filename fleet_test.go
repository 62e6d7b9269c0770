package kvatlas_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/conform"
	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/internal/recorded"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/radix"
)

// tape is a recording of one engine as a fleet sees it: its events, and prompts with
// what the engine said of each.
type tape struct {
	worker kvatlas.Worker // as it was started
	steps  []tapeStep
}

// tapeStep is one of: a message, a clear that the operator knows of, a prompt.
type tapeStep struct {
	payload  []byte
	clear    bool
	prompt   *blockhash.Prompt
	reported int
	bound    bool // the stream cannot tell: predictions may be higher
}

// vllmTape reads a session of a live server.
func vllmTape(t *testing.T, name string) tape {
	t.Helper()
	s, err := recording.ReadSession(bytes.NewReader(golden.Read(t, name)))
	require.NoError(t, err)
	w, err := conform.SessionWorker(s.Meta)
	require.NoError(t, err)
	out := tape{worker: w}
	salted := false
	for _, op := range s.Ops {
		switch op.Op {
		case "event":
			out.steps = append(out.steps, tapeStep{payload: op.Payload})
		case "reset_prefix_cache":
			out.steps = append(out.steps, tapeStep{clear: true})
		case "request":
			p := conform.SessionPrompt(op.Request)
			salted = salted || p.CacheSalt != ""
			out.steps = append(out.steps, tapeStep{prompt: &p, reported: op.Request.Cached()})
		}
	}
	out.worker.PlainOnly = !salted
	return out
}

// sglangTape reads a truth trace of SGLang's cache.
func sglangTape(t *testing.T, name string) (out tape) {
	t.Helper()
	var prompts recording.Prompts
	var adapters map[string]string
	err := recording.Lines(bytes.NewReader(golden.Read(t, name)), func(n int, line []byte) error {
		var op struct {
			Op      string          `json:"op"`
			Payload []byte          `json:"payload_b64"`
			ID      string          `json:"id"`
			Tokens  json.RawMessage `json:"tokens"` // of a query a list
			Extend  *string         `json:"extend"`
			Take    int             `json:"take"`
			Key     string          `json:"extra_key"`
			Salt    string          `json:"cache_salt"`
			Served  int             `json:"served_hit_tokens"`
			// Of the header.
			Version string            `json:"version"`
			Page    int               `json:"page_size"`
			EAGLE   bool              `json:"is_eagle"`
			Dynamo  bool              `json:"dynamo_format"`
			Names   map[string]string `json:"lora_names"`
		}
		if err := json.Unmarshal(line, &op); err != nil {
			return err
		}
		switch {
		case n == 1:
			out.worker = kvatlas.Worker{Engine: "sglang", Release: op.Version, BlockSize: op.Page, DynamoEvents: op.Dynamo,
				Cache: radix.ProfileOptions{Eagle: op.EAGLE}}
			adapters = op.Names
		case op.Op == "events":
			out.steps = append(out.steps, tapeStep{payload: op.Payload})
		case op.Op == "query":
			var own []int64
			if err := json.Unmarshal(op.Tokens, &own); err != nil {
				return err
			}
			tokens, err := prompts.Add(&recording.TraceOp{ID: op.ID, Tokens: own, Extend: op.Extend, Take: op.Take, Line: n})
			if err != nil {
				return err
			}
			p := &blockhash.Prompt{CacheSalt: op.Salt, ExtraKey: op.Key}
			p.Tokens, p.WideTokens = recorded.Tokens(tokens)
			for id, adapter := range adapters { // its extra key ends in a random id
				if strings.HasSuffix(op.Key, id) {
					p.LoRA = &blockhash.LoRA{Name: adapter}
				}
			}
			out.steps = append(out.steps, tapeStep{prompt: p, reported: op.Served, bound: strings.Contains(name, "namespaces")})
		}
		return nil
	})
	require.NoError(t, err)
	return out
}

// automatic is the description of a worker of which nothing is given but what no event
// tells.
func automatic(w kvatlas.Worker) kvatlas.Worker {
	return kvatlas.Worker{Auto: true, PlainOnly: w.PlainOnly}
}

// play runs tapes side by side into one atlas, in an order drawn at random, and
// checks every prediction: that of the worker that the prompt was recorded from
// against what its engine said, and those of all workers against an atlas of their
// own, which knows no other. It returns how many were known and how many not, by tape.
func play(t *testing.T, rng *rand.Rand, tapes []tape, describe func(kvatlas.Worker) kvatlas.Worker) (known, unknown []int) {
	t.Helper()
	all := newAtlas(t)
	alone := make([]*kvatlas.Atlas, len(tapes))
	at := make([]int, len(tapes))
	known, unknown = make([]int, len(tapes)), make([]int, len(tapes))
	for i := range tapes {
		w := describe(tapes[i].worker)
		w.Name = fmt.Sprint(i)
		require.NoError(t, all.AddWorker(w))
		alone[i] = newAtlas(t, w)
	}
	var left []int
	for i := range tapes {
		for range tapes[i].steps {
			left = append(left, i)
		}
	}
	rng.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	var together, single kvatlas.Match
	for _, i := range left {
		step := &tapes[i].steps[at[i]]
		at[i]++
		name := fmt.Sprint(i)
		switch {
		case step.payload != nil:
			require.NoError(t, all.Apply(name, step.payload))
			require.NoError(t, alone[i].Apply(name, step.payload))
			continue
		case step.clear:
			require.NoError(t, all.Clear(name))
			require.NoError(t, alone[i].Clear(name))
			continue
		}
		req := &kvatlas.Request{Prompt: *step.prompt}
		require.NoError(t, all.Match(req, &together))
		for j := range tapes {
			w := together.Workers[j]
			if err := alone[j].Match(req, &single); err != nil {
				require.NotEmpty(t, w.Unknown, "%d: %v", j, err)
				continue
			}
			require.Equal(t, single.Workers[0].Usable, w.Usable, "worker %d, prompt of %d at step %d", j, i, at[i])
			require.Equal(t, single.Workers[0].Unknown == "", w.Unknown == "", "worker %d, prompt of %d at step %d", j, i, at[i])
		}
		switch w := together.Workers[i]; {
		case w.Unknown != "":
			unknown[i]++
			require.Zero(t, w.Usable)
		case step.bound || w.UpperBound:
			known[i]++
			require.GreaterOrEqual(t, w.Usable, step.reported, "tape %d, step %d", i, at[i])
		default:
			known[i]++
			require.Equal(t, step.reported, w.Usable, "tape %d, step %d, %d tokens, salt %q", i, at[i], step.prompt.Len(), step.prompt.CacheSalt)
		}
	}
	return known, unknown
}

// TestMixedFleet: engines and eras side by side behind one matcher, described and
// found out.
func TestMixedFleet(t *testing.T) {
	tapes := []tape{
		vllmTape(t, "vllm/server/0.20.2/truth-main.jsonl"),
		vllmTape(t, "vllm/server/0.29.0/truth-main.jsonl"),
		vllmTape(t, "vllm/server/0.32.0/truth-main.jsonl"),
		vllmTape(t, "vllm/server/0.32.0/truth-evict.jsonl"),
		sglangTape(t, "sglang/truth/0.5.9-page16.jsonl"),
		sglangTape(t, "sglang/truth/0.5.23-unified-page16.jsonl"),
	}
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 32))
		known, unknown := play(t, rng, tapes, func(w kvatlas.Worker) kvatlas.Worker { return w })
		t.Logf("seed %d, described: %v known, %v unknown", seed, known, unknown)
		known, unknown = play(t, rng, tapes, automatic)
		t.Logf("seed %d, automatic: %v known, %v unknown", seed, known, unknown)
		for i := range tapes {
			require.Greater(t, known[i], 0)
		}
	}
}

// traceTape reads a truth trace of vLLM's cache manager, whose prompts only compare
// workers: the conformance tests compare them with the engine.
func traceTape(t *testing.T, name string) (tape, *recording.Trace) {
	t.Helper()
	tr, err := recording.ReadTrace(bytes.NewReader(golden.Read(t, name)))
	require.NoError(t, err)
	w, err := conform.TraceWorker(tr)
	require.NoError(t, err)
	out := tape{worker: w}
	out.worker.PlainOnly = true
	var prompts recording.Prompts
	extras := map[string]blockhash.Prompt{}
	for i := range tr.Ops {
		op := &tr.Ops[i]
		switch op.Op {
		case "events":
			out.steps = append(out.steps, tapeStep{payload: op.Payload})
		case "arrive":
			_, err := prompts.Add(op)
			require.NoError(t, err)
			extras[op.ID] = conform.TracePrompt(op)
		case "query":
			tokens, arrived := prompts.Get(op.ID)
			if !arrived {
				tokens, err = prompts.Add(op)
				require.NoError(t, err)
				extras[op.ID] = conform.TracePrompt(op)
			}
			p := extras[op.ID]
			p.Tokens, p.WideTokens = recorded.Tokens(tokens)
			out.worker.PlainOnly = out.worker.PlainOnly && p.Features() == 0
			out.steps = append(out.steps, tapeStep{prompt: &p})
		case "finish":
			prompts.Finish(op)
		}
	}
	return out, tr
}

// beside plays a tape to a described and an automatic worker, which must agree
// wherever something is known.
func beside(t *testing.T, name string, tp tape, auto kvatlas.Worker) (known, unknown int, a *kvatlas.Atlas) {
	t.Helper()
	tp.worker.Name, auto.Name = "described", "automatic"
	a, err := kvatlas.New(kvatlas.Options{Seeds: []blockhash.Seed{blockhash.SeedText("42")}})
	require.NoError(t, err)
	require.NoError(t, a.AddWorker(tp.worker))
	require.NoError(t, a.AddWorker(auto))
	var m kvatlas.Match
	for i := range tp.steps {
		step := &tp.steps[i]
		for _, w := range []string{"described", "automatic"} {
			if step.payload != nil {
				require.NoError(t, a.Apply(w, step.payload))
			} else if step.clear {
				require.NoError(t, a.Clear(w))
			}
		}
		if step.prompt == nil {
			continue
		}
		if err := a.Match(&kvatlas.Request{Prompt: *step.prompt}, &m); err != nil {
			continue
		}
		if m.Workers[1].Unknown != "" {
			unknown++
			require.Zero(t, m.Workers[1].Usable)
			continue
		}
		known++
		require.Equal(t, m.Workers[0].Usable, m.Workers[1].Usable, "%s, step %d, features %b; %s", name, i, step.prompt.Features(), m.Workers[0].Unknown)
		require.Equal(t, m.Workers[0].External, m.Workers[1].External, "%s, step %d", name, i)
	}
	return known, unknown, a
}

// TestAutomatic: of every recording it is found what the engine is, and predictions are
// those of a description.
func TestAutomatic(t *testing.T) {
	var counts [3]int
	never := map[string]string{}
	for _, pattern := range []string{"vllm/server/*/truth-*.jsonl", "vllm/truth/*/*.jsonl", "vllm/scheduler/*/*.jsonl", "vllm/tiers/*/*.jsonl", "sglang/truth/*.jsonl"} {
		for _, name := range golden.Files(t, pattern) {
			var tp tape
			ruled := false
			switch {
			case strings.HasPrefix(name, "vllm/server"):
				tp = vllmTape(t, name)
			case strings.HasPrefix(name, "vllm"):
				var tr *recording.Trace
				tp, tr = traceTape(t, name)
				ruled = len(tr.Groups) > 1 || tr.Groups[0].Kind != "full_attention" || tr.Connector != ""
			default:
				tp = sglangTape(t, name)
			}
			auto := automatic(tp.worker)
			if tp.worker.Engine == "vllm" {
				auto.Cache.Eagle = tp.worker.Cache.Eagle // in no event
			}
			if ruled { // neither is what they follow from
				auto.Release, auto.BlockSize, auto.Cache = tp.worker.Release, tp.worker.BlockSize, tp.worker.Cache
			}
			known, unknown, a := beside(t, name, tp, auto)
			p, err := a.Profile("automatic")
			require.NoError(t, err)
			want, err := a.Profile("described")
			require.NoError(t, err)
			t.Logf("%s: %d known, %d unknown, by %s, %s", name, known, unknown, p.Mode, p.Releases)
			if !p.Known {
				never[name] = p.Reason
				continue
			}
			counts[p.Mode] += known
			counts[2] += unknown
			require.Equal(t, want.Mode, p.Mode, name)
			require.Equal(t, want.BlockSize, p.BlockSize, name)
			require.Equal(t, want.Algorithm, p.Algorithm, name)
			require.Equal(t, want.Seed, p.Seed, name)
			require.Equal(t, want.Lookahead, p.Lookahead, name)
			require.Equal(t, want.EAGLE, p.EAGLE, name)
			require.Less(t, unknown, known, name)
		}
	}
	t.Logf("%d predictions by hash, %d by content, %d unknown; never known: %v", counts[0], counts[1], counts[2], never)
	require.Greater(t, counts[0]+counts[1], 20*counts[2])
	for name := range never { // nodes of any size; salted blocks that look like plain ones, from a random root
		require.Regexp(t, `^sglang/truth/0\.4\.[67]|^vllm/truth/0\.1[0-6].*-unset`, name)
	}
}
