package kvatlas

import (
	"fmt"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/parity"
	"github.com/kvatlas/kvatlas/radix"
)

// What a worker is described as is checked against what its events say: the size of
// its blocks, and whether its hashes are those that are computed here for it. A
// worker that contradicts its description is never matched by it: every prompt's
// match on it is unknown, with the reason, until it is added with the right
// one. WorkerStats.Contradiction has the reason too.

// watch makes the monitor of a worker matched by hash. SGLang's format "dynamo" has
// namespaces in the hash that no event tells of: nothing can be checked there, nor of
// engines known from documents.
func (w *worker) watch() error {
	if w.mode != ByHash || w.DynamoEvents || w.documented() {
		return nil
	}
	var err error
	w.monitor, err = parity.New(parity.Options{
		Engine: w.Engine, Release: w.Release, Seeds: []blockhash.Seed{w.Seed}, HashBlockSize: w.hashBlockSize(),
		Algorithms: []blockhash.Algorithm{w.Algorithm, blockhash.SHA256, blockhash.SHA256CBOR, blockhash.XXHash, blockhash.XXHashCBOR},
		Notify:     w.judge,
	})
	return err
}

// hashBlockSize is the size to hash with where events do not tell it.
func (w *worker) hashBlockSize() int {
	if len(w.Cache.Groups) > 1 {
		return w.Cache.HashUnit
	}
	return 0
}

// judge takes the monitor's verdict.
func (w *worker) judge(v parity.Verdict) {
	key := w.domain.key
	switch {
	case v.State == parity.Mismatch:
		w.contradict(v.Error())
	case v.State == parity.Exact && (v.Algorithm != key.algorithm || !w.sameRoot(v) || v.BlockSize != key.unit):
		w.contradict(fmt.Sprintf("the engine hashes with %s, %s and blocks of %d tokens, not with %s, %s and %d",
			v.Algorithm, v.Seed, v.BlockSize, key.algorithm, key.seed, key.unit))
	case v.State == parity.Exact:
		w.contradiction.Store(nil)
	}
}

// sameRoot tells whether the seed that was found makes the root of the
// description: an unset seed and one that is set can.
func (w *worker) sameRoot(v parity.Verdict) bool {
	if v.Seed == w.domain.key.seed {
		return true
	}
	found := w.domain.key
	found.seed = v.Seed
	h, err := found.hasher(0)
	return err == nil && string(h.AppendRoot(nil)) == string(w.domain.hasher.AppendRoot(nil))
}

func (w *worker) contradict(reason string) { w.contradiction.Store(&reason) }

// checkSize compares the size of a whole block of a full-attention group with its
// description. Other sizes are normal: other kinds of groups, partial blocks, chunks
// of offload tiers, engines that leave it out.
func (w *worker) checkSize(h radix.Holder, e *kvevents.Event) {
	if h.Medium != radix.GPU || e.BlockSize <= 0 || len(e.Hashes) == 0 {
		return
	}
	size := w.Cache.HashUnit
	if groups := w.Cache.Groups; len(groups) > 0 {
		if h.Group == radix.NoGroup && len(groups) > 1 || int(h.Group) >= len(groups) {
			return
		}
		g := groups[max(h.Group, 0)]
		if g.Kind != radix.FullAttention {
			return
		}
		if g.BlockSize > 0 {
			size = g.BlockSize
		}
	}
	if e.BlockSize != size && e.BlockSize != w.Cache.HashUnit {
		w.contradict(fmt.Sprintf("the engine announces blocks of %d tokens, described are %d", e.BlockSize, size))
	}
}
