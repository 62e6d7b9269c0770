package scrape

import (
	"math/rand/v2"
	"time"
)

// turns divide the period into equal parts, in each of which some engines are
// asked. One timer wakes them together: each wake-up of an idle process costs as
// much as several requests.
type turns struct {
	each  time.Duration
	slots [][]*engine
}

const turn = 100 * time.Millisecond

func newTurns(period time.Duration) turns {
	n := max(1, min(period/time.Millisecond, max(10, period/turn)))
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

// turn wakes the engines whose turn it is until the scraper is closed. It starts at
// a random moment, so that several processes do not ask at once. An engine that is
// still busy with its last turn takes the next when it is done.
func (s *Scraper) turn() {
	timer := time.NewTimer(rand.N(s.turns.each) + 1)
	defer timer.Stop()
	next := time.Now()
	for i := 0; ; i = (i + 1) % len(s.turns.slots) {
		select {
		case <-s.ctx.Done():
			return
		case now := <-timer.C:
			if next = next.Add(s.turns.each); next.Before(now) { // the process was held up
				next = now.Add(s.turns.each)
			}
			timer.Reset(time.Until(next))
		}
		s.mu.RLock()
		for _, e := range s.turns.slots[i] {
			select {
			case e.due <- struct{}{}:
			default:
			}
		}
		s.mu.RUnlock()
	}
}
