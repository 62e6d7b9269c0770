package scoring

// ProductionSession is vLLM production-stack's session routing: a request with a
// [Request.Session] goes to its place on a consistent-hash ring, one without to
// the worker with the lowest rate of requests, ties at random.
//
// The ring has the same properties as theirs (uhashring), not the same places: a
// session may live on another worker after moving over. Source: production-stack
// vllm_router/routers/routing_logic.py, August 2026.
type ProductionSession struct {
	Ring   RingOptions
	Random Random
}

// Policy returns the policy.
func (o ProductionSession) Policy() (*Policy, error) {
	ring, err := NewRing(o.Ring)
	if err != nil {
		return nil, under("Ring", err)
	}
	return scorePolicy("production-stack-session", &staged{"session", func(req *Request, cs []*Candidate, dst []float64) string {
		return sessionOrQPS(ring, req, cs, dst)
	}}, nil, o.Random)
}

func sessionOrQPS(ring *Ring, req *Request, cs []*Candidate, dst []float64) string {
	if req.Session != "" {
		ring.fill(sessionKey(req.Session), cs, dst)
		return "session ring"
	}
	fill(QPS, cs, dst)
	negate(dst)
	return "no session: lowest QPS"
}

// ProductionKVAware is production-stack's routing by KV look-up: the worker with
// the longest match, unless that is nothing or shorter than
// max(tokens - Threshold, 0); then as [ProductionSession]. Their look-up names
// one worker; among several with the longest match ours takes one at random.
// Source: production-stack routing_logic.py, August 2026.
type ProductionKVAware struct {
	// Threshold in tokens; 0 means 2,000.
	Threshold float64
	Ring      RingOptions
	Random    Random
}

// Policy returns the policy.
func (o ProductionKVAware) Policy() (*Policy, error) {
	ring, err := NewRing(o.Ring)
	if err != nil {
		return nil, under("Ring", err)
	}
	if err := checks("Threshold", o.Threshold); err != nil {
		return nil, err
	}
	threshold := orDefault(o.Threshold, 2000)
	return scorePolicy("production-stack-kvaware", &staged{"kvaware", func(req *Request, cs []*Candidate, dst []float64) string {
		best := 0.0
		for i, c := range cs {
			dst[i] = matchedTokens(req, c)
			best = max(best, dst[i])
		}
		if best == 0 || best < max(promptTokens(req)-threshold, 0) {
			return "short match: " + sessionOrQPS(ring, req, cs, dst)
		}
		return "longest match"
	}}, nil, o.Random)
}

// ProductionLoadAware is production-stack's balance of cache and load:
//
//	matched/tokens - β·(load - mean)/max(1, mean)
//
// with [Load.Requests] as load; the highest wins, ties at random. β = 1 is the
// default, 0.25 favours the cache, 2 the balance. Source:
// a survey of routers, September 2026.
type ProductionLoadAware struct {
	// Beta is β; 0 means 1.
	Beta   float64
	Random Random
}

// Policy returns the policy.
func (o ProductionLoadAware) Policy() (*Policy, error) {
	if err := checks("Beta", o.Beta); err != nil {
		return nil, err
	}
	beta := orDefault(o.Beta, 1)
	return scorePolicy("production-stack-loadaware", &staged{"loadaware", func(req *Request, cs []*Candidate, dst []float64) string {
		fill(Requests, cs, dst)
		sum := 0.0
		for _, v := range dst {
			sum += v
		}
		mean := sum / float64(len(dst))
		for i, c := range cs {
			dst[i] = matchRate(req, c) - beta*(dst[i]-mean)/max(1, mean)
		}
		return ""
	}}, nil, o.Random)
}

// ProductionPrefixAware is production-stack's trie of prompt texts: the longest
// match wins, ties at random; shorter than MinMatch characters, the worker with
// the lowest rate of requests. Match with a [History] over [AppendTextKeys] of
// 128 characters, so that a block is 128 characters (the last may be shorter);
// theirs never forgets, so give it a large Capacity. With MinMatch 0 a prompt
// without any match goes to a random worker, as theirs does. Source:
// production-stack routing_logic.py and prefix/hashtrie.py, August 2026.
type ProductionPrefixAware struct {
	// MinMatch in characters; 0 by default.
	MinMatch float64
	Random   Random
}

// Policy returns the policy.
func (o ProductionPrefixAware) Policy() (*Policy, error) {
	if err := checks("MinMatch", o.MinMatch); err != nil {
		return nil, err
	}
	return scorePolicy("production-stack-prefixaware", &staged{"prefixaware", func(req *Request, cs []*Candidate, dst []float64) string {
		best := bestMatch(cs)
		if float64(best)*productionChunk < o.MinMatch {
			fill(QPS, cs, dst)
			negate(dst)
			return "short match: lowest QPS"
		}
		for i, c := range cs {
			dst[i] = float64(c.Match.Total())
		}
		return "longest match"
	}}, nil, o.Random)
}

const productionChunk = 128
