package kvevents

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// told is a Handler that writes down what it is told.
type told []string

func (l *told) Apply(src Source, seq uint64, b *Batch) { *l = append(*l, fmt.Sprintf("%d", seq)) }
func (l *told) Clear(src Source, c ClearCause)         { *l = append(*l, c.String()) }
func (l *told) Lost(x Loss)                            { *l = append(*l, fmt.Sprintf("lost %d-%d %v", x.From, x.To, x.Removals)) }

func (l *told) take(s *Sequence, id uint64, at float64, content uint64) {
	src := Source{Worker: "w"}
	step := s.Take(id, at, content)
	step.Tell(l, src)
	if step.Drop {
		*l = append(*l, "drop")
		return
	}
	l.Apply(src, id, nil)
}

func TestSequence(t *testing.T) {
	for name, c := range map[string]struct {
		first uint64
		ids   []uint64
		at    []float64
		want  told
		// content is the number if nil
		content []uint64
	}{
		"in order":           {ids: []uint64{0, 1, 2}, want: told{"0", "1", "2"}},
		"counts from 1":      {first: 1, ids: []uint64{1, 2}, want: told{"1", "2"}},
		"joined late":        {ids: []uint64{7, 8}, want: told{"lost 0-6 false", "7", "8"}},
		"gap":                {ids: []uint64{0, 3}, want: told{"0", "lost 1-2 true", "batches lost", "3"}},
		"restart":            {ids: []uint64{0, 1, 0}, want: told{"0", "1", "engine restarted", "0"}},
		"restart, not whole": {ids: []uint64{5, 2}, want: told{"lost 0-4 false", "5", "engine restarted", "lost 0-1 false", "2"}},
		"duplicate":          {ids: []uint64{0, 1, 0, 2}, at: []float64{1, 2, 1, 3}, want: told{"0", "1", "drop", "2"}},
		"newer restart":      {ids: []uint64{0, 1, 0, 1}, at: []float64{1, 2, 3, 3}, want: told{"0", "1", "engine restarted", "0", "1"}},
		"a wrong clock once": {ids: []uint64{0, 1, 2, 0}, at: []float64{1, 9e9, 2, 3}, want: told{"0", "1", "2", "engine restarted", "0"}},
		"duplicate, no time": {ids: []uint64{0, 1, 2, 1}, at: []float64{1, 2, 0, 2}, want: told{"0", "1", "2", "drop"}},
		"clock set back":     {ids: []uint64{0, 1, 0, 1}, at: []float64{8, 9, 3, 4}, content: []uint64{0, 1, 5, 6}, want: told{"0", "1", "engine restarted", "0", "1"}},
		"set back, joined late": {ids: []uint64{7, 8, 0, 1, 2}, at: []float64{8, 9, 3, 4, 5}, want: told{
			"lost 0-6 false", "7", "8", "lost 0-0 true", "batches lost", "drop", "engine restarted", "lost 0-0 false", "1", "2"}},
		"late, alone": {ids: []uint64{7, 9, 8, 10, 8, 11}, at: []float64{7, 9, 8, 10, 8, 11}, want: told{
			"lost 0-6 false", "7", "lost 8-8 true", "batches lost", "9", "lost 8-8 true", "batches lost", "drop", "10",
			"lost 8-8 true", "batches lost", "drop", "11"}},
		"late, apart": {ids: []uint64{7, 12, 8, 10}, at: []float64{7, 12, 8, 10}, want: told{
			"lost 0-6 false", "7", "lost 8-11 true", "batches lost", "12", "lost 8-8 true", "batches lost", "drop",
			"lost 10-10 true", "batches lost", "drop"}},
		"late, one between": {ids: []uint64{7, 10, 8, 11, 9}, at: []float64{7, 10, 8, 11, 9}, want: told{
			"lost 0-6 false", "7", "lost 8-9 true", "batches lost", "10", "lost 8-8 true", "batches lost", "drop", "11",
			"lost 9-9 true", "batches lost", "drop"}},
		"no time": {ids: []uint64{4, 4}, want: told{"lost 0-3 false", "4", "engine restarted", "lost 0-3 false", "4"}},
	} {
		s := Sequence{First: c.first}
		var got told
		for i, id := range c.ids {
			at := 0.0
			if c.at != nil {
				at = c.at[i]
			}
			content := id
			if c.content != nil {
				content = c.content[i]
			}
			got.take(&s, id, at, content)
		}
		require.Equal(t, c.want, got, name)
	}
}

// holder is an engine's cache of numbers, and what a consumer believes of it.
type holder struct{ held map[uint64]bool }

func (h *holder) Apply(_ Source, _ uint64, b *Batch) {
	for i := range b.Events {
		for _, x := range b.Events[i].Hashes {
			if b.Events[i].Kind == BlockStored {
				h.held[x] = true
			} else {
				delete(h.held, x)
			}
		}
	}
}
func (h *holder) Clear(Source, ClearCause) { clear(h.held) }
func (h *holder) Lost(Loss)                {}

// TestSequenceClockSetBack: engines that restart with a clock that is anywhere, and events
// that come twice: a restart is noticed with its second event at the latest, and nothing
// is believed then that the engine does not hold.
func TestSequenceClockSetBack(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 10))
		type event struct {
			id, content uint64
			at          float64
			batch       Batch
		}
		var s Sequence
		var sent []event // of this life
		believed, engine := &holder{held: map[uint64]bool{}}, map[uint64]bool{}
		clock, restarts, duplicates := 1e6, 0, 0
		for range 2000 {
			if r.IntN(400) == 0 && len(sent) > 1 && s.next == uint64(len(sent)) {
				sent, engine, clock = nil, map[uint64]bool{}, clock-float64(r.IntN(3000))
				restarts++
			}
			e := event{id: uint64(len(sent)), content: r.Uint64(), at: clock}
			if n := len(sent); n > 0 && r.IntN(5) == 0 { // one of the last comes again
				e = sent[n-1-r.IntN(min(n, 256))]
				if s.next == uint64(n) {
					duplicates++
					require.Equal(t, Step{Drop: true}, s.Take(e.id, e.at, e.content), "seed %d", seed)
				}
				continue
			}
			clock += r.Float64() + 0.001
			held := Event{Kind: BlockStored, Hashes: []uint64{r.Uint64N(20)}}
			if r.IntN(2) == 0 {
				held.Kind = BlockRemoved
				delete(engine, held.Hashes[0])
			} else {
				engine[held.Hashes[0]] = true
			}
			e.batch.Events = []Event{held}
			sent = append(sent, e)
			step := s.Take(e.id, e.at, e.content)
			step.Tell(believed, Source{})
			require.False(t, step.Drop && e.id > 0, "seed %d: dropped event %d of life %d", seed, e.id, restarts)
			if !step.Drop {
				believed.Apply(Source{}, e.id, &e.batch)
			}
			for x := range believed.held {
				require.True(t, engine[x], "seed %d: %d is believed to be held", seed, x)
			}
		}
		require.Positive(t, duplicates)
	}
}

// TestSequenceNeverOvercounts: whatever is dropped, and whenever the engine
// restarts, what is believed after an event was held by the engine then, and every
// hole is told.
func TestSequenceNeverOvercounts(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		engine, id := map[uint64]bool{}, uint64(0)
		believed := &holder{held: map[uint64]bool{}}
		var s Sequence
		missing := uint64(0)
		fresh := false // restarted, and nothing of it came yet
		for range 300 {
			if r.IntN(60) == 0 {
				engine, id, missing, fresh = map[uint64]bool{}, 0, 0, true
			}
			ev := Event{Kind: BlockStored, Hashes: []uint64{r.Uint64N(20)}}
			if r.IntN(2) == 0 {
				ev.Kind = BlockRemoved
				delete(engine, ev.Hashes[0])
			} else {
				engine[ev.Hashes[0]] = true
			}
			this := id
			id++
			if r.IntN(10) == 0 {
				missing++
				continue
			}
			if fresh && s.started && this == s.next { // nothing tells this one
				s, believed.held = Sequence{}, map[uint64]bool{}
			}
			overtook := fresh && s.started && this > s.next // looks like a gap
			fresh = false
			step := s.Take(this, 0, 0)
			lost := uint64(0)
			if step.Cause != 0 {
				lost = step.To + 1 - step.From
			}
			require.True(t, overtook || lost == missing, "seed %d: %d lost, %d told", seed, missing, lost)
			missing = 0
			step.Tell(believed, Source{})
			believed.Apply(Source{}, this, &Batch{Events: []Event{ev}})
			for x := range believed.held {
				require.True(t, engine[x], "seed %d: %d is believed to be held after event %d", seed, x, this)
			}
		}
	}
}
