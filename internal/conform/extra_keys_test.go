package conform

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents"
)

// TestTrialT36Recomputed: every block of these recordings, hashed again from what its event
// says of tokens and extra keys, with the adapters' paths, has the announced hash.
func TestTrialT36Recomputed(t *testing.T) {
	paths := map[string]string{"sql": "/adapters/sql", "chat": "/adapters/chat", "a1": "./adapters/a1", "a2": "./adapters/a2"}
	total := map[string]int{}
	for _, release := range []string{"0.20.2", "0.24.0", "0.29.0", "0.32.0", "0.33.0"} {
		file := golden.Read(t, "vllm/truth/"+release+"/u16.jsonl")
		trace, err := recording.ReadTrace(reader(file))
		require.NoError(t, err)
		w, err := TraceWorker(trace)
		require.NoError(t, err)
		recompute(t, w, file, paths, total)
	}
	for _, name := range []string{"0.29.0/truth-lora", "0.32.0/truth-full", "0.32.0/truth-main"} {
		file := golden.Read(t, "vllm/server/"+name+".jsonl")
		s, err := recording.ReadSession(reader(file))
		require.NoError(t, err)
		w, err := SessionWorker(s.Meta)
		require.NoError(t, err)
		recompute(t, w, file, paths, total)
	}
	for _, what := range []string{"plain", "adapter", "item", "salt"} {
		require.Greater(t, total[what], 3, what)
	}
}

func recompute(t *testing.T, w kvatlas.Worker, file []byte, paths map[string]string, total map[string]int) {
	scheme, err := blockhash.SchemeFor("vllm", w.Release)
	require.NoError(t, err)
	h, err := blockhash.New(blockhash.Options{Scheme: scheme, Algorithm: w.Algorithm, BlockSize: w.BlockSize, Seed: w.Seed})
	require.NoError(t, err)
	messages, err := messagesOf(file)
	require.NoError(t, err)
	known := map[uint64]blockhash.Prompt{}
	var b kvevents.Batch
	for _, m := range messages {
		require.NoError(t, new(kvevents.Decoder).Decode(m.bare, &b))
		for i := range b.Events {
			e := &b.Events[i]
			if e.Kind != kvevents.BlockStored {
				continue
			}
			p, ok := known[e.Parent], true
			if !e.HasParent {
				p, ok = blockhash.Prompt{}, true
			}
			require.True(t, ok)
			for n, hash := range e.Hashes {
				p = grown(p, e, n, paths, total)
				keys, err := h.AppendKeys(nil, &p)
				require.NoError(t, err)
				require.Equal(t, hash, keys[len(keys)-1], "%s, %s, block %d with %v", w.Release, m.where, n, e.ExtraKeys[n])
				known[hash] = p
			}
		}
	}
}

// grown is a prompt with the n-th block of an event after it.
func grown(p blockhash.Prompt, e *kvevents.Event, n int, paths map[string]string, total map[string]int) blockhash.Prompt {
	start, size := len(p.Tokens), e.BlockSize
	p.Tokens = append(p.Tokens[:start:start], e.Tokens[n*size:(n+1)*size]...)
	p.Items = slices.Clone(p.Items)
	keys := e.ExtraKeys[n]
	if len(keys) == 0 {
		total["plain"]++
	}
	if name := string(e.LoRAName); name != "" && len(keys) > 0 && bytes.Equal(keys[0].Text, e.LoRAName) {
		p.LoRA = &blockhash.LoRA{Name: name, ID: e.LoRAID, Path: paths[name]}
		keys = keys[1:]
		total["adapter"]++
	}
	for _, k := range keys {
		switch k.Kind {
		case kvevents.ExtraItem: // to the end of the block, as far as is known
			item := blockhash.Item{Identifier: string(k.Text), Offset: start + int(k.Offset), Length: size - int(k.Offset)}
			i := slices.IndexFunc(p.Items, func(o blockhash.Item) bool { return o.Identifier == item.Identifier && o.Offset == item.Offset })
			if i < 0 {
				p.Items = append(p.Items, item)
			} else {
				p.Items[i].Length = item.Length
			}
			total["item"]++
		case kvevents.ExtraText:
			p.CacheSalt = string(k.Text)
			total["salt"]++
		}
	}
	return p
}
