package kvatlas

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/radix"
)

// FromDocuments names the engines whose events and rules are taken from their
// documents and published sources: nothing was compared with the engines themselves.
// Their matches are of whole blocks from the start, the last token left out, and all
// say that they are upper bounds ([radix.WorkerMatch]); [WorkerStats.FromDocuments]
// says so too.
//
//   - tensorrt-llm: blocks are known by content, from the tokens of their events
//     (package kvevents/trtllm, or its streamed form through a kvevents.Subscriber).
//     No event tells an adapter's blocks from plain ones, so that nothing is known
//     unless the worker is declared PlainOnly. What the engine reuses of a block in
//     part (enable_partial_reuse) is not counted.
//   - dynamo: blocks are known by Dynamo's own hash of their tokens, which its relays
//     publish beside the engine's hash (package kvevents/dynamo); also from events in
//     vLLM's form, by their tokens. Before 1.6 that hash is the same under every adapter
//     and salt, so that nothing is known unless the worker is declared PlainOnly.
//   - mooncake: with XXH3Seed the publisher's hashes are those of RFC 1527 (package
//     kvevents/mooncake); without, blocks are known by the token ids of their events.
//
// A repeated announcement is no further copy with them: one removal takes a block
// away.
const FromDocuments = "tensorrt-llm, dynamo, mooncake"

const (
	tensorrt = "tensorrt-llm"
	dynamo   = "dynamo"
	mooncake = "mooncake"
)

// engineName returns the name as it is used here.
func engineName(name string) string {
	name = strings.ToLower(cmp.Or(name, "vllm"))
	if name == "trtllm" {
		return tensorrt
	}
	return name
}

// documented tells whether the worker's engine is one of [FromDocuments].
func (w *Worker) documented() bool {
	return slices.Contains([]string{tensorrt, dynamo, mooncake}, w.Engine)
}

// documentedProfile is the one rule that the documents give: whole blocks, the last
// token left out. Windows of TensorRT-LLM follow vLLM's rule for them.
func (w *Worker) documentedProfile() (*radix.Profile, error) {
	o := w.Cache
	if o.Eagle || o.Lookahead > 0 || o.Connector != radix.NoConnector || w.Engine != tensorrt && len(o.Groups) > 0 {
		return nil, fmt.Errorf("%w: EAGLE, lookahead, connectors or cache groups of %s", ErrUnsupported, w.Engine)
	}
	return radix.NewProfile(radix.ProfileOptions{HashUnit: o.HashUnit, Groups: o.Groups, Copies: radix.Set, Clear: o.Clear})
}

// documentedKey says how such a worker's blocks are known.
func (w *Worker) documentedKey(key domainKey) (domainKey, error) {
	if w.Algorithm != blockhash.SHA256 || w.Seed != (blockhash.Seed{}) {
		return domainKey{}, fmt.Errorf("%w: %s has no choice of algorithm and root; leave Algorithm and Seed at their defaults", ErrUnsupported, w.Engine)
	}
	switch {
	case w.Engine == tensorrt:
		return domainKey{scheme: key.scheme, unit: key.unit, content: true, plainOnly: w.PlainOnly}, nil
	case w.Engine == mooncake && w.XXH3Seed != 0:
		key.xxh3 = w.XXH3Seed
	default:
		key.relay, key.xxh3 = true, w.XXH3Seed
		key.mixed = w.Engine == dynamo && !w.PlainOnly && !key.scheme.Namespaces()
		if w.Engine == mooncake {
			key.xxh3 = blockhash.DynamoSeed // any will do: it is ours
		}
	}
	_, err := key.hasher(0)
	return key, err
}

// Worker returns the description of a worker, as it was registered: Engine, Release
// and Cache have what was filled in. It is the caller's.
func (a *Atlas) Worker(name string) (Worker, bool) {
	w, ok := a.current().byName[name]
	if !ok {
		return Worker{}, false
	}
	own := w.Worker
	own.Labels, own.Cache.Groups = slices.Clone(own.Labels), slices.Clone(own.Cache.Groups)
	if own.LMCache != nil {
		l := *own.LMCache
		own.LMCache = &l
	}
	return own, true
}

// Medium returns the name of the i-th worker's medium, one that Blocks has a number
// for; "" for a worker of which nothing is known yet.
func (m *Match) Medium(i int, medium radix.Medium) string {
	p := m.places[i]
	if p == nil {
		return ""
	}
	return p.domain.index.MediumName(medium)
}
