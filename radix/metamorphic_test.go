package radix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// logged is one operation on one worker.
type logged struct {
	kind int // 0 clear, 1 store, 2 remove
	on   []Medium
	h    Holder
	keys []uint64
}

func (l *logged) apply(x *Index) {
	switch l.kind {
	case 0:
		_ = x.Clear(l.h.Worker, l.on...)
	case 1:
		_ = x.Store(l.h, l.keys)
	case 2:
		_ = x.Remove(l.h, l.keys)
	}
}

// TestSameAnswers: whatever must not matter does not. Only the order of each
// worker's own operations is kept.
func TestSameAnswers(t *testing.T) {
	const workers, depth = 5, 70
	seeds := []uint64{155, 1002, 1165, 0, 1, 2, 3, 4, 5, 6, 7, 8} // the first have what holes hide
	if testing.Short() || raceEnabled {
		seeds = seeds[:4]
	}
	for _, seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 11))
		profiles := make([]*Profile, workers)
		groups := make([]int, workers)
		for i := range profiles {
			o := randomProfile(r)
			var err error
			profiles[i], err = NewProfile(o)
			require.NoError(t, err)
			groups[i] = len(o.Groups)
		}
		logs := make([][]logged, workers)
		for i := range logs {
			for range 60 {
				keys := treeKeys(r, depth)
				keys = keys[:1+r.IntN(depth)]
				l := logged{kind: 1, h: Holder{WorkerID(i), Medium(r.IntN(3)), int16(r.IntN(groups[i]))}, keys: keys}
				switch n := r.IntN(30); {
				case n == 0:
					l.kind, l.on = 0, []Medium{GPU, CPU}[:r.IntN(3)]
				case n < 9:
					l.kind, l.keys = 2, keys[r.IntN(len(keys)):]
				}
				logs[i] = append(logs[i], l)
			}
		}
		var prompts [][]uint64
		for range 30 {
			prompts = append(prompts, treeKeys(r, 1+r.IntN(depth)))
		}
		again := func() *rand.Rand { return rand.New(rand.NewPCG(seed, 12)) }
		inTurn := func(x *Index) {
			for n := range logs[0] {
				for i := range logs {
					logs[i][n].apply(x)
				}
			}
		}
		type variant struct {
			options Options
			change  func(x *Index)
			feed    func(x *Index)
		}
		variants := map[string]variant{
			"one worker after the other": {feed: func(x *Index) {
				for _, i := range again().Perm(workers) {
					for n := range logs[i] {
						logs[i][n].apply(x)
					}
				}
			}},
			"at random": {feed: func(x *Index) {
				r, at := again(), [workers]int{}
				for range workers * len(logs[0]) {
					i := r.IntN(workers)
					for at[i] == len(logs[i]) {
						i = (i + 1) % workers
					}
					logs[i][at[i]].apply(x)
					at[i]++
				}
			}},
			"a writer a worker": {feed: func(x *Index) {
				var wg sync.WaitGroup
				for i := range logs {
					wg.Go(func() {
						for n := range logs[i] {
							logs[i][n].apply(x)
						}
					})
				}
				wg.Wait()
			}},
			"key by key": {feed: func(x *Index) {
				for n := range logs[0] {
					for i := range logs {
						l := logs[i][n]
						if l.kind == 0 {
							l.apply(x)
						}
						for _, key := range logs[i][n].keys {
							if l.keys = []uint64{key}; l.kind != 0 {
								l.apply(x)
							}
						}
					}
				}
			}},
			"room expected": {options: Options{ExpectedBlocks: 100_000}, feed: inTurn},
			"least budget":  {options: Options{MaxBytes: 1}, feed: inTurn},
			"ample budget":  {options: Options{MaxBytes: 1 << 30}, feed: inTurn},
			"pages moved":   {change: func(x *Index) { x.pack.eager = true }, feed: inTurn},
			"few buckets":   {change: func(x *Index) { r := again(); x.table.weak = r.Uint64() & r.Uint64() }, feed: inTurn},
		}
		run := func(v variant) (states map[string]int, answers []string) {
			x, err := New(v.options)
			require.NoError(t, err)
			x.table.weak = ^uint64(0)
			if v.change != nil {
				v.change(x)
			}
			for i, p := range profiles {
				id, err := x.AddWorker(fmt.Sprint("w", i), p)
				require.NoError(t, err)
				require.EqualValues(t, i, id)
			}
			v.feed(x)
			var result Result
			for _, keys := range prompts {
				require.NoError(t, x.Match(&Query{Keys: keys, Tokens: 1 + 3*len(keys)}, &result))
				answers = append(answers, fmt.Sprintf("%+v", result.Workers))
			}
			for id := range x.Workers() {
				s, err := x.WorkerStats(id)
				require.NoError(t, err)
				answers = append(answers, fmt.Sprintf("%+v", s))
			}
			require.Zero(t, x.Stats().Lost)
			return state(t, x), answers
		}
		wantState, want := run(variant{feed: inTurn})
		require.NotEmpty(t, wantState)
		for name, v := range variants {
			gotState, got := run(v)
			require.Equal(t, wantState, gotState, "%s, seed %d", name, seed)
			require.Equal(t, want, got, "%s, seed %d", name, seed)
		}
	}
}

// TestBudgetOnlyUndercounts compares an index that has room for a part only with
// the multisets: it knows less, never more, and counts all that it forgot.
func TestBudgetOnlyUndercounts(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine, and minutes long under the race detector")
	}
	const chains, long = 2500, 200
	x, err := New(Options{MaxBytes: 1})
	require.NoError(t, err)
	p, err := NewProfile(ProfileOptions{HashUnit: 16})
	require.NoError(t, err)
	o := newOracle()
	var w []WorkerID
	for i := range 4 {
		id, err := x.AddWorker(fmt.Sprint(i), p)
		require.NoError(t, err)
		w = append(w, id)
		o.profiles[id] = &ProfileOptions{HashUnit: 16}
	}
	r := rand.New(rand.NewPCG(4, 4))
	shared := randomKeys(1, 30) // a system prompt
	prompt := func(n int) []uint64 {
		return append(slices.Clone(shared), randomKeys(uint64(n+2), long)...)
	}
	var result Result
	less := 0
	for step := range 12_000 {
		keys := prompt(r.IntN(chains))
		h := Holder{Worker: w[r.IntN(len(w))], Medium: Medium(r.IntN(4) / 3)}
		switch n := r.IntN(1000); {
		case n == 0:
			require.NoError(t, x.Clear(h.Worker, h.Medium))
			o.clear(h.Worker, h.Medium)
		case n < 700:
			keys = keys[:1+r.IntN(len(keys))]
			require.NoError(t, x.Store(h, keys))
			o.store(h, keys)
		default:
			keys = keys[r.IntN(len(keys)):]
			require.NoError(t, x.Remove(h, keys))
			o.remove(h, keys)
		}
		if step%20 > 0 {
			continue
		}
		keys = prompt(r.IntN(chains))
		require.NoError(t, x.Match(&Query{Keys: keys, Tokens: 16*len(keys) + 1}, &result))
		for i := range result.Workers {
			m, e := &result.Workers[i], o.match(w[i], keys, 16*len(keys)+1)
			require.LessOrEqual(t, m.Combined, e.Combined)
			require.LessOrEqual(t, m.Usable, e.Usable)
			require.LessOrEqual(t, m.Score, e.Score+1e-9)
			if m.Combined < e.Combined {
				less++
			}
		}
	}
	require.Positive(t, less, "the budget was never felt")
	truth, evicted := 0, uint64(0)
	for _, c := range o.count {
		truth += len(c)
	}
	x.mu.Lock()
	for _, k := range x.workers {
		evicted += k.stats.Evicted
		for _, h := range k.holders {
			x.each(h, func(key uint64, copies uint32) bool {
				if o.count[h.Holder][key] < int(copies) {
					t.Errorf("%v holds %d of %x, %d were announced", h.Holder, copies, key, o.count[h.Holder][key])
				}
				return !t.Failed()
			})
		}
	}
	x.mu.Unlock()
	s := x.Stats()
	require.Equal(t, s.Evicted, evicted)
	require.Less(t, s.Memberships, truth)
	require.LessOrEqual(t, uint64(truth-s.Memberships), s.Evicted+s.Lost)
	t.Logf("%d of %d memberships held, %d evicted, %d lost, %d answers lower", s.Memberships, truth, s.Evicted, s.Lost, less)
}
