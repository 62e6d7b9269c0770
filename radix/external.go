package radix

import (
	"cmp"
	"slices"
)

// The external hit: what an offload connector adds to the local one. These are
// the rules of testdata/vllm/tiers/README.md. Unlike the local rules they go group by group,
// so that rows has one row a group here, of the connector's media.

// load is one group as the offload connector sees it.
type load struct {
	group  int
	size   int // tokens of a chunk
	step   int // units of a chunk
	window int // tokens; 0 = full attention
	width  int // chunks of the window
}

// compileLoads fills in the order in which the connector asks the groups: full
// attention first, then the windows, widest first. A layout that the connector
// is not known to handle leaves it empty, and nothing is predicted.
func (p *Profile) compileLoads() {
	for i := range p.layouts {
		l := &p.layouts[i]
		if l.kind != FullAttention && l.kind != SlidingWindow {
			p.loads = nil
			return
		}
		for _, g := range l.groups {
			x := load{group: int(g), size: l.block, step: l.step, window: l.window}
			if p.connector == Offloading {
				x.size *= p.chunk
				x.step *= p.chunk
			}
			x.width = ceilDiv(l.window, x.size)
			p.loads = append(p.loads, x)
		}
	}
	slices.SortStableFunc(p.loads, func(a, b load) int {
		return cmp.Or(cmp.Compare(min(a.window, 1), min(b.window, 1)),
			cmp.Compare(b.width, a.width), cmp.Compare(a.group, b.group))
	})
}

// external returns the tokens that the connector loads beyond local for a prompt
// of n tokens and units keys.
func (p *Profile) external(rows []row, n, units, local int) int {
	switch {
	case p.unit == 0 || n <= 0 || len(p.loads) == 0:
		return 0
	case p.connector == Offloading:
		return p.offload(rows, n, units, local)
	case p.connector == SimpleOffload && p.release.atLeast(0, 30):
		return p.simpleOffload(rows, n, units, local)
	}
	return 0
}

// reach returns how many units decide about a hit and a load of so many. The connector
// takes whole chunks of each group, the last of which may end behind them, and the
// draft's block lies behind them.
func (p *Profile) reach(units int) int {
	end := units
	for i := range p.loads {
		step := p.loads[i].step
		end = max(end, ceilDiv(units, step)*step)
	}
	for i := range p.layouts {
		if l := &p.layouts[i]; l.eagle {
			end = max(end, units+p.margin(l)/p.unit)
		}
	}
	return end
}

func (p *Profile) offload(rows []row, n, units, local int) int {
	loads := p.loads
	top := n
	if loads[len(loads)-1].window > 0 {
		top--
	}
	for found := 0; ; {
		again, windows := false, false
		for i := range loads {
			x := &loads[i]
			keys := units / x.step
			if top = min(top, keys*x.size); top-local < x.size {
				return 0
			}
			count := min(ceilDiv(top, x.size), keys)
			start := local / x.size
			hits := 0
			if x.window == 0 {
				for start+hits < count && rows[x.group].has((start+hits+1)*x.step-1) {
					hits++
				}
			} else {
				hits = p.lastRun(x, rows[x.group], start, count, top)
			}
			if hits == 0 {
				return 0
			}
			top = min(top, x.size*(start+hits))
			if top-local < x.size {
				return 0
			}
			// A window that shrank the hit after another window looked at it
			// makes the connector look at all windows again.
			again = again || top-local < found && windows
			windows = windows || x.window > 0
			found = top - local
		}
		if !again {
			return found
		}
		for loads[0].window == 0 {
			loads = loads[1:]
		}
	}
}

// lastRun returns the end, in chunks after start, of the last run of present
// chunks that is as long as the window; else the length of the run that touches
// start.
func (p *Profile) lastRun(x *load, r row, start, count, top int) int {
	need := x.width
	if p.release.atLeast(0, 31) { // a run at the right end covers the padding too
		pad := (x.size - top%x.size) % x.size
		need = max(need, ceilDiv(x.window-1+pad, x.size))
	}
	run := 0
	for i := count - start - 1; i >= 0; i-- {
		if r.has((start+i+1)*x.step - 1) {
			run++
		} else {
			run, need = 0, x.width
		}
		if run == need {
			return i + need
		}
	}
	return run
}

// simpleOffload applies the ordinary rule to the connector's pool and to the
// rest of the prompt, as if it were a prompt of its own.
func (p *Profile) simpleOffload(rows []row, n, units, local int) int {
	if local%p.sched != 0 {
		return 0
	}
	skip := local / p.unit
	top := min(n-1-local, (units-skip)*p.unit)
	for i := range p.loads {
		x := &p.loads[i]
		if x.window > 0 {
			break
		}
		k := 0
		for (k+1)*x.size <= top && rows[x.group].has(skip+(k+1)*x.step-1) {
			k++
		}
		top = min(top, k*x.size)
	}
	for length := top / p.sched * p.sched; length > 0; length -= p.sched {
		if p.simpleAccepts(rows, skip, length) {
			return length
		}
	}
	return 0
}

// simpleAccepts tells whether every window before length is there.
func (p *Profile) simpleAccepts(rows []row, skip, length int) bool {
	for i := range p.loads {
		x := &p.loads[i]
		if x.window == 0 {
			continue
		}
		end := max(0, length-x.size*ceilDiv(x.window-1, x.size)) + x.size
		for ; end <= length; end += x.size {
			if !rows[x.group].has(skip + end/p.unit - 1) {
				return false
			}
		}
	}
	return true
}
