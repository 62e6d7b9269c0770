package dynamo_test

import (
	"fmt"
	"log"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents/dynamo"
)

// A relayed event, to a match. Routers get these in the envelopes of Dynamo's event
// plane: give those to Envelope, or to Frames where they come over ZMQ.
func Example() {
	atlas, err := kvatlas.New(kvatlas.Options{})
	if err != nil {
		log.Fatal(err)
	}
	err = atlas.AddWorker(kvatlas.Worker{Name: "7", Engine: "dynamo", Release: "1.6.0", BlockSize: 4})
	if err != nil {
		log.Fatal(err)
	}
	follower, err := dynamo.NewFollower(dynamo.Options{Handler: atlas.Handler()})
	if err != nil {
		log.Fatal(err)
	}
	// The hash of the tokens 1 to 4 is from the tests of Dynamo's lib/tokens.
	err = follower.Events([]byte(`{"worker_id":7,"storage_tier":"device","event":{"event_id":1,"dp_rank":0,"data":
		{"stored":{"parent_hash":null,"blocks":[{"block_hash":101,"tokens_hash":14643705804678351452}]}}}}`))
	if err != nil {
		log.Fatal(err)
	}
	var m kvatlas.Match
	if err := atlas.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: []uint32{1, 2, 3, 4, 5}}}, &m); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("worker %s holds %d tokens\n", m.Workers[0].Name, m.Workers[0].Usable)
	// Output: worker 7 holds 4 tokens
}
