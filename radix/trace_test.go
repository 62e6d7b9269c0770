package radix_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// A trace is a recording of a real cache manager or scheduler: the header, then
// operations in order (golden READMEs: truth, scheduler, tiers).
type traceHeader struct {
	Version      string `json:"version"`
	HashAlgo     string `json:"hash_algo"`
	NoneHash     string `json:"none_hash_hex"`
	Unit         int    `json:"hash_block_size"`
	Sched        int    `json:"scheduler_block_size"`
	Eagle        bool   `json:"use_eagle"`
	Lookahead    int    `json:"num_hash_lookahead_tokens"`
	PartialHits  bool   `json:"partial_hash_hits"`
	GroupInEvent *bool  `json:"group_in_events"`
	Groups       []struct {
		Kind   string `json:"kind"`
		Block  int    `json:"block_size"`
		Window int    `json:"sliding_window"`
		Chunk  int    `json:"attention_chunk_size"`
		Eagle  bool   `json:"is_eagle_group"`
	} `json:"groups"`
	Connector      string `json:"connector"`
	ConnectorExtra struct {
		BlockSize      int  `json:"block_size"`
		BlocksPerChunk int  `json:"blocks_per_chunk"`
		SelfDescribing bool `json:"self_describing_kv_events"`
	} `json:"connector_extra"`
}

type traceOp struct {
	Op        string   `json:"op"`
	ID        string   `json:"id"`
	Tokens    []uint32 `json:"tokens"`
	Extend    *string  `json:"extend"`
	Take      int      `json:"take"`
	LoRAName  *string  `json:"lora_name"`
	LoRAID    int64    `json:"lora_id"`
	LoRAPath  string   `json:"lora_path"`
	CacheSalt string   `json:"cache_salt"`
	MM        []struct {
		Identifier string `json:"identifier"`
		Offset     int    `json:"offset"`
		Length     int    `json:"length"`
	} `json:"mm"`
	Hit          int             `json:"hit_tokens"`
	External     *int            `json:"external_tokens"`
	OwnTransfers json.RawMessage `json:"own_transfers"`
	Pending      map[string]int  `json:"pending"`
	PendingCount int             `json:"pending_events"`
	Tail         *string         `json:"hashes_tail"`
	Payload      []byte          `json:"payload_b64"`
	LocalEvents  *int            `json:"local_events"`
	EventGroups  []*int16        `json:"event_groups"`
	Output       []uint32        `json:"output"`
	ResetConn    bool            `json:"reset_connector"`
	GPU          [][]uint64      `json:"GPU"`
	CPU          [][]uint64      `json:"CPU"`
}

type trace struct {
	name    string
	header  traceHeader
	ops     []traceOp
	profile *radix.Profile
	hasher  *blockhash.Hasher
	texts   map[string][]uint32
	prompts map[string]blockhash.Prompt
}

func openTrace(t *testing.T, name string) *trace {
	tr := &trace{name: name, texts: map[string][]uint32{}, prompts: map[string]blockhash.Prompt{}}
	lines := bytes.Split(bytes.TrimSpace(golden.Read(t, name)), []byte("\n"))
	require.NoError(t, json.Unmarshal(lines[0], &tr.header), name)
	for _, line := range lines[1:] {
		var op traceOp
		require.NoError(t, json.Unmarshal(line, &op), name)
		tr.ops = append(tr.ops, op)
	}
	h := &tr.header
	o := radix.ProfileOptions{Release: h.Version, HashUnit: h.Unit, SchedulerBlock: h.Sched, Eagle: h.Eagle, Lookahead: h.Lookahead}
	for _, g := range h.Groups {
		kind, err := radix.ParseKind(g.Kind)
		require.NoError(t, err)
		o.Groups = append(o.Groups, radix.Group{Kind: kind, BlockSize: g.Block, Window: g.Window, Chunk: g.Chunk, Eagle: g.Eagle})
	}
	switch h.Connector {
	case "OffloadingConnector":
		o.Connector = radix.Offloading
		if o.ChunkBlocks = h.ConnectorExtra.BlocksPerChunk; h.ConnectorExtra.BlockSize > 0 {
			o.ChunkBlocks = h.ConnectorExtra.BlockSize / h.Groups[0].Block
		}
	case "SimpleCPUOffloadConnector":
		o.Connector = radix.SimpleOffload
	default:
		require.Empty(t, h.Connector)
	}
	var err error
	tr.profile, err = radix.NewProfile(o)
	require.NoError(t, err, name)
	require.Equal(t, h.PartialHits, tr.profile.PartialHits(), "%s: partial hits", name)

	scheme, err := blockhash.SchemeFor("vllm", h.Version)
	require.NoError(t, err)
	algorithm, err := blockhash.ParseAlgorithm(h.HashAlgo)
	require.NoError(t, err)
	root, err := hex.DecodeString(h.NoneHash)
	require.NoError(t, err)
	tr.hasher, err = blockhash.New(blockhash.Options{Scheme: scheme, Algorithm: algorithm,
		BlockSize: h.Unit, Lookahead: h.Lookahead, Seed: blockhash.SeedRoot(root)})
	require.NoError(t, err, name)
	return tr
}

// arrive notes a prompt's text and extras.
func (tr *trace) arrive(op *traceOp) {
	var text []uint32
	if op.Extend != nil {
		text = append(text, tr.texts[*op.Extend][:op.Take]...)
	}
	text = append(text, op.Tokens...)
	tr.texts[op.ID] = text
	p := blockhash.Prompt{CacheSalt: op.CacheSalt}
	if op.LoRAName != nil {
		p.LoRA = &blockhash.LoRA{Name: *op.LoRAName, ID: op.LoRAID, Path: op.LoRAPath}
	}
	for _, m := range op.MM {
		p.Items = append(p.Items, blockhash.Item{Identifier: m.Identifier, Offset: m.Offset, Length: m.Length})
	}
	tr.prompts[op.ID] = p
}

// query makes the keys of a look-up and checks the last with the engine's.
func (tr *trace) query(t *testing.T, op *traceOp) radix.Query {
	p := tr.prompts[op.ID]
	p.Tokens = append(append([]uint32(nil), tr.texts[op.ID]...), op.Output...)
	keys, err := tr.hasher.AppendKeys(nil, &p)
	require.NoError(t, err)
	require.Equal(t, op.Tail != nil, len(keys) > 0)
	if op.Tail != nil {
		tail, err := hex.DecodeString(*op.Tail)
		require.NoError(t, err)
		require.Equal(t, blockhash.KeyOf(tail), keys[len(keys)-1], "%s %s: hash", tr.name, op.ID)
	}
	return radix.Query{Keys: keys, Tokens: len(p.Tokens), Unit: tr.header.Unit}
}

// source tells which pool an event came from, a note of the recorder: 0 the
// engine's, 1 the connector's, 2 the connector's further tiers.
func (tr *trace) source(op *traceOp, i int, e *kvevents.Event) int {
	switch {
	case op.LocalEvents == nil || i < *op.LocalEvents:
		return 0
	case string(e.Medium) == "STORAGE" && tr.header.Connector == "OffloadingConnector":
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
		case tr.header.Connector == "":
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
