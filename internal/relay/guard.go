// Package relay watches the publishers behind a relay: each numbers its messages,
// which hold events of one source or of several, and none can be asked again.
package relay

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/kvatlas/kvatlas/kvevents"
)

// Guard tells a handler what the numbers of publishers say of their sources. The
// zero value with a Handler is ready. It is not safe for concurrent use.
type Guard struct {
	Handler kvevents.Handler
	// Most bounds publishers and sources; 0 means 1<<14. Beyond it the publisher
	// that was silent the longest is forgotten, and what was known by it.
	Most int
	// Exclusive: a source has one publisher. When it comes from another one, the
	// first is gone and with it what it announced.
	Exclusive bool
	// Counts of what was said.
	Losses, Lost, Restarts, Duplicates, Evicted uint64

	publishers map[string]*Publisher
	owner      map[kvevents.Source]*Publisher // of those that came last
	sources    int                            // of all publishers
	clock      uint64
}

// Publisher is one numbered sequence of messages.
type Publisher struct {
	key     string
	seq     kvevents.Sequence
	sources map[kvevents.Source]bool
	joined  kvevents.Step // what was missed before its first message
	used    uint64
}

// Take is given the number of a publisher's next message before its events are
// applied, the time it was sent at, in seconds, or 0, and a hash of its content (see
// kvevents.Sequence). A first number of 1 misses nothing. ok is false for what is not
// to be applied.
func (g *Guard) Take(key string, id uint64, at float64, content uint64) (p *Publisher, ok bool) {
	if p = g.publishers[key]; p == nil {
		if len(g.publishers) >= g.most() {
			g.evict()
		}
		p = &Publisher{key: key, sources: map[kvevents.Source]bool{}}
		p.seq.First = min(id, 1)
		if g.publishers == nil {
			g.publishers, g.owner = map[string]*Publisher{}, map[kvevents.Source]*Publisher{}
		}
		g.publishers[key] = p
	}
	g.clock++
	p.used = g.clock
	step := p.seq.Take(id, at, content)
	if step.Drop && step.Cause == 0 {
		g.Duplicates++
		return nil, false
	}
	if step.Restart {
		g.Restarts++
		p.joined = kvevents.Step{}
	}
	if step.Cause != 0 {
		g.count(step)
		if !step.Removals {
			p.joined = kvevents.Step{From: step.From, To: step.To, Cause: step.Cause}
		}
	}
	g.tell(p, step)
	if step.Drop {
		return nil, false
	}
	return p, true
}

func (g *Guard) most() int { return cmp.Or(g.Most, 1<<14) }

func (g *Guard) count(step kvevents.Step) {
	g.Losses++
	g.Lost += step.To + 1 - step.From
}

// tell passes a step on to all sources of a publisher, in an order of their own.
func (g *Guard) tell(p *Publisher, step kvevents.Step) {
	if !step.Restart && step.Cause == 0 {
		return
	}
	for _, src := range p.Sources() {
		step.Tell(g.Handler, src)
	}
}

// Sources returns those that were seen, sorted.
func (p *Publisher) Sources() []kvevents.Source {
	return slices.SortedFunc(maps.Keys(p.sources), func(a, b kvevents.Source) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Rank, b.Rank))
	})
}

// See is told of the source of an event before that is applied. The first time of a
// publisher, it says what was missed before. It is false for one source too many.
func (g *Guard) See(p *Publisher, src kvevents.Source) bool {
	if p.sources[src] {
		return true
	}
	for g.sources >= g.most() {
		if len(g.publishers) == 1 {
			return false
		}
		g.evict()
	}
	src.Worker = strings.Clone(src.Worker) // perhaps a part of a large message
	p.sources[src] = true
	g.sources++
	if before := g.owner[src]; before != nil && before != p && g.Exclusive {
		g.Restarts++
		g.Handler.Clear(src, kvevents.ClearRestart)
		delete(before.sources, src)
		g.sources--
	}
	g.owner[src] = p
	p.joined.Tell(g.Handler, src)
	return true
}

// Broken says that a message could not be read in whole or in part: of the source
// given, or of nobody knows which of the publisher's. Removals says that removals may
// be in it.
func (g *Guard) Broken(p *Publisher, src *kvevents.Source, id uint64, cause kvevents.Cause, removals bool) {
	step := kvevents.Step{From: id, To: id, Cause: cause, Removals: removals}
	g.count(step)
	switch {
	case src != nil:
		step.Tell(g.Handler, *src)
	case p != nil:
		g.tell(p, step)
	}
}

// evict forgets the publisher that was silent the longest.
func (g *Guard) evict() {
	var oldest *Publisher
	for _, p := range g.publishers {
		if oldest == nil || p.used < oldest.used {
			oldest = p
		}
	}
	g.Evicted++
	for _, src := range oldest.Sources() {
		g.Handler.Clear(src, kvevents.ClearRemoved)
		if g.owner[src] == oldest {
			delete(g.owner, src)
		}
	}
	g.sources -= len(oldest.sources)
	delete(g.publishers, oldest.key)
}

// Publishers returns how many are known, and how many sources they have together.
func (g *Guard) Publishers() (publishers, sources int) { return len(g.publishers), g.sources }
