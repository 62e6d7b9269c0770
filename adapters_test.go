package kvatlas_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/internal/recording"
)

// TestAdaptersByContent: the namespace of an SGLang adapter ends in a random id that no
// router has. By the name in the events its prompts are matched all the same, exactly
// where the name has one namespace. Where further extra keys share it, its blocks count
// while all of them are held; the match says that it need not fit.
func TestAdaptersByContent(t *testing.T) {
	for config, dynamo := range map[string]bool{"0.5.23-unified-page16-lora": false, "0.5.23-unified-page16-dynamo": true} {
		var a *kvatlas.Atlas
		var prompts recording.Prompts
		var names map[string]string
		var m kvatlas.Match
		var equal, all = map[string]int{}, map[string]int{}
		for i, line := range strings.Split(strings.TrimSpace(string(golden.Read(t, "sglang/truth/"+config+".jsonl"))), "\n") {
			var op struct {
				Op       string
				ID       string
				Version  string            `json:"version"`
				Page     int               `json:"page_size"`
				Names    map[string]string `json:"lora_names"`
				Payload  []byte            `json:"payload_b64"`
				Tokens   []int64           `json:"tokens"`
				Extend   *string           `json:"extend"`
				Take     int               `json:"take"`
				ExtraKey string            `json:"extra_key"`
				Salt     string            `json:"cache_salt"`
				Hit      int               `json:"hit_tokens"`
			}
			if !strings.Contains(line, `"op":"evict"`) { // whose tokens are a number
				require.NoError(t, json.Unmarshal([]byte(line), &op))
			}
			switch {
			case i == 0:
				w := sglangWorker(op.Version, op.Page)
				w.DynamoEvents = dynamo
				a, names = newAtlas(t, w), op.Names
			case op.Op == "events":
				require.NoError(t, a.Apply("a", op.Payload))
			case op.Op == "query":
				ids, err := prompts.Add(&recording.TraceOp{ID: op.ID, Tokens: op.Tokens, Extend: op.Extend, Take: op.Take})
				require.NoError(t, err)
				for id, name := range names {
					if !strings.HasSuffix(op.ExtraKey, id) {
						continue
					}
					p := blockhash.Prompt{WideTokens: ids, LoRA: &blockhash.LoRA{Name: name}, CacheSalt: op.Salt}
					require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
					w := m.Workers[0]
					require.Empty(t, w.Unknown)
					require.True(t, w.UpperBound)
					all[name]++
					if w.Prefix == op.Hit {
						equal[name]++
					}
				}
			}
		}
		if names == nil {
			continue // no adapters in it
		}
		require.Equal(t, map[string]int{"chat-adapter": 28, "sql-adapter": 35}, all)
		require.Equal(t, map[string]int{"chat-adapter": 28, "sql-adapter": 32}, equal, "the latter has two namespaces")
		require.NoError(t, a.Clear("a"))
		require.NoError(t, a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(99), LoRA: &blockhash.LoRA{Name: "x"}}}, &m))
		require.Zero(t, m.Workers[0].Combined)
		require.True(t, a.RemoveWorker("a"))
		require.Zero(t, a.Snapshot().Index.Workers)
	}
}

// TestNamespacesAreABound: in SGLang prompts of other namespaces have the same hashes, so
// that a match says that it may be too high, unless there are only plain prompts, or
// the format of events has the namespace in it.
func TestNamespacesAreABound(t *testing.T) {
	plain := blockhash.Prompt{Tokens: tokens(40)}
	salted, keyed, named := plain, plain, plain
	salted.CacheSalt, keyed.ExtraKey, named.LoRA = "s", "k", &blockhash.LoRA{Name: "x"}
	for what, c := range map[string]struct {
		release string
		change  func(*kvatlas.Worker)
		prompt  blockhash.Prompt
		bound   bool
	}{
		"default":             {"0.5.9", func(*kvatlas.Worker) {}, plain, true},
		"plain only":          {"0.5.9", func(w *kvatlas.Worker) { w.PlainOnly = true }, plain, false},
		"against its word":    {"0.5.9", func(w *kvatlas.Worker) { w.PlainOnly = true }, keyed, true},
		"salt":                {"0.5.18", func(*kvatlas.Worker) {}, salted, true},
		"adapter":             {"0.5.22", func(*kvatlas.Worker) {}, named, true},
		"format dynamo":       {"0.5.22", func(w *kvatlas.Worker) { w.DynamoEvents = true }, keyed, false},
		"not chained":         {"0.5.4", func(w *kvatlas.Worker) { w.PlainOnly = true }, plain, true},
		"whole nodes, by key": {"0.4.7", func(w *kvatlas.Worker) { w.PlainOnly = true }, plain, false},
	} {
		w := sglangWorker(c.release, 4)
		c.change(&w)
		var m kvatlas.Match
		require.NoError(t, newAtlas(t, w).Match(&kvatlas.Request{Prompt: c.prompt}, &m), what)
		require.Empty(t, m.Workers[0].Unknown, what)
		require.Equal(t, c.bound, m.Workers[0].UpperBound, what)
	}
}
