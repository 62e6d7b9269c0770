package kvatlas_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"slices"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/scoring"
)

// Follow two replicas over their event sockets. An engine with two data-parallel
// ranks is one target and two workers.
func ExampleAtlas_Handler() {
	atlas, err := kvatlas.New(kvatlas.Options{MemoBytes: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	sub, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: atlas.Handler()})
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	for rank := range int32(2) {
		err := atlas.AddWorker(kvatlas.Worker{
			Name: fmt.Sprintf("replica-a/%d", rank), Replica: "replica-a", Rank: rank, Release: "0.32.0", BlockSize: 16,
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	err = sub.Add(kvevents.Target{
		Worker: "replica-a", Ranks: 2, Endpoint: "tcp://10.0.0.7:5557", ReplayEndpoint: "tcp://10.0.0.7:6557",
	})
	if err != nil {
		log.Fatal(err)
	}
	// Route from any goroutine; look at how the streams are with sub.AppendStatus.
}

// A further router begins with what another one knows, and follows from there.
func ExampleAtlas_ReadSnapshot() {
	atlas, err := kvatlas.New(kvatlas.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := atlas.AddWorker(kvatlas.Worker{Name: "replica-a", Release: "0.32.0", BlockSize: 16}); err != nil {
		log.Fatal(err)
	}
	snapshot, err := http.Get("http://10.0.0.5/snapshot") // whose handler calls Atlas.WriteSnapshot
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Body.Close()
	left, err := atlas.ReadSnapshot(snapshot.Body)
	if err != nil {
		log.Print(err) // begin with nothing
	}
	for name, reason := range left {
		log.Print(name, ": ", reason)
	}
	sub, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: atlas.Handler(), Resume: atlas.Resume})
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	err = sub.Add(kvevents.Target{Worker: "replica-a", Endpoint: "tcp://10.0.0.7:5557", ReplayEndpoint: "tcp://10.0.0.7:6557"})
	if err != nil {
		log.Fatal(err)
	}
}

// A worker of which nothing is known but its name is found out by its events.
func ExampleAtlas_Profile() {
	atlas, err := kvatlas.New(kvatlas.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := atlas.AddWorker(kvatlas.Worker{Name: "replica-a", Auto: true}); err != nil {
		log.Fatal(err)
	}
	request := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: prompt}}
	var match kvatlas.Match
	if err := atlas.Match(&request, &match); err != nil {
		log.Fatal(err)
	}
	fmt.Println("known:", match.Workers[0].Unknown == "")

	payload, err := base64.StdEncoding.DecodeString(message) // what vLLM 0.32.0 published
	if err != nil {
		log.Fatal(err)
	}
	if err := atlas.Apply("replica-a", payload); err != nil {
		log.Fatal(err)
	}
	if err := atlas.Match(&request, &match); err != nil {
		log.Fatal(err)
	}
	profile, err := atlas.Profile("replica-a")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("cached:", match.Workers[0].Usable, "tokens")
	fmt.Println(profile.Releases)
	fmt.Println(profile.Algorithm, profile.Seed, profile.BlockSize)
	// Output:
	// known: false
	// cached: 32 tokens
	// vllm from 0.29.0
	// sha256 PYTHONHASHSEED unset 32
}

// Follow a request to its end, so that the next decisions know what is under way.
func ExampleAtlas_Begin() {
	atlas, err := kvatlas.New(kvatlas.Options{KVAtlas: scoring.KVAtlasOptions{Random: scoring.Seeded(1)}})
	if err != nil {
		log.Fatal(err)
	}
	if err := atlas.AddWorker(kvatlas.Worker{Name: "replica-a", Release: "0.32.0", BlockSize: 16}); err != nil {
		log.Fatal(err)
	}
	request := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: prompt}}
	var choice kvatlas.Choice
	if err := atlas.Route(&request, &choice); err != nil {
		log.Fatal(err)
	}
	trip, err := atlas.Begin(&request, &choice)
	if err != nil {
		log.Fatal(err)
	}
	// Send it to choice.Worker.
	trip.FirstToken() // when the first token comes
	trip.Finish(0)    // at the end, with usage.prompt_tokens_details.cached_tokens

	fmt.Printf("%+v\n", atlas.Snapshot().Workers[0].Prediction)
	// Output: {Exact:1 Over:0 Under:0 OverTokens:0 UnderTokens:0}
}

// Run two replicas of a router: each tells the other what it sends, over whatever
// connects them, and decides as if it had sent everything.
func ExampleAtlas_Heard() {
	wire := make(chan []byte, 100)
	replica := func(tell func(kvatlas.PeerNote)) *kvatlas.Atlas {
		atlas, err := kvatlas.New(kvatlas.Options{Speculate: true, Tell: tell, KVAtlas: scoring.KVAtlasOptions{Random: scoring.Seeded(1)}})
		if err != nil {
			log.Fatal(err)
		}
		for _, name := range []string{"replica-a", "replica-b", "replica-c"} {
			if err := atlas.AddWorker(kvatlas.Worker{Name: name, Release: "0.32.0", BlockSize: 16}); err != nil {
				log.Fatal(err)
			}
		}
		return atlas
	}
	first := replica(func(n kvatlas.PeerNote) {
		if b, err := json.Marshal(n); err == nil {
			wire <- b
		}
	})
	second := replica(nil)

	request := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: slices.Repeat(prompt, 100)}}
	var one, other kvatlas.Choice
	if err := first.Route(&request, &one); err != nil {
		log.Fatal(err)
	}
	if _, err := first.Begin(&request, &one); err != nil {
		log.Fatal(err)
	}
	var note kvatlas.PeerNote
	if err := json.Unmarshal(<-wire, &note); err != nil {
		log.Fatal(err)
	}
	if err := second.Heard(note); err != nil {
		log.Fatal(err)
	}
	if err := second.Route(&request, &other); err != nil {
		log.Fatal(err)
	}
	fmt.Println("same worker:", one.Worker == other.Worker)
	fmt.Println("requests of others there:", other.Decision.Chosen.Load.Peers.Value)
	// Output:
	// same worker: true
	// requests of others there: 1
}

// Route as another router would, and see beside it what the default policy would do.
func ExampleOptions_shadow() {
	policy, err := scoring.Preset("llm-d", nil) // scoring.PresetNames lists them
	if err != nil {
		log.Fatal(err)
	}
	other, err := scoring.NewKVAtlas(scoring.KVAtlasOptions{Random: scoring.Seeded(1)})
	if err != nil {
		log.Fatal(err)
	}
	atlas, err := kvatlas.New(kvatlas.Options{Policy: policy, Shadow: other.Policy()})
	if err != nil {
		log.Fatal(err)
	}
	for waiting, name := range []string{"replica-b", "replica-a"} {
		if err := atlas.AddWorker(kvatlas.Worker{Name: name, Release: "0.32.0", BlockSize: 16}); err != nil {
			log.Fatal(err)
		}
		if err := atlas.SetLoad(name, scoring.Load{Waiting: scoring.Known(float64(waiting))}); err != nil {
			log.Fatal(err)
		}
	}
	request := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: prompt}, Explain: true}
	var choice kvatlas.Choice
	if err := atlas.Route(&request, &choice); err != nil {
		log.Fatal(err)
	}
	fmt.Println(choice.Decision.String())
	fmt.Printf("%+v\n", atlas.Snapshot().Shadow)
	// Output:
	// replica-b: 4 = 3*prefix(0) + 2*waiting(1) + 2*kv(1)
	// {Decisions:1 Agreed:0 Failed:0 CachedTokens:0}
}
