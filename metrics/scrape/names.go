package scrape

import (
	"strings"

	"github.com/kvatlas/kvatlas/scoring"
)

// field is something that is read from a page.
type field uint8

const (
	running field = iota
	waiting
	usage
	queries
	hits
	externalQueries
	externalHits
	preemptions
	hitRate
	blockSize
	blocks
	cacheConfig    // told by labels
	loraInfo       // told by labels
	tritonRequests // which one is told by a label
	tritonBlocks   // which one is told by a label
	numFields
)

// names are the metrics by which engines tell a field. An engine that renamed one
// may send both (vLLM with --show-hidden-metrics-for-version): the first on a page
// counts.
//
//   - vLLM: vllm/v1/metrics/loggers.py; kv_cache_usage_perc was
//     gpu_cache_usage_perc before 0.10, prefix_cache_* had gpu_ in front.
//   - SGLang: sglang/srt/observability/metrics_collector.py of 0.5.23.
//   - TensorRT-LLM: tensorrt_llm/metrics/collector.py, at /prometheus/metrics of
//     trtllm-serve; before it had these, JSON at /metrics (see json.go). Under
//     Triton: the backend's custom metrics, from its documentation.
var names = []struct {
	name  string
	field field
}{
	{"vllm:num_requests_running", running},
	{"vllm:num_requests_waiting", waiting},
	{"vllm:kv_cache_usage_perc", usage},
	{"vllm:gpu_cache_usage_perc", usage},
	{"vllm:prefix_cache_queries_total", queries},
	{"vllm:prefix_cache_hits_total", hits},
	{"vllm:gpu_prefix_cache_queries_total", queries},
	{"vllm:gpu_prefix_cache_hits_total", hits},
	{"vllm:external_prefix_cache_queries_total", externalQueries},
	{"vllm:external_prefix_cache_hits_total", externalHits},
	{"vllm:num_preemptions_total", preemptions},
	{"vllm:cache_config_info", cacheConfig},
	{"vllm:lora_requests_info", loraInfo},

	{"sglang:num_running_reqs", running},
	{"sglang:num_queue_reqs", waiting},
	{"sglang:token_usage", usage},
	{"sglang:cache_hit_rate", hitRate},
	{"sglang:num_retracted_requests_total", preemptions},

	{"trtllm_num_requests_running", running},
	{"trtllm_num_requests_waiting", waiting},
	{"trtllm_kv_cache_utilization", usage},
	{"trtllm_kv_cache_hit_rate", hitRate},
	{"trtllm_kv_cache_tokens_per_block", blockSize},
	{"trtllm_kv_cache_max_blocks", blocks},

	{"nv_trt_llm_request_metrics", tritonRequests},
	{"nv_trt_llm_kv_cache_block_metrics", tritonBlocks},
}

// prefixes begin all names, of which no two begin with the same letter. Some
// formats (OpenMetrics of prometheus_client) write an underscore for the colon.
var prefixes = [...]string{"vllm:", "sglang:", "trtllm_", "nv_trt_llm_"}

// suffix is what follows the prefix in one of names.
type suffix struct {
	text string
	at   uint8
}

// suffixes are the names' by prefix and first byte.
var suffixes = func() (all [len(prefixes)][256][]suffix) {
	for i, n := range names {
		for p, prefix := range prefixes {
			if text, ok := strings.CutPrefix(n.name, prefix); ok {
				all[p][text[0]] = append(all[p][text[0]], suffix{text, uint8(i)})
			}
		}
	}
	return all
}()

// nameSet is a set of places in names.
type nameSet uint32

func (s nameSet) has(all nameSet) bool { return s&all == all }

// Counter is a count that only grows until its engine restarts. The zero value is
// unknown.
type Counter = scoring.Gauge

// Rank is what one data-parallel rank of an engine says of itself.
type Rank struct {
	// Rank is the value of the label that tells ranks apart; 0 without one.
	Rank int
	// Load is Running, Waiting and KVUsage, a fraction from 0 to 1.
	Load scoring.Load
	// Queries and Hits are tokens looked up in, and found in, the prefix cache;
	// the external ones beyond it, in an offload connector.
	Queries, Hits, ExternalQueries, ExternalHits Counter
	// HitRate is the engine's own, 0 to 1, where it gives one (SGLang,
	// TensorRT-LLM).
	HitRate scoring.Gauge
	// Preemptions are requests that lost their blocks to others.
	Preemptions Counter
	// BlockSize and Blocks are the configured cache (not SGLang); 0 is unknown.
	BlockSize, Blocks int
	// MaxLoRA is how many adapters run at once (vLLM); 0 is unknown.
	MaxLoRA int
}

func (r *Rank) gauge(f field) *scoring.Gauge {
	switch f {
	case running:
		return &r.Load.Running
	case waiting:
		return &r.Load.Waiting
	case usage:
		return &r.Load.KVUsage
	case queries:
		return &r.Queries
	case hits:
		return &r.Hits
	case externalQueries:
		return &r.ExternalQueries
	case externalHits:
		return &r.ExternalHits
	case preemptions:
		return &r.Preemptions
	case hitRate:
		return &r.HitRate
	}
	return nil
}
