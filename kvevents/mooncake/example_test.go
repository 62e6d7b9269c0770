package mooncake_test

import (
	"fmt"
	"log"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents/mooncake"
)

// An event of RFC 1527 from a publisher with hashes of its own, to a match.
func Example() {
	atlas, err := kvatlas.New(kvatlas.Options{})
	if err != nil {
		log.Fatal(err)
	}
	// With XXH3Seed, the publisher's hashes are those of the RFC and it needs no token ids.
	err = atlas.AddWorker(kvatlas.Worker{Name: "worker-0", Engine: "mooncake", Release: "0.3.0", BlockSize: 4})
	if err != nil {
		log.Fatal(err)
	}
	follower, err := mooncake.NewFollower(mooncake.Options{Handler: atlas.Handler(), Model: "llama-3.1-8b"})
	if err != nil {
		log.Fatal(err)
	}
	err = follower.Events([]byte(`{"event_id":0,"timestamp":1739145600000,"event_type":"stored","model_name":"llama-3.1-8b",
		"block_size":4,"additional_salt":null,"lora_name":null,"tenant_id":"default","backend_id":"worker-0","medium":"gpu",
		"dp_rank":0,"seq_hashes":[1234567890],"base_block_idx":0,"parent_hash":null,"token_ids":[1,2,3,4]}`))
	if err != nil {
		log.Fatal(err)
	}
	var m kvatlas.Match
	if err := atlas.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: []uint32{1, 2, 3, 4, 5}}}, &m); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s holds %d tokens\n", m.Workers[0].Name, m.Workers[0].Usable)
	// Output: worker-0 holds 4 tokens
}
