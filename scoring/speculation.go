package scoring

import (
	"sync"
	"time"
)

// SpeculationOptions are the options of [NewSpeculation]. The zero value is
// usable.
type SpeculationOptions struct {
	// MaxTTL is the life of entries whose request reports nothing; 0 means
	// 60 s.
	MaxTTL time.Duration
	// MinTTL and LagFactor give the life of entries after their request's
	// first token, when the engine has computed the blocks and its event is on
	// the way: LagFactor times the measured time from first token to event, at
	// least MinTTL and at most MaxTTL. 0 means 2 s (as llm-d) and 4.
	MinTTL    time.Duration
	LagFactor float64
	// MaxBlocks bounds the blocks of requests tracked; a prompt that does not
	// fit is not entered. 0 means 4,194,304, about 400 MB if all are used.
	MaxBlocks int
	// Now is the clock, for tests and simulations; nil means [time.Now]. A
	// clock that goes back stands still instead.
	Now func() time.Time
}

// Speculation knows the blocks that requests sent from here are about to bring to
// a worker, until the engine's events say so: without it the siblings of a burst
// are scattered, because nobody has announced their prefix yet.
//
// It is kept apart from the index. An entry counts the requests that bring it. It
// goes when the engine announces the block, when the last of its requests fails,
// when the block is removed after it was computed, or by time: so it can neither
// remove nor outlive what the index has confirmed, and [Match.Speculative] tells
// the two apart.
//
// Create it with [NewSpeculation]. It is safe for concurrent use behind one lock.
// Keys may be engine hashes or content keys, the same as the index's.
type Speculation struct {
	o SpeculationOptions

	mu      sync.Mutex
	now     time.Time
	entries slots[map[uint64]specEntry] // by worker and block
	flights []specFlight
	free    int32
	early   specList // no first token yet; lives are equal, so in order of expiry
	late    specList // after the first token, in order of expiry
	blocks  int      // of all flights
	lastID  uint32
	lag     float64 // seconds, moving average
	stats   SpeculationStats
}

// specEntry is the claim that a block is on its way. id tells a later claim of
// the same block from one that was confirmed.
type specEntry struct {
	id       uint32
	refs     int32
	computed bool      // a request that brings it had its first token
	at       time.Time // of that token
}

// specFlight is one request that brings blocks.
type specFlight struct {
	generation uint32
	worker     WorkerID
	keys       []uint64
	ids        []uint32
	list       *specList
	prev, next int32
	until      time.Time
}

type specList struct{ first, last int32 }

// SpeculationStats counts blocks: Entries are there now, the rest are totals.
type SpeculationStats struct {
	Entries int
	// Entered claims ended as Confirmed by an event, Expired or dropped with a
	// request that Failed, or Removed by an event. Refused ones did not fit.
	Entered, Confirmed, Expired, Failed, Removed, Refused uint64
	// Lag is the measured time from a first token to the event.
	Lag time.Duration
}

// NewSpeculation returns a speculation without entries. The error is an
// [*OptionError].
func NewSpeculation(o SpeculationOptions) (*Speculation, error) {
	if o.MaxTTL < 0 || o.MinTTL < 0 || o.MaxBlocks < 0 {
		return nil, optionErrorf("MaxTTL, MinTTL, MaxBlocks", "negative; 0 takes the default")
	}
	if err := nonNegative("LagFactor", o.LagFactor); err != nil {
		return nil, err
	}
	if o.MaxTTL == 0 {
		o.MaxTTL = time.Minute
	}
	if o.MinTTL == 0 {
		o.MinTTL = 2 * time.Second
	}
	if o.MaxBlocks == 0 {
		o.MaxBlocks = 1 << 22
	}
	o.LagFactor = orDefault(o.LagFactor, 4)
	if o.Now == nil {
		o.Now = time.Now
	}
	empty := specList{-1, -1}
	return &Speculation{o: o, free: -1, early: empty, late: empty}, nil
}

// SpecTicket is the handle of one request's entries. It is a value and may be
// copied; the zero value does nothing. It is safe for concurrent use.
type SpecTicket struct {
	s          *Speculation
	slot       int32
	generation uint32
}

// Sent enters the whole blocks of a prompt that was sent to a worker. The keys
// are copied. It allocates only while more is in flight than there has been.
func (s *Speculation) Sent(w WorkerID, keys []uint64) SpecTicket {
	if !s.lock() {
		return SpecTicket{}
	}
	defer s.mu.Unlock()
	if s.blocks+len(keys) > s.o.MaxBlocks {
		s.stats.Refused += uint64(len(keys))
		return SpecTicket{}
	}
	i := s.free
	if i >= 0 {
		s.free = s.flights[i].next
	} else {
		s.flights = append(s.flights, specFlight{})
		i = int32(len(s.flights) - 1)
	}
	f := &s.flights[i]
	f.generation++
	f.worker, f.keys, f.ids = w, append(f.keys[:0], keys...), f.ids[:0]
	s.blocks += len(keys)
	entries := s.of(w)
	if entries == nil {
		made := map[uint64]specEntry{}
		s.entries.put(w, &made)
		entries = made
	}
	for _, k := range keys {
		e, ok := entries[k]
		if !ok {
			s.lastID++
			e.id = s.lastID
			s.stats.Entered++
			s.stats.Entries++
		}
		e.refs++
		e.computed = false // it will be computed again if it is evicted first
		entries[k] = e
		f.ids = append(f.ids, e.id)
	}
	s.link(&s.early, i, s.now.Add(s.o.MaxTTL))
	return SpecTicket{s, i, f.generation}
}

// FirstToken reports that the request's prompt has been computed, so that its
// blocks must be announced soon or not at all. Done is the same for a request
// that is complete.
func (t SpecTicket) FirstToken() {
	t.with(func(s *Speculation, f *specFlight) {
		if f.list == &s.late {
			return
		}
		entries := s.of(f.worker)
		for i, k := range f.keys {
			if e, ok := entries[k]; ok && e.id == f.ids[i] {
				e.computed, e.at = true, s.now
				entries[k] = e
			}
		}
		ttl := min(s.o.MaxTTL, max(s.o.MinTTL, time.Duration(s.o.LagFactor*s.lag*float64(time.Second))))
		s.unlink(t.slot)
		s.link(&s.late, t.slot, s.now.Add(ttl))
	})
}

// Done reports that the request is complete.
func (t SpecTicket) Done() { t.FirstToken() }

// Fail takes the request's claims away at once.
func (t SpecTicket) Fail() {
	t.with(func(s *Speculation, _ *specFlight) { s.end(t.slot, &s.stats.Failed) })
}

func (t SpecTicket) with(do func(*Speculation, *specFlight)) {
	if t.s == nil {
		return
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.s.tick()
	if f := &t.s.flights[t.slot]; f.generation == t.generation {
		do(t.s, f)
	}
}

// Stored reports that the engine announced blocks: what was speculative about
// them is now the index's.
func (s *Speculation) Stored(w WorkerID, keys []uint64) {
	if !s.lock() {
		return
	}
	defer s.mu.Unlock()
	entries := s.of(w)
	if len(entries) == 0 {
		return
	}
	measured, lag := false, 0.0
	for _, k := range keys {
		if e, ok := entries[k]; ok {
			if measured = true; e.computed {
				lag = max(lag, s.now.Sub(e.at).Seconds())
			}
			s.drop(entries, k, &s.stats.Confirmed)
		}
	}
	if measured {
		s.lag += 0.1 * (lag - s.lag)
	}
}

// Removed reports that the engine removed blocks. Claims whose requests have
// computed them are over; those of requests still waiting stay, as they will
// compute the block anew.
func (s *Speculation) Removed(w WorkerID, keys []uint64) {
	if !s.lock() {
		return
	}
	defer s.mu.Unlock()
	entries := s.of(w)
	if len(entries) == 0 {
		return
	}
	for _, k := range keys {
		if e, ok := entries[k]; ok && e.computed {
			s.drop(entries, k, &s.stats.Removed)
		}
	}
}

// Forget drops every claim about a worker that was cleared, restarted or removed.
// It is linear in the requests in flight.
func (s *Speculation) Forget(w WorkerID) {
	if !s.lock() {
		return
	}
	defer s.mu.Unlock()
	for _, l := range []*specList{&s.early, &s.late} {
		for i := l.first; i >= 0; {
			next := s.flights[i].next
			if s.flights[i].worker == w {
				s.end(i, &s.stats.Removed)
			}
			i = next
		}
	}
	s.entries.remove(w)
}

// Has reports whether a block is on its way to a worker.
func (s *Speculation) Has(w WorkerID, key uint64) bool {
	if !s.lock() {
		return false
	}
	defer s.mu.Unlock()
	_, ok := s.of(w)[key]
	return ok
}

// underWay reports whether a block is on its way to any worker. It is linear in the
// workers.
func (s *Speculation) underWay(key uint64) bool {
	if !s.lock() {
		return false
	}
	defer s.mu.Unlock()
	for entries := range s.entries.all {
		if _, ok := (*entries)[key]; ok {
			return true
		}
	}
	return false
}

// Extend lengthens the candidates' matches of a prompt by what is on its way to
// them. From the end of each match it goes on while a block is speculative or,
// asked through confirmed, held; confirmed may be nil. The added blocks count as
// GPU blocks, in Match.Score too and in Match.Usable, which stays below the
// prompt's last token, in whole blocks: that is the rule of full attention; for
// other layouts ask [Speculation.Has] from the rules of the engine. Without a request,
// or one without a BlockSize, Match.Usable stays.
func (s *Speculation) Extend(req *Request, keys []uint64, candidates []Candidate, confirmed func(WorkerID, uint64) bool) {
	if !s.lock() {
		return
	}
	defer s.mu.Unlock()
	for i := range candidates {
		c := &candidates[i]
		entries := s.of(c.ID)
		if len(entries) == 0 {
			continue
		}
		from := max(0, int(c.Match.Total()))
		n := from
		for n < len(keys) {
			if _, ok := entries[keys[n]]; ok {
				c.Match.Speculative++
			} else if confirmed == nil || !confirmed(c.ID, keys[n]) {
				break
			}
			n++
		}
		if n == from {
			continue
		}
		c.Match.Blocks[GPU] += int32(n - from)
		c.Match.Score += float64(n - from)
		if req != nil && req.BlockSize > 0 {
			c.Match.Usable = max(c.Match.Usable, usable(req, n, req.BlockSize))
		}
	}
}

// Stats returns what became of entries.
func (s *Speculation) Stats() SpeculationStats {
	if !s.lock() {
		return SpeculationStats{}
	}
	defer s.mu.Unlock()
	st := s.stats
	st.Lag = time.Duration(s.lag * float64(time.Second))
	return st
}

// lock reports whether there is a speculation, locks it and brings it to the present.
func (s *Speculation) lock() bool {
	if s == nil || s.o.Now == nil {
		return false
	}
	s.mu.Lock()
	s.tick()
	return true
}

// tick reads the clock and ends what has expired.
func (s *Speculation) tick() {
	if now := s.o.Now(); now.After(s.now) {
		s.now = now
	}
	for _, l := range []*specList{&s.early, &s.late} {
		for l.first >= 0 && !s.now.Before(s.flights[l.first].until) {
			s.end(l.first, &s.stats.Expired)
		}
	}
}

// end takes a request's claims away and frees its slot.
func (s *Speculation) end(i int32, counter *uint64) {
	f := &s.flights[i]
	entries := s.of(f.worker)
	for n, k := range f.keys {
		e, ok := entries[k]
		if !ok || e.id != f.ids[n] {
			continue
		}
		if e.refs--; e.refs > 0 {
			entries[k] = e
		} else {
			s.drop(entries, k, counter)
		}
	}
	s.blocks -= len(f.keys)
	if cap(f.keys) > 1<<12 { // do not keep the longest prompt's memory for ever
		f.keys, f.ids = nil, nil
	}
	s.unlink(i)
	f.generation++
	f.next, s.free = s.free, i
}

// of returns a worker's entries; nil if it never had one.
func (s *Speculation) of(w WorkerID) map[uint64]specEntry {
	if entries := s.entries.get(w); entries != nil {
		return *entries
	}
	return nil
}

func (s *Speculation) drop(entries map[uint64]specEntry, key uint64, counter *uint64) {
	delete(entries, key)
	s.stats.Entries--
	*counter++
}

// link appends to a list, never to expire before what is in it.
func (s *Speculation) link(l *specList, i int32, until time.Time) {
	f := &s.flights[i]
	f.list, f.prev, f.next, f.until = l, l.last, -1, until
	if l.last >= 0 {
		last := &s.flights[l.last]
		if last.next = i; last.until.After(until) {
			f.until = last.until
		}
	} else {
		l.first = i
	}
	l.last = i
}

func (s *Speculation) unlink(i int32) {
	f := &s.flights[i]
	if f.prev >= 0 {
		s.flights[f.prev].next = f.next
	} else {
		f.list.first = f.next
	}
	if f.next >= 0 {
		s.flights[f.next].prev = f.prev
	} else {
		f.list.last = f.prev
	}
}
