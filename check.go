package kvatlas

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/parity"
	"github.com/kvatlas/kvatlas/radix"
)

// What a worker is described as is checked against what its events say: their form,
// whether their hashes are those that are computed here for it, the size of its
// blocks, its cache groups. A worker that contradicts its description is never
// matched by it. Where only its hashes do, its blocks are matched by content, if its
// events tell enough; else every prompt's match on it is unknown, with the reason,
// until it is added with the right description. WorkerStats.Contradiction says it in
// either case.

// against returns what the monitor found against the description, or what is given
// of it; hashOnly says that nothing but the way of hashing is wrong.
func (w *worker) against(v parity.Verdict) (why string, hashOnly bool) {
	if v.State == parity.Alien {
		if w.assumed() {
			return "", false
		}
		return v.Error(), false
	}
	if w.Release != "" && !w.assumed() {
		era, err := parity.EraOf(w.Engine, w.Release)
		if err == nil && !slices.Contains(v.Eras, era) {
			return fmt.Sprintf("the engine is %s by its events, not %s %s", parity.Releases(v.Eras), w.Engine, w.Release), false
		}
	}
	switch v.State {
	case parity.Mismatch:
		if w.Auto {
			return "", false
		}
		return v.Error(), true
	case parity.Undecided:
		return "", false
	}
	key := domainKey{algorithm: w.Algorithm, seed: w.Seed, unit: cmp.Or(w.Cache.HashUnit, w.BlockSize), lookahead: w.Cache.Lookahead, eagle: w.Cache.Eagle}
	found := domainKey{algorithm: v.Algorithm, seed: v.Seed, unit: v.BlockSize, lookahead: v.Lookahead, eagle: v.EAGLE}
	if v.Scheme.Engine() != sglang {
		key.eagle = found.eagle // no event tells
	}
	if w.Auto {
		key = key.given(found)
	} else if w.sameRoot(v) {
		key.seed = found.seed
	}
	if key == found {
		return "", false
	}
	why = fmt.Sprintf("the engine hashes with %s, not with %s", found.hashing(), key.hashing())
	return why, key.unit == found.unit && key.lookahead == found.lookahead && key.eagle == found.eagle
}

// given takes over from found what is not given.
func (k domainKey) given(found domainKey) domainKey {
	if k.algorithm == 0 {
		k.algorithm = found.algorithm
	}
	if k.seed == (blockhash.Seed{}) {
		k.seed = found.seed
	}
	if k.unit == 0 {
		k.unit = found.unit
	}
	if k.lookahead == 0 {
		k.lookahead = found.lookahead
	}
	k.eagle = k.eagle || found.eagle
	return k
}

func (k domainKey) hashing() string {
	s := fmt.Sprintf("%s, %s and blocks of %d tokens", k.algorithm, k.seed, k.unit)
	if k.lookahead > 0 {
		s += fmt.Sprintf(" and %d behind", k.lookahead)
	}
	if k.eagle {
		s += ", in pairs"
	}
	return s
}

// sameRoot tells whether the seed that was found makes the root of the
// description: an unset seed and one that is set can.
func (w *worker) sameRoot(v parity.Verdict) bool {
	key := w.described.key
	if v.Seed == key.seed {
		return true
	}
	want, err := key.hasher(0)
	key.seed = v.Seed
	h, err2 := key.hasher(0)
	return err == nil && err2 == nil && string(h.AppendRoot(nil)) == string(want.AppendRoot(nil))
}

// contradict says what the events say against the description, so that nothing is
// known of the worker.
func (w *worker) contradict(why string) {
	if w.Auto && w.lasting == "" { // else a batch is being applied
		w.leave()
		w.history.drop()
	}
	w.object(why)
	w.sayUnknown(why)
}

func (w *worker) object(why string) {
	if w.contradiction != why {
		w.log.Warn("the worker's events contradict its description", "reason", why)
		w.contradiction = why
	}
}

// checkBlocks compares blocks on the device with the description of the cache: their
// group, its kind, and the size of whole blocks of full attention. Other sizes are
// normal: other kinds of groups, partial blocks, chunks of offload tiers, engines that
// leave it out.
func (w *worker) checkBlocks(p *place, h radix.Holder, e *kvevents.Event) {
	if h.Medium != radix.GPU || len(e.Hashes) == 0 {
		return
	}
	groups := w.Cache.Groups
	kind, known := kinds[string(e.SpecKind)]
	group := radix.Group{}
	switch at := max(int(h.Group), 0); {
	case at < len(groups):
		if group = groups[at]; len(groups) > 1 && h.Group == radix.NoGroup {
			return
		}
	case at > 0:
		w.lastingly(fmt.Sprintf("the engine has a cache group %d, described are %d: give Cache.Groups", at, max(len(groups), 1)))
		return
	}
	if len(e.SpecKind) > 0 && (known && kind != group.Kind || !known && group.Kind == radix.FullAttention) {
		w.lastingly(fmt.Sprintf("cache group %d of the engine is %s, described as %s: give Cache.Groups", max(h.Group, 0), quoted(string(e.SpecKind)), group.Kind))
		return
	}
	unit, size := p.unit(), p.unit()
	if group.BlockSize > 0 {
		size = group.BlockSize
	}
	if group.Kind == radix.FullAttention && e.BlockSize > 0 && e.BlockSize != size && e.BlockSize != unit {
		w.lastingly(fmt.Sprintf("the engine announces blocks of %d tokens, described are %d", e.BlockSize, size))
	}
}

// kinds are the names of groups in vLLM's events (vllm/v1/kv_cache_interface.py,
// from 0.22 on) by the rule that they are looked up by.
var kinds = map[string]radix.Kind{
	"full_attention": radix.FullAttention, "mla_attention": radix.FullAttention, "sink_full_attention": radix.FullAttention,
	"sliding_window": radix.SlidingWindow, "sliding_window_mla": radix.SlidingWindow,
	"chunked_local_attention": radix.ChunkedLocal, "mamba": radix.Mamba,
}

// lastingly contradicts until the engine is another one.
func (w *worker) lastingly(why string) {
	if w.lasting == "" {
		w.lasting = why
		w.contradict(why)
	}
}
