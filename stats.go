package kvatlas

import (
	"time"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/radix"
)

// Prediction counts how predictions compared with what engines reported, see
// [Atlas.Reported].
type Prediction struct {
	// Exact, Over and Under count requests.
	Exact, Over, Under uint64
	// OverTokens and UnderTokens add up by how much they were off.
	OverTokens, UnderTokens uint64
}

// Reported closes the loop: it counts what was predicted for a request on the
// worker that served it against the cached tokens that the engine reported
// (usage.prompt_tokens_details.cached_tokens). What is over was evicted while the
// request waited, or held by a sign that something is wrong; what is under was
// stored meanwhile.
//
// Negative numbers stand for "nothing was predicted" and "not said": they are not
// counted.
func (a *Atlas) Reported(name string, predicted, cached int) error {
	if predicted < 0 || cached < 0 {
		return nil
	}
	return a.onWorker(name, func(w *worker) error {
		p := &w.prediction
		switch {
		case predicted == cached:
			p.Exact++
		case predicted > cached:
			p.Over++
			p.OverTokens += uint64(predicted - cached)
		default:
			p.Under++
			p.UnderTokens += uint64(cached - predicted)
		}
		return nil
	})
}

// WorkerSnapshot is what is counted for one worker.
type WorkerSnapshot struct {
	Name       string
	Mode       Mode
	Events     WorkerStats
	Index      radix.WorkerStats
	Prediction Prediction
	// Media names the media of Index.Held.
	Media []string
}

// Snapshot is what is counted over the fleet.
type Snapshot struct {
	Workers []WorkerSnapshot
	// Matches, and how many ended in an error; Routes are among them.
	Matches, Errors uint64
	// Index sums up the indexes of all domains, Memo their memories of digests.
	Index radix.Stats
	Memo  blockhash.MemoStats
}

// Snapshot returns the counters of the fleet as they are now: plain numbers for
// whatever exports them. Each worker's are of one moment, not those of the whole
// fleet.
func (a *Atlas) Snapshot() Snapshot {
	f := a.current()
	s := Snapshot{Matches: a.matches.Load(), Errors: a.errors.Load()}
	for _, w := range f.workers {
		ws := WorkerSnapshot{Name: w.Name, Mode: w.mode}
		if w.locked(func() (err error) {
			ws.Events, ws.Prediction = w.stats, w.prediction
			w.describe(&ws.Events)
			ws.Index, err = w.domain.index.WorkerStats(w.id)
			return err
		}) != nil {
			continue // removed meanwhile
		}
		for _, h := range ws.Index.Held {
			ws.Media = append(ws.Media, w.domain.index.MediumName(h.Medium))
		}
		s.Workers = append(s.Workers, ws)
	}
	for _, d := range f.domains {
		x := d.index.Stats()
		s.Index.Workers += x.Workers
		s.Index.Memberships += x.Memberships
		s.Index.Copies += x.Copies
		s.Index.Unmatched += x.Unmatched
		if d.hasher != nil {
			m := d.hasher.MemoStats()
			s.Memo.Hits += m.Hits
			s.Memo.Misses += m.Misses
			s.Memo.Evicted += m.Evicted
			s.Memo.Entries += m.Entries
			s.Memo.Bytes += m.Bytes
			s.Memo.MaxBytes += m.MaxBytes
		}
	}
	return s
}

// Stage is a part of a decision whose time can be observed.
type Stage uint8

const (
	// StageMatch is hashing and matching, which run hand in hand.
	StageMatch Stage = iota
	// StageScore is filters, scorers and the pick.
	StageScore
	// StageApply is decoding and applying one message.
	StageApply

	NumStages = int(iota)
)

// String returns "match", "score" or "apply".
func (s Stage) String() string {
	return [...]string{"match", "score", "apply"}[min(int(s), NumStages-1)]
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

func (a *Atlas) done(s Stage, started time.Time) {
	if a.options.Observer != nil {
		a.options.Observer.Observe(s, time.Since(started))
	}
}
