package radix

import "math/bits"

// row is the presence of a prompt's units: bit i says that the key of unit i,
// which ends at token (i+1)*unit, is held. Bits beyond its end are not set.
type row []uint64

func (r row) has(unit int) bool {
	w := unit >> 6
	return unit >= 0 && w < len(r) && r[w]>>(unit&63)&1 != 0
}

// leading returns the length of the run of set bits at the start.
func (r row) leading() int {
	for i, w := range r {
		if w != ^uint64(0) {
			return i<<6 + bits.TrailingZeros64(^w)
		}
	}
	return len(r) << 6
}

// The rules of testdata/vllm/truth/RULES.md, section 4, as pure functions of presence rows,
// one a layout. Names follow that text.

// blocks returns how many whole blocks from the start are present, at most max.
func (l *layout) blocks(r row, max int) int {
	if l.step == 1 {
		return min(r.leading(), max)
	}
	n := 0
	for n < max && r.has((n+1)*l.step-1) {
		n++
	}
	return n
}

// longest returns the longest length, in tokens and not above limit, that the
// layout allows. drop says that the draft's block is to be given up.
func (p *Profile) longest(l *layout, r row, limit int, drop bool) int {
	switch l.kind {
	case SlidingWindow:
		return p.windowLongest(l, r, limit, drop)
	case ChunkedLocal:
		n := limit / l.chunk * l.chunk / l.block
		for (n+1)*l.block <= limit && r.has((n+1)*l.step-1) {
			n++
		}
		return n * l.block
	case Mamba:
		return p.stateLongest(l, r, limit)
	}
	n := l.blocks(r, limit/l.block)
	hit := n * l.block
	if p.fine && l.step > 1 {
		for u := min(n*l.step+l.step-1, limit/p.unit); u > n*l.step; u-- {
			if r.has(u - 1) {
				hit = u * p.unit
				break
			}
		}
	}
	return p.fullDrop(l, hit, drop)
}

// fullHit is longest for a full-attention layout that is the only one, has
// blocks of one unit and holds the first blocks of the prompt.
func (p *Profile) fullHit(l *layout, blocks, limit int) int {
	return p.fullDrop(l, min(blocks, limit/l.block)*l.block, l.eagle)
}

func (p *Profile) fullDrop(l *layout, hit int, drop bool) int {
	if drop && hit > 0 {
		if p.release.atLeast(0, 26) {
			hit -= min(p.align, l.block)
		} else {
			hit -= l.block
		}
	}
	return max(hit-hit%p.align, 0)
}

func (p *Profile) windowLongest(l *layout, r row, limit int, drop bool) int {
	need := ceilDiv(l.window-1, l.block)
	back := 0
	if drop {
		need++
		if p.release.atLeast(0, 20) {
			back = 1
		}
	}
	run, end := 0, 0
	best := -1
	for i := min(limit/l.block, len(r)<<6/l.step+1) - 1; i >= 0; i-- {
		if !r.has((i+1)*l.step - 1) {
			run = 0
			continue
		}
		if run == 0 {
			if l.block != p.align && (i+1-back)*l.block%p.align != 0 {
				continue
			}
			end = i + 1
		}
		if run++; run >= need {
			best = end * l.block
			break
		}
	}
	if best < 0 { // the run that touches the start, shorter than the window
		best = run * l.block
		best -= best % p.align
	}
	if drop && best > 0 {
		best -= l.block
		best -= best % p.align
	}
	return best
}

func (p *Profile) stateLongest(l *layout, r row, limit int) int {
	if !p.release.atLeast(0, 11) {
		return 0 // states were not cached yet
	}
	grain := l.block
	if p.fine {
		grain = min(p.unit, l.block)
	}
	for end := min(limit, len(r)<<6*p.unit) / grain * grain; end > 0; end -= grain {
		if end%p.align == 0 && r.has(end/p.unit-1) {
			return end
		}
	}
	return 0
}

// margin is how far beyond a length the draft's block reaches.
func (p *Profile) margin(l *layout) int {
	if p.fine && l.step > 1 && (l.kind == FullAttention || l.kind == Mamba) {
		return p.unit
	}
	return l.block
}

// hit returns the tokens of a prompt of n tokens and units keys that the engine
// takes from its cache. rows has one row a layout, in the profile's order.
func (p *Profile) hit(rows []row, n, units int) int {
	limit := n - 1
	if p.unit == 0 || limit <= 0 {
		return 0
	}
	if p.single {
		l := &p.layouts[0]
		return p.longest(l, rows[0], limit, l.eagle)
	}
	if !p.release.atLeast(0, 20) {
		return p.hitEveryDrop(rows, limit)
	}
	simple := len(p.layouts) == 2 && p.layouts[0].kind == FullAttention
	reach := limit
	if p.release.atLeast(0, 32) {
		reach = units * p.unit
	}
	length, full := limit, limit
	var dropped, asked layoutSet
	for {
		current := length
		for i := range p.layouts {
			l := &p.layouts[i]
			if l.kind == FullAttention && asked.has(i) {
				current = min(current, full)
				continue
			}
			asked.add(i)
			drop := l.eagle && !dropped.has(i)
			top := current
			if drop && !(l.kind == Mamba && p.release.atLeast(0, 26)) {
				top = min(current+p.margin(l), reach)
			}
			got := p.longest(l, rows[i], top, drop)
			if drop {
				dropped.add(i)
			} else if got < current {
				dropped = layoutSet{}
			}
			current = got
			if l.kind == FullAttention {
				full = min(full, got)
			}
		}
		if current >= length {
			return length
		}
		if length = current; simple {
			return length
		}
	}
}

// layoutSet is a set of a profile's layouts.
type layoutSet [(MaxGroup + 1) / 64]uint64

func (s *layoutSet) has(i int) bool { return s[i>>6]>>(i&63)&1 != 0 }
func (s *layoutSet) add(i int)      { s[i>>6] |= 1 << (i & 63) }

// hitEveryDrop is the search before 0.20: each layout drops a block every time
// it is asked.
func (p *Profile) hitEveryDrop(rows []row, limit int) int {
	simple := len(p.layouts) == 2 && p.layouts[0].kind == FullAttention
	length := limit
	var asked layoutSet
	for {
		current := length
		for i := range p.layouts {
			l := &p.layouts[i]
			if l.kind == FullAttention && asked.has(i) {
				current = current / l.block * l.block
				continue
			}
			asked.add(i)
			current = p.longest(l, rows[i], current, l.eagle)
		}
		if current >= length {
			return length
		}
		length = current
		if simple || !p.release.atLeast(0, 14) {
			return length
		}
	}
}
