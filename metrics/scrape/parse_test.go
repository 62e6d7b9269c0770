package scrape

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	dto "github.com/prometheus/client_model/go"

	"github.com/kvatlas/kvatlas/scoring"
)

const golden = "../../testdata/"

// pages are the recorded pages of real engines, by file name.
func pages(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(golden + "vllm/server/*/*metrics*.txt.gz")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 14, "recorded pages are in the repository's testdata")
	own, err := filepath.Glob("testdata/*.txt.gz")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(own), 3)
	all := map[string][]byte{}
	for _, name := range append(files, own...) {
		name = strings.TrimPrefix(filepath.ToSlash(name), golden)
		all[name] = recorded(t, name)
	}
	return all
}

// recorded reads one of them.
func recorded(t testing.TB, name string) []byte {
	t.Helper()
	if !strings.HasPrefix(name, "testdata/") {
		name = golden + name
	}
	f, err := os.Open(filepath.FromSlash(name))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	page, err := io.ReadAll(z)
	require.NoError(t, err)
	return page
}

// reference reads a page by the Prometheus project's own parser.
func reference(t testing.TB, page []byte) ([]Rank, bool) {
	t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return nil, false
	}
	ranks := map[int]*Rank{}
	var order []int
	for _, n := range names {
		family, ok := families[n.name]
		if !ok {
			continue
		}
		sglang := strings.HasPrefix(n.name, "sglang")
		for _, m := range family.Metric {
			at, labels := 0, map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			for _, l := range []string{"engine", "dp_rank"} {
				if v, ok := labels[l]; ok {
					at, err = strconv.Atoi(v)
					require.NoError(t, err)
				}
			}
			if sglang && labels["priority"] != "" {
				continue
			}
			f := n.field
			switch {
			case f == tritonRequests && labels["request_type"] == "scheduled":
				f = running
			case f == tritonRequests && labels["request_type"] == "waiting":
				f = waiting
			case f == tritonBlocks && labels["kv_cache_block_type"] == "fraction":
				f = usage
			case f == tritonBlocks && labels["kv_cache_block_type"] == "tokens_per":
				f = blockSize
			case f == tritonBlocks && labels["kv_cache_block_type"] == "max":
				f = blocks
			case f == tritonRequests || f == tritonBlocks:
				continue
			}
			if ranks[at] == nil {
				ranks[at] = &Rank{Rank: at}
				order = append(order, at)
			}
			r := ranks[at]
			number := func(name string) int { n, _ := strconv.Atoi(labels[name]); return n }
			switch g := r.gauge(f); {
			case f == cacheConfig:
				r.BlockSize, r.Blocks = number("block_size"), number("num_gpu_blocks")
			case f == loraInfo:
				r.MaxLoRA = number("max_lora")
			case f == blockSize:
				r.BlockSize = max(r.BlockSize, whole(value(m)))
			case f == blocks:
				r.Blocks = max(r.Blocks, whole(value(m)))
			case (f == usage || f == hitRate || sglang) && g.Known:
				g.Value = max(g.Value, value(m))
			default:
				*g = scoring.Known(g.Value + value(m))
			}
		}
	}
	var all []Rank
	for _, at := range order {
		all = append(all, *ranks[at])
	}
	return all, true
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return m.Untyped.GetValue()
}

func TestRecordedPages(t *testing.T) {
	for name, page := range pages(t) {
		want, ok := reference(t, page)
		require.True(t, ok, name)
		var p Page
		if strings.Contains(name, "renderer") {
			require.ErrorIs(t, Parse(&p, page), ErrNoMetrics, "a renderer has no cache")
			require.Empty(t, want)
			continue
		}
		require.NoError(t, Parse(&p, page), name)
		require.ElementsMatch(t, want, p.Ranks, name)
		require.Zero(t, p.Unreadable)
		r := p.Ranks[0]
		require.True(t, r.Load.Running.Known && r.Load.Waiting.Known && r.Load.KVUsage.Known && r.Preemptions.Known, name)
		if strings.Contains(name, "sglang") {
			require.Len(t, p.Ranks, 2)
			continue
		}
		require.Equal(t, 32, r.BlockSize, name)
		require.True(t, r.Queries.Known, name)
		require.False(t, r.HitRate.Known, "vLLM has none: unknown, not 0")
		if strings.Contains(name, "dp2") {
			require.Len(t, p.Ranks, 2)
		}
	}
}

func TestForms(t *testing.T) {
	for what, c := range map[string]struct {
		page string
		want Rank
		bad  int
	}{
		"old names": {"vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.25\nvllm:num_requests_running 3\n",
			Rank{Load: scoring.Load{KVUsage: scoring.Known(0.25), Running: scoring.Known(3)}}, 0},
		"two models": {"vllm:num_requests_running{model_name=\"a\"} 1\nvllm:num_requests_running{model_name=\"b\"} 2\nvllm:kv_cache_usage_perc{model_name=\"a\"} 0.5\nvllm:kv_cache_usage_perc{model_name=\"b\"} 0.25\n",
			Rank{Load: scoring.Load{Running: scoring.Known(3), KVUsage: scoring.Known(0.5)}}, 0},
		"SGLang": {"sglang:num_running_reqs{model_name=\"m\",dp_rank=\"1\"} 4.0\nsglang:num_queue_reqs{dp_rank=\"1\"} 2\nsglang:token_usage{dp_rank=\"1\"} 0.5\nsglang:cache_hit_rate{dp_rank=\"1\"} 0.75\n",
			Rank{Rank: 1, Load: scoring.Load{Running: scoring.Known(4), Waiting: scoring.Known(2), KVUsage: scoring.Known(0.5)}, HitRate: scoring.Known(0.75)}, 0},
		"both names at once": {"vllm:kv_cache_usage_perc 0.25\nvllm:gpu_cache_usage_perc 0.5\nvllm:gpu_prefix_cache_queries_total 7\nvllm:prefix_cache_queries_total 7\n",
			Rank{Load: scoring.Load{KVUsage: scoring.Known(0.25)}, Queries: scoring.Known(7)}, 0},
		"SGLang with priorities": {"sglang:num_queue_reqs{priority=\"\"} 5\nsglang:num_queue_reqs{priority=\"1\"} 2\nsglang:num_queue_reqs{priority=\"None\"} 3\n",
			Rank{Load: scoring.Load{Waiting: scoring.Known(5)}}, 0},
		"SGLang, all schedulers": {"sglang:num_running_reqs{tp_rank=\"0\",pp_rank=\"0\"} 4\nsglang:num_running_reqs{tp_rank=\"1\",pp_rank=\"0\"} 4\nsglang:num_running_reqs{tp_rank=\"0\",pp_rank=\"1\"} 3\nsglang:num_retracted_requests_total 2\n",
			Rank{Load: scoring.Load{Running: scoring.Known(4)}, Preemptions: scoring.Known(2)}, 0},
		"TensorRT-LLM": {"trtllm_num_requests_running 2\ntrtllm_num_requests_waiting{model_name=\"m\"} 1\ntrtllm_kv_cache_utilization{engine_type=\"trtllm\"} 0.1\ntrtllm_kv_cache_hit_rate 0.5\n" +
			"trtllm_kv_cache_tokens_per_block 32.0\ntrtllm_kv_cache_max_blocks 1e5\n",
			Rank{Load: scoring.Load{Running: scoring.Known(2), Waiting: scoring.Known(1), KVUsage: scoring.Known(0.1)}, HitRate: scoring.Known(0.5), BlockSize: 32, Blocks: 100_000}, 0},
		"TensorRT-LLM under Triton": {"nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"scheduled\",version=\"1\"} 3\nnv_trt_llm_request_metrics{request_type=\"waiting\"} 2\n" +
			"nv_trt_llm_request_metrics{request_type=\"max\"} 512\nnv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.25\nnv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\"} 9\n" +
			"nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"} 64\nnv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 6239\n",
			Rank{Load: scoring.Load{Running: scoring.Known(3), Waiting: scoring.Known(2), KVUsage: scoring.Known(0.25)}, BlockSize: 64, Blocks: 6239}, 0},
		"TensorRT-LLM's JSON": {`[{"iter":1,"numActiveRequests":9},{"iter":2,"numActiveRequests":5,"numQueuedRequests":3,"kvCacheStats":{"cacheHitRate":0.5,"maxNumBlocks":1000,"usedNumBlocks":250,"tokensPerBlock":32}}]`,
			Rank{Load: scoring.Load{Running: scoring.Known(5), Waiting: scoring.Known(3), KVUsage: scoring.Known(0.25)}, HitRate: scoring.Known(0.5), BlockSize: 32, Blocks: 1000}, 0},
		"JSON without a cache": {`[{"numActiveRequests":0,"numQueuedRequests":-1}]`, Rank{Load: scoring.Load{Running: scoring.Known(0)}}, 1},
		"underscores for colons": {"# TYPE vllm_prefix_cache_hits counter\nvllm_prefix_cache_hits_total{engine=\"0\"} 7.0\nvllm_num_requests_running{engine=\"0\"} 1.0\n# EOF\n",
			Rank{Hits: scoring.Known(7), Load: scoring.Load{Running: scoring.Known(1)}}, 0},
		"white space in front": {"  \tvllm:num_requests_running\t 3 \n", Rank{Load: scoring.Load{Running: scoring.Known(3)}}, 0},
		"OpenMetrics": {"# TYPE vllm:num_preemptions counter\nvllm:num_preemptions_total{engine=\"0\"} 7.0 1795978055.75 # {trace_id=\"x\"} 1.0\nvllm:num_requests_waiting{engine=\"0\"} 1\r\n# EOF\n",
			Rank{Preemptions: scoring.Known(7), Load: scoring.Load{Waiting: scoring.Known(1)}}, 0},
		"braces and quotes in labels": {"vllm:num_requests_running{model_name=\"a\\\"b}c,d=\\\\\",engine=\"2\", } 5\n", Rank{Rank: 2, Load: scoring.Load{Running: scoring.Known(5)}}, 0},
		"no blocks yet":               {"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1\n", Rank{BlockSize: 16}, 0},
		"bad lines cost themselves": {"vllm:num_requests_running{engine=\"x\"} 1\nvllm:num_requests_running NaN\nvllm:num_requests_running -1\nvllm:num_requests_running{engine=\"0\n" +
			"vllm:num_requests_running\nvllm:num_requests_running abc\nvllm:num_requests_waiting 2", Rank{Load: scoring.Load{Waiting: scoring.Known(2)}}, 5},
		"fractions": {"vllm:kv_cache_usage_perc 1.0000001\nvllm:kv_cache_usage_perc{engine=\"1\"} 50\nvllm:num_requests_running 50\nvllm:kv_cache_usage_perc -0.1\nvllm:kv_cache_usage_perc NaN\n" +
			"sglang:token_usage +Inf\nsglang:cache_hit_rate 1.5\ntrtllm_kv_cache_hit_rate 1\nvllm:kv_cache_usage_perc 1\n",
			Rank{Load: scoring.Load{Running: scoring.Known(50), KVUsage: scoring.Known(1)}, HitRate: scoring.Known(1)}, 6},
		"fractions in JSON": {`[{"numActiveRequests":5,"kvCacheStats":{"cacheHitRate":1.5,"maxNumBlocks":1000,"usedNumBlocks":1001}}]`,
			Rank{Load: scoring.Load{Running: scoring.Known(5)}, Blocks: 1000}, 2},
	} {
		var p Page
		require.NoError(t, Parse(&p, []byte(c.page)), what)
		require.Equal(t, []Rank{c.want}, p.Ranks, what)
		require.Equal(t, c.bad, p.Unreadable, what)
	}
	var p Page
	require.ErrorIs(t, Parse(&p, nil), ErrNoMetrics)
	require.ErrorIs(t, Parse(&p, []byte("up 1\n")), ErrNoMetrics)
	require.ErrorIs(t, Parse(&p, []byte("[]")), ErrNoMetrics, "an idle engine says nothing")
	require.ErrorIs(t, Parse(&p, []byte("[{}]")), ErrNoMetrics)
	require.ErrorContains(t, Parse(&p, []byte("[1]")), "JSON")
	require.ErrorContains(t, Parse(&p, []byte("[")), "JSON")
	require.ErrorContains(t, Parse(&p, make([]byte, MaxPage+1)), "at most")
}

// TestUnreadable: a page that says nothing readable of what is wanted is told from one that
// says nothing of it.
func TestUnreadable(t *testing.T) {
	for _, page := range []string{"vllm:num_requests_running x\n", "vllm:kv_cache_usage_perc 1.01\n", `[{"numActiveRequests":-1}]`} {
		var p Page
		require.Equal(t, error(ErrUnreadable), Parse(&p, []byte(page)), page)
		require.Equal(t, 1, p.Unreadable, page)
		require.ErrorIs(t, Parse(&p, []byte("up 1\n")), ErrNoMetrics)
		require.Zero(t, p.Unreadable)
	}
	require.Equal(t, error(ErrNil), Parse(nil, []byte("vllm:num_requests_running 1\n")))
	require.Equal(t, error(ErrNil), Parse(nil, nil))
}

func TestManyRanks(t *testing.T) {
	var b strings.Builder
	for i := range MaxRanks + 10 {
		b.WriteString("vllm:num_requests_running{engine=\"" + strconv.Itoa(i) + "\"} 1\n")
	}
	var p Page
	require.NoError(t, Parse(&p, []byte(b.String())))
	require.Len(t, p.Ranks, MaxRanks)
	require.Equal(t, 10, p.Unreadable)
}

func TestNoAllocs(t *testing.T) {
	page := recorded(t, "vllm/server/0.32.0/metrics-dp2.txt.gz")
	var p Page
	require.NoError(t, Parse(&p, page))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = Parse(&p, page) }))
}

// FuzzParse: nothing panics, nothing is read that is not a number, and a page
// that the Prometheus project's parser reads gives the same values.
func FuzzParse(f *testing.F) {
	for page := range maps.Values(pages(f)) {
		f.Add(page[:min(len(page), 4000)])
	}
	f.Add([]byte("sglang:num_running_reqs{dp_rank=\"1\"} 4.0\n"))
	f.Add([]byte("sglang:num_queue_reqs{priority=\"\",tp_rank=\"1\"} 4.0\nsglang:num_queue_reqs{priority=\"1\"} 2\n"))
	f.Add([]byte("nv_trt_llm_request_metrics{request_type=\"waiting\"} 2\nnv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 7\ntrtllm_kv_cache_tokens_per_block 32"))
	f.Add([]byte(`[{"numActiveRequests":5,"kvCacheStats":{"maxNumBlocks":1000,"usedNumBlocks":250}}]`))
	f.Add([]byte("vllm:num_requests_running{a=\"\\\\\",engine=\"1\"} 0x1p4 12\nvllm:kv_cache_usage_perc 1e-3"))
	f.Fuzz(func(t *testing.T, page []byte) {
		var p Page
		err := Parse(&p, page)
		require.Equal(t, err == nil, len(p.Ranks) > 0)
		for i := range p.Ranks {
			for _, f := range []field{running, waiting, usage, queries, hits, externalQueries, externalHits, preemptions, hitRate} {
				v := p.Ranks[i].gauge(f).Value
				require.False(t, math.IsNaN(v) || v < 0)
				require.False(t, (f == usage || f == hitRate) && v > 1)
			}
		}
		if want, ok := comparable(t, page); ok && p.Unreadable == 0 {
			require.ElementsMatch(t, want, p.Ranks)
		}
	})
}

// comparable is the reference's answer to pages without values that Parse leaves
// out on purpose.
func comparable(t *testing.T, page []byte) (ranks []Rank, ok bool) {
	defer func() { // a rank that is no number fails the reference
		if recover() != nil {
			ok = false
		}
	}()
	if bytes.HasPrefix(page, []byte("[")) {
		return nil, false
	}
	for _, odd := range []string{"vllm_", "sglang_", "gpu_cache", "gpu_prefix", "engine", "dp_rank", "block_size", "max_lora", "num_gpu_blocks", "TYPE", "Inf", "inf", "-"} {
		if bytes.Contains(page, []byte(odd)) {
			return nil, false
		}
	}
	return reference(t, page)
}

// TestSGLang: the page of SGLang's own collectors, of two data-parallel ranks with
// requests of two priorities, which the totals include.
func TestSGLang(t *testing.T) {
	var p Page
	require.NoError(t, Parse(&p, recorded(t, "testdata/sglang-0.5.23.txt.gz")))
	require.Equal(t, []Rank{
		{Load: scoring.Load{Running: scoring.Known(7), Waiting: scoring.Known(3), KVUsage: scoring.Known(.25)}, HitRate: scoring.Known(.5), Preemptions: scoring.Known(1)},
		{Rank: 1, Load: scoring.Load{Running: scoring.Known(8), Waiting: scoring.Known(3), KVUsage: scoring.Known(.375)}, HitRate: scoring.Known(.5), Preemptions: scoring.Known(2)},
	}, p.Ranks)
}

// TestSelectedIsWhole: what a real vLLM answered to a selection reads like its
// whole page of the same moment.
func TestSelectedIsWhole(t *testing.T) {
	var whole, selected Page
	require.NoError(t, Parse(&whole, recorded(t, "testdata/vllm-0.32.0-whole.txt.gz")))
	require.NoError(t, Parse(&selected, recorded(t, "testdata/vllm-0.32.0-selected.txt.gz")))
	require.Equal(t, whole.Ranks, selected.Ranks)
	require.Equal(t, whole.seen, selected.seen)
}

func BenchmarkParse(b *testing.B) {
	for name, file := range map[string]string{
		"vllm-whole": "vllm/server/0.32.0/metrics-after.txt.gz", "vllm-selected": "testdata/vllm-0.32.0-selected.txt.gz", "sglang-whole": "testdata/sglang-0.5.23.txt.gz",
	} {
		page := recorded(b, file)
		b.Run("ours/"+name, func(b *testing.B) {
			var p Page
			b.SetBytes(int64(len(page)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Parse(&p, page); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("prometheus/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(page)))
			b.ReportAllocs()
			for b.Loop() {
				p := expfmt.NewTextParser(model.UTF8Validation)
				if _, err := p.TextToMetricFamilies(bytes.NewReader(page)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
