package lmcache_test

import (
	"fmt"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents/lmcache"
)

// A controller of an LMCache 0.5.6 fleet whose workers have
// pre_caching_hash_algorithm "sha256_cbor", chunks of 4 tokens and PYTHONHASHSEED 0.
func Example() {
	scheme, err := blockhash.SchemeFor("lmcache", "0.5.6")
	if err != nil {
		panic(err)
	}
	hasher, err := blockhash.New(blockhash.Options{
		Scheme: scheme, Algorithm: blockhash.SHA256CBOR, BlockSize: 4, PartialChunk: true, Seed: blockhash.SeedText("0"),
	})
	if err != nil {
		panic(err)
	}
	controller, err := lmcache.NewController(lmcache.Options{Hasher: hasher})
	if err != nil {
		panic(err)
	}

	// What a worker sends; over sockets these are frames for HandleFrame.
	prompt := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	keys, err := hasher.AppendKeys(nil, &blockhash.Prompt{Tokens: prompt[:8]})
	if err != nil {
		panic(err)
	}
	batch := &lmcache.BatchedKVOperationMsg{InstanceID: "pod-a", Location: "LocalCPUBackend"}
	for i, key := range keys {
		batch.Operations = append(batch.Operations, lmcache.KVOpEvent{OpType: lmcache.Admit, Key: lmcache.Key{Bits: key}, SeqNum: int64(i)})
	}
	for _, m := range []lmcache.Message{&lmcache.RegisterMsg{InstanceID: "pod-a", IP: "10.0.0.1", Port: 8000}, batch} {
		if _, err := controller.Handle(m); err != nil {
			panic(err)
		}
	}

	prefixes, err := controller.Prefixes(prompt)
	fmt.Println(prefixes, err)
	// Output: [{pod-a 0 2 8}] <nil>
}
