package blockhash

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	keySink    []uint64
	digestSink []byte
)

// TestNoAllocs: nothing is allocated per call once buffers have grown.
func TestNoAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	tokens := make([]uint32, 1000)
	wide := make([]int64, 1000)
	for i := range tokens {
		tokens[i], wide[i] = uint32(i*7919), int64(i)-500
	}
	prompts := map[string]*Prompt{
		"plain": {Tokens: tokens},
		"wide":  {WideTokens: wide},
		"extra": {Tokens: tokens, LoRA: &LoRA{"a", "b", 3}, CacheSalt: "s", Items: []Item{{"image", 3, 50}, {"b", 60, 3}},
			Embeds: &Embeds{make([]byte, 4000), 4}},
	}
	for _, s := range []string{"0.10.2", "0.13.0", "0.18.0", "0.31.0"} {
		for a := range numAlgorithms {
			for _, shared := range []bool{false, true} {
				scheme := mustScheme(t, s)
				if a.xxh() && !scheme.era().xxhash {
					continue
				}
				h := mustNew(t, Options{Scheme: scheme, Algorithm: a, BlockSize: 16, Seed: SeedText("0"), SharedObjects: shared})
				for name, p := range prompts {
					var c Chain
					chain := func() {
						_ = h.Start(&c, p)
						for {
							if _, ok := c.Next(); !ok {
								break
							}
						}
						c.Extend(tokens[:40])
						c.Next()
					}
					keys := func() { keySink, _ = h.AppendKeys(keySink[:0], p) }
					digests := func() { digestSink, _ = h.AppendDigests(digestSink[:0], p) }
					for what, f := range map[string]func(){"chain": chain, "keys": keys, "digests": digests} {
						f()
						require.Zero(t, testing.AllocsPerRun(20, f), "%v %v %s %s shared=%v", s, a, name, what, shared)
					}
				}
			}
		}
	}
	c, err := NewContent(ContentOptions{Scheme: mustScheme(t, "0.31.0"), BlockSize: 16})
	require.NoError(t, err)
	var chain ContentChain
	for name, p := range prompts {
		if name == "wide" {
			continue
		}
		for what, f := range map[string]func(){
			"keys": func() { keySink, _ = c.AppendKeys(keySink[:0], p) },
			"span": func() { keySink, _ = c.AppendEventKeys(keySink[:0], &Span{Tokens: tokens}) },
			"chain": func() {
				_ = c.Start(&chain, p)
				for {
					if _, ok := chain.Next(); !ok {
						break
					}
				}
			},
		} {
			f()
			require.Zero(t, testing.AllocsPerRun(20, f), "content %s %s", name, what)
		}
	}
}
