package scoring

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// decide returns the names of the workers chosen over many decisions with
// different seeds, and the totals.
func decide(t testing.TB, p *Policy, req *Request, cs []Candidate) (map[string]bool, []float64) {
	t.Helper()
	chosen, totals := map[string]bool{}, []float64(nil)
	var d Decision
	for range 60 {
		require.NoError(t, p.Decide(req, cs, &d))
		chosen[d.Chosen.Name] = true
		totals = append([]float64(nil), d.Totals...)
	}
	return chosen, totals
}

func reason(t testing.TB, p *Policy, req Request, cs []Candidate) string {
	t.Helper()
	req.Explain, req.DryRun = true, true
	var d Decision
	require.NoError(t, p.Decide(&req, cs, &d))
	return d.Reason
}

func set(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

func TestPresetNamesAndDefaults(t *testing.T) {
	require.Len(t, PresetNames(), 21)
	cs := []Candidate{worker(0, 3, 2), worker(1, 0, 0), worker(2, 9, 7)}
	for i := range cs {
		cs[i].Load.Waiting, cs[i].Load.KVUsage = Known(float64(i)), Known(0.1*float64(i))
	}
	for _, name := range PresetNames() {
		p, err := Preset(name, Seeded(1))
		require.NoError(t, err, name)
		require.Equal(t, name, p.Name())
		for _, req := range []Request{{}, {Tokens: -3, BlockSize: -1}, {Tokens: 160, BlockSize: 16, Session: "s", Prefix: 7, Explain: true, Fallbacks: 2}} {
			var d Decision
			require.NoError(t, p.Decide(&req, cs, &d), name)
			require.NotNil(t, d.Chosen)
			// A fleet about which nothing is known is decided as well.
			require.NoError(t, p.Decide(&req, []Candidate{{Name: "a"}, {Name: "b", ID: 1}}, &d), name)
			require.NoError(t, p.Decide(&req, []Candidate{{}}, &d), name)
		}
	}
	_, err := Preset("llmd", nil)
	require.ErrorIs(t, err, ErrOption)
	require.ErrorContains(t, err, `"llm-d"`)
}

func TestPresetAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	cs := make([]Candidate, 64)
	for i := range cs {
		cs[i] = worker(i, int32(i%9), float64(i%7))
	}
	req := &Request{Tokens: 161, BlockSize: 16, Session: "s", Prefix: 7}
	for _, name := range PresetNames() {
		p, err := Preset(name, nil)
		require.NoError(t, err)
		var d Decision
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = p.Decide(req, cs, &d) }), name)
	}
}

func TestLLMD(t *testing.T) {
	p, err := LLMD{Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	cs := []Candidate{
		{ID: 0, Name: "a", Match: Match{Blocks: [NumMedia]int32{5, 5}}, Load: Load{Waiting: Known(10), KVUsage: Known(0.9)}},
		{ID: 1, Name: "b", Match: Match{Blocks: [NumMedia]int32{2}}, Load: Load{Waiting: Known(4), KVUsage: Known(0.5)}},
		{ID: 2, Name: "c", Load: Load{Waiting: Known(0), KVUsage: Known(0.1)}},
	}
	// a: 3·(5+0.8·5)/20 + 2·0 + 2·0.1; b: 3·2/20 + 2·0.6 + 2·0.5; c: 2 + 2·0.9.
	got, totals := decide(t, p, &Request{Tokens: 320, BlockSize: 16}, cs)
	require.InDeltaSlice(t, []float64{1.55, 2.5, 3.8}, totals, 1e-12)
	require.Equal(t, set("c"), got)
	// All queues equal: 1 each. Ties are broken at random.
	for i := range cs {
		cs[i].Match, cs[i].Load = Match{}, Load{Waiting: Known(3), KVUsage: Known(0.5)}
	}
	got, totals = decide(t, p, &Request{Tokens: 320, BlockSize: 16}, cs)
	require.Equal(t, []float64{3, 3, 3}, totals)
	require.Equal(t, set("a", "b", "c"), got)

	// Match length score: w·min(1, tokens/8192)² + (1-w)·ratio.
	for _, c := range []struct {
		blocks int32
		want   float64
	}{{256, 0.25*0.25 + 0.75*0.25}, {1024, 0.25*1 + 0.75*1}} {
		dst := make([]float64, 1)
		require.NoError(t, Prefix{LengthWeight: 0.25}.Score(&Request{Tokens: 16384, BlockSize: 16},
			[]*Candidate{{Match: Match{Blocks: [NumMedia]int32{c.blocks}}}}, dst))
		require.InDelta(t, c.want, dst[0], 1e-12)
	}
	_, err = LLMD{LengthWeight: 2}.Policy()
	require.ErrorContains(t, err, "Scorers[0].LengthWeight: is 2")
	_, err = LLMD{PrefixWeight: math.NaN()}.Policy()
	require.ErrorIs(t, err, ErrOption)
	o, err := LLMD{RunningWeight: 1, NoHitLRUWeight: 1}.Policy()
	require.NoError(t, err)
	require.Len(t, o.scorers, 5)
}

func TestNoHitLRU(t *testing.T) {
	s := NewNoHitLRU()
	p := mustNew(t, Options{Scorers: []WeightedScorer{{Scorer: s}}})
	cs := []Candidate{{ID: 0, Name: "a"}, {ID: 1, Name: "b"}, {ID: 2, Name: "c"}}
	var d Decision
	var order []string
	for range 5 {
		require.NoError(t, p.Decide(&Request{}, cs, &d))
		order = append(order, d.Chosen.Name)
	}
	require.Equal(t, []string{"a", "b", "c", "a", "b"}, order)
	dry := &Request{DryRun: true}
	require.NoError(t, p.Decide(dry, cs, &d))
	require.Equal(t, []float64{0.5, 0, 1}, d.Totals, "c was used longest ago, b last")
	require.NoError(t, p.Decide(dry, cs[:1], &d))
	require.Equal(t, []float64{1}, d.Totals)
	s.Forget(1)
	require.NoError(t, p.Decide(dry, cs, &d))
	require.Equal(t, []float64{0, 1, 0.5}, d.Totals)
	cs[1].Match.Blocks[GPU] = 1
	require.NoError(t, p.Decide(&Request{}, cs, &d))
	require.Equal(t, []float64{0.5, 0.5, 0.5}, d.Totals, "a warm request is neutral")
}

func TestBurst(t *testing.T) {
	h := newHand()
	p, err := LLMDApprox{LLMD: LLMD{Random: Seeded(1)}, Now: h.now}.Policy()
	require.NoError(t, err)
	cs := []Candidate{{ID: 0, Name: "a"}, {ID: 1, Name: "b"}, {ID: 2, Name: "c"}}
	var d Decision
	req := &Request{Prefix: 5}
	require.NoError(t, p.Decide(req, cs, &d))
	first := d.Chosen.Name
	for range 20 {
		h.advance(99 * time.Millisecond)
		require.NoError(t, p.Decide(req, cs, &d))
		require.Equal(t, first, d.Chosen.Name)
	}
	others := []Candidate{{ID: 8, Name: "x"}, {ID: 9, Name: "y"}}
	require.NoError(t, p.Decide(&Request{Prefix: 5, DryRun: true}, others, &d), "the worker is gone")
	h.advance(100 * time.Millisecond)
	spread := map[string]bool{}
	for range 40 {
		require.NoError(t, p.Decide(&Request{Prefix: 5, DryRun: true}, cs, &d))
		spread[d.Chosen.Name] = true
	}
	require.Len(t, spread, 3)
	// It is bounded, and what was sent last is kept.
	kept := 0
	for i := range uint64(2 * maxBursts) {
		require.NoError(t, p.Decide(&Request{Prefix: i + 1}, cs, &d))
		h.advance(time.Microsecond)
		first := d.Chosen.Name
		require.NoError(t, p.Decide(&Request{Prefix: i + 1, DryRun: true}, cs, &d))
		require.Equal(t, first, d.Chosen.Name)
	}
	for i := range uint64(1000) { // of the last 1,000 nearly all have their place still
		b := p.filters[0].(*Burst)
		if e := b.slot(2*maxBursts - i); e.prefix == 2*maxBursts-i {
			kept++
		}
	}
	require.Greater(t, kept, 950)
	off, err := LLMDApprox{BurstWindow: -1}.Policy()
	require.NoError(t, err)
	require.Empty(t, off.filters)
}

func TestDynamo(t *testing.T) {
	cs := []Candidate{
		{ID: 0, Name: "a", Match: Match{Blocks: [NumMedia]int32{4, 2, 4, 2}, Active: 3},
			Load: Load{PrefillTokens: Known(320), DecodeBlocks: Known(10), Requests: Known(4)}},
		{ID: 1, Name: "b", Load: Load{PrefillTokens: Known(0), DecodeBlocks: Known(30), Requests: Known(1)}},
	}
	req := &Request{Tokens: 325, BlockSize: 16} // 20.3125 blocks, 21 whole or begun
	for _, c := range []struct {
		o    Dynamo
		want []float64 // costs, by hand
	}{
		// a: (320+325)/16 - (4 + 1.5 + 1) + (10 + 21 - 3); b: 20.3125 + 51.
		{Dynamo{}, []float64{40.3125 - 6.5 + 28, 71.3125}},
		// r = 2 and m = 0.5: 8 and 2 more, one credit more for a.
		{Dynamo{RequestWeight: 2, SharedMultiplier: 0.5}, []float64{40.3125 - 7.5 + 28 + 8, 73.3125}},
		// d = 1.05: a is 20 blocks above the least, 20/21 of the request, so its
		// device credit is 4/(1 + 1.05·20/21) = 2.
		{Dynamo{CreditDecay: 1.05}, []float64{40.3125 - 4.5 + 28, 71.3125}},
		{Dynamo{PrefillScale: 0.5, NoOverlap: true}, []float64{(40.3125-2.5)/2 + 28, 20.3125/2 + 51}},
		{Dynamo{OverlapCredit: 100}, []float64{28, 71.3125}}, // never below 0
	} {
		c.o.Random = Seeded(1)
		p, err := c.o.Policy()
		require.NoError(t, err)
		_, totals := decide(t, p, req, cs)
		require.InDeltaSlice(t, []float64{-c.want[0], -c.want[1]}, totals, 1e-9, "%+v", c.o)
	}
	// T = 1 over two workers: exp(0) against exp(-1), whatever the costs.
	p, err := Dynamo{Temperature: 1, Random: Seeded(2)}.Policy()
	require.NoError(t, err)
	n, d := 0, Decision{}
	for range 20000 {
		require.NoError(t, p.Decide(req, cs, &d))
		if d.Chosen.Name == "a" {
			n++
		}
	}
	require.InDelta(t, 1/(1+math.Exp(-1)), float64(n)/20000, 0.015)
	// The explanation adds up.
	require.NoError(t, p.Decide(&Request{Tokens: 325, BlockSize: 16, Explain: true}, cs, &d))
	require.Equal(t, []string{"dynamo", "dynamo/prefill", "dynamo/decode", "dynamo/requests"}, termNames(d.Terms))
	require.InDelta(t, d.Terms[0].Values[0], d.Terms[1].Values[0]+d.Terms[2].Values[0]+d.Terms[3].Values[0], 1e-9)
	// Busy limits; unknown is not busy.
	p, err = Dynamo{MaxPrefillTokens: 100, MaxKVUsage: 0.9}.Policy()
	require.NoError(t, err)
	got, _ := decide(t, p, req, cs)
	require.Equal(t, set("b"), got)
	cs[1].Load.KVUsage = Known(0.95)
	require.ErrorIs(t, p.Decide(req, cs, &d), ErrAllFiltered)
	_, err = Dynamo{HostWeight: -1}.Policy()
	require.ErrorContains(t, err, "Cost.HostWeight: is -1")
}

func termNames(ts []Term) (out []string) {
	for _, t := range ts {
		out = append(out, t.Name)
	}
	return out
}

func TestDynamoTwoTier(t *testing.T) {
	p, err := DynamoTwoTier{Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	req := &Request{Tokens: 160, BlockSize: 16}
	for _, c := range []struct {
		why  string
		cs   []Candidate
		want map[string]bool
	}{
		{"a spread of 33 is imbalanced", []Candidate{worker(0, 10, 33), worker(1, 0, 0), worker(2, 0, 0)}, set("w1", "w2")},
		{"32 is not: the best match", []Candidate{worker(0, 10, 32), worker(1, 0, 0)}, set("w0")},
		{"33 on 400 is less than 1.1 times", []Candidate{worker(0, 10, 433), worker(1, 0, 400)}, set("w0")},
		{"half of the blocks is not more than half", []Candidate{worker(0, 5, 3), worker(1, 0, 1)}, set("w1")},
		{"among the best the least loaded", []Candidate{worker(0, 6, 3), worker(1, 6, 2), worker(2, 5, 0), worker(3, 6, 2)}, set("w1", "w3")},
	} {
		got, _ := decide(t, p, req, c.cs)
		require.Equal(t, c.want, got, c.why)
	}
	require.Equal(t, "imbalanced: least loaded", reason(t, p, *req, []Candidate{worker(0, 10, 33), worker(1, 0, 0)}))
}

func TestSGLang(t *testing.T) {
	p, err := SGLang{Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	library, err := SGLang{AbsThreshold: 32, RelThreshold: 1.1, CacheThreshold: 0.5, Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	older, err := SGLang{SmallestTree: true, Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	req := &Request{Blocks: 10} // one block is a character
	small := []Candidate{worker(0, 3, 0), worker(1, 0, 9), worker(2, 0, 9)}
	small[0].Load.CacheSize, small[1].Load.CacheSize, small[2].Load.CacheSize = Known(9), Known(4), Known(4)
	for _, c := range []struct {
		why  string
		p    *Policy
		cs   []Candidate
		want map[string]bool
	}{
		{"imbalanced", p, []Candidate{worker(0, 10, 65), worker(1, 0, 0)}, set("w1")},
		{"a spread of 64 is balanced", p, []Candidate{worker(0, 10, 64), worker(1, 0, 0)}, set("w0")},
		{"ratio below 1.5", p, []Candidate{worker(0, 10, 290), worker(1, 0, 200)}, set("w0")},
		{"the library's limits", library, []Candidate{worker(0, 10, 33), worker(1, 0, 0)}, set("w1")},
		{"a rate of 0.3 is not above", p, []Candidate{worker(0, 3, 1), worker(1, 0, 0)}, set("w1")},
		{"0.4 is", p, []Candidate{worker(0, 4, 1), worker(1, 0, 0)}, set("w0")},
		{"but not for the library", library, []Candidate{worker(0, 5, 1), worker(1, 0, 0)}, set("w1")},
		{"ties by load", p, []Candidate{worker(0, 8, 2), worker(1, 8, 1), worker(2, 7, 0), worker(3, 8, 1)}, set("w1", "w3")},
		{"older: smallest tree", older, small, set("w1", "w2")},
	} {
		got, _ := decide(t, c.p, req, c.cs)
		require.Equal(t, c.want, got, c.why)
	}
}

func TestAIBrix(t *testing.T) {
	p, err := AIBrix{Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	req := &Request{Tokens: 1600, BlockSize: 16}
	for _, c := range []struct {
		why  string
		cs   []Candidate
		want map[string]bool
	}{
		{"a spread of 9 is imbalanced", []Candidate{worker(0, 90, 9), worker(1, 0, 0), worker(2, 0, 0)}, set("w1", "w2")},
		// Loads 8, 0, 0: mean 2.67, σ 3.77, limit 6.44: the best match is over it.
		{"over mean + σ", []Candidate{worker(0, 90, 8), worker(1, 10, 0), worker(2, 0, 0)}, set("w1")},
		// Loads 4, 0, 4: mean 2.67, σ 1.89, limit 4.55.
		{"below the limit by match", []Candidate{worker(0, 90, 4), worker(1, 10, 0), worker(2, 50, 4)}, set("w0")},
		{"equal percent by load", []Candidate{worker(0, 50, 4), worker(1, 50, 3), worker(2, 0, 4)}, set("w1")},
		{"no match: least requests", []Candidate{worker(0, 0, 4), worker(1, 0, 3), worker(2, 0, 3)}, set("w1", "w2")},
	} {
		got, _ := decide(t, p, req, c.cs)
		require.Equal(t, c.want, got, c.why)
	}
}

func TestRayPrefix(t *testing.T) {
	p, err := RayPrefix{Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	req := &Request{Blocks: 100}
	trees := []Candidate{worker(0, 9, 0), worker(1, 0, 50), worker(2, 0, 0)}
	for i, n := range []float64{30, 10, 20} {
		trees[i].Load.CacheSize = Known(n)
	}
	got, _ := decide(t, p, req, trees)
	require.Equal(t, set("w1"), got, "0.09 is too short: the smallest tree, whatever the load")
	got, _ = decide(t, p, req, []Candidate{worker(0, 10, 1e6), worker(1, 0, 0), worker(2, 10, 0)})
	require.Equal(t, set("w0", "w2"), got, "0.1 is enough, any load is balanced")
	limited, err := RayPrefix{Imbalance: 10, Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	got, _ = decide(t, limited, req, []Candidate{worker(0, 10, 11), worker(1, 0, 5), worker(2, 0, 0)})
	require.Equal(t, set("w1", "w2"), got, "two at random: the most loaded of three never wins")
}

func TestProductionStack(t *testing.T) {
	qps := func(cs []Candidate, rates ...float64) []Candidate {
		for i := range cs {
			cs[i].Load.QPS = Known(rates[i])
		}
		return cs
	}
	kv, err := ProductionKVAware{Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	req := Request{Tokens: 4000, BlockSize: 16}
	got, _ := decide(t, kv, &req, qps([]Candidate{worker(0, 125, 0), worker(1, 0, 0)}, 9, 1))
	require.Equal(t, set("w0"), got, "2000 of 4000 tokens are enough")
	got, _ = decide(t, kv, &req, qps([]Candidate{worker(0, 124, 0), worker(1, 0, 0), worker(2, 0, 0)}, 9, 1, 1))
	require.Equal(t, set("w1", "w2"), got, "1984 are not: lowest QPS")
	got, _ = decide(t, kv, &Request{Tokens: 160, BlockSize: 16}, qps([]Candidate{worker(0, 1, 0), worker(1, 0, 0)}, 9, 1))
	require.Equal(t, set("w0"), got, "any match of a short prompt")
	got, _ = decide(t, kv, &Request{Tokens: 160, BlockSize: 16}, qps([]Candidate{worker(0, 0, 0), worker(1, 0, 0)}, 9, 1))
	require.Equal(t, set("w1"), got, "but none is none")
	withSession := req
	withSession.Session = "alice"
	require.Equal(t, "short match: session ring", reason(t, kv, withSession, []Candidate{worker(0, 1, 0), worker(1, 0, 0)}))

	// matched/tokens - β·(load - mean)/max(1, mean): loads 6 and 2, mean 4.
	for beta, want := range map[float64][]float64{0: {0, 0.5}, 0.25: {0.5 - 0.125, 0.125}, 2: {0.5 - 1, 1}} {
		p, err := ProductionLoadAware{Beta: beta, Random: Seeded(1)}.Policy()
		require.NoError(t, err)
		_, totals := decide(t, p, &Request{Tokens: 160, BlockSize: 16}, []Candidate{worker(0, 5, 6), worker(1, 0, 2)})
		require.InDeltaSlice(t, want, totals, 1e-12)
	}
	p, err := ProductionLoadAware{Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	_, totals := decide(t, p, &Request{Tokens: 160, BlockSize: 16}, []Candidate{worker(0, 0, 0.5), worker(1, 0, 0)})
	require.InDeltaSlice(t, []float64{-0.25, 0.25}, totals, 1e-12, "a mean below 1 counts as 1")

	prefix, err := ProductionPrefixAware{MinMatch: 256, Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	got, _ = decide(t, prefix, &Request{Blocks: 10}, qps([]Candidate{worker(0, 1, 0), worker(1, 0, 0)}, 9, 1))
	require.Equal(t, set("w1"), got, "128 characters are below 256")
	got, _ = decide(t, prefix, &Request{Blocks: 10}, qps([]Candidate{worker(0, 2, 0), worker(1, 0, 0), worker(2, 2, 0)}, 9, 1, 5))
	require.Equal(t, set("w0", "w2"), got)
	prefix, err = ProductionPrefixAware{Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	got, _ = decide(t, prefix, &Request{Blocks: 10}, qps([]Candidate{worker(0, 0, 0), worker(1, 0, 0)}, 9, 1))
	require.Equal(t, set("w0", "w1"), got, "without a minimum nothing matched is a tie of all")
}

func TestSessionRing(t *testing.T) {
	p, err := ProductionSession{Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	cs := make([]Candidate, 8)
	for i := range cs {
		cs[i] = worker(i, 0, 0)
		cs[i].Load.QPS = Known(float64(i))
	}
	const sessions = 4000
	place, count := make([]WorkerID, sessions), map[WorkerID]int{}
	var d Decision
	for s := range place {
		require.NoError(t, p.Decide(&Request{Session: fmt.Sprint("s", s)}, cs, &d))
		place[s] = d.Chosen.ID
		count[d.Chosen.ID]++
	}
	for id, n := range count {
		require.InDelta(t, sessions/8, n, sessions/8*0.45, "worker %d", id)
	}
	// Without worker 3 only its sessions move.
	rest := append(append([]Candidate(nil), cs[:3]...), cs[4:]...)
	for s := range place {
		require.NoError(t, p.Decide(&Request{Session: fmt.Sprint("s", s)}, rest, &d))
		if place[s] != 3 {
			require.Equal(t, place[s], d.Chosen.ID)
		}
	}
	got, _ := decide(t, p, &Request{}, cs)
	require.Equal(t, set("w0"), got, "no session: lowest QPS")

	// Bounded load: 8 workers with 7 requests, 1.25·8/8 = 2 at most: the owner
	// with 2 passes the key on, always to the same next worker.
	bounded, err := ProductionSession{Ring: RingOptions{BoundedLoad: 1.25}, Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	require.NoError(t, bounded.Decide(&Request{Session: "s1", Fallbacks: 1}, cs, &d))
	owner, next := d.Chosen.ID, d.Fallbacks[0].ID
	cs[owner].Load.Requests, cs[(owner+1)%8].Load.Requests = Known(2), Known(5)
	if next == (owner+1)%8 {
		cs[next].Load.Requests, cs[(owner+2)%8].Load.Requests = Known(0), Known(5)
	}
	require.NoError(t, bounded.Decide(&Request{Session: "s1"}, cs, &d))
	require.Equal(t, next, d.Chosen.ID)
	for _, o := range []RingOptions{{VirtualNodes: -1}, {VirtualNodes: 1 << 20}, {BoundedLoad: 0.5}, {BoundedLoad: math.NaN()}} {
		_, err := ProductionSession{Ring: o}.Policy()
		require.ErrorIs(t, err, ErrOption)
	}
}

func TestSimplePresets(t *testing.T) {
	rr, err := RoundRobin{}.Policy()
	require.NoError(t, err)
	cs := []Candidate{worker(2, 0, 0), worker(0, 0, 0), worker(1, 0, 0)}
	var d Decision
	turn := func(cs []Candidate, dry bool) string {
		require.NoError(t, rr.Decide(&Request{DryRun: dry}, cs, &d))
		return d.Chosen.Name
	}
	require.Equal(t, []string{"w0", "w1", "w1", "w2", "w0"},
		[]string{turn(cs, false), turn(cs, true), turn(cs, false), turn(cs, false), turn(cs, false)})
	require.Equal(t, []string{"w2", "w0"}, []string{turn(cs[:2], false), turn(cs[:2], false)}, "w1 went away")

	least, err := LeastLoaded{Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	three := []Candidate{worker(0, 9, 2), worker(1, 0, 1), worker(2, 0, 1)}
	got, _ := decide(t, least, &Request{}, three)
	require.Equal(t, set("w1", "w2"), got)
	two, err := LeastLoaded{Of: 2, Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	got, _ = decide(t, two, &Request{}, []Candidate{worker(0, 9, 2), worker(1, 0, 1), worker(2, 0, 0)})
	require.Equal(t, set("w1", "w2"), got, "the worst of three loses every pair")
	any, err := Uniform{Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	got, _ = decide(t, any, &Request{}, three)
	require.Len(t, got, 3)
	for i := range three {
		three[i].Load.Running = Known(float64(3 - i))
	}
	running, err := LeastLoaded{ByRunning: true}.Policy()
	require.NoError(t, err)
	got, _ = decide(t, running, &Request{}, three)
	require.Equal(t, set("w2"), got)
	_, err = LeastLoaded{Of: -1}.Policy()
	require.ErrorIs(t, err, ErrOption)
}

func TestDualMap(t *testing.T) {
	p, err := DualMap{Target: time.Second, TokenTime: time.Millisecond, Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	cs := make([]Candidate, 6)
	for i := range cs {
		cs[i] = worker(i, 0, 0)
		cs[i].Load.PrefillTokens = Known(0)
	}
	var d Decision
	shares := map[WorkerID]int{}
	for prefix := range uint64(3000) {
		req := &Request{Tokens: 100, Prefix: prefix + 1, Fallbacks: 1}
		require.NoError(t, p.Decide(req, cs, &d))
		first, second := d.Chosen.ID, d.Fallbacks[0].ID
		require.NotEqual(t, first, second)
		shares[first]++
		if prefix > 20 {
			continue
		}
		// 900 queued + 100 own tokens at 1 ms are 1 s: the target is kept.
		cs[first].Load.PrefillTokens = Known(900)
		require.NoError(t, p.Decide(req, cs, &d))
		require.Equal(t, first, d.Chosen.ID)
		cs[first].Load.PrefillTokens = Known(901)
		require.NoError(t, p.Decide(req, cs, &d))
		require.Equal(t, second, d.Chosen.ID)
		cs[first].Match.Usable = 1 // one token less to compute
		require.NoError(t, p.Decide(req, cs, &d))
		require.Equal(t, first, d.Chosen.ID)
		cs[first].Match.Usable, cs[second].Load.PrefillTokens = 0, Known(901)
		require.NoError(t, p.Decide(req, cs, &d))
		require.Equal(t, first, d.Chosen.ID, "not less loaded")
		cs[first].Load.PrefillTokens, cs[second].Load.PrefillTokens = Known(0), Known(0)
	}
	for _, n := range shares {
		require.InDelta(t, 500, n, 100)
	}
	for i := range cs {
		cs[i].Load.PrefillTokens = Known(1)
	}
	cs[4].Load.PrefillTokens = Known(0.5)
	got, _ := decide(t, p, &Request{}, cs)
	require.Equal(t, set("w4"), got, "no prefix: the least loaded")
	require.Equal(t, "first of two", reason(t, p, Request{Prefix: 1}, cs[:1]))
}

func TestLAARAndCacheRoute(t *testing.T) {
	p, err := LAAR{Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	cs := []Candidate{worker(0, 5, 0), worker(1, 0, 0)}
	cs[1].Capability = 2
	_, totals := decide(t, p, &Request{Blocks: 10}, cs)
	require.InDeltaSlice(t, []float64{3.5, 4}, totals, 1e-12) // 3·0.5 + 2, 2·(0 + 2)

	c, err := CacheRoute{LoadTime: [NumMedia]time.Duration{0, 250, 500, 2000}, PrefillTime: 1000, Random: Seeded(1)}.Policy()
	require.NoError(t, err)
	cs = []Candidate{worker(0, 0, 0)}
	cs[0].Match.Blocks = [NumMedia]int32{1, 2, 3, 4}
	_, totals = decide(t, c, &Request{Blocks: 10}, cs)
	require.InDeltaSlice(t, []float64{3*(1+1.5+1.5+0)/10 + 2}, totals, 1e-12)
	_, err = CacheRoute{PrefillTime: -1}.Policy()
	require.ErrorIs(t, err, ErrOption)
	_, err = CacheRoute{LoadTime: [NumMedia]time.Duration{5, 5, 5, 5}, PrefillTime: 5}.Policy()
	require.ErrorContains(t, err, "worthless")
	_, err = New(Options{Scorers: []WeightedScorer{{Scorer: Capable{}}}})
	require.ErrorContains(t, err, "Scorers[0].Scorer: is nil")
}

func TestGorgo(t *testing.T) {
	cs := []Candidate{
		{ID: 0, Name: "a", Match: Match{Usable: 600}, Load: Load{RTT: Known(5), PromptTokens: Known(300)}},
		{ID: 1, Name: "b", Load: Load{RTT: Known(80), PromptTokens: Known(0)}},
		{ID: 2, Name: "c", Match: Match{Usable: 2000}}, // RTT unknown: the mean 42.5; queue: 150
	}
	req := &Request{Tokens: 1000}
	p, err := Gorgo{}.Policy()
	require.NoError(t, err)
	got, totals := decide(t, p, req, cs)
	require.Equal(t, []float64{-(5 + 400 + 300), -(80 + 1000), -(42.5 + 0 + 150)}, totals)
	require.Equal(t, set("c"), got)
	p, err = Gorgo{TwoD: true, Weights: GorgoWeights{RTT: 2, Prefill: 9, Queue: 3, PrefillRate: 0.1, QueueRate: 0.05}}.Policy()
	require.NoError(t, err)
	_, totals = decide(t, p, req, cs[:2])
	require.InDeltaSlice(t, []float64{-(10 + 40 + 45), -(160 + 100)}, totals, 1e-9)
	got, _ = decide(t, p, req, []Candidate{{Name: "x"}, {Name: "y"}})
	require.Equal(t, set("x"), got, "the first of equals")
	_, err = Gorgo{Weights: GorgoWeights{RTT: -1}}.Policy()
	require.ErrorContains(t, err, "Weights.RTT: is -1")
}

// TestGorgoTuner tunes against a fleet whose p95 falls as the queue weight rises
// to 8 and rises beyond.
func TestGorgoTuner(t *testing.T) {
	cost, err := NewGorgoCost(false, GorgoWeights{})
	require.NoError(t, err)
	tuner, err := NewGorgoTuner(cost, GorgoTunerOptions{Window: 20, Hop: 10, MaxSteps: 60, Random: Seeded(3)})
	require.NoError(t, err)
	p95 := func() time.Duration {
		return time.Duration((1 + math.Abs(math.Log(cost.Weights().Queue/8))) * float64(time.Second))
	}
	before := p95()
	tuner.FirstToken(-1)
	for range 10000 {
		tuner.FirstToken(p95())
	}
	require.True(t, tuner.Done())
	require.Less(t, p95(), before*2/3)
	after := cost.Weights()
	tuner.FirstToken(time.Second)
	require.Equal(t, after, cost.Weights(), "pinned")
	_, err = NewGorgoTuner(nil, GorgoTunerOptions{})
	require.ErrorIs(t, err, ErrOption)
	_, err = NewGorgoTuner(cost, GorgoTunerOptions{Window: -1})
	require.ErrorIs(t, err, ErrOption)
}

func TestGorgoCalibration(t *testing.T) {
	var g GorgoCalibration
	_, _, ok := g.Rates()
	require.False(t, ok)
	random := Seeded(4)
	for i := range 200 {
		w, u, q := WorkerID(i%3), random.IntN(5000)+1, random.IntN(20000)
		ms := 10*float64(w+1) + 0.08*float64(u) + 0.03*float64(q)
		g.Add(w, u, q, time.Duration(ms*float64(time.Millisecond)))
	}
	g.Add(0, 5, 5, 0)
	prefill, queue, ok := g.Rates()
	require.True(t, ok)
	require.InDelta(t, 0.08, prefill, 1e-5)
	require.InDelta(t, 0.03, queue, 1e-5)
	var same GorgoCalibration
	for i := range 50 {
		same.Add(0, i+1, 2*i+2, time.Duration(i+1))
	}
	_, _, ok = same.Rates()
	require.False(t, ok, "the two terms cannot be told apart")
}
