package kvatlas_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/scoring"
)

// A message that vLLM 0.32.0 published, and the prompt that made it do so.
const message = "k8tB2sMc3i7nypGLpHR5cGWrQmxvY2tTdG9yZWSsYmxvY2tfaGFzaGVzkc9osR1Sami42rFwYXJlbnRfYmxvY2tfaGFzaMCpdG9rZW5faWRz3AAgQc0Hv" +
	"M0FMc0FpM0Fjs0BgM0GFc0GK80GF80EEs0GCc0Eoc0FKs0C980Cdc0CY80DEM0DZ80HdM0EQM0Du80Ghs0G+M0G58yhzQePzQGhzQNMzQeKzQHkzQTmYKpib" +
	"G9ja19zaXplIKdsb3JhX2lkwKZtZWRpdW2jR1BVqWxvcmFfbmFtZcCqZXh0cmFfa2V5c5HAqWdyb3VwX2lkeACya3ZfY2FjaGVfc3BlY19raW5krmZ1bGxfYXR0ZW50aW9uAA=="

var prompt = []uint32{65, 1980, 1329, 1444, 1422, 384, 1557, 1579, 1559, 1042, 1545, 1185, 1322, 759, 629, 611, 784,
	871, 1908, 1088, 955, 1670, 1784, 1767, 161, 1935, 417, 844, 1930, 484, 1254, 96, 1274}

func Example() {
	// Seeded, so that this program prints the same each time: the policy explores a little.
	atlas, err := kvatlas.New(kvatlas.Options{KVAtlas: scoring.KVAtlasOptions{Random: scoring.Seeded(1)}})
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"replica-a", "replica-b"} {
		err = errors.Join(err, atlas.AddWorker(kvatlas.Worker{Name: name, Release: "0.32.0", BlockSize: 32}))
	}
	payload, bad := base64.StdEncoding.DecodeString(message) // the last frame of replica-b's message
	err = errors.Join(err, bad, atlas.Apply("replica-b", payload))

	var choice kvatlas.Choice
	request := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: prompt}}
	if err = errors.Join(err, atlas.Route(&request, &choice)); err != nil {
		log.Fatal(err)
	}
	for _, w := range choice.Match.Workers {
		fmt.Printf("%s: %d of %d tokens cached\n", w.Name, w.Usable, len(prompt))
	}
	fmt.Println("route to", choice.Worker)
	// Output:
	// replica-a: 0 of 33 tokens cached
	// replica-b: 32 of 33 tokens cached
	// route to replica-b
}
