package scoring

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
