package scoring

// Dynamo is the cost function of NVIDIA Dynamo's KV router, in blocks, the
// lowest wins, ties at random:
//
//	scale·max(0, (active_prefill + prompt)/block - credit)
//	  + (active_decode_blocks + request_blocks - blocks already active there)
//	  + r·active_requests
//
//	credit = c·decay·device + 0.75·host_beyond_device + 0.25·disk_beyond + m·shared_beyond
//	decay  = 1/(1 + d·pressure/request_blocks)
//	pressure = (active_prefill - the least among the candidates)/block
//
// active_prefill is [Load.PrefillTokens], active_decode_blocks
// [Load.DecodeBlocks], active_requests [Load.Requests]. The request must have
// Tokens and BlockSize. Source: dynamo lib/kv-router
// src/scheduling/selector/default.rs, September 2026.
type Dynamo struct {
	// OverlapCredit is c; 0 means 1. NoOverlap sets it to 0, as Dynamo's
	// decode routers do.
	OverlapCredit float64
	NoOverlap     bool
	// CreditDecay is d, RequestWeight r, SharedMultiplier m; all 0 by default.
	CreditDecay, RequestWeight, SharedMultiplier float64
	// PrefillScale is scale; 0 means 1.
	PrefillScale float64
	// HostWeight and DiskWeight are 0.75 and 0.25 where 0.
	HostWeight, DiskWeight float64
	// Temperature T > 0 draws with p ∝ exp(-cost/((max-min)·T)).
	Temperature float64
	// MaxKVUsage (0 to 1) and MaxPrefillTokens drop busy workers; 0 is off.
	MaxKVUsage, MaxPrefillTokens float64
	Random                       Random
}

// Policy returns the policy.
func (o Dynamo) Policy() (*Policy, error) {
	var filters []Filter
	if o.MaxKVUsage != 0 || o.MaxPrefillTokens != 0 {
		filters = append(filters, Busy{o.MaxKVUsage, o.MaxPrefillTokens})
	}
	return New(Options{Name: "dynamo", Filters: filters, Cost: o,
		Picker: Softmax{Temperature: o.Temperature, Normalize: true}, Random: o.Random})
}

// Name implements [Cost].
func (Dynamo) Name() string { return "dynamo" }

// Validate refuses options that are negative or not finite.
func (o Dynamo) Validate() error {
	return checks("OverlapCredit", o.OverlapCredit, "CreditDecay", o.CreditDecay, "RequestWeight", o.RequestWeight,
		"SharedMultiplier", o.SharedMultiplier, "PrefillScale", o.PrefillScale, "HostWeight", o.HostWeight,
		"DiskWeight", o.DiskWeight)
}

// Cost implements [Cost].
func (o Dynamo) Cost(req *Request, candidates []*Candidate, dst []float64) error {
	o.fill(req, candidates, dst, nil)
	return nil
}

// Explain implements [Explainer] with the prefill, decode and request parts.
func (o Dynamo) Explain(req *Request, candidates []*Candidate, term func(string, []float64)) string {
	var parts [3][]float64
	for i := range parts {
		parts[i] = make([]float64, len(candidates))
	}
	o.fill(req, candidates, make([]float64, len(candidates)), &parts)
	for i, name := range []string{"prefill", "decode", "requests"} {
		term(name, parts[i])
	}
	return ""
}

func (o Dynamo) fill(req *Request, candidates []*Candidate, dst []float64, parts *[3][]float64) {
	size := float64(max(1, req.BlockSize))
	prompt := float64(max(0, req.Tokens))
	blocks := float64((max(0, req.Tokens) + max(1, req.BlockSize) - 1) / max(1, req.BlockSize))
	credit := orDefault(o.OverlapCredit, 1)
	if o.NoOverlap {
		credit = 0
	}
	host, disk, scale := orDefault(o.HostWeight, 0.75), orDefault(o.DiskWeight, 0.25), orDefault(o.PrefillScale, 1)
	least, _ := fill(PrefillTokens, candidates, dst)
	decodeMean, requestsMean := mean(DecodeBlocks, candidates), mean(Requests, candidates)
	for i, c := range candidates {
		active, m := dst[i], &c.Match
		decay := 1.0
		if o.CreditDecay > 0 && blocks > 0 {
			decay = 1 / (1 + o.CreditDecay*(active-least)/size/blocks)
		}
		held := credit*decay*float64(m.Blocks[GPU]) + host*float64(m.Blocks[CPU]) +
			disk*float64(m.Blocks[Storage]) + o.SharedMultiplier*float64(m.Blocks[Remote])
		prefill := scale * max(0, (active+prompt)/size-held)
		decode := c.Load.DecodeBlocks.Or(decodeMean) + blocks - float64(m.Active)
		requests := o.RequestWeight * c.Load.Requests.Or(requestsMean)
		dst[i] = prefill + decode + requests
		if parts != nil {
			parts[0][i], parts[1][i], parts[2][i] = prefill, decode, requests
		}
	}
}

// mean returns the mean of the known values of a signal, 0 if none is known.
func mean(s Signal, candidates []*Candidate) float64 {
	sum, n := 0.0, 0
	for _, c := range candidates {
		if g := s.Of(&c.Load); g.Known {
			sum, n = sum+g.Value, n+1
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// Busy is a filter that drops workers above a limit; 0 is no limit. A worker
// whose load is unknown is not dropped.
type Busy struct {
	// MaxKVUsage is the used part of the KV cache, 0 to 1.
	MaxKVUsage float64
	// MaxPrefillTokens is the prompt tokens still to be computed.
	MaxPrefillTokens float64
}

// Name implements [Filter].
func (Busy) Name() string { return "busy" }

// Validate refuses limits that are negative or not finite.
func (b Busy) Validate() error {
	return checks("MaxKVUsage", b.MaxKVUsage, "MaxPrefillTokens", b.MaxPrefillTokens)
}

// Filter implements [Filter].
func (b Busy) Filter(_ *Request, candidates []*Candidate) []*Candidate {
	kept := candidates[:0]
	for _, c := range candidates {
		if b.MaxKVUsage > 0 && c.Load.KVUsage.Or(0) > b.MaxKVUsage ||
			b.MaxPrefillTokens > 0 && c.Load.PrefillTokens.Or(0) > b.MaxPrefillTokens {
			continue
		}
		kept = append(kept, c)
	}
	return kept
}

// DynamoTwoTier is Dynamo's rule of two tiers over active requests: if the spread
// of loads is above AbsThreshold and the highest above RelThreshold times the
// lowest, the least loaded; else, if the best match is more than MinOverlap of
// the prompt's blocks, the least loaded among those with the best match; else the
// least loaded. Ties at random. Source: a survey of routers, September 2026.
type DynamoTwoTier struct {
	// Thresholds; 0 means 32, 1.1 and 0.5.
	AbsThreshold, RelThreshold, MinOverlap float64
	Random                                 Random
}

// Policy returns the policy.
func (o DynamoTwoTier) Policy() (*Policy, error) {
	if err := checks("AbsThreshold", o.AbsThreshold, "RelThreshold", o.RelThreshold, "MinOverlap", o.MinOverlap); err != nil {
		return nil, err
	}
	abs, rel, overlap := orDefault(o.AbsThreshold, 32), orDefault(o.RelThreshold, 1.1), orDefault(o.MinOverlap, 0.5)
	return scorePolicy("dynamo-two-tier", &staged{"two-tier", func(req *Request, cs []*Candidate, dst []float64) string {
		low, high := fill(Requests, cs, dst)
		if high-low > abs && high > rel*low {
			negate(dst)
			return "imbalanced: least loaded"
		}
		best := bestMatch(cs)
		if blocks := req.blocks(); blocks > 0 && float64(best)/float64(blocks) > overlap {
			for i, c := range cs {
				dst[i] = tie(dst[i])
				if c.Match.Total() == best {
					dst[i]++
				}
			}
			return "overlap: least loaded of the best matches"
		}
		negate(dst)
		return "little overlap: least loaded"
	}}, nil, o.Random)
}
