package scoring

import "slices"

// PrefixLoad returns the composition of a first policy: 3 times the held part
// of the prompt plus 2 times how idle the worker is by its requests in flight,
// the two balanced as llm-d balances prefix and queue. Ties are broken at random.
//
// It needs only a match and the router's own count of requests; where that is
// unknown for all, the match alone decides.
func PrefixLoad() Options {
	return Options{
		Name: "prefix-load",
		Scorers: []WeightedScorer{
			{Scorer: Prefix{}, Weight: 3},
			{Scorer: Idle{Signal: Requests}, Weight: 2},
		},
	}
}

// presets are the policies of today's routers with their defaults.
var presets = []struct {
	name string
	make func(Random) (*Policy, error)
}{
	{"aibrix-prefix-cache", func(r Random) (*Policy, error) { return AIBrix{Random: r}.Policy() }},
	{"cacheroute", func(r Random) (*Policy, error) { return CacheRoute{Random: r}.Policy() }},
	{"dualmap", func(r Random) (*Policy, error) { return DualMap{Random: r}.Policy() }},
	{"dynamo", func(r Random) (*Policy, error) { return Dynamo{Random: r}.Policy() }},
	{"dynamo-two-tier", func(r Random) (*Policy, error) { return DynamoTwoTier{Random: r}.Policy() }},
	{"gorgo", func(r Random) (*Policy, error) { return Gorgo{Random: r}.Policy() }},
	{"gorgo-2d", func(r Random) (*Policy, error) { return Gorgo{TwoD: true, Random: r}.Policy() }},
	{"laar", func(r Random) (*Policy, error) { return LAAR{Random: r}.Policy() }},
	{"least-loaded", func(r Random) (*Policy, error) { return LeastLoaded{Random: r}.Policy() }},
	{"llm-d", func(r Random) (*Policy, error) { return LLMD{Random: r}.Policy() }},
	{"llm-d-approx", func(r Random) (*Policy, error) { return LLMDApprox{LLMD: LLMD{Random: r}}.Policy() }},
	{"power-of-two", func(r Random) (*Policy, error) { return LeastLoaded{Of: 2, Random: r}.Policy() }},
	{"prefix-load", func(r Random) (*Policy, error) { o := PrefixLoad(); o.Random = r; return New(o) }},
	{"production-stack-kvaware", func(r Random) (*Policy, error) { return ProductionKVAware{Random: r}.Policy() }},
	{"production-stack-loadaware", func(r Random) (*Policy, error) { return ProductionLoadAware{Random: r}.Policy() }},
	{"production-stack-prefixaware", func(r Random) (*Policy, error) { return ProductionPrefixAware{Random: r}.Policy() }},
	{"production-stack-session", func(r Random) (*Policy, error) { return ProductionSession{Random: r}.Policy() }},
	{"random", func(r Random) (*Policy, error) { return Uniform{Random: r}.Policy() }},
	{"ray-prefix-affinity", func(r Random) (*Policy, error) { return RayPrefix{Random: r}.Policy() }},
	{"roundrobin", func(r Random) (*Policy, error) { return RoundRobin{Random: r}.Policy() }},
	{"sglang-cache-aware", func(r Random) (*Policy, error) { return SGLang{Random: r}.Policy() }},
}

// PresetNames returns the names that [Preset] knows, sorted.
func PresetNames() []string {
	names := make([]string, len(presets))
	for i := range presets {
		names[i] = presets[i].name
	}
	slices.Sort(names)
	return names
}

// Preset returns a policy by its name, with the defaults of the system it comes
// from, and a source of randomness (nil for the default). The error is an
// [*OptionError] that lists the names. For other options make the preset's
// struct and call its Policy method.
func Preset(name string, random Random) (*Policy, error) {
	for i := range presets {
		if presets[i].name == name {
			return presets[i].make(random)
		}
	}
	return nil, optionErrorf("preset", "%q is not known; there are %q", name, PresetNames())
}
