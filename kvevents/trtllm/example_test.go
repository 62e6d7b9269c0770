package trtllm_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents/trtllm"
)

// Events of trtllm-serve, to a match.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // stands for trtllm-serve
		io.WriteString(w, `[{"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[101230,0]}},
			{"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[{"type":"stored_block","block_hash":4203099703668305365,
			"tokens":[{"token_id":1},{"token_id":2},{"token_id":3},{"token_id":4}],"cache_level":0,"priority":35}]}}]`)
	}))
	defer server.Close()
	atlas, err := kvatlas.New(kvatlas.Options{})
	if err != nil {
		log.Fatal(err)
	}
	// No event tells an adapter's blocks from plain ones: PlainOnly says there are none.
	err = atlas.AddWorker(kvatlas.Worker{Name: "a", Engine: "tensorrt-llm", Release: "1.2.0", BlockSize: 4, PlainOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	poller, err := trtllm.NewPoller(trtllm.PollerOptions{
		URL: server.URL, Worker: "a", Handler: atlas.Handler(), Decoder: trtllm.Options{BlockSize: 4},
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := poller.Poll(context.Background()); err != nil { // Run polls for ever
		log.Fatal(err)
	}
	var m kvatlas.Match
	if err := atlas.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: []uint32{1, 2, 3, 4, 5}}}, &m); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s holds %d tokens\n", m.Workers[0].Name, m.Workers[0].Usable)
	// Output: a holds 4 tokens
}
