package radix

import (
	"fmt"
	"slices"
	"strings"
)

// reference reads testdata/vllm/truth/RULES.md 4 and testdata/vllm/tiers/README.md step by step, one
// presence at a time, in the words and the order of those texts.
type reference struct {
	v       int // minor release, 0.x
	unit    int
	sched   int
	align   int
	fine    bool
	eagle   bool
	groups  []Group
	layouts []refLayout
	units   int
	has     func(group, unit int) bool
}

type refLayout struct {
	Group
	ids   []int
	eagle bool
}

func newReference(o ProfileOptions) *reference {
	r := &reference{v: 33, unit: o.HashUnit, groups: slices.Clone(o.Groups)}
	if o.Release != "" {
		fmt.Sscanf(strings.TrimPrefix(o.Release, "0."), "%d", &r.v)
	}
	if len(r.groups) == 0 {
		r.groups = []Group{{}}
	}
	r.sched = 1
	for i := range r.groups {
		if r.groups[i].BlockSize == 0 {
			r.groups[i].BlockSize = r.unit
		}
	}
	marked := slices.ContainsFunc(r.groups, func(g Group) bool { return g.Eagle })
	for i, g := range r.groups {
		for r.sched%max(g.BlockSize, 1) != 0 {
			r.sched++
		}
		eagle := o.Eagle && o.Lookahead == 0 && (!marked || g.Eagle)
		g.Eagle = false
		at := slices.IndexFunc(r.layouts, func(l refLayout) bool { return l.Group == g })
		if at < 0 {
			at = len(r.layouts)
			r.layouts = append(r.layouts, refLayout{Group: g})
		}
		r.layouts[at].ids = append(r.layouts[at].ids, i)
		r.layouts[at].eagle = r.layouts[at].eagle || eagle
		r.eagle = r.eagle || eagle
	}
	slices.SortStableFunc(r.layouts, func(a, b refLayout) int {
		return min(int(a.Kind), 1) - min(int(b.Kind), 1)
	})
	if o.SchedulerBlock != 0 {
		r.sched = o.SchedulerBlock
	}
	switch o.PartialHits {
	case On:
		r.fine = true
	case Auto:
		mamba, fits := false, true
		for _, l := range r.layouts {
			mamba = mamba || l.Kind == Mamba && l.BlockSize > r.unit
			fits = fits && (l.Kind == Mamba || l.Kind == FullAttention || l.BlockSize == r.unit)
		}
		r.fine = r.v >= 26 && mamba && fits
	}
	r.align = r.sched
	if r.fine {
		r.align = r.unit
	}
	return r
}

// at tells whether the layout's hash that ends at token e is present.
func (r *reference) at(l refLayout, e int) bool {
	if e <= 0 || e%r.unit != 0 || e/r.unit > r.units {
		return false
	}
	for _, g := range l.ids {
		if !r.has(g, e/r.unit-1) {
			return false
		}
	}
	return true
}

func (r *reference) longest(l refLayout, limit int, drop bool) int {
	b := l.BlockSize
	switch l.Kind {
	case SlidingWindow:
		need := (l.Window - 1 + b - 1) / b
		back := 0
		if drop {
			need++
			if r.v >= 20 {
				back = b
			}
		}
		run, end := 0, 0
		for e := limit / b * b; e > 0; e -= b {
			switch {
			case !r.at(l, e):
				run = 0
				continue
			case run == 0 && b != r.align && (e-back)%r.align != 0:
				continue
			case run == 0:
				end = e
			}
			if run++; run >= need {
				if drop {
					end -= b
					end -= end % r.align
				}
				return end
			}
		}
		n := run * b / r.align * r.align
		if drop && n > 0 {
			n = (n - b) / r.align * r.align
		}
		return n
	case ChunkedLocal:
		e := limit / l.Chunk * l.Chunk / b * b
		for e+b <= limit && r.at(l, e+b) {
			e += b
		}
		return e
	case Mamba:
		if r.v < 11 {
			return 0
		}
		for e := limit; e > 0; e-- {
			if e%r.align == 0 && (e%b == 0 || r.fine) && r.at(l, e) {
				return e
			}
		}
		return 0
	}
	n := 0
	for n+b <= limit && r.at(l, n+b) {
		n += b
	}
	hit := n
	if r.fine {
		for e := n + r.unit; e < n+b && e <= limit; e += r.unit {
			if r.at(l, e) {
				hit = e
			}
		}
	}
	if drop && hit > 0 {
		if r.v >= 26 {
			hit -= min(r.align, b)
		} else {
			hit -= b
		}
	}
	return hit / r.align * r.align
}

func (r *reference) hit(n int) int {
	if len(r.groups) == 1 {
		return r.longest(r.layouts[0], n-1, r.layouts[0].eagle)
	}
	two := len(r.layouts) == 2 && r.layouts[0].Kind == FullAttention
	reach := n - 1
	if r.v >= 32 {
		reach = r.units * r.unit
	}
	length, fullLen := n-1, n-1
	dropped, asked := map[int]bool{}, map[int]bool{}
	for {
		cur := length
		for i, l := range r.layouts {
			full := l.Kind == FullAttention
			switch {
			case r.v < 20 && full && asked[i]:
				cur = cur / l.BlockSize * l.BlockSize
				continue
			case r.v < 20:
				asked[i] = true
				cur = r.longest(l, cur, l.eagle)
				continue
			case full && asked[i]:
				cur = min(cur, fullLen)
				continue
			}
			asked[i] = true
			drop := l.eagle && !dropped[i]
			top := cur
			if drop && !(l.Kind == Mamba && r.v >= 26) {
				top = min(cur+r.margin(l), reach)
			}
			got := r.longest(l, top, drop)
			if drop {
				dropped[i] = true
			} else if got < cur {
				clear(dropped)
			}
			if cur = got; full {
				fullLen = min(fullLen, got)
			}
		}
		if cur >= length {
			return length
		}
		if length = cur; two || r.v < 14 {
			return length
		}
	}
}

func (r *reference) margin(l refLayout) int {
	if r.fine && l.BlockSize > r.unit && (l.Kind == FullAttention || l.Kind == Mamba) {
		return r.unit
	}
	return l.BlockSize
}

// closed is the one sentence of 4.1, for layouts without EAGLE.
func (r *reference) closed(n int) int {
	top := min(n-1, r.units*r.unit)
	for length := top / r.align * r.align; length > 0; length -= r.align {
		ok := true
		for _, l := range r.layouts {
			ok = ok && r.accepts(l, length, n-1)
		}
		if ok {
			return length
		}
	}
	return 0
}

func (r *reference) accepts(l refLayout, length, limit int) bool {
	b := l.BlockSize
	from := 0
	switch l.Kind {
	case Mamba:
		return r.v >= 11 && r.at(l, length) && (r.fine || length%b == 0)
	case SlidingWindow:
		from = max(0, length-(l.Window-1+b-1)/b*b)
	case ChunkedLocal:
		from = length / l.Chunk * l.Chunk
	}
	e := from
	for ; e+b <= length; e += b {
		if !r.at(l, e+b) {
			return false
		}
	}
	if e == length {
		return true
	}
	for u := length; u <= min(e+b, limit); u += r.unit { // ends inside a block
		if r.at(l, u) {
			return true
		}
	}
	return false
}

func (r *reference) offload(n, local, chunkBlocks int) int {
	type group struct{ id, size, window, width int }
	var groups []group
	top := n
	for i, g := range r.groups {
		x := group{id: i, size: g.BlockSize * chunkBlocks}
		switch g.Kind {
		case FullAttention:
		case SlidingWindow:
			x.window = g.Window
			x.width = (g.Window + x.size - 1) / x.size
			top = n - 1
		default:
			return 0
		}
		groups = append(groups, x)
	}
	slices.SortStableFunc(groups, func(a, b group) int {
		if (a.window > 0) != (b.window > 0) {
			return min(a.window, 1) - min(b.window, 1)
		}
		return b.width - a.width
	})
	todo, found := groups, 0
	for len(todo) > 0 {
		now := todo
		todo = nil
		windows := false
		for _, g := range now {
			keys := r.units * r.unit / g.size
			present := func(i int) bool { return r.has(g.id, (i+1)*g.size/r.unit-1) }
			top = min(top, keys*g.size)
			if top-local < g.size {
				return 0
			}
			start, end := local/g.size, min((top+g.size-1)/g.size, keys)
			hits := 0
			if g.window == 0 {
				for start+hits < end && present(start+hits) {
					hits++
				}
			} else {
				first := g.width
				if r.v >= 31 {
					pad := (g.size - top%g.size) % g.size
					first = max(first, (g.window-1+pad+g.size-1)/g.size)
				}
				run, done := 0, false
				for i := end - 1; i >= start && !done; i-- {
					if !present(i) {
						run = 0
						continue
					}
					need := g.width
					if i+run == end-1 {
						need = first
					}
					if run++; run == need {
						hits, done = i-start+run, true
					}
				}
				if !done {
					hits = run
				}
			}
			if hits == 0 {
				return 0
			}
			top = min(top, g.size*(start+hits))
			if top-local < g.size {
				return 0
			}
			if top-local < found && windows && todo == nil {
				for _, g := range groups {
					if g.window > 0 {
						todo = append(todo, g)
					}
				}
			}
			windows = windows || g.window > 0
			found = top - local
		}
	}
	return found
}

func (r *reference) simple(n, local int) int {
	if local%r.sched != 0 {
		return 0
	}
	for _, g := range r.groups {
		if g.Kind != FullAttention && g.Kind != SlidingWindow {
			return 0
		}
	}
	whole := *r
	whole.units = r.units - local/r.unit
	whole.has = func(g, unit int) bool { return r.has(g, local/r.unit+unit) }
	whole.align, whole.fine = r.sched, false
	return whole.closed(n - local)
}
