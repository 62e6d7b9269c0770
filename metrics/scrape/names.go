package scrape

import "github.com/kvatlas/kvatlas/scoring"

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
	cacheConfig
	loraInfo
	numFields
)

// names are the metrics by which engines tell a field. Where an engine has two
// names (it renamed one), both are here; no release has sent both.
//
//   - vLLM: vllm/v1/metrics/loggers.py; kv_cache_usage_perc was
//     gpu_cache_usage_perc before 0.10, prefix_cache_* had gpu_ in front.
//   - SGLang: sglang/srt/metrics/collector.py.
//   - TensorRT-LLM: tensorrt_llm/metrics/collector.py (from its documentation, not
//     recorded).
var names = map[string]field{
	"vllm:num_requests_running":                running,
	"vllm:num_requests_waiting":                waiting,
	"vllm:kv_cache_usage_perc":                 usage,
	"vllm:gpu_cache_usage_perc":                usage,
	"vllm:prefix_cache_queries_total":          queries,
	"vllm:prefix_cache_hits_total":             hits,
	"vllm:gpu_prefix_cache_queries_total":      queries,
	"vllm:gpu_prefix_cache_hits_total":         hits,
	"vllm:external_prefix_cache_queries_total": externalQueries,
	"vllm:external_prefix_cache_hits_total":    externalHits,
	"vllm:num_preemptions_total":               preemptions,
	"vllm:cache_config_info":                   cacheConfig,
	"vllm:lora_requests_info":                  loraInfo,

	"sglang:num_running_reqs": running,
	"sglang:num_queue_reqs":   waiting,
	"sglang:token_usage":      usage,
	"sglang:cache_hit_rate":   hitRate,

	"trtllm_num_requests_running": running,
	"trtllm_num_requests_waiting": waiting,
	"trtllm_kv_cache_utilization": usage,
	"trtllm_kv_cache_hit_rate":    hitRate,
}

// rankLabels name the data-parallel rank a sample belongs to.
var rankLabels = [...]string{"engine", "dp_rank"}

// Counter is a count that only grows until its engine restarts. The zero value is
// unknown.
type Counter = scoring.Gauge

// Rank is what one data-parallel rank of an engine says of itself.
type Rank struct {
	// Rank is the value of the label that tells ranks apart; 0 without one.
	Rank int
	// Load is Running, Waiting and KVUsage.
	Load scoring.Load
	// Queries and Hits are tokens looked up in, and found in, the prefix cache;
	// the external ones beyond it, in an offload connector.
	Queries, Hits, ExternalQueries, ExternalHits Counter
	// HitRate is the engine's own, 0 to 1, where it gives one (SGLang).
	HitRate scoring.Gauge
	// Preemptions are requests that lost their blocks to others.
	Preemptions Counter
	// BlockSize and Blocks are the configured cache (vLLM); 0 is unknown.
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
