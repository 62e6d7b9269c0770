package scrape

import (
	"bytes"
	"math/rand/v2"
	"sync"
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

// turn takes turns until the scraper is closed. It starts at a random moment, so
// that several processes do not ask at once.
func (s *Scraper) turn() {
	next := time.Now().Add(rand.N(s.turns.each) + 1)
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	var t talk
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
		t.hear(s)
		s.mu.RLock()
		t.turn = append(t.turn[:0], s.turns.slots[i]...)
		s.mu.RUnlock()
		t.ask(s)
	}
}

// talk is with the engines that can be talked to without waiting: one goroutine
// asks those whose turn it is and reads the answers with the next turn. A goroutine
// of its own is for an engine only while its answer is late, or there is a
// connection to make.
type talk struct {
	turn, asked []*engine
	in          inbox
	answer
}

// answer is what one answer is read into.
type answer struct {
	page Page
	body bytes.Buffer
}

var answers = sync.Pool{New: func() any { return new(answer) }}

// ask begins the turns of engines, save those whose last has not ended.
func (t *talk) ask(s *Scraper) {
	for _, e := range t.turn {
		switch {
		case e.ctx.Err() != nil || !e.begin():
		case s.o.Timeout/2 >= s.turns.each && e.from.ask():
			t.asked = append(t.asked, e)
		default:
			s.wg.Go(func() { s.poll(e) })
		}
	}
	clear(t.turn)
}

// hear ends the turns of those whose answers are there.
func (t *talk) hear(s *Scraper) {
	for _, e := range t.asked {
		selected, err := e.from.arrived(&t.page, &t.in, &t.body)
		if err == errNotYet {
			s.wg.Go(func() { s.poll(e) })
			continue
		}
		s.took(e, &t.page, selected, err)
		e.end()
	}
	clear(t.asked)
	t.asked = t.asked[:0]
}

// poll does or ends an engine's turn, waiting for what is to be waited for, and
// the next if that has come meanwhile.
func (s *Scraper) poll(e *engine) {
	a := answers.Get().(*answer)
	defer answers.Put(a)
	for more := true; more; more = e.end() {
		selected, err := e.from.read(e.ctx, &a.page, &a.body)
		s.took(e, &a.page, selected, err)
	}
}

// took notes how a turn ended.
func (s *Scraper) took(e *engine, p *Page, selected bool, err error) {
	if e.ctx.Err() != nil {
		return
	}
	e.update(p, selected, err)
	if s.o.Updated != nil {
		if err != nil {
			p = nil
		}
		s.o.Updated(e.name, p, err)
	}
}

// begin begins a turn, unless there is one: then another follows it.
func (e *engine) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.missed = e.busy
	e.busy = true
	return !e.missed
}

// end ends a turn. It reports whether another begins at once.
func (e *engine) end() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy = e.missed && e.ctx.Err() == nil
	e.missed = false
	return e.busy
}
