package scoring

import "math"

// SGLang is the cache-aware policy of the SGLang router over requests in flight:
//
//   - imbalanced (max-min > AbsThreshold and max > RelThreshold·min): the
//     shortest queue;
//   - else, if the best match rate is above CacheThreshold: the best match, ties
//     by load;
//   - else the least loaded, or in older releases the worker with the smallest
//     text tree.
//
// Remaining ties at random. Match with a [TextTree] for its text mode: a block is
// then one character. Source: sgl-router src/policies/cache_aware.rs and its
// command line, September 2026.
type SGLang struct {
	// Thresholds; 0 means the command line's 64, 1.5 and 0.3. The library's
	// defaults are 32, 1.1 and 0.5.
	AbsThreshold, RelThreshold, CacheThreshold float64
	// SmallestTree is the older third stage, by [Load.CacheSize].
	SmallestTree bool
	Random       Random
}

// Policy returns the policy.
func (o SGLang) Policy() (*Policy, error) {
	if err := checks("AbsThreshold", o.AbsThreshold, "RelThreshold", o.RelThreshold, "CacheThreshold", o.CacheThreshold); err != nil {
		return nil, err
	}
	abs, rel, cache := orDefault(o.AbsThreshold, 64), orDefault(o.RelThreshold, 1.5), orDefault(o.CacheThreshold, 0.3)
	return scorePolicy("sglang-cache-aware", &staged{"cache-aware", func(req *Request, cs []*Candidate, dst []float64) string {
		low, high := fill(Requests, cs, dst)
		if high-low > abs && high > rel*low {
			negate(dst)
			return "imbalanced: shortest queue"
		}
		if bestRate(req, cs) > cache {
			byMatchThenLoad(cs, dst)
			return "best match"
		}
		if o.SmallestTree {
			fill(CacheSize, cs, dst)
			negate(dst)
			return "short match: smallest tree"
		}
		negate(dst)
		return "short match: least loaded"
	}}, nil, o.Random)
}

func bestRate(req *Request, cs []*Candidate) (best float64) {
	for _, c := range cs {
		best = max(best, matchRate(req, c))
	}
	return best
}

// byMatchThenLoad turns loads in dst into scores that order by matched blocks
// and then by load.
func byMatchThenLoad(cs []*Candidate, dst []float64) {
	for i, c := range cs {
		dst[i] = float64(c.Match.Total()) + tie(dst[i])
	}
}

// AIBrix is AIBrix's prefix-cache policy over running requests:
//
//   - if the highest load exceeds the lowest by more than Imbalance: one of the
//     least loaded;
//   - else by match in whole percent, then by load: the first whose load is at
//     most mean + Sigmas·σ of all candidates (σ of the population);
//   - if there is none with a match: the least loaded.
//
// Ties at random. The load is [Load.Requests], as AIBrix's gateway counts it.
// Source: AIBrix pkg/plugins/gateway/algorithms/prefix_cache.go, September 2026.
type AIBrix struct {
	// Imbalance and Sigmas; 0 means 8 and 1.
	Imbalance, Sigmas float64
	Random            Random
}

// Policy returns the policy.
func (o AIBrix) Policy() (*Policy, error) {
	if err := checks("Imbalance", o.Imbalance, "Sigmas", o.Sigmas); err != nil {
		return nil, err
	}
	imbalance, sigmas := orDefault(o.Imbalance, 8), orDefault(o.Sigmas, 1)
	return scorePolicy("aibrix-prefix-cache", &staged{"prefix-cache", func(req *Request, cs []*Candidate, dst []float64) string {
		low, high := fill(Requests, cs, dst)
		if high-low > imbalance {
			negate(dst)
			return "imbalanced: least loaded"
		}
		sum, squares := 0.0, 0.0
		for _, v := range dst {
			sum += v
		}
		mean := sum / float64(len(dst))
		for _, v := range dst {
			squares += (v - mean) * (v - mean)
		}
		limit := mean + sigmas*math.Sqrt(squares/float64(len(dst)))
		reason := "no match below the limit: least loaded"
		for i, c := range cs {
			percent := math.Floor(100 * matchRate(req, c))
			if percent == 0 || dst[i] > limit {
				dst[i] = -1 - dst[i]
				continue
			}
			dst[i] = percent + tie(dst[i])
			reason = "best match below the limit"
		}
		return reason
	}}, nil, o.Random)
}

// RayPrefix is Ray Serve's prefix cache affinity over requests in flight:
// imbalanced (max-min > Imbalance), the better of two workers drawn at random;
// else the best match if its rate is at least MinRate; else the worker with the
// smallest tree ([Load.CacheSize]). Ties at random. Source: Ray
// python/ray/llm/_internal/serve/request_router/prefix_aware, September 2026.
type RayPrefix struct {
	// Imbalance is off (infinite) where 0; MinRate is 0.1 where 0.
	Imbalance, MinRate float64
	Random             Random
}

// Policy returns the policy.
func (o RayPrefix) Policy() (*Policy, error) {
	if err := checks("Imbalance", o.Imbalance, "MinRate", o.MinRate); err != nil {
		return nil, err
	}
	limit, rate := o.Imbalance, orDefault(o.MinRate, 0.1)
	if limit == 0 {
		limit = math.Inf(1)
	}
	return scorePolicy("ray-prefix-affinity", &staged{"prefix-affinity", func(req *Request, cs []*Candidate, dst []float64) string {
		low, high := fill(Requests, cs, dst)
		if high-low > limit {
			negate(dst)
			return "imbalanced: power of two"
		}
		if bestRate(req, cs) >= rate {
			for i, c := range cs {
				dst[i] = float64(c.Match.Total())
			}
			return "best match"
		}
		fill(CacheSize, cs, dst)
		negate(dst)
		return "short match: smallest tree"
	}}, rayPicker{limit}, o.Random)
}

// rayPicker is power of two where the loads are imbalanced, else argmax.
type rayPicker struct{ limit float64 }

func (p rayPicker) Pick(cs []*Candidate, totals []float64, random Random) int {
	low, high := math.Inf(1), math.Inf(-1)
	for _, c := range cs {
		if g := c.Load.Requests; g.Known {
			low, high = min(low, g.Value), max(high, g.Value)
		}
	}
	if high-low > p.limit {
		return PowerOfK{K: 2}.Pick(cs, totals, random)
	}
	return Argmax{}.Pick(cs, totals, random)
}
