package radix

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxGroup is the highest group index that an index keeps apart.
const MaxGroup = 255

// maxTokens bounds every size of a profile, and the prompt of a query.
const maxTokens = 1 << 30

// release is major and minor of an engine's release.
type release struct{ major, minor int }

func (r release) atLeast(major, minor int) bool {
	return r.major > major || r.major == major && r.minor >= minor
}

var newest = release{0, 33}

// parseRelease reads the first two numbers of a release; "" is the newest known.
func parseRelease(s string) (release, error) {
	if s == "" {
		return newest, nil
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(s, "v"), ".")
	minor := rest
	if i := strings.IndexFunc(rest, func(c rune) bool { return c < '0' || c > '9' }); i >= 0 {
		minor = rest[:i]
	}
	a, errA := strconv.ParseUint(major, 10, 16)
	b, errB := strconv.ParseUint(minor, 10, 16)
	if errA != nil || errB != nil {
		return release{}, fmt.Errorf("%w: release %.64q is not of the form MAJOR.MINOR[.PATCH]", ErrProfile, s)
	}
	return release{int(a), int(b)}, nil
}

// layout is all groups with one spec. The engine looks them up together: a block
// counts as present only if every group of the layout has it.
type layout struct {
	kind   Kind
	block  int // tokens
	step   int // units in a block
	window int
	chunk  int
	groups []int16
	eagle  bool
}

// Profile is the compiled description of a worker's engine. It is immutable and
// safe for concurrent use; workers may share one. Make it with [NewProfile].
type Profile struct {
	release   release
	unit      int // tokens a key stands for; 0 = not known
	sched     int
	align     int // grain of a hit
	lookahead int
	fine      bool // partial hits
	single    bool // one group only
	stops     bool // nothing behind the main layout's first hole matters
	layouts   []layout
	groups    int // how many groups
	copies    CopyPolicy
	connector Connector
	chunk     int    // blocks in a chunk of the OffloadingConnector
	loads     []load // the groups in the connector's order
	clear     ClearPolicy
	anyGroup  bool // no layout is known: a block counts in whatever group it is
}

// unknownProfile stands for a worker of which nothing is known.
var unknownProfile = &Profile{
	release: newest, chunk: 1, groups: 1, single: true, stops: true, anyGroup: true,
	layouts: []layout{{kind: FullAttention, step: 1, groups: []int16{0}}},
}

// NewProfile validates and compiles options. Every error wraps [ErrProfile].
func NewProfile(o ProfileOptions) (*Profile, error) {
	rel, err := parseRelease(o.Release)
	if err != nil {
		return nil, err
	}
	bad := func(format string, args ...any) (*Profile, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{ErrProfile}, args...)...)
	}
	unit := o.HashUnit
	if unit < 0 || unit > maxTokens {
		return bad("hash unit of %d tokens, want 0..%d", unit, maxTokens)
	}
	if len(o.Groups) > MaxGroup+1 {
		return bad("%d cache groups, want at most %d", len(o.Groups), MaxGroup+1)
	}
	if unit == 0 {
		for _, g := range o.Groups {
			if g.BlockSize > 0 && (unit == 0 || g.BlockSize < unit) {
				unit = g.BlockSize
			}
		}
	}
	p := &Profile{
		release: rel, unit: unit, lookahead: o.Lookahead, copies: o.Copies,
		connector: o.Connector, chunk: max(o.ChunkBlocks, 1), clear: o.Clear,
		groups: max(len(o.Groups), 1), single: len(o.Groups) <= 1,
	}
	switch {
	case o.Lookahead < 0 || o.Lookahead > maxTokens:
		return bad("lookahead of %d tokens", o.Lookahead)
	case o.ChunkBlocks < 0 || o.ChunkBlocks > maxTokens:
		return bad("chunk of %d blocks", o.ChunkBlocks)
	case o.Copies > Set:
		return bad("copy policy %d, want Count or Set", o.Copies)
	case o.Connector > SimpleOffload:
		return bad("connector %d, want NoConnector, Offloading or SimpleOffload", o.Connector)
	case o.Clear > ClearAll:
		return bad("clear policy %d, want ClearAuto, ClearDevice or ClearAll", o.Clear)
	case o.PartialHits > Off:
		return bad("partial hits %d, want Auto, On or Off", o.PartialHits)
	}
	groups := o.Groups
	if len(groups) == 0 {
		groups = []Group{{}}
	}
	if unit == 0 {
		if len(o.Groups) > 0 || o.SchedulerBlock != 0 || o.Eagle {
			return bad("groups, scheduler block or EAGLE need a hash unit or block sizes")
		}
		p.layouts = []layout{{kind: FullAttention, step: 1, groups: []int16{0}}}
		p.stops = true
		return p, nil
	}
	marked := false
	for _, g := range groups {
		marked = marked || g.Eagle
	}
	p.sched = 1
	for i, g := range groups {
		if g.BlockSize == 0 {
			g.BlockSize = unit
		}
		if g.BlockSize < 0 || g.BlockSize > maxTokens || g.BlockSize%unit != 0 {
			return bad("group %d: block size %d is not a multiple of the hash unit %d", i, g.BlockSize, unit)
		}
		l := layout{kind: g.Kind, block: g.BlockSize, step: g.BlockSize / unit}
		switch g.Kind {
		case FullAttention, Mamba:
		case SlidingWindow:
			if l.window = g.Window; l.window < 1 || l.window > maxTokens {
				return bad("group %d: sliding window of %d tokens, want at least 1", i, g.Window)
			}
		case ChunkedLocal:
			if l.chunk = g.Chunk; l.chunk < 1 || l.chunk > maxTokens {
				return bad("group %d: attention chunk of %d tokens, want at least 1", i, g.Chunk)
			}
		default:
			return bad("group %d: unknown kind %d", i, g.Kind)
		}
		if p.sched = lcm(p.sched, g.BlockSize); p.sched > maxTokens {
			return bad("least common multiple of the block sizes exceeds %d tokens", maxTokens)
		}
		l.eagle = o.Eagle && o.Lookahead == 0 && (g.Eagle || !marked)
		p.place(l, int16(i))
	}
	if o.SchedulerBlock != 0 {
		if o.SchedulerBlock < 0 || o.SchedulerBlock > maxTokens || o.SchedulerBlock%unit != 0 {
			return bad("scheduler block of %d tokens is not a multiple of the hash unit %d", o.SchedulerBlock, unit)
		}
		p.sched = o.SchedulerBlock
	}
	p.fine = o.PartialHits == On || o.PartialHits == Auto && p.partialByDefault()
	p.align = p.sched
	if p.fine {
		p.align = unit
	}
	if n := len(p.layouts); !rel.atLeast(0, 14) && n > 1 && (n > 2 || p.layouts[0].kind != FullAttention) {
		return bad("before 0.14 the engine takes full attention and one other layout, not %d layouts", n)
	}
	p.stops = p.layouts[0].kind == FullAttention
	for i := range p.layouts {
		switch l := &p.layouts[i]; {
		case l.kind == ChunkedLocal && l.block != p.align:
			return bad("chunked local attention with blocks of %d tokens where a hit's grain is %d: the engine refuses it", l.block, p.align)
		case l.kind == ChunkedLocal && l.eagle:
			return bad("EAGLE with chunked local attention: the engine refuses it")
		case l.kind == Mamba && l.eagle && rel.atLeast(0, 20) && !rel.atLeast(0, 26):
			// These releases ask for a state one block beyond the length that
			// attention allows, and take it.
			p.stops = false
		}
	}
	p.compileLoads()
	return p, nil
}

// place adds a group to the layout with its spec; full attention comes first,
// the others in the order of their first groups, as the engine asks them.
func (p *Profile) place(l layout, group int16) {
	for i := range p.layouts {
		m := &p.layouts[i]
		if m.kind == l.kind && m.block == l.block && m.window == l.window && m.chunk == l.chunk {
			m.groups = append(m.groups, group)
			m.eagle = m.eagle || l.eagle
			return
		}
	}
	l.groups = []int16{group}
	at := len(p.layouts)
	if l.kind == FullAttention {
		for at = 0; at < len(p.layouts) && p.layouts[at].kind == FullAttention; at++ {
		}
	}
	p.layouts = append(p.layouts, layout{})
	copy(p.layouts[at+1:], p.layouts[at:])
	p.layouts[at] = l
}

// partialByDefault is the engine's own choice (testdata/vllm/truth/RULES.md, 4.1).
func (p *Profile) partialByDefault() bool {
	if !p.release.atLeast(0, 26) {
		return false
	}
	state := false
	for i := range p.layouts {
		switch l := &p.layouts[i]; {
		case l.kind == Mamba:
			state = state || l.step > 1
			if l.step == 1 {
				continue
			}
		case l.kind != FullAttention && l.step != 1:
			return false
		}
	}
	return state
}

// HashUnit returns the tokens that a key stands for, 0 if not known.
func (p *Profile) HashUnit() int { return p.unit }

// SchedulerBlock returns the engine's scheduler block size in tokens.
func (p *Profile) SchedulerBlock() int { return p.sched }

// CheckBlockSize tells whether an announced block of size tokens can be the
// engine's: a whole block of its full-attention group has that group's size, or
// one hash unit (the tail of a prompt). Other groups, other media, sizes of 0 and
// groups that the profile does not have are not judged. The error wraps
// [ErrProfile]: with another block size the worker's keys can never match.
func (p *Profile) CheckBlockSize(h Holder, size int) error {
	if p.unit == 0 || size == 0 || h.Medium != GPU {
		return nil
	}
	for i := range p.layouts {
		l := &p.layouts[i]
		if l.kind != FullAttention || h.Group != NoGroup && !slices.Contains(l.groups, h.Group) {
			continue
		}
		if size != l.block && size != p.unit && (h.Group != NoGroup || p.single) {
			return fmt.Errorf("%w: a block of %d tokens was announced in group %d, whose blocks have %d", ErrProfile, size, h.Group, l.block)
		}
	}
	return nil
}

// PartialHits reports whether a hit may end inside a block.
func (p *Profile) PartialHits() bool { return p.fine }

// Units returns how many keys a prompt of n tokens has: its whole hash units
// that also have the lookahead behind them.
func (p *Profile) Units(n int) int {
	if p.unit == 0 || n <= p.lookahead {
		return 0
	}
	return (n - p.lookahead) / p.unit
}

// lcm is the least common multiple, or something above maxTokens if it is. Both are
// at most maxTokens.
func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return int(min(int64(a/x)*int64(b), maxTokens+1))
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
