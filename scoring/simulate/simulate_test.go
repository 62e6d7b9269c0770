package simulate

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// small is a short trace with reuse.
func small(seed uint64) *Trace {
	t := zipf(seed)
	t.Arrivals = t.Arrivals[:250]
	return t
}

func TestEveryPolicyServesEveryRequest(t *testing.T) {
	trace := small(1)
	tokens := 0
	for i := range trace.Arrivals {
		tokens += trace.Arrivals[i].Tokens
	}
	for _, name := range Policies() {
		c := Config{Policy: name, Seed: 1, Routers: 2, PeerLag: 0.02, Load: 0.5, Joins: []float64{2}, Leaves: []float64{4}}
		r, err := Run(c, trace)
		require.NoError(t, err, name)
		require.Equal(t, len(trace.Arrivals), r.Requests, name)
		require.Zero(t, r.Unfinished, name)
		// What was not found in a cache was computed, once.
		require.InDelta(t, float64(tokens)*(1-r.HitRate), r.PrefillTokens, 1, name)
		require.GreaterOrEqual(t, r.PrefillTokens, r.UniqueTokens, name)
		require.GreaterOrEqual(t, r.LoadMaxOverMean, 1.0, name)
		again, err := Run(c, trace)
		require.NoError(t, err)
		require.Equal(t, r, again, "%s: the seed decides everything", name)
		c.Seed = 2
		other, err := Run(c, trace)
		require.NoError(t, err)
		require.NotEqual(t, r, other, name)
	}
}

// TestOneRequestByHand works out the times of single requests.
func TestOneRequestByHand(t *testing.T) {
	e := Engine{FlopsPerToken: 1, AttentionFlops: 0.001, Flops: 1000, WeightBytes: 1, KVBytes: 0.001, Bandwidth: 100,
		Overhead: 0.01, BatchTokens: 300, MaxRequests: 4, KVTokens: 4096}
	trace := &Trace{BlockSize: 100, Arrivals: []Arrival{
		{At: 0, Tokens: 500, Output: 3, Blocks: []uint64{1, 2, 3, 4, 5}},
		{At: 100, Tokens: 500, Output: 1, Blocks: []uint64{1, 2, 3, 4, 5}},
	}}
	r, err := Run(Config{Policy: "random", Workers: 1, Engine: e, Noise: -1, RTT: 1e-9, TTFT: 10, TPOT: 10}, trace)
	require.NoError(t, err)
	// Cold: 300 tokens of mean context 150 (345 FLOP), 200 of 400 (280), and a
	// step's overhead each. Warm: 400 cached, as the last token is computed,
	// so 100 of 450 (145).
	require.InDelta(t, 0.145+0.01, r.TTFT50, 1e-6)
	require.InDelta(t, 0.345+0.280+0.02, r.TTFT99, 1e-6)
	require.Equal(t, 600, r.PrefillTokens)
	require.InDelta(t, 0.4, r.HitRate, 1e-9)
	require.Equal(t, 2, r.Good)
}

func TestSiblingsInOneStepShare(t *testing.T) {
	e := Llama8BOnH100()
	trace := &Trace{BlockSize: 100}
	for range 8 {
		trace.Arrivals = append(trace.Arrivals, Arrival{Tokens: 450, Output: 5, Blocks: []uint64{1, 2, 3, 4}})
	}
	// The first is computed alone, as it is scheduled at once; the others wait
	// for the next step and find its blocks.
	r, err := Run(Config{Policy: "random", Workers: 1, Engine: e, Noise: -1}, trace)
	require.NoError(t, err)
	require.Equal(t, 450+7*50, r.PrefillTokens)
	require.Equal(t, r.PrefillTokens, r.UniqueTokens)
}

func TestHostCache(t *testing.T) {
	e := Engine{FlopsPerToken: 1, Flops: 1000, WeightBytes: 1, KVBytes: 1, Bandwidth: 1e9, BatchTokens: 1000, MaxRequests: 4,
		KVTokens: 600, HostTokens: 2000, HostBandwidth: 1000}
	trace := &Trace{BlockSize: 100, Arrivals: []Arrival{
		{At: 0, Tokens: 450, Output: 1, Blocks: []uint64{1, 2, 3, 4}},
		{At: 10, Tokens: 450, Output: 1, Blocks: []uint64{5, 6, 7, 8}}, // pushes the tail of the first out
		{At: 20, Tokens: 450, Output: 1, Blocks: []uint64{1, 2, 3, 4}},
	}}
	r, err := Run(Config{Policy: "kvatlas", Workers: 1, Engine: e, Noise: -1, RTT: 1e-9}, trace)
	require.NoError(t, err)
	require.Equal(t, 450+450+50, r.PrefillTokens)
	e.HostTokens = 0
	r, err = Run(Config{Policy: "kvatlas", Workers: 1, Engine: e, Noise: -1}, trace)
	require.NoError(t, err)
	require.Greater(t, r.PrefillTokens, 950)
}

// TestIndexFollowsCaches compares what the routers know in the end with what the
// engines hold.
func TestIndexFollowsCaches(t *testing.T) {
	e := Llama8BOnH100()
	e.KVTokens, e.HostTokens = 60_000, 100_000
	c := Config{Policy: "kvatlas", Seed: 3, Engine: e, Load: 0.2, Workers: 3}
	require.NoError(t, c.validate())
	f, err := newFleet(&c, small(2))
	require.NoError(t, err)
	require.NoError(t, f.run())
	for len(f.queue) > 0 { // what is still on its way
		if e := f.queue.pop(); e.kind == evPublish {
			f.index.apply(e.worker.id, e.changes)
		}
	}
	count := func(blocks []*block) (n int) {
		for _, b := range blocks {
			if b != nil {
				n++
			}
		}
		return n
	}
	for _, w := range f.workers {
		require.Zero(t, w.cache.used)
		require.LessOrEqual(t, w.cache.free.n, w.cache.capacity)
		require.Equal(t, count(w.cache.blocks), w.cache.free.n)
		require.Equal(t, count(w.cache.host), w.cache.hostLRU.n)
		require.LessOrEqual(t, w.cache.hostLRU.n, w.cache.hostCapacity)
		gpu, host := 0, 0
		for k := range f.keys {
			if f.index.gpu[k]&(1<<w.id) != 0 {
				gpu++
				require.NotNil(t, w.cache.blocks[k])
			}
			if f.index.host[k]&(1<<w.id) != 0 {
				host++
				require.NotNil(t, w.cache.host[k])
			}
		}
		require.Equal(t, w.cache.free.n, gpu)
		require.Equal(t, w.cache.hostLRU.n, host)
	}
	require.Zero(t, f.routers[0].loads.Stats().Requests)
}

func TestAutoscale(t *testing.T) {
	trace := cut(zipf(1), 90)
	quiet := *trace // then nothing but a request every ten seconds
	for i := range 30 {
		a := trace.Arrivals[0]
		a.At = 90 + 10*float64(i)
		quiet.Arrivals = append(slices.Clone(quiet.Arrivals), a)
	}
	c := Config{Policy: "kvatlas", Seed: 1, Workers: 4, Autoscale: Autoscale{Max: 9, Requests: 20}, MeasureRouter: true}
	r, err := Run(c, &quiet)
	require.NoError(t, err)
	require.Zero(t, r.Unfinished)
	require.Greater(t, r.Workers, 6, "half of the fleet of eight cannot do it")
	require.LessOrEqual(t, r.Workers, 9)
	require.Less(t, r.WorkerSeconds, 300*7., "and it shrinks again")
	require.Greater(t, r.WorkerSeconds, 380*4.)
	require.Positive(t, r.RouterTime)
	fixed, err := Run(Config{Policy: "kvatlas", Seed: 1, Workers: 4}, &quiet)
	require.NoError(t, err)
	require.Less(t, fixed.Good, r.Good)
	require.Equal(t, 4, fixed.Workers)
	require.Zero(t, fixed.RouterTime)
}

func TestRefusals(t *testing.T) {
	good := small(1)
	for _, c := range []Config{{Policy: "none"}, {Policy: "random", Workers: 65}, {Policy: "random", Workers: -1}, {Policy: "random", Routers: -1}, {Policy: "random", PeerLag: -1}, {Policy: "random", PeerLag: math.NaN()},
		{Policy: "random", Load: -1}, {Policy: "random", Autoscale: Autoscale{Max: 7}}, {Policy: "random", Autoscale: Autoscale{Max: 65}},
		{Policy: "random", Autoscale: Autoscale{Max: 9, Delay: -1}}, {Policy: "random", Load: math.NaN()}, {Policy: "random", Noise: 1}, {Policy: "random", Noise: math.NaN()}, {Policy: "random", Engine: Engine{Flops: 1}}} {
		_, err := Run(c, good)
		require.ErrorContains(t, err, "simulate: ", "%+v", c)
	}
	for _, bad := range []*Trace{{}, {BlockSize: 16}, {Arrivals: good.Arrivals},
		{BlockSize: 16, Arrivals: []Arrival{{Tokens: 0, Output: 1}}}, {BlockSize: 16, Arrivals: []Arrival{{Tokens: 1, Output: 0}}},
		{BlockSize: 16, Arrivals: []Arrival{{Tokens: 20, Output: 1, Blocks: []uint64{1, 2}}}},
		{BlockSize: 16, Arrivals: []Arrival{{At: 2, Tokens: 1, Output: 1}, {At: 1, Tokens: 1, Output: 1}}},
		{BlockSize: 16, Arrivals: []Arrival{{At: math.NaN(), Tokens: 1, Output: 1}}}} {
		_, err := Run(Config{Policy: "random"}, bad)
		require.ErrorContains(t, err, "simulate: ")
	}
}

// TestKeysOfAnySize: what the keys are does not matter, only which are equal.
func TestKeysOfAnySize(t *testing.T) {
	trace := small(4)
	wide := &Trace{BlockSize: trace.BlockSize, Arrivals: slices.Clone(trace.Arrivals)}
	for i := range wide.Arrivals {
		a := &wide.Arrivals[i]
		a.Blocks = slices.Clone(a.Blocks)
		for n := range a.Blocks {
			a.Blocks[n] *= 0x9e3779b97f4a7c15
		}
	}
	before := slices.Clone(wide.Arrivals[3].Blocks)
	for _, policy := range []string{"kvatlas", "llm-d", "sglang-cache-aware"} {
		a, err := Run(Config{Policy: policy, Seed: 1}, trace)
		require.NoError(t, err)
		b, err := Run(Config{Policy: policy, Seed: 1}, wide)
		require.NoError(t, err)
		require.Equal(t, a, b, policy)
	}
	require.Equal(t, before, wide.Arrivals[3].Blocks, "the trace belongs to the caller")
}

func TestTraceFiles(t *testing.T) {
	const mooncake = `{"timestamp": 0, "input_length": 1300, "output_length": 0, "hash_ids": [0, 1, 2]}

{"timestamp": 1500, "input_length": 512, "output_length": 490, "hash_ids": [0], "session": "s"}`
	tr, err := ReadTrace(strings.NewReader(mooncake), 512, 0)
	require.NoError(t, err)
	require.Equal(t, []Arrival{
		{At: 0, Tokens: 1300, Output: 1, Blocks: []uint64{0, 1}, Session: "block-1"},
		{At: 1.5, Tokens: 512, Output: 490, Blocks: []uint64{0}, Session: "s"}}, tr.Arrivals)
	var out bytes.Buffer
	require.NoError(t, WriteTrace(&out, tr))
	again, err := ReadTrace(&out, 512, 0)
	require.NoError(t, err)
	require.Equal(t, tr, again)
	first, err := ReadTrace(strings.NewReader(mooncake), 512, 1)
	require.NoError(t, err)
	require.Len(t, first.Arrivals, 1)
	for in, text := range map[string]string{"": "needs requests", "{": "line 1", `{"input_length":0}`: "line 1: input_length is 0",
		`{"timestamp":5000,"input_length":1}` + "\n" + `{"timestamp":1,"input_length":1}`: "before the one"} {
		_, err := ReadTrace(strings.NewReader(in), 512, 0)
		require.ErrorContains(t, err, text)
	}
	_, err = ReadTrace(strings.NewReader(mooncake), 0, 0)
	require.ErrorContains(t, err, "block size is 0")
}

func TestScenarios(t *testing.T) {
	for _, s := range Scenarios() {
		tr := s.Make(1)
		require.NoError(t, tr.validate(), s.Name)
		require.Equal(t, tr, s.Make(1))
		require.NotEqual(t, tr, s.Make(2))
		found, err := FindScenario(s.Name)
		require.NoError(t, err)
		require.Equal(t, s.Name, found.Name)
	}
	_, err := FindScenario("none")
	require.ErrorContains(t, err, "hotspot")
}

func FuzzReadTrace(f *testing.F) {
	f.Add([]byte(`{"timestamp": 0, "input_length": 1300, "output_length": 1, "hash_ids": [0, 1, 2]}`))
	f.Add([]byte("{}\n{}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		tr, err := ReadTrace(bytes.NewReader(in), 512, 10)
		if err == nil && tr.validate() != nil {
			t.Fatal("an invalid trace was read")
		}
	})
}

// TestSharedBlocksNeedNoRoom: the cache has room for one prompt of four blocks and
// two answers of one block each, so two requests with the same prompt run at once.
func TestSharedBlocksNeedNoRoom(t *testing.T) {
	e := Engine{FlopsPerToken: 1, Flops: 1000, WeightBytes: 1, KVBytes: 1, Bandwidth: 1e9, BatchTokens: 1000, MaxRequests: 4, KVTokens: 600}
	trace := &Trace{BlockSize: 100, Arrivals: []Arrival{
		{At: 0, Tokens: 401, Output: 90, Blocks: []uint64{1, 2, 3, 4}},
		{At: 0.1, Tokens: 401, Output: 90, Blocks: []uint64{1, 2, 3, 4}},
	}}
	r, err := Run(Config{Policy: "random", Workers: 1, Engine: e, Noise: -1, RTT: 1e-9}, trace)
	require.NoError(t, err)
	require.InDelta(t, 0.401-0.1+0.002, r.TTFT50, 1e-6, "the second waits for the prompt of the first, not for its answer")
	require.Equal(t, 402, r.PrefillTokens)
}
