package recording

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// Trace is a truth trace: what the engine's cache manager published and what
// it hit, operation by operation.
type Trace struct {
	TraceHeader
	Root []byte // NoneHash decoded
	Ops  []TraceOp
}

// TraceHeader is the first line of a trace.
type TraceHeader struct {
	Engine             string       `json:"engine"`
	Version            string       `json:"version"`
	Config             string       `json:"config"`
	HashAlgo           string       `json:"hash_algo"`
	Seed               *string      `json:"python_hash_seed"`
	NoneHash           string       `json:"none_hash_hex"`
	IntBlockHashes     bool         `json:"int_block_hashes"`
	EventEncoding      string       `json:"event_encoding"`
	GroupInEvents      bool         `json:"group_in_events"`
	HashBlockSize      int          `json:"hash_block_size"`
	SchedulerBlockSize int          `json:"scheduler_block_size"`
	PartialHashHits    bool         `json:"partial_hash_hits"`
	UseEAGLE           bool         `json:"use_eagle"`
	Lookahead          int          `json:"num_hash_lookahead_tokens"`
	ReportMode         string       `json:"report_mode"`
	Strict             bool         `json:"strict"`
	Groups             []TraceGroup `json:"groups"`

	// Traces of the scheduler with an offload connector have these too.
	Connector      string         `json:"connector"`
	ConnectorExtra map[string]any `json:"connector_extra"`
	TokensPerChunk int            `json:"tokens_per_chunk"`
}

// TraceGroup is one KV cache group of the engine.
type TraceGroup struct {
	Kind               string `json:"kind"`
	BlockSize          int    `json:"block_size"`
	SlidingWindow      int    `json:"sliding_window"`
	AttentionChunkSize int    `json:"attention_chunk_size"`
	MambaCacheMode     string `json:"mamba_cache_mode"`
	IsEAGLE            bool   `json:"is_eagle_group"`
}

// TraceOp is one operation.
type TraceOp struct {
	Op string `json:"op"`
	ID string `json:"id"`

	// Query, arrive.
	Tokens     []int64 `json:"tokens"`
	Extend     *string `json:"extend"`
	Take       int     `json:"take"`
	LoRAName   *string `json:"lora_name"`
	LoRAID     int64   `json:"lora_id"`
	LoRAPath   string  `json:"lora_path"`
	CacheSalt  string  `json:"cache_salt"`
	Items      []Item  `json:"mm"`
	HitTokens  int     `json:"hit_tokens"`
	HashesTail *string `json:"hashes_tail"`

	// PendingEvents counts what had happened in the engine but was in no
	// message yet when it answered.
	PendingEvents int `json:"pending_events"`

	// External is what the connector added; nil when it wants to be asked
	// again (or in traces without a connector).
	External *int `json:"external_tokens"`
	// OwnTransfers is null while the request's own copy is in flight.
	OwnTransfers *int `json:"own_transfers"`
	// Pending is PendingEvents by source, in traces of the scheduler.
	Pending map[string]int `json:"pending"`

	// Events.
	Seq         int64  `json:"seq"`
	Payload     []byte `json:"-"`
	PayloadB64  string `json:"payload_b64"`
	LocalEvents *int   `json:"local_events"`
	// EventGroups are the true groups of a message's events where the events
	// name none: a note of the recorder, which no consumer has.
	EventGroups []*int16 `json:"event_groups"`

	// Finish.
	Output   []int64 `json:"output"`
	Aborted  bool    `json:"aborted"`
	Reported []int   `json:"reported"`

	// Reset.
	ResetConnector bool  `json:"reset_connector"`
	Done           *bool `json:"done"`

	Line int `json:"-"`
}

// ReadTrace reads a whole truth trace.
func ReadTrace(r io.Reader) (*Trace, error) {
	var t *Trace
	order := traceOrder{prompts: map[string]bool{}}
	err := Lines(r, func(n int, line []byte) error {
		if t == nil {
			t = &Trace{}
			if err := decode(line, &t.TraceHeader); err != nil {
				return err
			}
			if t.Engine == "" || t.Version == "" || t.HashBlockSize < 1 || len(t.Groups) == 0 {
				return errors.New(`want a header with "engine", "version", "hash_block_size" and "groups"`)
			}
			var err error
			if t.Root, err = hex.DecodeString(t.NoneHash); err != nil {
				return fmt.Errorf("none_hash_hex: %w", err)
			}
			return nil
		}
		op := TraceOp{Line: n}
		if err := decode(line, &op); err != nil {
			return err
		}
		if op.PayloadB64 != "" {
			var err error
			if op.Payload, err = base64.StdEncoding.DecodeString(op.PayloadB64); err != nil {
				return fmt.Errorf("payload_b64: %w", err)
			}
			op.PayloadB64 = ""
		}
		if err := order.next(&op); err != nil {
			return err
		}
		t.Ops = append(t.Ops, op)
		return nil
	})
	if err == nil && t == nil {
		err = errors.New("empty file: want a header line")
	}
	if err != nil {
		return nil, fmt.Errorf("recording: truth trace: %w", err)
	}
	return t, nil
}

// Prompts builds the prompts of a trace, which refer to each other.
type Prompts struct {
	text map[string][]int64
}

// Add returns the whole prompt of a query or arrive operation: what it extends, then its
// own tokens. The result is shared; it is not to be changed.
func (p *Prompts) Add(op *TraceOp) ([]int64, error) {
	if p.text == nil {
		p.text = map[string][]int64{}
	}
	var all []int64
	if op.Extend != nil {
		before, ok := p.text[*op.Extend]
		if !ok || op.Take < 0 || op.Take > len(before) {
			return nil, fmt.Errorf("line %d: extends %q by %d tokens, of which %d are known", op.Line, *op.Extend, op.Take, len(before))
		}
		all = append(all, before[:op.Take]...)
	}
	all = append(all, op.Tokens...)
	p.text[op.ID] = all
	return all, nil
}

// Get returns a prompt that was added, with what was generated after it.
func (p *Prompts) Get(id string) ([]int64, bool) {
	t, ok := p.text[id]
	return t, ok
}

// Finish appends the output of a finished request to its text.
func (p *Prompts) Finish(op *TraceOp) {
	if t, ok := p.text[op.ID]; ok {
		p.text[op.ID] = append(t[:len(t):len(t)], op.Output...)
	}
}
