package radix

import (
	"fmt"
	"math/bits"
)

// ErrQuery is wrapped by the errors of [Index.Match] and [Index.Prefixes].
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
	// by the calling goroutine. What is removed from the index meanwhile cannot
	// be reused until the match ends, so it should not block for long.
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
// overwrites all of it. It must not be used by two goroutines at once. Reuse also
// makes matches faster: a Result recalls where some of the last prompts' keys lay.
type Result struct {
	// Workers has one entry a candidate: in the order of Query.Workers, else in
	// ascending order of slots, which is the order of registration while no
	// worker is removed.
	Workers []WorkerMatch
	// Keys is how many keys were looked at.
	Keys int

	walk    walk
	blocks  []int32
	scratch []uint64
	place   []int32 // index of a worker in the view -> its place in Workers, plus 1
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

// Prefix is a worker's combined prefix in keys, see [WorkerMatch.Combined].
type Prefix struct {
	Worker WorkerID
	Blocks int32
}

// Match compares a prompt with the candidates and writes the answer into r. It
// takes no lock, and does not allocate once r has grown to the size of the
// answers. Its errors wrap [ErrQuery]; r is then empty.
func (x *Index) Match(q *Query, r *Result) error {
	v, err := x.match(q, r)
	if err != nil {
		return err
	}
	r.answer(q, v)
	return nil
}

// Prefixes is [Index.Match] without the details: it returns the combined prefix
// of each candidate that holds at least the first block, in no order, whatever
// the number of tokens. The slice is part of r, whose other fields it leaves
// empty. It is what a score by blocks
// needs, at a lower cost where candidates are many.
func (x *Index) Prefixes(q *Query, r *Result) ([]Prefix, error) {
	v, err := x.match(q, r)
	if err != nil {
		return nil, err
	}
	w := &r.walk
	for i := range w.joints {
		var m WorkerMatch
		r.reset(v.media)
		m.Blocks = r.blocks
		r.prefix(v, len(w.keys), &w.joints[i], &m)
		if m.Combined > 0 {
			w.ends = append(w.ends, Prefix{w.joints[i].id, int32(m.Combined)})
		}
	}
	return w.ends, nil
}

func (r *Result) reset(n int) {
	if cap(r.blocks) < n {
		r.blocks = make([]int32, n)
	}
	r.blocks = r.blocks[:n]
	clear(r.blocks)
}

// match walks along the prompt with the candidates.
func (x *Index) match(q *Query, r *Result) (*view, error) {
	if !x.made() {
		return nil, ErrIndex
	}
	if q == nil || r == nil {
		return nil, fmt.Errorf("%w: neither query nor result may be nil", ErrQuery)
	}
	r.Workers, r.Keys = r.Workers[:0], 0
	if q.Tokens < 0 || q.Tokens > maxTokens {
		return nil, fmt.Errorf("%w: prompt of %d tokens, want 0..%d", ErrQuery, q.Tokens, maxTokens)
	}
	if q.Unit < 0 {
		return nil, fmt.Errorf("%w: hash unit of %d tokens", ErrQuery, q.Unit)
	}
	w := &r.walk
	cell := x.epochs.enter(&w.cell)
	defer x.epochs.leave(cell) // a Source may panic
	v := x.view.Load()
	w.reused, w.ids = w.ids != nil, v.ids
	w.keys, w.source, w.buffer = q.Keys, q.Source, w.buffer[:0]
	w.candidates(v, q)
	w.looked = 0
	w.ends = w.ends[:0]
	x.walk(w)
	r.Keys = w.looked
	return v, nil
}

// candidates sets the walk up for the workers asked for.
func (w *walk) candidates(v *view, q *Query) {
	words := len(v.plain)
	if cap(w.alive) < words {
		w.alive, w.next, w.track = make([]uint64, words), make([]uint64, words), make([]uint64, words)
	}
	w.alive, w.next, w.track = w.alive[:words], w.next[:words], w.track[:words]
	w.joints, w.left = w.joints[:0], 0
	clear(w.next)
	clear(w.track)
	if len(v.joint) > 0 && len(w.rowOf) < words*64 {
		w.rowOf = make([]int32, words*64)
	}
	rows := 0
	if q.Workers == nil && q.Unit == 0 {
		copy(w.alive, v.plain)
		for _, i := range v.joint {
			rows = w.join(v, int(i), rows)
		}
		return
	}
	clear(w.alive)
	if q.Workers == nil {
		for i := range v.workers {
			rows = w.candidate(v, q, i, rows)
		}
		return
	}
	for _, id := range q.Workers {
		if _, i := v.worker(id); i >= 0 {
			rows = w.candidate(v, q, i, rows)
		}
	}
}

func (w *walk) candidate(v *view, q *Query, i, rows int) int {
	k := &v.workers[i]
	if k.mismatch(q) {
		return rows
	}
	if k.plain {
		for _, h := range k.holders {
			w.alive[h.hid/64] |= 1 << (h.hid % 64)
		}
		return rows
	}
	for j := range w.joints {
		if w.joints[j].worker == i { // asked for twice
			return rows
		}
	}
	return w.join(v, i, rows)
}

func (k *workerView) mismatch(q *Query) bool {
	return q.Unit > 0 && k.profile.unit > 0 && q.Unit != k.profile.unit
}

// join adds a joint worker. One that holds nothing is not looked at.
func (w *walk) join(v *view, i, rows int) int {
	k := &v.workers[i]
	c := joint{workerView: k, worker: i, base: rows, alive: k.any()}
	for j, h := range k.holders {
		if len(w.rows) == rows+j {
			w.rows = append(w.rows, nil)
		}
		w.rows[rows+j] = w.rows[rows+j][:0]
		w.rowOf[h.hid] = int32(rows + j)
		if c.alive {
			w.track[h.hid/64] |= 1 << (h.hid % 64)
		}
	}
	if c.alive {
		c.grain = k.decisive()
		w.left++
	}
	w.joints = append(w.joints, c)
	return rows + len(k.holders)
}

func (k *workerView) any() bool {
	for _, h := range k.holders {
		if h.blocks.Load() > 0 {
			return true
		}
	}
	return false
}

// decisive returns after how many units it shows whether a prefix goes on: a
// block of the main layout, or a chunk where a connector holds chunks; 0 where
// blocks behind a hole can matter.
func (k *workerView) decisive() int {
	p := k.profile
	if !p.stops {
		return 0
	}
	for _, h := range k.holders {
		if h.Medium != GPU && h.blocks.Load() > 0 {
			return p.granule(h.Medium)
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

// clip bounds a prefix by the prompt's units.
func (r *Result) clip(k *workerView, q *Query, blocks int) int {
	if q.Tokens > 0 && k.profile.unit > 0 {
		return min(blocks, k.profile.Units(q.Tokens))
	}
	return blocks
}

// answer turns the walk into r.Workers.
func (r *Result) answer(q *Query, v *view) {
	w := &r.walk
	n := len(v.workers)
	if q.Workers != nil {
		n = len(q.Workers)
	}
	r.reset(n * v.media)
	if cap(r.Workers) < n {
		r.Workers = make([]WorkerMatch, 0, n)
	}
	r.Workers = r.Workers[:n]
	if q.Workers == nil {
		for i := range v.workers {
			r.blank(v, q, i, &v.workers[i])
		}
	} else {
		if len(r.place) < len(v.workers) {
			r.place = make([]int32, len(v.workers))
		}
		for i, id := range q.Workers {
			if k, at := v.worker(id); k != nil {
				r.blank(v, q, i, k)
				r.place[at] = int32(i + 1)
			} else {
				r.Workers[i] = WorkerMatch{Worker: id, Blocks: r.blocks[i*v.media : (i+1)*v.media : (i+1)*v.media]}
			}
		}
	}
	at := func(worker int) *WorkerMatch {
		if q.Workers != nil {
			worker = int(r.place[worker] - 1)
		}
		return &r.Workers[worker]
	}
	for _, e := range w.ends {
		worker := v.bySlot[e.Worker&0xffff]
		k, m := &v.workers[worker], at(int(worker))
		p := k.profile
		blocks := r.clip(k, q, int(e.Blocks))
		m.Blocks[GPU] = int32(blocks)
		m.Combined = blocks
		m.Score = float64(blocks) * v.weights[GPU]
		m.Prefix = blocks * p.unit
		if q.Tokens > 0 && p.unit > 0 {
			m.Usable = p.fullHit(&p.layouts[0], blocks, q.Tokens-1)
		}
	}
	for i := range w.joints {
		c := &w.joints[i]
		m := at(c.worker)
		units := r.clip(c.workerView, q, len(w.keys))
		words := r.prefix(v, units, c, m)
		if q.Tokens > 0 && c.profile.unit > 0 {
			r.tokens(c, m, q.Tokens, words)
		}
	}
	for i, id := range q.Workers { // a worker that was asked for twice
		if k, at := v.worker(id); k != nil && int(r.place[at]) != i+1 {
			first := &r.Workers[r.place[at]-1]
			m := &r.Workers[i]
			copy(m.Blocks, first.Blocks)
			blocks := m.Blocks
			*m = *first
			m.Blocks = blocks
		}
	}
}

// blank writes the answer for a worker that holds nothing.
func (r *Result) blank(v *view, q *Query, i int, k *workerView) {
	m := &r.Workers[i]
	*m = WorkerMatch{Worker: k.id, Known: true, Mismatch: k.mismatch(q)}
	m.Blocks = r.blocks[i*v.media : (i+1)*v.media : (i+1)*v.media]
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

// gather ors the rows of a worker's holders on the given media in group g.
func (r *Result) gather(out row, c *joint, media uint32, g int16) {
	clear(out)
	for i, h := range c.holders {
		if media>>h.Medium&1 == 0 || h.Group != g && h.Group != NoGroup && !c.profile.anyGroup {
			continue
		}
		for j, w := range r.walk.rows[c.base+i] {
			if j < len(out) {
				out[j] |= w
			}
		}
	}
}

// layoutRow returns which keys all groups of a layout hold on the media.
func (r *Result) layoutRow(c *joint, l *layout, media uint32, words int) row {
	out := r.row(words)
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

// prefix fills in what does not depend on the engine's rules.
// It returns how many words of presence there are.
func (r *Result) prefix(v *view, units int, c *joint, m *WorkerMatch) (words int) {
	p, l := c.profile, &c.profile.layouts[0]
	words = ceilDiv(min(units, r.walk.looked), 64)
	r.scratch = r.scratch[:0]
	var seen uint32
	for j, h := range c.holders {
		seen |= 1 << h.Medium
		m.UpperBound = m.UpperBound || h.Group == NoGroup && p.groups > 1 && h.blocks.Load() > 0
		if k := r.walk.rows[c.base+j]; units&63 != 0 && len(k) > units>>6 {
			k[units>>6] &= 1<<(units&63) - 1 // keys beyond the prompt's units
		}
	}
	rest, all := r.row(words), r.row(words)
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
		if n := m.Combined - i<<6; n < 64 {
			rest[i] = 1<<max(n, 0) - 1
		} else {
			rest[i] = ^uint64(0)
		}
	}
	for set := seen; set != 0; {
		best := Medium(bits.TrailingZeros32(set))
		for s := set; s != 0; s &= s - 1 {
			if k := Medium(bits.TrailingZeros32(s)); v.weights[k] > v.weights[best] {
				best = k
			}
		}
		set &^= 1 << best
		n := 0
		for i, w := range cover[best] {
			n += bits.OnesCount64(w & rest[i])
			rest[i] &^= w
		}
		m.Score += float64(n) * v.weights[best]
	}
	return words
}

// spread makes a granule's last unit stand for all of them.
func spread(r row, granule, units int) {
	units = min(units, len(r)<<6)
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
func (r *Result) tokens(c *joint, m *WorkerMatch, n, words int) {
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
