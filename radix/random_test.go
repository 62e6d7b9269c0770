package radix

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// randomProfile draws an engine: any release, kind and size that compiles.
func randomProfile(r *rand.Rand) ProfileOptions {
	for {
		o := randomOptions(r)
		if _, err := NewProfile(o); err == nil {
			return o
		}
	}
}

func randomOptions(r *rand.Rand) ProfileOptions {
	unit := 1 + r.IntN(4)
	o := ProfileOptions{
		Release:  fmt.Sprintf("0.%d.0", []int{10, 11, 13, 14, 18, 20, 24, 26, 28, 30, 31, 32, 33, 40}[r.IntN(14)]),
		HashUnit: unit,
		Eagle:    r.IntN(3) == 0,
		Copies:   CopyPolicy(r.IntN(4) / 3),
	}
	if r.IntN(8) == 0 {
		o.Lookahead = 1 + r.IntN(3)
	}
	for range 1 + r.IntN(4) {
		g := Group{Kind: Kind(r.IntN(4)), BlockSize: unit << r.IntN(3), Eagle: r.IntN(4) == 0}
		if r.IntN(2) == 0 {
			g.Kind = FullAttention
		}
		switch g.Kind {
		case SlidingWindow:
			g.Window = 2 + r.IntN(unit*8)
		case ChunkedLocal:
			g.Chunk = g.BlockSize * (1 + r.IntN(4))
		}
		o.Groups = append(o.Groups, g)
	}
	if r.IntN(6) == 0 {
		o.PartialHits = Off
	}
	if o.Connector = Connector(r.IntN(3)); o.Connector == Offloading {
		o.ChunkBlocks = r.IntN(4)
	}
	return o
}

// tree is a small world of prompts: the key at a node is its path.
func treeKeys(r *rand.Rand, depth int) []uint64 {
	keys, h := make([]uint64, depth), uint64(1)
	for i := range keys {
		branch := uint64(0)
		if r.IntN(6) == 0 {
			branch = 1 + r.Uint64N(2)
		}
		h = (h*31+branch+7)*0x9e3779b97f4a7c15 ^ h>>29
		keys[i] = h
	}
	return keys
}

// zeros makes some keys of a prompt the key 0.
func zeros(keys []uint64) []uint64 {
	for i, key := range keys {
		if key>>58 == 0 {
			keys[i] = 0
		}
	}
	return keys
}

// world drives an index and the oracle through the same random operations.
type world struct {
	t       testing.TB
	r       *rand.Rand
	x       *Index
	o       *oracle
	workers []WorkerID
	depth   int
	result  Result
}

func newWorld(t testing.TB, seed uint64, workers, depth int, profile func(*rand.Rand) *ProfileOptions) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	x, err := New(Options{})
	require.NoError(t, err)
	w := &world{t: t, r: r, x: x, o: newOracle(), depth: depth}
	x.table.weak = ^uint64(0)
	x.pack.eager = seed%3 == 1 // moves pages without need
	if seed%2 == 1 {
		// Hashes that collide: few buckets, few tags, few segments.
		x.table.weak = r.Uint64()&r.Uint64() | r.Uint64()&r.Uint64()&r.Uint64()<<60
	}
	require.EqualValues(t, 3, x.Medium("disk"))
	for i := range workers {
		var p *Profile
		po := profile(r)
		if po != nil {
			p, err = NewProfile(*po)
			require.NoError(t, err, "%+v", *po)
		}
		id, err := x.AddWorker(fmt.Sprint("w", i), p)
		require.NoError(t, err)
		w.workers = append(w.workers, id)
		w.o.profiles[id] = po
	}
	return w
}

func (w *world) holder() Holder {
	h := Holder{Worker: w.workers[w.r.IntN(len(w.workers))]}
	if w.r.IntN(3) == 0 {
		h.Medium = Medium(w.r.IntN(4))
	}
	groups := 1
	if p := w.o.profiles[h.Worker]; p != nil {
		groups = max(len(p.Groups), 1)
	}
	h.Group = int16(w.r.IntN(groups+1)) - int16(w.r.IntN(8)/7)
	if int(h.Group) == groups {
		h.Group = int16(w.r.IntN(groups))
	}
	return h
}

func (w *world) step() {
	h := w.holder()
	keys := zeros(treeKeys(w.r, w.depth))
	from := 0
	if w.r.IntN(3) == 0 {
		from = w.r.IntN(len(keys))
	}
	keys = keys[from : from+w.r.IntN(len(keys)-from+1)]
	switch n := w.r.IntN(40); {
	case n == 0:
		on := []Medium{GPU, CPU}[:w.r.IntN(3)]
		require.NoError(w.t, w.x.Clear(h.Worker, on...))
		w.o.clear(h.Worker, on...)
	case n < 28:
		require.NoError(w.t, w.x.Store(h, keys))
		w.o.store(h, keys)
	default:
		if w.r.IntN(2) == 0 && len(keys) > 0 {
			keys = keys[len(keys)-1-w.r.IntN(min(3, len(keys))):]
		}
		require.NoError(w.t, w.x.Remove(h, keys))
		w.o.remove(h, keys)
	}
}

// check matches one random prompt.
func (w *world) check() {
	keys := zeros(treeKeys(w.r, 1+w.r.IntN(w.depth)))
	tokens := 0
	if w.r.IntN(8) > 0 {
		tokens = len(keys) + w.r.IntN(5*len(keys)+2)
	}
	w.compare(keys, tokens)
}

// compare matches a prompt and compares every worker's answer.
func (w *world) compare(keys []uint64, tokens int) {
	q := Query{Keys: keys, Tokens: tokens}
	lazy := &sliceSource{keys: keys}
	if w.r.IntN(2) == 0 {
		cut := w.r.IntN(len(keys) + 1)
		lazy.keys = keys[cut:]
		q.Keys, q.Source = keys[:cut], lazy
	}
	require.NoError(w.t, w.x.Match(&q, &w.result))
	require.Len(w.t, w.result.Workers, len(w.workers))
	for i, id := range w.workers {
		m := &w.result.Workers[i]
		e := w.o.match(id, keys, tokens)
		require.Equal(w.t, id, m.Worker)
		require.True(w.t, m.Known)
		say := fmt.Sprintf("worker %d, %d tokens, %d keys, profile %+v\n%+v\nwant %+v", i, tokens, len(keys), w.o.profiles[id], *m, e)
		for medium := range Medium(4) {
			require.EqualValues(w.t, e.Blocks[medium], m.Blocks[medium], "blocks on %d: %s", medium, say)
		}
		require.Equal(w.t, e.Combined, m.Combined, say)
		require.InDelta(w.t, e.Score, m.Score, 1e-9, say)
		require.Equal(w.t, e.Usable, m.Usable, say)
		require.Equal(w.t, e.External, m.External, say)
		require.Equal(w.t, e.ExternalTiered, m.ExternalTiered, say)
		require.Equal(w.t, e.UpperBound, m.UpperBound, say)
	}
}

type sliceSource struct {
	keys []uint64
	used int
}

func (s *sliceSource) Next() (uint64, bool) {
	if s.used == len(s.keys) {
		return 0, false
	}
	s.used++
	return s.keys[s.used-1], true
}

// TestRandomAgainstOracle compares random layouts, media and streams with the
// map of multisets and the direct reading of the rules.
func TestRandomAgainstOracle(t *testing.T) {
	rounds := 300
	if testing.Short() || raceEnabled {
		rounds = 24
	}
	for seed := range uint64(rounds) {
		w := newWorld(t, seed, 1+int(seed%4), 8+int(seed%90), func(r *rand.Rand) *ProfileOptions {
			if r.IntN(6) == 0 {
				return nil
			}
			o := randomProfile(r)
			return &o
		})
		for range 120 {
			w.step()
			if w.r.IntN(3) == 0 {
				w.check()
			}
		}
		for _, id := range w.workers {
			s, err := w.x.WorkerStats(id)
			require.NoError(t, err)
			require.EqualValues(t, w.o.missed[id], s.Unmatched)
			copies := 0
			for _, h := range s.Held {
				c := w.o.count[Holder{id, h.Medium, h.Group}]
				require.Len(t, c, h.Blocks)
				for _, n := range c {
					copies += n - 1
				}
			}
			require.EqualValues(t, copies, s.Copies)
		}
	}
}

// FuzzAgainstOracle lets the input choose an engine and operations on it, and
// compares every look-up with the map of multisets.
func FuzzAgainstOracle(f *testing.F) {
	f.Add(uint64(1), []byte("0a9b1c5d2e0f4a3b9c"))
	f.Add(uint64(2), bytes.Repeat([]byte{1, 0, 0, 90, 20, 1, 0, 40}, 20))
	f.Fuzz(func(t *testing.T, seed uint64, data []byte) {
		w := newWorld(t, seed, 2, 90, func(r *rand.Rand) *ProfileOptions {
			o := randomProfile(r)
			return &o
		})
		chain := zeros(treeKeys(w.r, w.depth))
		for data = data[:min(len(data), 120)]; len(data) >= 4; data = data[4:] {
			id := w.workers[data[0]>>6&1]
			groups := len(w.o.profiles[id].Groups)
			h := Holder{id, Medium(data[1] % 4), int16(int(data[1]>>2)%(groups+1)) - 1}
			from := int(data[2]) % len(chain)
			keys := chain[from : from+int(data[3])%(len(chain)-from+1)]
			switch data[0] % 8 {
			case 0:
				require.NoError(t, w.x.Clear(id, h.Medium))
				w.o.clear(id, h.Medium)
			case 1, 2, 3, 4:
				require.NoError(t, w.x.Store(h, keys))
				w.o.store(h, keys)
			default:
				require.NoError(t, w.x.Remove(h, keys))
				w.o.remove(h, keys)
			}
			w.compare(chain[:1+int(data[0]>>3)*3%len(chain)], int(data[3])*4)
		}
	})
}

// TestClosedForm compares the search with the one sentence of testdata/vllm/truth/RULES.md
// 4.1, which must agree wherever no layout is the draft's.
func TestClosedForm(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	checked := 0
	for range 40000 {
		o := randomProfile(r)
		o.Eagle = false
		p, err := NewProfile(o)
		require.NoError(t, err)
		ref := newReference(o)
		n := 1 + r.IntN(60)
		ref.units = p.Units(n)
		density := r.Float64()
		held := map[[2]int]bool{}
		for g := range o.Groups {
			for u := range ref.units {
				held[[2]int{g, u}] = r.Float64() < math.Sqrt(density)
			}
		}
		ref.has = func(g, u int) bool { return held[[2]int{g, u}] }
		rows := make([]row, len(p.layouts))
		for i := range p.layouts {
			rows[i] = make(row, 1)
			for u := range ref.units {
				if ref.at(ref.layouts[i], (u+1)*p.unit) {
					rows[i][0] |= 1 << u
				}
			}
		}
		got := p.hit(rows, n, ref.units)
		require.Equal(t, ref.hit(n), got, "%+v n %d %v", o, n, rows)
		full := 0
		for i := range p.layouts {
			if p.layouts[i].kind == FullAttention {
				full++
			}
		}
		// No engine has two layouts of full attention; and a chunked layout alone
		// may begin behind the last key, where the search asks for no key.
		if full > 1 || o.Lookahead > 0 && len(p.layouts) == 1 && p.layouts[0].kind == ChunkedLocal {
			continue
		}
		checked++
		require.Equal(t, ref.closed(n), got, "%+v n %d %b", o, n, rows)
	}
	require.Greater(t, checked, 5000)
}
