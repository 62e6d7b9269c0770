package trtllm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/kvatlas/kvatlas/internal/jsonevent"
	"github.com/kvatlas/kvatlas/kvevents"
)

// The oracle reads events with encoding/json into a tree, and applies the rules of
// the package documentation step by step. It knows well-formed events of one rank
// and one window only; what it does not know it reports as ok = false.

func oracle(event []byte, blockSize int) (id uint64, events []kvevents.Event, unknownType, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(event))
	dec.UseNumber()
	var tree struct {
		ID   *uint64 `json:"event_id"`
		Data *struct {
			Type   *string `json:"type"`
			Parent any     `json:"parent_hash"`
			Blocks []struct {
				Hash   any `json:"block_hash"`
				Tokens []struct {
					ID    any          `json:"token_id"`
					Extra *json.Number `json:"token_extra_id"`
				} `json:"tokens"`
				Level int   `json:"cache_level"`
				Salt  any   `json:"cache_salt"`
				MM    []any `json:"mm_keys"`
			} `json:"blocks"`
			Hashes  []any `json:"block_hashes"`
			Hash    any   `json:"block_hash"`
			Changed *struct {
				Old int `json:"old_value"`
				New int `json:"new_value"`
			} `json:"cache_level"`
		} `json:"data"`
	}
	if err := dec.Decode(&tree); err != nil || tree.ID == nil || tree.Data == nil || tree.Data.Type == nil {
		return 0, nil, false, false
	}
	media := []string{"GPU", "CPU", "STORAGE"}
	level := func(n int) []byte { return []byte(media[min(n, 2)]) }
	d := tree.Data
	switch *d.Type {
	case "created":
		events = append(events, kvevents.Event{Kind: kvevents.AllBlocksCleared})
	case "removed":
		e := kvevents.Event{Kind: kvevents.BlockRemoved}
		for _, h := range d.Hashes {
			e.Hashes = append(e.Hashes, oracleHash(h))
		}
		if len(e.Hashes) > 0 {
			events = append(events, e)
		}
	case "updated":
		if d.Changed != nil && d.Changed.Old != d.Changed.New {
			h := []uint64{oracleHash(d.Hash)}
			events = append(events, kvevents.Event{Kind: kvevents.BlockRemoved, Hashes: h, Medium: level(d.Changed.Old)},
				kvevents.Event{Kind: kvevents.BlockStored, Hashes: h, Medium: level(d.Changed.New)})
		}
	case "stored":
		special := false
		for i, b := range d.Blocks { // one event a block; the caller joins what follows on
			e := kvevents.Event{Kind: kvevents.BlockStored, Hashes: []uint64{oracleHash(b.Hash)}, Medium: level(b.Level)}
			special = special || b.Salt != nil || len(b.MM) > 0
			var ids []uint32
			for _, t := range b.Tokens {
				n, isNumber := t.ID.(json.Number)
				v, err := n.Int64()
				if !isNumber || err != nil || v < 0 || v > math.MaxUint32 || t.Extra != nil && t.Extra.String() != "0" {
					special = true
				}
				ids = append(ids, uint32(v))
			}
			if !special && !(i == len(d.Blocks)-1 && len(ids) < blockSize) {
				e.Tokens, e.BlockSize = ids, len(ids)
				if i > 0 {
					e.Parent, e.HasParent = oracleHash(d.Blocks[i-1].Hash), true
				} else if d.Parent != nil {
					e.Parent, e.HasParent = oracleHash(d.Parent), true
				}
			}
			events = append(events, e)
		}
	default:
		unknownType = true
	}
	return *tree.ID, events, unknownType, true
}

func oracleHash(v any) uint64 {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		n, _ := v.Int64()
		return uint64(n)
	case string:
		return jsonevent.TextHash(v)
	}
	return 0
}

// split takes events of several blocks apart, for comparison.
func split(events []kvevents.Event) (all []kvevents.Event) {
	for _, e := range events {
		if e.Kind != kvevents.BlockStored || len(e.Hashes) < 2 {
			all = append(all, e)
			continue
		}
		for i, h := range e.Hashes {
			one := e
			one.Hashes = []uint64{h}
			if e.BlockSize > 0 {
				one.Tokens = e.Tokens[i*e.BlockSize : (i+1)*e.BlockSize]
				if i > 0 {
					one.Parent, one.HasParent = e.Hashes[i-1], true
				}
			}
			all = append(all, one)
		}
	}
	return all
}

// writer makes events as KVCacheEventSerializer does, of random shapes.
type writer struct {
	*rand.Rand
	odd bool // salted, multimodal and textual forms too
}

func (w writer) hash() string {
	switch n := w.IntN(10); {
	case n == 0 && w.odd:
		return fmt.Sprintf("%q", fmt.Sprintf("%064x", w.Uint64()))
	case n == 1 && w.odd:
		return strconv.FormatInt(-w.Int64(), 10)
	}
	return strconv.FormatUint(w.Uint64(), 10)
}

func (w writer) event(id uint64, blockSize int) string {
	var data string
	switch w.IntN(8) {
	case 0:
		data = `{"type":"created","num_blocks_per_cache_level":[101230,0]}`
	case 1:
		var hashes []string
		for range w.IntN(4) {
			hashes = append(hashes, w.hash())
		}
		data = `{"type":"removed","block_hashes":[` + strings.Join(hashes, ",") + `]}`
	case 2:
		change := "null"
		if w.IntN(3) > 0 {
			change = fmt.Sprintf(`{"type":"event_diff","new_value":%d,"old_value":%d}`, w.IntN(4), w.IntN(3))
		}
		data = fmt.Sprintf(`{"type":"updated","block_hash":%s,"cache_level":%s,"priority":null}`, w.hash(), change)
	case 3:
		if w.odd {
			data = `{"type":"compacted","since":1}`
			break
		}
		fallthrough
	default:
		parent := "null"
		if w.IntN(2) == 0 {
			parent = w.hash()
		}
		n := w.IntN(4)
		var blocks []string
		for i := range n {
			size := blockSize
			if i == n-1 {
				size = 1 + w.IntN(blockSize)
			}
			var ids []string
			for range size {
				id, extra := strconv.Itoa(w.IntN(200_000)), 0
				if w.odd && w.IntN(40) == 0 {
					id = fmt.Sprintf("%q", strings.Repeat("0a", 32))
				}
				if w.odd && w.IntN(40) == 0 {
					extra = 7
				}
				ids = append(ids, fmt.Sprintf(`{"type":"unique_token","token_id":%s,"token_extra_id":%d}`, id, extra))
			}
			more := ""
			if w.IntN(2) == 0 {
				more = `,"mm_keys":[],"cache_salt":null`
			}
			if w.odd && w.IntN(10) == 0 {
				more = `,"cache_salt":"tenant"`
			}
			blocks = append(blocks, fmt.Sprintf(`{"type":"stored_block","block_hash":%s,"tokens":[%s],"cache_level":%d,"priority":35%s}`,
				w.hash(), strings.Join(ids, ","), w.IntN(2), more))
		}
		data = `{"type":"stored","parent_hash":` + parent + `,"blocks":[` + strings.Join(blocks, ", ") + `]}`
	}
	return fmt.Sprintf(`{"event_id": %d, "data": %s, "window_size": 4096}`, id, data)
}
