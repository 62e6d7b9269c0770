package kvatlas

import (
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/radix"
	"github.com/kvatlas/kvatlas/scoring"
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
	// Bytes is the memory of Index.Held: each one's part of what its index takes,
	// by the blocks it holds. A block that several hold costs little more than
	// one, so these are shares, not what would become free without the worker.
	// Maps of workers known by content are not among it.
	Bytes []float64
	// Content is about the blocks of a worker known by content; zero by hash.
	Content radix.ContentStats
}

// Snapshot is what is counted over the fleet.
type Snapshot struct {
	Workers []WorkerSnapshot
	// Matches, and how many ended in an error; Routes are among them.
	Matches, Errors uint64
	// Index sums up the indexes of all domains, Memo their memories of digests.
	Index radix.Stats
	Memo  blockhash.MemoStats
	// InFlight are the requests that were begun and have not ended, see
	// [Atlas.Begin]; Speculation their claims on blocks, with Options.Speculate.
	InFlight    scoring.InFlightStats
	Speculation scoring.SpeculationStats
	// Shadow compares the policy with [Options.Shadow].
	Shadow scoring.ShadowStats
}

// Snapshot returns the counters of the fleet as they are now: plain numbers for
// whatever exports them. Each worker's are of one moment, not those of the whole
// fleet.
func (a *Atlas) Snapshot() Snapshot {
	f := a.current()
	s := Snapshot{Matches: a.matches.Load(), Errors: a.errors.Load()}
	if a.flights != nil { // else it was not made by New
		s.InFlight = a.flights.Stats()
	}
	if a.speculation != nil {
		s.Speculation = a.speculation.Stats()
	}
	if a.shadow != nil {
		s.Shadow = a.shadow.Stats()
	}
	perBlock := s.domains(a.domains.list())
	for _, w := range f.workers {
		ws := WorkerSnapshot{Name: w.Name}
		if w.locked(func() error {
			ws.Events, ws.Prediction = w.stats, w.prediction
			w.tell(&ws.Events)
			p := w.at.Load()
			if p == nil {
				return nil
			}
			ws.Mode = p.mode
			if w.content != nil {
				ws.Content = w.content.table.Stats()
			}
			s.Index.Workers++ // once, whatever else is known of it
			ws.Index, _ = p.domain.index.WorkerStats(p.id)
			each := perBlock[p.domain.index]
			for _, h := range ws.Index.Held {
				ws.Media = append(ws.Media, p.domain.index.MediumName(h.Medium))
				ws.Bytes = append(ws.Bytes, each*float64(h.Blocks))
			}
			return nil
		}) != nil {
			continue // removed meanwhile
		}
		s.Workers = append(s.Workers, ws)
	}
	return s
}

// domains sums up the indexes and memories of all domains, and returns the bytes
// that each index takes for a block that somebody holds.
func (s *Snapshot) domains(all []*domain) (perBlock map[*radix.Index]float64) {
	perBlock = make(map[*radix.Index]float64, len(all))
	for _, d := range all {
		s.memo(d)
		if _, counted := perBlock[d.index]; counted {
			continue
		}
		x := d.index.Stats()
		perBlock[d.index] = float64(x.Bytes) / float64(max(x.Memberships, 1))
		s.Index.Memberships += x.Memberships
		s.Index.Copies += x.Copies
		s.Index.Unmatched += x.Unmatched
		s.Index.Blocks += x.Blocks
		s.Index.Bytes += x.Bytes
		s.Index.Lost += x.Lost
		s.Index.Evicted += x.Evicted
	}
	return perBlock
}

func (s *Snapshot) memo(d *domain) {
	if d.hasher == nil {
		return
	}
	m := d.hasher.MemoStats()
	s.Memo.Hits += m.Hits
	s.Memo.Misses += m.Misses
	s.Memo.Evicted += m.Evicted
	s.Memo.Entries += m.Entries
	s.Memo.Bytes += m.Bytes
	s.Memo.MaxBytes += m.MaxBytes
}
