package scoring_test

import (
	"fmt"
	"time"

	"github.com/kvatlas/kvatlas/scoring"
)

func Example() {
	policy, err := scoring.New(scoring.PrefixLoad())
	if err != nil {
		fmt.Println(err)
		return
	}
	workers := []scoring.Candidate{
		{ID: 0, Name: "a", Match: scoring.Match{Blocks: [scoring.NumMedia]int32{scoring.GPU: 8}}, Load: scoring.Load{Requests: scoring.Known(4)}},
		{ID: 1, Name: "b", Match: scoring.Match{Blocks: [scoring.NumMedia]int32{scoring.GPU: 2}}, Load: scoring.Load{Requests: scoring.Known(0)}},
	}
	var d scoring.Decision // reuse it
	if err := policy.Decide(&scoring.Request{Tokens: 161, BlockSize: 16, Explain: true}, workers, &d); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.String())
	// Output: b: 2.6 = 3*prefix(0.2) + 2*requests(1)
}

func ExamplePreset() {
	policy, err := scoring.Preset("aibrix-prefix-cache", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	workers := []scoring.Candidate{
		{ID: 0, Name: "a", Match: scoring.Match{Blocks: [scoring.NumMedia]int32{scoring.GPU: 9}}, Load: scoring.Load{Requests: scoring.Known(20)}},
		{ID: 1, Name: "b", Load: scoring.Load{Requests: scoring.Known(1)}},
	}
	var d scoring.Decision
	if err := policy.Decide(&scoring.Request{Tokens: 161, BlockSize: 16, Explain: true}, workers, &d); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Chosen.Name, "-", d.Reason)
	// Output: b - imbalanced: least loaded
}

// A request's life with the default policy and everything around it.
func ExampleKVAtlas() {
	atlas, err := scoring.NewKVAtlas(scoring.KVAtlasOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	loads, err := scoring.NewInFlight(scoring.InFlightOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	spec, err := scoring.NewSpeculation(scoring.SpeculationOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	workers := []scoring.Candidate{{ID: 0, Name: "a"}, {ID: 1, Name: "b"}}
	for i := range workers {
		loads.Add(workers[i].ID)
	}
	var d scoring.Decision
	prompt := []uint64{11, 12, 13, 14} // the hashes of its blocks
	send := func() string {
		req := scoring.Request{Tokens: 70, BlockSize: 16}
		for i := range workers {
			workers[i].Match = scoring.Match{} // from the index; nothing was announced yet
		}
		spec.Extend(&req, prompt, workers, nil)
		loads.Fill(workers)
		if err := atlas.Policy().Decide(&req, workers, &d); err != nil {
			return err.Error()
		}
		w := d.Chosen.ID
		flight, err := loads.Begin(w, scoring.Sent{PromptTokens: 70, CachedTokens: int(d.Chosen.Match.Usable)})
		if err != nil {
			return err.Error()
		}
		ticket := spec.Sent(w, prompt)
		// ... and when the first token arrives, and at the end:
		defer func() {
			_ = flight.FirstToken()
			ticket.FirstToken()
			atlas.FirstToken(scoring.Observation{Worker: w, PromptTokens: 70, ReportedTokens: -1, TTFT: 20 * time.Millisecond})
			_ = flight.Finish()
		}()
		return d.Chosen.Name
	}
	first, second := send(), send()
	fmt.Println("siblings go together:", first == second)
	// Output: siblings go together: true
}
