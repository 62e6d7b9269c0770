package radix

import (
	"fmt"
	"math/bits"
)

// ErrQuery is wrapped by the errors of [Index.Match].
const ErrQuery = constError("radix: invalid query")

// Source hands out the keys of a prompt one by one, in order; ok is false after
// the last. A lazy hash chain is one: [Index.Match] asks for no more keys than
// can change its answer.
type Source interface {
	Next() (key uint64, ok bool)
}

// Query is a prompt to match.
type Query struct {
	// Keys are the chained keys of the prompt's hash units from the start.
	Keys []uint64
	// Source is asked for further keys after Keys. It is called from Match only,
	// by the calling goroutine, and must not call methods of the index.
	Source Source
	// Tokens is the prompt's length. With 0, which stands for unknown, blocks are
	// matched and no tokens predicted.
	Tokens int
	// Unit is the tokens that a key stands for; a worker whose profile has
	// another unit does not match. 0 = not checked.
	Unit int
	// Workers are the candidates; nil = all workers.
	Workers []WorkerID
}

// Result is the answer of [Index.Match]. The zero value is ready. It belongs to
// the caller, who reuses it for further matches and may change it; a match
// overwrites all of it. It must not be used by two goroutines at once.
type Result struct {
	// Workers has one entry a candidate: in the order of Query.Workers, else in
	// ascending order of slots, which is the order of registration while no
	// worker is removed.
	Workers []WorkerMatch
	// Keys is how many keys were looked at.
	Keys int

	blocks  []int32
	keys    [][]uint64 // presence by (candidate, holder)
	scratch []uint64
	cands   []candidate
}

// WorkerMatch is what one worker holds of a prompt. Blocks are counted in keys
// (hash units); lengths are in tokens.
type WorkerMatch struct {
	Worker WorkerID
	// Known is false when the worker is not registered (any more).
	Known bool
	// Mismatch says that the worker's hash unit is not the query's, so that
	// nothing was matched.
	Mismatch bool
	// UpperBound says that the worker's blocks were announced without their
	// group although its engine has several, so that Usable may be too high.
	UpperBound bool
	// Blocks is the contiguous prefix held on each medium, indexed by Medium,
	// of the first full-attention layout (the first layout, if none is). The
	// slice is part of the Result.
	Blocks []int32
	// Combined is the contiguous prefix of which each block is held on at least
	// one medium.
	Combined int
	// Prefix is the length of Blocks[GPU].
	Prefix int
	// Usable is how many tokens the engine takes from its device cache: the
	// tokens that it reports as locally cached.
	Usable int
	// External is how many tokens beyond Usable the engine's offload connector
	// loads from host memory at once, ExternalTiered the same if blocks on its
	// further tiers, which are brought to host memory first, count too.
	External       int
	ExternalTiered int
	// Score is the sum over the blocks of Combined of the weight of the best
	// medium that holds each.
	Score float64
}

// candidate is the state of one worker during a match.
type candidate struct {
	*worker
	base  int // of its rows in Result.keys
	grain int // units after which it is decided whether the prefix goes on; 0 = never
	alive bool
}

// Match compares a prompt with the candidates and writes the answer into r. It
// does not allocate once r has grown to the size of the answers. Its errors wrap
// [ErrQuery]; r is then empty.
func (x *Index) Match(q *Query, r *Result) error {
	r.Workers, r.Keys = r.Workers[:0], 0
	if q.Tokens < 0 || q.Tokens > maxTokens {
		return fmt.Errorf("%w: prompt of %d tokens, want 0..%d", ErrQuery, q.Tokens, maxTokens)
	}
	if q.Unit < 0 {
		return fmt.Errorf("%w: hash unit of %d tokens", ErrQuery, q.Unit)
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	alive := x.candidates(q, r)
	for u := 0; alive > 0; u++ {
		var key uint64
		if u < len(q.Keys) {
			key = q.Keys[u]
		} else if q.Source == nil {
			break
		} else if k, ok := q.Source.Next(); ok {
			key = k
		} else {
			break
		}
		r.Keys++
		for i := range r.cands {
			c := &r.cands[i]
			if !c.alive {
				continue
			}
			r.see(c, u, key)
			if c.grain > 0 && (u+1)%c.grain == 0 && !r.unbroken(c, u+1-c.grain, u+1) {
				c.alive = false
				alive--
			}
		}
	}
	x.answer(q, r)
	return nil
}

// candidates lists the workers to match and returns how many can hold anything.
func (x *Index) candidates(q *Query, r *Result) (alive int) {
	ids := q.Workers
	if ids == nil {
		ids = x.order
	}
	media, rows := len(x.media.names), 0
	if need := len(ids) * media; cap(r.blocks) < need {
		r.blocks = make([]int32, need)
	}
	r.blocks = r.blocks[:len(ids)*media]
	clear(r.blocks)
	r.cands = r.cands[:0]
	for i, id := range ids {
		m := WorkerMatch{Worker: id, Blocks: r.blocks[i*media : (i+1)*media : (i+1)*media]}
		c := candidate{worker: x.worker(id), base: rows}
		if m.Known = c.worker != nil; m.Known {
			unit := c.profile.unit
			m.Mismatch = q.Unit > 0 && unit > 0 && q.Unit != unit
			c.alive = !m.Mismatch && c.any()
			rows += len(c.holders)
			if c.alive {
				c.grain = c.decisive()
				alive++
			}
		}
		r.Workers = append(r.Workers, m)
		r.cands = append(r.cands, c)
	}
	for len(r.keys) < rows {
		r.keys = append(r.keys, nil)
	}
	for i := range r.keys[:rows] {
		r.keys[i] = r.keys[i][:0]
	}
	return alive
}

func (k *worker) any() bool {
	for _, c := range k.holders {
		if len(c.count) > 0 {
			return true
		}
	}
	return false
}

// decisive returns after how many units it shows whether a prefix goes on: a
// block of the main layout, or a chunk where a connector holds chunks; 0 where
// blocks behind a hole can matter.
func (k *worker) decisive() int {
	p := k.profile
	if !p.stops {
		return 0
	}
	for _, c := range k.holders {
		if c.medium != GPU && len(c.count) > 0 {
			return p.granule(c.medium)
		}
	}
	return p.layouts[0].step
}

// granule returns how many units of the main layout one key of a medium stands
// for: a block, or a chunk of the offload connector.
func (p *Profile) granule(m Medium) int {
	step := p.layouts[0].step
	if m != GPU && p.connector == Offloading {
		step *= p.chunk
	}
	return step
}

// see records which holders of a candidate hold the key of unit u.
func (r *Result) see(c *candidate, u int, key uint64) {
	for i, h := range c.holders {
		row := &r.keys[c.base+i]
		if u&63 == 0 {
			*row = append(*row, 0)
		}
		if h.count[key] > 0 {
			(*row)[u>>6] |= 1 << (u & 63)
		}
	}
}

// holds tells whether a candidate holds the key of unit u on m in group g.
func (r *Result) holds(c *candidate, g int16, m Medium, u int) bool {
	for i, h := range c.holders {
		if h.medium == m && (h.group == g || h.group == NoGroup || c.profile.anyGroup) && row(r.keys[c.base+i]).has(u) {
			return true
		}
	}
	return false
}

// unbroken tells whether each block of the main layout between two units is held
// by each of its groups, on whatever medium: while it is, a prefix or a load may
// go on.
func (r *Result) unbroken(c *candidate, from, to int) bool {
	l := &c.profile.layouts[0]
	for u := from + l.step; u <= to; u += l.step {
		for _, g := range l.groups {
			held := false
			for _, h := range c.holders {
				grain := c.profile.granule(h.medium)
				if held = r.holds(c, g, h.medium, (u-1)/grain*grain+grain-1); held {
					break
				}
			}
			if !held {
				return false
			}
		}
	}
	return true
}

// row hands out a cleared row from the result's scratch memory.
func (r *Result) row(words int) row {
	if len(r.scratch)+words > cap(r.scratch) {
		r.scratch = make([]uint64, 0, 2*cap(r.scratch)+words) // rows in use keep the old one
	}
	n := len(r.scratch)
	r.scratch = r.scratch[: n+words : cap(r.scratch)]
	out := row(r.scratch[n : n+words])
	clear(out)
	return out
}

// gather ors the rows of a candidate's holders on the given media in group g.
func (r *Result) gather(out row, c *candidate, media uint32, g int16) {
	clear(out)
	for i, h := range c.holders {
		if media>>h.medium&1 == 0 || h.group != g && h.group != NoGroup && !c.profile.anyGroup {
			continue
		}
		for j, w := range r.keys[c.base+i] {
			if j < len(out) {
				out[j] |= w
			}
		}
	}
}

// layoutRow returns which keys all groups of a layout hold on the media.
func (r *Result) layoutRow(c *candidate, l *layout, media uint32, words int) row {
	out := r.row(words)
	if c.profile.anyGroup {
		r.gather(out, c, media, 0)
		return out
	}
	r.gather(out, c, media, l.groups[0])
	if len(l.groups) > 1 {
		other := r.row(words)
		for _, g := range l.groups[1:] {
			r.gather(other, c, media, g)
			for i := range out {
				out[i] &= other[i]
			}
		}
	}
	return out
}

func (x *Index) answer(q *Query, r *Result) {
	for i := range r.cands {
		c := &r.cands[i]
		m := &r.Workers[i]
		if c.worker == nil || m.Mismatch || !c.any() && c.profile.stops {
			continue
		}
		p := c.profile
		units := r.Keys
		if q.Tokens > 0 && p.unit > 0 {
			units = min(units, p.Units(q.Tokens))
		}
		words := ceilDiv(units, 64)
		for j, h := range c.holders {
			m.UpperBound = m.UpperBound || h.group == NoGroup && p.groups > 1 && len(h.count) > 0
			if k := r.keys[c.base+j]; len(k) >= words && units&63 != 0 {
				k[words-1] &= 1<<(units&63) - 1 // keys beyond the prompt's units
			}
		}
		x.prefixes(r, c, m, units, words)
		if q.Tokens > 0 && p.unit > 0 {
			x.tokens(r, c, m, q.Tokens, words)
		}
	}
}

// prefixes fills in what does not depend on the engine's rules.
func (x *Index) prefixes(r *Result, c *candidate, m *WorkerMatch, units, words int) {
	p, l := c.profile, &c.profile.layouts[0]
	r.scratch = r.scratch[:0]
	var seen uint32
	for _, h := range c.holders {
		seen |= 1 << h.medium
	}
	rest := r.row(words) // units not yet covered by a better medium
	all := r.row(words)
	for i := range rest {
		rest[i] = ^uint64(0)
	}
	// First the media's rows, then the combined prefix, then the score in
	// descending order of weight within it.
	var cover [MaxMedia]row
	for set := seen; set != 0; set &= set - 1 {
		medium := Medium(bits.TrailingZeros32(set))
		out := r.layoutRow(c, l, 1<<medium, words)
		if g := p.granule(medium); g > 1 {
			spread(out, g, units)
		}
		cover[medium] = out
		m.Blocks[medium] = int32(min(out.leading(), units))
		for i := range all {
			all[i] |= out[i]
		}
	}
	m.Combined = min(all.leading(), units)
	m.Prefix = int(m.Blocks[GPU]) * p.unit
	for i := range rest {
		if end := m.Combined - i<<6; end < 64 {
			rest[i] = 1<<max(end, 0) - 1
		}
	}
	for set := seen; set != 0; {
		best := Medium(bits.TrailingZeros32(set))
		for s := set; s != 0; s &= s - 1 {
			if k := Medium(bits.TrailingZeros32(s)); x.media.weights[k] > x.media.weights[best] {
				best = k
			}
		}
		set &^= 1 << best
		n := 0
		for i, w := range cover[best] {
			n += bits.OnesCount64(w & rest[i])
			rest[i] &^= w
		}
		m.Score += float64(n) * x.media.weights[best]
	}
}

// spread makes a granule's last unit stand for all of them.
func spread(r row, granule, units int) {
	for from := 0; from < units; from += granule {
		last := from + granule - 1
		held := last < units && r.has(last)
		for u := from; u < min(from+granule, units); u++ {
			if held {
				r[u>>6] |= 1 << (u & 63)
			} else {
				r[u>>6] &^= 1 << (u & 63)
			}
		}
	}
}

// tokens applies the engine's rules.
func (x *Index) tokens(r *Result, c *candidate, m *WorkerMatch, n, words int) {
	p := c.profile
	r.scratch = r.scratch[:0]
	var rows [MaxGroup + 1]row
	for i := range p.layouts {
		rows[i] = r.layoutRow(c, &p.layouts[i], 1<<GPU, words)
	}
	units := p.Units(n)
	m.Usable = p.hit(rows[:len(p.layouts)], n, units)
	if p.connector == NoConnector {
		return
	}
	for _, tiered := range [...]bool{false, true} {
		set := uint32(1 << CPU)
		if tiered {
			set |= 1 << Storage
		}
		for g := range p.groups {
			rows[g] = r.row(words)
			r.gather(rows[g], c, set, int16(g))
		}
		got := p.external(rows[:p.groups], n, units, m.Usable)
		if tiered {
			m.ExternalTiered = got
		} else {
			m.External = got
		}
	}
}
