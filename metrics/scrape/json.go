package scrape

import (
	"encoding/json"
	"fmt"

	"github.com/kvatlas/kvatlas/scoring"
)

// iteration is what TensorRT-LLM tells of one step in the JSON at /metrics of
// trtllm-serve: a list of the steps since it was last asked for, none while the
// engine is idle. What is absent is nil.
type iteration struct {
	Active *float64 `json:"numActiveRequests"`
	Queued *float64 `json:"numQueuedRequests"`
	Cache  struct {
		HitRate   *float64 `json:"cacheHitRate"`
		BlockSize float64  `json:"tokensPerBlock"`
		Max       float64  `json:"maxNumBlocks"`
		Used      *float64 `json:"usedNumBlocks"`
	} `json:"kvCacheStats"`
}

// json reads such a list, of which the last step counts.
func (p *Page) json(page []byte) error {
	var steps []json.RawMessage
	if err := json.Unmarshal(page, &steps); err != nil {
		return fmt.Errorf("scrape: page of JSON: %w", err)
	}
	if len(steps) == 0 {
		return ErrNoMetrics
	}
	var s iteration
	if err := json.Unmarshal(steps[len(steps)-1], &s); err != nil {
		return fmt.Errorf("scrape: page of JSON: %w", err)
	}
	var r Rank
	known := false
	set := func(f field, v *float64) {
		switch {
		case v == nil:
		case !possible(f, *v):
			p.Unreadable++
		default:
			*r.gauge(f), known = scoring.Known(*v), true
		}
	}
	set(running, s.Active)
	set(waiting, s.Queued)
	set(hitRate, s.Cache.HitRate)
	if s.Cache.Used != nil && s.Cache.Max > 0 {
		used := *s.Cache.Used / s.Cache.Max
		set(usage, &used)
	}
	r.BlockSize, r.Blocks = whole(max(s.Cache.BlockSize, 0)), whole(max(s.Cache.Max, 0))
	if known {
		p.Ranks = append(p.Ranks, r)
	}
	return p.nothing()
}
