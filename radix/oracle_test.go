package radix

import (
	"maps"
	"slices"
)

// oracle is the slow, obvious index: a map of multisets and the rules as
// testdata/vllm/truth/RULES.md states them, read one presence at a time. It shares
// no code with the index but the options' types.
type oracle struct {
	profiles map[WorkerID]*ProfileOptions // nil = unknown engine
	count    map[Holder]map[uint64]int
	weights  map[Medium]float64
	missed   map[WorkerID]int
}

func newOracle() *oracle {
	return &oracle{
		profiles: map[WorkerID]*ProfileOptions{},
		count:    map[Holder]map[uint64]int{},
		weights:  map[Medium]float64{GPU: 1, CPU: 0.8, Storage: 0.5, 3: DefaultUnknownWeight, 4: DefaultUnknownWeight},
		missed:   map[WorkerID]int{},
	}
}

func (o *oracle) store(h Holder, keys []uint64) {
	if o.count[h] == nil {
		o.count[h] = map[uint64]int{}
	}
	for _, k := range keys {
		o.count[h][k]++
		if p := o.profiles[h.Worker]; p != nil && p.Copies == Set {
			o.count[h][k] = 1
		}
	}
}

func (o *oracle) remove(h Holder, keys []uint64) {
	for _, k := range keys {
		if o.count[h][k] == 0 {
			o.missed[h.Worker]++
			continue
		}
		if o.count[h][k]--; o.count[h][k] == 0 {
			delete(o.count[h], k)
		}
	}
}

func (o *oracle) clear(w WorkerID, on ...Medium) {
	for h := range o.count {
		if h.Worker == w && (len(on) == 0 || slices.Contains(on, h.Medium)) {
			delete(o.count, h)
		}
	}
}

// has tells whether w holds a key on one of the media in group g; g < 0 = any.
func (o *oracle) has(w WorkerID, g int, key uint64, on ...Medium) bool {
	for h, c := range o.count {
		if h.Worker == w && slices.Contains(on, h.Medium) && c[key] > 0 &&
			(g < 0 || int(h.Group) == g || h.Group == NoGroup) {
			return true
		}
	}
	return false
}

// expect is what a match must say of one worker.
type expect struct {
	Blocks                           map[Medium]int
	Combined                         int
	Usable, External, ExternalTiered int
	Score                            float64
	UpperBound                       bool
}

func (o *oracle) match(w WorkerID, keys []uint64, tokens int) expect {
	p := o.profiles[w]
	e := expect{Blocks: map[Medium]int{}}
	if p == nil {
		o.prefixes(&e, w, keys, []int{-1}, func(Medium) int { return 1 })
		return e
	}
	r := newReference(*p)
	if tokens > 0 && r.unit > 0 {
		keys = keys[:min(len(keys), max(0, tokens-p.Lookahead)/r.unit)]
	}
	main := r.layouts[0]
	step := main.BlockSize / max(r.unit, 1)
	if r.unit == 0 {
		step = 1
	}
	o.prefixes(&e, w, keys, main.ids, func(m Medium) int {
		if m != GPU && p.Connector == Offloading {
			return step * max(p.ChunkBlocks, 1)
		}
		return step
	})
	for h, c := range o.count {
		if h.Worker == w && h.Group == NoGroup && len(c) > 0 && len(p.Groups) > 1 {
			e.UpperBound = true
		}
	}
	if tokens == 0 || r.unit == 0 {
		return e
	}
	r.has = func(g, unit int) bool { return unit < len(keys) && o.has(w, g, keys[unit], GPU) }
	r.units = max(0, tokens-p.Lookahead) / r.unit
	e.Usable = r.hit(tokens)
	for _, tiered := range []bool{false, true} {
		on := []Medium{CPU}
		if tiered {
			on = append(on, Storage)
		}
		r.has = func(g, unit int) bool { return unit < len(keys) && o.has(w, g, keys[unit], on...) }
		got := 0
		switch {
		case p.Connector == Offloading:
			got = r.offload(tokens, e.Usable, max(p.ChunkBlocks, 1))
		case p.Connector == SimpleOffload && r.v >= 30:
			got = r.simple(tokens, e.Usable)
		}
		if tiered {
			e.ExternalTiered = got
		} else {
			e.External = got
		}
	}
	return e
}

func (o *oracle) prefixes(e *expect, w WorkerID, keys []uint64, groups []int, granule func(Medium) int) {
	held := func(m Medium, u int) bool {
		g := granule(m)
		last := u/g*g + g - 1
		if last >= len(keys) {
			return false
		}
		for _, id := range groups {
			if !o.has(w, id, keys[last], m) {
				return false
			}
		}
		return true
	}
	media := slices.Sorted(maps.Keys(o.weights))
	for _, m := range media {
		for u := range keys {
			if !held(m, u) {
				break
			}
			e.Blocks[m] = u + 1
		}
	}
	for u := range keys {
		best := -1.0
		for _, m := range media {
			if held(m, u) {
				best = max(best, o.weights[m])
			}
		}
		if best < 0 {
			break
		}
		e.Combined = u + 1
		e.Score += best
	}
}
