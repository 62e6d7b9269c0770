package conductor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/conductor"
	"github.com/kvatlas/kvatlas/kvevents"
)

// An Atlas in the place of a Conductor, and a client that asks it.
func Example() {
	atlas, err := kvatlas.New(kvatlas.Options{})
	if err != nil {
		log.Fatal(err)
	}
	err = atlas.AddWorker(kvatlas.Worker{Name: "replica", Release: "0.20.2", BlockSize: 4, Seed: blockhash.SeedText("0")})
	if err != nil {
		log.Fatal(err)
	}
	scheme, _ := blockhash.SchemeFor("vllm", "0.20.2")
	hasher, _ := blockhash.New(blockhash.Options{Scheme: scheme, BlockSize: 4, Seed: blockhash.SeedText("0")})
	prompt := blockhash.Prompt{Tokens: []uint32{101, 15, 100, 55, 89}}
	hashes, _ := hasher.AppendKeys(nil, &prompt)
	// What the engine would publish; package kvevents subscribes to it.
	err = atlas.ApplyBatch("replica", &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.BlockStored, Hashes: hashes}}})
	if err != nil {
		log.Fatal(err)
	}

	handler, err := conductor.NewHandler(conductor.Options{Atlas: atlas, Model: "deepseek"})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/query", handler)
	server := httptest.NewServer(mux)
	defer server.Close()

	client, err := conductor.NewClient(conductor.ClientOptions{URL: server.URL})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := client.Query(context.Background(), &conductor.Query{Model: "deepseek", TokenIDs: prompt.Tokens, BlockSize: 4})
	if err != nil {
		log.Fatal(err)
	}
	text, _ := json.Marshal(answer)
	fmt.Println(string(text))
	// Output: {"default":{"replica":{"CPU":0,"DISK":0,"DP":{"0":4},"GPU":4,"longest_matched":4}}}
}
