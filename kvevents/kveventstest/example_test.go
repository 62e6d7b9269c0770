package kveventstest_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/kveventstest"
)

// A gateway's test: an Atlas follows a fake vLLM over sockets, finds out what it is,
// and predicts what it will report.
func Example() {
	scheme, err := blockhash.SchemeFor("vllm", "0.32.0")
	if err != nil {
		log.Fatal(err)
	}
	hash, err := kveventstest.HashAs(blockhash.Options{Scheme: scheme, BlockSize: 16})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := kveventstest.Start(kveventstest.Options{Release: "0.32.0", Replay: true, Hash: hash})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()

	atlas, err := kvatlas.New(kvatlas.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := atlas.AddWorker(kvatlas.Worker{Name: "a", Auto: true}); err != nil {
		log.Fatal(err)
	}
	sub, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: atlas.Handler()})
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	err = sub.Add(kvevents.Target{Worker: "a", Endpoint: engine.Endpoint(), ReplayEndpoint: engine.ReplayEndpoint()})
	if err != nil {
		log.Fatal(err)
	}
	if err := engine.WaitSubscribed(context.Background(), 1); err != nil {
		log.Fatal(err)
	}

	prompt := make([]uint32, 100)
	engine.Serve(prompt)
	request := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: prompt}}
	var match kvatlas.Match
	for match.Workers == nil || match.Workers[0].Usable == 0 { // until the events are here
		time.Sleep(time.Millisecond)
		if err := atlas.Match(&request, &match); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("predicted:", match.Workers[0].Usable)
	fmt.Println("reported:", engine.Serve(prompt))
	// Output:
	// predicted: 96
	// reported: 96
}
