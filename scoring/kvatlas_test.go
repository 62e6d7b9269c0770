package scoring

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plainAtlas has no randomness and nothing but predicted times.
func plainAtlas(t testing.TB, o KVAtlasOptions) *KVAtlas {
	t.Helper()
	o.Explore, o.Random = -1, Seeded(1)
	k, err := NewKVAtlas(o)
	require.NoError(t, err)
	return k
}

func TestKVAtlasTerms(t *testing.T) {
	k := plainAtlas(t, KVAtlasOptions{PrefillRate: 10000, Work: 2, RequestTime: 10 * time.Millisecond,
		FetchRate: [NumMedia]float64{CPU: 100000, Storage: 5000}})
	cs := []Candidate{
		// 2000 ahead, one request of another router waiting (of 0 uncached
		// tokens as nothing was learned), 500 tokens of 1600 on the GPU.
		{ID: 0, Name: "a", Match: Match{Blocks: [NumMedia]int32{GPU: 5}, Usable: 500},
			Load: Load{PrefillTokens: Known(2000), Requests: Known(3), RTT: Known(4), KVUsage: Known(0.5), Waiting: Known(1), Queued: Known(0)}},
		// 400 on the GPU, 800 on the CPU, 200 on a disk slower than computing.
		{ID: 1, Name: "b", Match: Match{Blocks: [NumMedia]int32{4, 8, 2}, Usable: 1400}, Capability: 2,
			Load: Load{PrefillTokens: Known(0), Requests: Known(1), RTT: Known(2), KVUsage: Known(0.97)}},
		{ID: 2, Name: "c"}, // unknown: the means
	}
	req := &Request{Tokens: 1600, BlockSize: 100, Explain: true}
	var d Decision
	require.NoError(t, k.Policy().Decide(req, cs, &d))
	require.Equal(t, []string{"ttft", "ttft/queue", "ttft/prefill", "ttft/transfer", "ttft/network", "ttft/work", "ttft/memory", "ttft/batch",
		"ttft/unheard", "ttft/late", "ttft/yield", "ttft/agree", "ttft/draw"}, termNames(d.Terms))
	for i, want := range [][]float64{
		{0.2, 0, 0.1},
		{0.11, 0.04 / 2, 0.16}, // 1100, then 400 at twice the speed (1600 - 1200)
		{0, 0.008, 0},          // 800 tokens from the CPU
		{0.004, 0.002, 0.003},
		// Twice, and for the third of a request that waits at a worker.
		{0.11 * (2 + 1./3), 0.02 * (2 + 1./3), 0.16 * (2 + 1./3)},
		{0.5, 0.97 + 0.05*20, 0.735},
		{0.03, 0.01, 0.02},
		{0, 0, 0},
		{0, 0, 0},
		{0, 0, 0},
		{0, 0, 0},
	} {
		// At twice the speed the disk's 5,000 tokens a second are still slower.
		require.InDeltaSlice(t, want, d.Terms[i+1].Values, 1e-9, d.Terms[i+1].Name)
	}
	for i := range cs {
		sum := 0.0
		for _, term := range d.Terms[1:] {
			sum += term.Values[i]
		}
		require.InDelta(t, -sum, d.Totals[i], 1e-9)
	}
}

func TestKVAtlasLearns(t *testing.T) {
	k := plainAtlas(t, KVAtlasOptions{PrefillRate: 10000})
	require.InDelta(t, 10000, k.Rate(1), 1e-6)
	for range 200 { // worker 1 makes 40,000 tokens a second, worker 2 5,000
		k.FirstToken(Observation{Worker: 1, AheadTokens: 3000, PromptTokens: 2000, CachedTokens: 1000, ReportedTokens: -1, TTFT: 100 * time.Millisecond})
		k.FirstToken(Observation{Worker: 2, PromptTokens: 1000, ReportedTokens: -1, TTFT: 200 * time.Millisecond})
	}
	require.InDelta(t, 40000, k.Rate(1), 4000)
	require.InDelta(t, 5000, k.Rate(2), 500)
	require.Greater(t, k.Rate(9), 5000.0, "a new worker is as fast as the fleet")
	k.Forget(2)
	require.Equal(t, k.Rate(9), k.Rate(2))
	for _, o := range []Observation{{Worker: 1, PromptTokens: 5}, {Worker: 1, TTFT: time.Second}, {Worker: 1, PromptTokens: -1, TTFT: -1}} {
		before := k.Rate(1)
		k.FirstToken(o)
		require.Equal(t, before, k.Rate(1))
	}
	k.FirstToken(Observation{Worker: math.MaxUint32, PromptTokens: 1000, ReportedTokens: -1, TTFT: time.Minute})
	require.Less(t, k.Rate(math.MaxUint32), k.Rate(9), "any id is learned")
	k.Forget(math.MaxUint32)
	require.Equal(t, k.Rate(9), k.Rate(math.MaxUint32))
	for range 1000 { // nonsense stays within bounds
		k.FirstToken(Observation{Worker: 3, PromptTokens: 1, AheadTokens: -7, CachedTokens: 99, ReportedTokens: 99, TTFT: time.Hour})
	}
	require.GreaterOrEqual(t, k.Rate(3), 99.0)

	// A worker that never hits what is predicted is believed less.
	k = plainAtlas(t, KVAtlasOptions{})
	cs := []Candidate{worker(1, 100, 0), worker(2, 60, 0)}
	var d Decision
	req := &Request{Tokens: 1601, BlockSize: 16}
	require.NoError(t, k.Policy().Decide(req, cs, &d))
	require.Equal(t, WorkerID(1), d.Chosen.ID)
	for range 100 {
		k.FirstToken(Observation{Worker: 1, PromptTokens: 1600, CachedTokens: 1600, ReportedTokens: 0, TTFT: 80 * time.Millisecond})
		k.FirstToken(Observation{Worker: 2, PromptTokens: 1600, CachedTokens: 1600, ReportedTokens: 1600, TTFT: time.Millisecond})
	}
	cs[0].Load.Requests, cs[1].Load.Requests = Known(0), Known(0)
	require.NoError(t, k.Policy().Decide(req, cs, &d))
	require.Equal(t, WorkerID(2), d.Chosen.ID)
}

// TestKVAtlasFailureModes decides by hand what the five ways to fail come to.
func TestKVAtlasFailureModes(t *testing.T) {
	k := plainAtlas(t, KVAtlasOptions{PrefillRate: 10000, Work: 1, Tolerance: -1})
	req := &Request{Tokens: 1601, BlockSize: 16}
	choose := func(cs []Candidate) WorkerID {
		var d Decision
		require.NoError(t, k.Policy().Decide(req, cs, &d))
		return d.Chosen.ID
	}
	queued := func(id int, blocks int32, tokens float64) Candidate {
		c := worker(id, blocks, 0)
		c.Load.PrefillTokens = Known(tokens)
		return c
	}
	// Hot spot: the holder wins until its queue costs more than computing the
	// prompt does, for the request and for the fleet: 2·1600 tokens.
	require.Equal(t, WorkerID(0), choose([]Candidate{queued(0, 100, 3190), queued(1, 0, 0)}))
	require.Equal(t, WorkerID(1), choose([]Candidate{queued(0, 100, 3210), queued(1, 0, 0)}), "replicates on purpose")
	// A fresh worker gets cold requests as soon as others have a queue.
	require.Equal(t, WorkerID(1), choose([]Candidate{queued(0, 0, 10), queued(1, 0, 0)}))
	// Another router's queue counts although this one sent nothing: 20 requests
	// of 1000 tokens, which is more than the prompt, once for itself, once for
	// Work and for the ten that wait at a worker on average.
	for range 50 {
		k.FirstToken(Observation{Worker: 0, PromptTokens: 1000, ReportedTokens: -1, TTFT: 100 * time.Millisecond})
	}
	cs := []Candidate{queued(0, 100, 0), queued(1, 0, 0)}
	cs[0].Load.Waiting, cs[0].Load.Queued = Known(20), Known(0)
	require.Equal(t, WorkerID(1), choose(cs))

	// Exploration: the idlest, whatever is cached.
	x, err := NewKVAtlas(KVAtlasOptions{Explore: 1, Random: Seeded(1)})
	require.NoError(t, err)
	got, _ := decide(t, x.Policy(), req, []Candidate{worker(0, 100, 1), worker(1, 0, 0), worker(2, 0, 0)})
	require.Equal(t, set("w1", "w2"), got)
	got, _ = decide(t, x.Policy(), req, []Candidate{worker(0, 100, 3), worker(1, 0, 2), worker(2, 0, 2)})
	require.Equal(t, set("w0"), got, "nobody idles")
	burst := worker(0, 100, 1)
	burst.Match.Speculative = 3
	got, _ = decide(t, x.Policy(), req, []Candidate{burst, worker(1, 0, 0)})
	require.Equal(t, set("w0"), got, "siblings stay together")
	// Hysteresis: near-equals that hold as much are drawn at random, so that
	// routers do not all choose one; a worker that holds less is not among them.
	h := plainAtlas(t, KVAtlasOptions{Tolerance: 0.2})
	got, _ = decide(t, h.Policy(), req, []Candidate{queued(0, 50, 100), queued(1, 50, 110), queued(2, 49, 100), queued(3, 50, 9000)})
	require.Equal(t, set("w0", "w1"), got)
}

func TestOthersWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		l    Load
		want float64
	}{
		"nothing known":                {Load{}, 0},
		"one router":                   {Load{Requests: Known(9), Queued: Known(4), Running: Known(5), Waiting: Known(4)}, 0},
		"one router, ended since":      {Load{Requests: Known(9), Queued: Known(4), Running: Known(3), Waiting: Known(4)}, 0},
		"a third is ours":              {Load{Requests: Known(3), Queued: Known(2), Running: Known(5), Waiting: Known(4)}, 4 * 2. / 3},
		"none is ours":                 {Load{Requests: Known(0), Queued: Known(0), Running: Known(5), Waiting: Known(4)}, 4},
		"running is unknown":           {Load{Requests: Known(3), Queued: Known(1), Waiting: Known(4)}, 3},
		"running is unknown, none is":  {Load{Requests: Known(3), Queued: Known(5), Waiting: Known(4)}, 0},
		"the engine says only running": {Load{Requests: Known(3), Queued: Known(1), Running: Known(4)}, 0},
	} {
		require.InDelta(t, c.want, othersWaiting(&c.l), 1e-9, name)
	}
}

// TestKVAtlasObjective: at 10,000 tokens a second and an objective of 2 s.
func TestKVAtlasObjective(t *testing.T) {
	k := plainAtlas(t, KVAtlasOptions{PrefillRate: 10000, Objective: 2 * time.Second, RequestTime: -1, Work: 1})
	off := plainAtlas(t, KVAtlasOptions{PrefillRate: 10000, Objective: -1, RequestTime: -1, Work: 1})
	req := &Request{Tokens: 4001, BlockSize: 16, Explain: true}
	fleet := func(usable [3]int32, ahead [3]float64) []Candidate {
		cs := make([]Candidate, 3)
		for i := range cs {
			cs[i] = worker(i, usable[i]/16, 0)
			cs[i].Load.PrefillTokens = Known(ahead[i])
		}
		return cs
	}
	var d Decision
	terms := func(name string) []float64 {
		for _, term := range d.Terms {
			if term.Name == "ttft/"+name {
				return term.Values
			}
		}
		t.Fatal(name)
		return nil
	}
	// The holder has 1.43 s queued, which with the margin of 40 % is 2.002 s: late
	// by a hair. It counts 1 s more, and now loses against 0.4 s of prefill and
	// as much work; the third is late too.
	cs := fleet([3]int32{4000, 0, 0}, [3]float64{14300, 4000, 30000})
	require.NoError(t, k.Policy().Decide(req, cs, &d))
	require.Equal(t, []float64{1, 0, 1}, terms("late"))
	require.Equal(t, []float64{0, 0, 0}, terms("yield"))
	require.Equal(t, WorkerID(1), d.Chosen.ID)
	require.Empty(t, d.Reason)
	cs = fleet([3]int32{4000, 0, 0}, [3]float64{11900, 4000, 30000})
	require.NoError(t, k.Policy().Decide(req, cs, &d))
	require.Equal(t, []float64{0, 0, 1}, terms("late"))
	require.Equal(t, WorkerID(0), d.Chosen.ID)

	// Late everywhere: where most wait, up to twenty seconds.
	cs = fleet([3]int32{}, [3]float64{16000, 60000, 199990})
	require.NoError(t, k.Policy().Decide(req, cs, &d))
	require.Equal(t, []float64{0, 0, 0}, terms("late"))
	require.Equal(t, WorkerID(2), d.Chosen.ID)
	require.Zero(t, d.Total)
	require.Contains(t, d.Reason, "late everywhere")
	// The two others have their queues of 1.6 and 6 s less to give, a tenth of
	// which counts: 0.1·(19.999-1.6) and 0.1·(19.999-6).
	require.InDeltaSlice(t, []float64{-1.8399, -1.3999, 0}, d.Totals, 1e-9)
	cs[2].Load.PrefillTokens = Known(200010)
	require.NoError(t, k.Policy().Decide(req, cs, &d))
	require.Equal(t, WorkerID(1), d.Chosen.ID, "nobody yields without end")
	// Work still counts: what is cached is worth more than the shorter queue.
	cs = fleet([3]int32{4000, 0, 0}, [3]float64{21000, 22000, 23000})
	require.NoError(t, k.Policy().Decide(req, cs, &d))
	require.Equal(t, WorkerID(0), d.Chosen.ID)
	// Switched off, the shortest queue it is.
	cs = fleet([3]int32{}, [3]float64{16000, 60000, 199990})
	require.NoError(t, off.Policy().Decide(req, cs, &d))
	require.Equal(t, WorkerID(0), d.Chosen.ID)
	require.Empty(t, d.Reason)
}

// TestKVAtlasRoutersAgree: routers that share nothing send the siblings of a new
// prompt to one worker.
func TestKVAtlasRoutersAgree(t *testing.T) {
	fleet := func() []Candidate {
		cs := make([]Candidate, 8)
		for i := range cs {
			cs[i] = worker(i, 0, 0)
			cs[i].Load.PrefillTokens = Known(0)
			cs[i].Load.Waiting, cs[i].Load.Running = Known(0), Known(3) // another router's
		}
		return cs
	}
	var d Decision
	homes := map[WorkerID]int{}
	for novel := range uint64(200) {
		first := -1
		for router := range uint64(4) {
			k, err := NewKVAtlas(KVAtlasOptions{Random: Seeded(100*novel + router), Explore: -1})
			require.NoError(t, err)
			require.NoError(t, k.Policy().Decide(&Request{Tokens: 4000, BlockSize: 16, Novel: novel + 1}, fleet(), &d))
			if first < 0 {
				first = int(d.Chosen.ID)
			}
			require.Equal(t, WorkerID(first), d.Chosen.ID)
		}
		homes[WorkerID(first)]++
	}
	for w, n := range homes {
		require.InDelta(t, 25, n, 15, "worker %d", w) // of different prompts all get their share
	}
	require.Len(t, homes, 8)

	// By hand: a quarter of the requests are one's own, half of the prompt is
	// known to one worker. The home's uncached half costs a quarter of 0.1 s·(1+1).
	k := plainAtlas(t, KVAtlasOptions{PrefillRate: 20000, Work: 1})
	cs := fleet()[:2]
	cs[0].Match = Match{Blocks: [NumMedia]int32{GPU: 125}, Usable: 2000}
	cs[0].Load.Requests, cs[1].Load.Requests = Known(1), Known(0.5)
	req := &Request{Tokens: 4000, BlockSize: 16, Novel: 7, Explain: true}
	require.NoError(t, k.Policy().Decide(req, cs, &d))
	agree := d.Terms[len(d.Terms)-2]
	require.Equal(t, "ttft/agree", agree.Name)
	require.InDelta(t, -0.75*0.1*2, min(agree.Values[0], agree.Values[1]), 1e-9)
	require.Zero(t, max(agree.Values[0], agree.Values[1]))
	none := func(why string) {
		t.Helper()
		require.NoError(t, k.Policy().Decide(req, cs, &d))
		require.Equal(t, []float64{0, 0}, d.Terms[len(d.Terms)-2].Values, why)
		require.Equal(t, []float64{0, 0}, d.Terms[len(d.Terms)-1].Values, why)
	}
	req.Novel = 0
	none("all is held")
	req.Novel = 7
	cs[0].Load.Requests, cs[1].Load.Requests = Known(3), Known(3)
	none("one router")
	cs[0].Load.Requests, cs[1].Load.Running = Known(1), Gauge{}
	cs[0].Load.Running = Gauge{}
	none("nothing is known of other routers")
	// Where prompts have nothing in common, nobody else sends the same.
	cs = fleet()[:2]
	for range 1000 {
		k.FirstToken(Observation{Worker: 0, PromptTokens: 1000, ReportedTokens: 0, TTFT: time.Second})
	}
	require.NoError(t, k.Policy().Decide(req, cs, &d))
	require.InDelta(t, 0, min(d.Terms[len(d.Terms)-2].Values[0], d.Terms[len(d.Terms)-2].Values[1]), 1e-6)
}

// TestKVAtlasReplicasDraw: replicas that know the same of the fleet take the same of
// near-equals, another for another prompt, and none that costs more than a fifth of
// the prefill beyond the best.
func TestKVAtlasReplicasDraw(t *testing.T) {
	drawn := map[WorkerID]int{}
	var d Decision
	for novel := range uint64(200) {
		first := -1
		for replica := range uint64(4) {
			k, err := NewKVAtlas(KVAtlasOptions{Random: Seeded(100*novel + replica), Explore: -1})
			require.NoError(t, err)
			cs := make([]Candidate, 8)
			for i := range cs {
				cs[i] = worker(i, 0, 0)
				cs[i].Load.PrefillTokens = Known(float64(100 * i)) // 5 ms each
				cs[i].Load.Requests, cs[i].Load.Peers = Known(4), Known(3)
				cs[i].Load.Running, cs[i].Load.Waiting = Known(4), Known(0)
			}
			cs[replica].Load.PrefillTokens.Value += 20 // what was heard a moment later
			cs[7].Load.PrefillTokens = Known(8000)     // 400 ms: far beyond the 40 of the tolerance
			require.NoError(t, k.Policy().Decide(&Request{Tokens: 4000, BlockSize: 16, Novel: novel + 1}, cs, &d))
			if first < 0 {
				first = int(d.Chosen.ID)
			}
			require.Equal(t, WorkerID(first), d.Chosen.ID)
		}
		drawn[WorkerID(first)]++
	}
	require.Len(t, drawn, 7)
	require.NotContains(t, drawn, WorkerID(7))
}

// TestKVAtlasReplicasExplore: replicas that tell each other send the same prompts to
// an idle worker, a share of all, and the siblings of those to the same one.
func TestKVAtlasReplicasExplore(t *testing.T) {
	explored := map[WorkerID]int{}
	var d Decision
	for novel := range uint64(1000) {
		for replica := range uint64(3) {
			k, err := NewKVAtlas(KVAtlasOptions{Random: Seeded(100*novel + replica), Explore: 0.1})
			require.NoError(t, err)
			cs := make([]Candidate, 8)
			for i := range cs {
				cs[i] = worker(i, 0, 0)
				cs[i].Load.Requests, cs[i].Load.Peers = Known(20), Known(15)
			}
			cs[0].Match.Usable = 4000 // what the others lack
			cs[2].Load.Requests, cs[6].Load.Requests = Known(5), Known(5)
			require.NoError(t, k.Policy().Decide(&Request{Tokens: 5000, BlockSize: 16, Novel: novel + 1}, cs, &d))
			if chosen := d.Chosen.ID; replica == 0 {
				explored[chosen]++
			} else {
				explored[chosen] += 1000
			}
			cs[1].Match.Speculative = 1
			require.NoError(t, k.Policy().Decide(&Request{Tokens: 5000, BlockSize: 16, Novel: novel + 1}, cs, &d))
			require.Equal(t, WorkerID(0), d.Chosen.ID, "something is on its way")
		}
	}
	require.Len(t, explored, 3)
	for _, w := range []WorkerID{2, 6} {
		n := explored[w] % 1000
		require.InDelta(t, 50, n, 25)
		require.Equal(t, 2*n, explored[w]/1000, "the others explore with the same")
	}
}

// TestKVAtlasCopiesHotPrefixes: what one or two workers hold is copied at full
// price; from then on the price falls with the square of the holders.
func TestKVAtlasCopiesHotPrefixes(t *testing.T) {
	k := plainAtlas(t, KVAtlasOptions{PrefillRate: 20000, Work: 2})
	var d Decision
	work := func(held ...int32) float64 {
		t.Helper()
		cs := make([]Candidate, 8)
		for i := range cs {
			cs[i] = worker(i, 0, 0)
			cs[i].Load.PrefillTokens = Known(0)
			if i < len(held) {
				cs[i].Match = Match{Blocks: [NumMedia]int32{GPU: held[i] / 16}, Usable: held[i]}
			}
		}
		require.NoError(t, k.Policy().Decide(&Request{Tokens: 4000, BlockSize: 16, Explain: true}, cs, &d))
		i := slices.IndexFunc(d.Terms, func(term Term) bool { return term.Name == "ttft/work" })
		return d.Terms[i].Values[7]
	}
	require.InDelta(t, 0.4, work(), 1e-9) // 4,000 tokens at 20,000 a second, twice
	require.InDelta(t, 0.4, work(3200), 1e-9)
	require.InDelta(t, 0.4, work(3200, 3200), 1e-9)
	require.InDelta(t, 0.1, work(3200, 3200, 3200, 3200), 1e-9)
	require.InDelta(t, 0.1, work(3200, 2560, 2560, 2560), 1e-9, "four fifths are as good")
	require.InDelta(t, 0.4, work(3200, 2544, 2544, 2544), 1e-9, "a common beginning is not the prefix")
}

// TestKVAtlasAbsurdObservation: what a clock that was set or a damaged note says is
// ignored where it cannot be, and has a limited say where it can.
func TestKVAtlasAbsurdObservation(t *testing.T) {
	learned := func(n int) (*KVAtlas, *Peers) {
		k := plainAtlas(t, KVAtlasOptions{})
		loads, err := NewInFlight(InFlightOptions{})
		require.NoError(t, err)
		loads.Add(1)
		p, err := NewPeers(PeersOptions{InFlight: loads, KVAtlas: k})
		require.NoError(t, err)
		for range n {
			k.FirstToken(Observation{Worker: 1, PromptTokens: 1000, ReportedTokens: -1, TTFT: 50 * time.Millisecond})
		}
		require.InDelta(t, 20000, k.Rate(1), 1)
		return k, p
	}
	heard := func(p *Peers, o Observation) {
		o.Worker, o.ReportedTokens = 1, -1
		require.NoError(t, p.Heard(&PeerNote{Request: 1, Observation: o}))
		require.NoError(t, p.Heard(&PeerNote{Request: 1, Event: PeerFinished, Observation: o}))
	}
	tooMany := int64(1) << 31 // negative where an int has 32 bits
	for _, o := range []Observation{
		{PromptTokens: 1000, TTFT: time.Hour + 1},
		{PromptTokens: 1000, TTFT: math.MaxInt64},
		{PromptTokens: 1000, TTFT: 99 * time.Microsecond},
		{PromptTokens: 1000, TTFT: -1},
		{PromptTokens: math.MaxInt, TTFT: time.Minute},
		{PromptTokens: int(tooMany), TTFT: time.Hour},
		{PromptTokens: 1000, AheadTokens: math.MaxInt, TTFT: time.Minute},
		{PromptTokens: 1000, AheadTokens: 1e9, TTFT: time.Minute},
	} {
		k, p := learned(50)
		before := k.fleet
		heard(p, o)
		require.Equal(t, before, k.fleet, "%+v", o)
	}
	for _, n := range []int{8, 32, 500} {
		k, p := learned(n)
		heard(p, Observation{PromptTokens: 1000, TTFT: time.Hour})
		require.InDelta(t, 20000./8, k.Rate(1), 1)
		require.InDelta(t, 20000./8, k.Rate(9), 1)
		for range 23 {
			k.FirstToken(Observation{Worker: 1, PromptTokens: 1000, ReportedTokens: -1, TTFT: 50 * time.Millisecond})
		}
		require.Greater(t, k.Rate(1), 20000/4.6)
	}
	k, p := learned(40)
	heard(p, Observation{PromptTokens: 1000, AheadTokens: 1e6, TTFT: 200 * time.Millisecond})
	require.InDelta(t, 160000, k.Rate(1), 1)
	// Before so many are seen one says what it likes.
	for n, o := range map[int]Observation{7: {PromptTokens: 1000, TTFT: time.Hour}, 31: {PromptTokens: 1000, AheadTokens: 1e6, TTFT: 200 * time.Millisecond}} {
		k, p := learned(n)
		heard(p, o)
		require.Greater(t, max(k.Rate(1)/20000, 20000/k.Rate(1)), 8.1)
	}
	k, p = learned(32)
	heard(p, Observation{PromptTokens: 1000, AheadTokens: 1e6, TTFT: 200 * time.Millisecond})
	require.InDelta(t, 160000, k.Rate(1), 1)
	// However long the prompt of one that hung is, it fades as fast.
	k, _ = learned(100)
	k.FirstToken(Observation{Worker: 1, PromptTokens: 1e6, ReportedTokens: -1, TTFT: time.Hour})
	for range 100 {
		k.FirstToken(Observation{Worker: 1, PromptTokens: 1000, ReportedTokens: -1, TTFT: 50 * time.Millisecond})
	}
	require.InEpsilon(t, 20000, k.Rate(1), 0.3)
	// Of many short prompts and few long ones the long ones tell.
	few := plainAtlas(t, KVAtlasOptions{})
	for i := range 200 {
		few.FirstToken(Observation{Worker: 1, PromptTokens: 20, ReportedTokens: -1, TTFT: 30 * time.Millisecond})
		if i%50 == 49 {
			few.FirstToken(Observation{Worker: 1, PromptTokens: 10_000, ReportedTokens: -1, TTFT: 500 * time.Millisecond})
		}
	}
	require.InEpsilon(t, 20000, few.Rate(1), 0.1)
	// A prompt of which nothing was computed says nothing, however often.
	for range 40_000 {
		k.FirstToken(Observation{Worker: 1, PromptTokens: 1000, ReportedTokens: 1000, TTFT: time.Second})
	}
	require.InEpsilon(t, 20000, k.Rate(1), 0.3)
	// The limits of what is learned.
	for ttft, rate := range map[time.Duration]float64{time.Hour: 100, time.Millisecond: 1e7} {
		k := plainAtlas(t, KVAtlasOptions{})
		for range 100 {
			k.FirstToken(Observation{Worker: 1, PromptTokens: 10000, ReportedTokens: -1, TTFT: ttft})
		}
		require.InEpsilon(t, rate, k.Rate(1), 0.01)
		require.InEpsilon(t, rate, k.Rate(2), 0.01)
	}
}

func TestKVAtlasRefuses(t *testing.T) {
	for _, o := range []KVAtlasOptions{{PrefillRate: -1}, {PrefillRate: math.NaN()}, {PrefillRate: 99}, {PrefillRate: 1.01e7}, {Work: math.NaN()}, {Work: math.Inf(1)},
		{Explore: 1.5}, {Explore: math.NaN()}, {Tolerance: math.NaN()}, {FetchRate: [NumMedia]float64{CPU: -1}}} {
		_, err := NewKVAtlas(o)
		require.ErrorIs(t, err, ErrOption, "%+v", o)
	}
	for _, rate := range []float64{100, 1e7} {
		require.InEpsilon(t, rate, plainAtlas(t, KVAtlasOptions{PrefillRate: rate}).Rate(1), 1e-9)
	}
}

func TestKVAtlasConcurrentSafe(t *testing.T) {
	k, err := NewKVAtlas(KVAtlasOptions{})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			cs := []Candidate{worker(0, 3, 1), worker(1, 0, 0)}
			var d Decision
			for i := range 300 {
				if err := k.Policy().Decide(&Request{Tokens: 100, BlockSize: 16}, cs, &d); err != nil {
					t.Error(err)
					return
				}
				k.FirstToken(Observation{Worker: d.Chosen.ID, PromptTokens: 100, ReportedTokens: i % 100, CachedTokens: 48, TTFT: time.Millisecond})
				if i%97 == 0 {
					k.Forget(WorkerID(g % 2))
				}
			}
		})
	}
	wg.Wait()
}

func TestKVAtlasAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	k, err := NewKVAtlas(KVAtlasOptions{})
	require.NoError(t, err)
	cs := make([]Candidate, 64)
	for i := range cs {
		cs[i] = worker(i, int32(i), 1)
	}
	var d Decision
	req := &Request{Tokens: 2000, BlockSize: 16, Fallbacks: 2}
	_ = k.Policy().Decide(req, cs, &d)
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = k.Policy().Decide(req, cs, &d) }))
}

func BenchmarkKVAtlas(b *testing.B) {
	for _, n := range []int{64, 1024} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			k, err := NewKVAtlas(KVAtlasOptions{})
			require.NoError(b, err)
			cs := make([]Candidate, n)
			for i := range cs {
				cs[i] = worker(i, int32(i), float64(i%7))
			}
			var d Decision
			req := &Request{Tokens: 100000, BlockSize: 16}
			b.ReportAllocs()
			for b.Loop() {
				if err := k.Policy().Decide(req, cs, &d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
