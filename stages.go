package kvatlas

import (
	"time"

	"github.com/kvatlas/kvatlas/radix"
)

// Stage is a part of a decision whose time can be observed. Stages do not overlap.
type Stage uint8

const (
	// StageHash is hashing a prompt, as far as matching needs it; with
	// Options.Speculate all of it.
	StageHash Stage = iota
	// StageMatch is looking up what each worker holds, without the hashing that
	// goes on between.
	StageMatch
	// StageScore is filters, scorers and the pick.
	StageScore
	// StageApply is applying one message; with [Atlas.Apply] decoding it too.
	StageApply

	NumStages = int(iota)
)

// String returns "hash", "match", "score" or "apply".
func (s Stage) String() string {
	return [...]string{"hash", "match", "score", "apply"}[min(int(s), NumStages-1)]
}

// Observer sees how long a stage took. It is called by the goroutine at work, must
// be safe for concurrent use and should not allocate.
type Observer interface {
	Observe(s Stage, d time.Duration)
}

// timed starts the time of a stage; the returned time is for done. Without an
// observer neither looks at the clock.
func (a *Atlas) timed() time.Time {
	if a.options.Observer == nil {
		return time.Time{}
	}
	return time.Now()
}

// done ends a stage, of whose time the hashing within was another's.
func (a *Atlas) done(s Stage, started time.Time, hashing time.Duration) {
	if a.options.Observer != nil {
		a.options.Observer.Observe(s, time.Since(started)-hashing)
	}
}

// hashed ends the stage of hashing.
func (a *Atlas) hashed(m *Match) {
	if a.options.Observer != nil {
		a.options.Observer.Observe(StageHash, m.hashing)
	}
}

// meter takes the time that a chain needs to hash what a match asks for. The match
// asks for one key at a time; a look at the clock costs more than a remembered
// one, so the chain is asked for several: for up to a quarter more than were needed
// so far.
type meter struct {
	chain radix.Source
	took  time.Duration
	keys  []uint64 // hashed, of which next is the first not handed out
	next  int
	count int // handed out before keys
}

const minAhead, maxAhead = 4, 64

func (t *meter) reset(chain radix.Source) {
	*t = meter{chain: chain, keys: t.keys[:0]}
}

// Next implements [radix.Source].
func (t *meter) Next() (key uint64, ok bool) {
	if t.next == len(t.keys) {
		t.fill()
	}
	if t.next == len(t.keys) {
		return 0, false
	}
	t.next++
	return t.keys[t.next-1], true
}

func (t *meter) fill() {
	started := time.Now()
	t.count += len(t.keys)
	t.keys, t.next = t.keys[:0], 0
	for range min(max(t.count/4, minAhead), maxAhead) {
		key, ok := t.chain.Next()
		if !ok {
			break
		}
		t.keys = append(t.keys, key)
	}
	t.took += time.Since(started)
}
