package scrape

import (
	"math/rand/v2"
	"time"
)

// turns divide the period into equal parts, in each of which some engines are
// asked, and the answers of those before are read: each wake-up of an idle process
// costs as much as several requests, so they share theirs, and an answer does not
// cause one of its own.
type turns struct {
	each  time.Duration
	slots [][]*engine
}

const turn = 125 * time.Millisecond

func newTurns(period time.Duration) turns {
	n := max(1, min(period/time.Millisecond, max(8, period/turn)))
	return turns{period / n, make([][]*engine, n)}
}

// add gives an engine one of the turns that have the fewest, at random.
func (t *turns) add(e *engine) {
	least, at, ties := int(^uint(0)>>1), 0, 0
	for i := range t.slots {
		switch n := len(t.slots[i]); {
		case n < least:
			least, at, ties = n, i, 1
		case n == least:
			if ties++; rand.IntN(ties) == 0 {
				at = i
			}
		}
	}
	e.slot = at
	t.slots[at] = append(t.slots[at], e)
}

func (t *turns) remove(e *engine) {
	slot := t.slots[e.slot]
	for i := range slot {
		if slot[i] == e {
			slot[i] = slot[len(slot)-1]
			slot[len(slot)-1] = nil
			t.slots[e.slot] = slot[:len(slot)-1]
			return
		}
	}
}

// turn wakes the engines whose turn it is until the scraper is closed, and tells
// them when the next turn is. It starts at a random moment, so that several processes
// do not ask at once. An engine that is still busy with its last turn takes the next
// when it is done.
func (s *Scraper) turn() {
	next := time.Now().Add(rand.N(s.turns.each) + 1)
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for i := 0; ; i = (i + 1) % len(s.turns.slots) {
		select {
		case <-s.ctx.Done():
			return
		case <-timer.C:
		}
		if next = next.Add(s.turns.each); time.Until(next) <= 0 { // the process was held up
			next = time.Now().Add(s.turns.each)
		}
		timer.Reset(time.Until(next))
		s.mu.RLock()
		for _, e := range s.turns.slots[i] {
			select {
			case e.due <- next:
			default:
			}
		}
		s.mu.RUnlock()
	}
}
