package radix_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// A trace is a recording of a real cache manager or scheduler, and what answers
// its look-ups.
type trace struct {
	*recording.Trace
	name    string
	copies  radix.CopyPolicy
	profile *radix.Profile
	hasher  *blockhash.Hasher
	texts   recording.Prompts
	extras  map[string]blockhash.Prompt // prompts without their tokens
}

func openTrace(t *testing.T, name string, copies radix.CopyPolicy) *trace {
	file, err := recording.ReadTrace(bytes.NewReader(golden.Read(t, name)))
	require.NoError(t, err, name)
	tr := &trace{Trace: file, name: name, copies: copies, extras: map[string]blockhash.Prompt{}}
	h := &file.TraceHeader
	o := radix.ProfileOptions{Release: h.Version, HashUnit: h.HashBlockSize, SchedulerBlock: h.SchedulerBlockSize,
		Eagle: h.UseEAGLE, Lookahead: h.Lookahead, Copies: copies}
	for _, g := range h.Groups {
		kind, err := radix.ParseKind(g.Kind)
		require.NoError(t, err)
		o.Groups = append(o.Groups, radix.Group{Kind: kind, BlockSize: g.BlockSize,
			Window: g.SlidingWindow, Chunk: g.AttentionChunkSize, Eagle: g.IsEAGLE})
	}
	switch h.Connector {
	case "OffloadingConnector":
		o.Connector = radix.Offloading
		o.ChunkBlocks = h.TokensPerChunk / h.Groups[0].BlockSize
	case "SimpleCPUOffloadConnector":
		o.Connector = radix.SimpleOffload
	default:
		require.Empty(t, h.Connector)
	}
	tr.profile, err = radix.NewProfile(o)
	require.NoError(t, err, name)
	require.Equal(t, h.PartialHashHits, tr.profile.PartialHits(), "%s: partial hits", name)

	scheme, err := blockhash.SchemeFor("vllm", h.Version)
	require.NoError(t, err)
	algorithm, err := blockhash.ParseAlgorithm(h.HashAlgo)
	require.NoError(t, err)
	tr.hasher, err = blockhash.New(blockhash.Options{Scheme: scheme, Algorithm: algorithm,
		BlockSize: h.HashBlockSize, Lookahead: h.Lookahead, Seed: blockhash.SeedRoot(file.Root)})
	require.NoError(t, err, name)
	return tr
}

// arrive notes a prompt's text and extras.
func (tr *trace) arrive(t *testing.T, op *recording.TraceOp) {
	_, err := tr.texts.Add(op)
	require.NoError(t, err, tr.name)
	p := blockhash.Prompt{CacheSalt: op.CacheSalt}
	if op.LoRAName != nil {
		p.LoRA = &blockhash.LoRA{Name: *op.LoRAName, ID: op.LoRAID, Path: op.LoRAPath}
	}
	for _, m := range op.Items {
		p.Items = append(p.Items, blockhash.Item{Identifier: m.Identifier, Offset: m.Offset, Length: m.Length})
	}
	tr.extras[op.ID] = p
}

// query makes the keys of a look-up and checks the last with the engine's.
func (tr *trace) query(t *testing.T, op *recording.TraceOp) radix.Query {
	p := tr.extras[op.ID]
	text, _ := tr.texts.Get(op.ID)
	for _, token := range append(text[:len(text):len(text)], op.Output...) {
		p.Tokens = append(p.Tokens, uint32(token))
	}
	keys, err := tr.hasher.AppendKeys(nil, &p)
	require.NoError(t, err)
	require.Equal(t, op.HashesTail != nil, len(keys) > 0)
	if op.HashesTail != nil {
		tail, err := hex.DecodeString(*op.HashesTail)
		require.NoError(t, err)
		require.Equal(t, blockhash.KeyOf(tail), keys[len(keys)-1], "%s %s: hash", tr.name, op.ID)
	}
	return radix.Query{Keys: keys, Tokens: len(p.Tokens), Unit: tr.HashBlockSize}
}

// source tells which pool an event came from, a note of the recorder: 0 the
// engine's, 1 the connector's, 2 the connector's further tiers.
func (tr *trace) source(op *recording.TraceOp, i int, e *kvevents.Event) int {
	switch {
	case op.LocalEvents == nil || i < *op.LocalEvents:
		return 0
	case string(e.Medium) == "STORAGE" && tr.Connector == "OffloadingConnector":
		return 2
	}
	return 1
}

// apply feeds one event to the index. What a clear is about is taken from its
// source, as the recording tells it.
func (tr *trace) apply(t *testing.T, x *radix.Index, w radix.WorkerID, e *kvevents.Event, source int, label *int16) {
	h := radix.Holder{Worker: w, Medium: x.Medium(string(e.Medium)), Group: radix.NoGroup}
	if e.HasGroup {
		h.Group = int16(e.Group)
	}
	if label != nil {
		h.Group = *label
	}
	switch e.Kind {
	case kvevents.BlockStored:
		require.NoError(t, x.Store(h, e.Hashes))
	case kvevents.BlockRemoved:
		require.NoError(t, x.Remove(h, e.Hashes))
	case kvevents.AllBlocksCleared:
		switch {
		case tr.Connector == "":
			require.NoError(t, x.EngineClear(w, false))
		case source == 0:
			require.NoError(t, x.Clear(w, radix.GPU))
		default:
			require.NoError(t, x.Clear(w, radix.CPU))
		}
	default:
		t.Fatalf("%s: unknown event", tr.name)
	}
}
