package radix

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func randomKeys(seed uint64, n int) []uint64 {
	r := rand.New(rand.NewPCG(seed, 7))
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = r.Uint64() | 1
	}
	return keys
}

func benchIndex(b *testing.B, workers int, o ProfileOptions) (*Index, []WorkerID) {
	names := make([]string, workers)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	return simpleIndex(b, o, names...)
}

// BenchmarkFanOut matches a long prompt that all workers hold, but for the last
// few blocks.
func BenchmarkFanOut(b *testing.B) {
	for _, workers := range []int{1, 64, 1024} {
		x, ids := benchIndex(b, workers, ProfileOptions{HashUnit: 16})
		keys := randomKeys(1, 6250)
		for i, id := range ids {
			if err := x.Store(Holder{Worker: id}, keys[:len(keys)-i%7]); err != nil {
				b.Fatal(err)
			}
		}
		q := Query{Keys: keys, Tokens: 16*len(keys) + 1}
		b.Run(fmt.Sprintf("workers=%d/prefixes", workers), func(b *testing.B) {
			var r Result
			b.ReportAllocs()
			for b.Loop() {
				_, _ = x.Prefixes(&q, &r)
			}
		})
		b.Run(fmt.Sprintf("workers=%d/match", workers), func(b *testing.B) {
			var r Result
			b.ReportAllocs()
			for b.Loop() {
				_ = x.Match(&q, &r)
			}
		})
	}
}

// BenchmarkHybrid matches prompts of a model with a window group and a host tier.
func BenchmarkHybrid(b *testing.B) {
	x, ids := benchIndex(b, 16, ProfileOptions{HashUnit: 16, Connector: Offloading, Groups: []Group{{}, {Kind: SlidingWindow, Window: 1024}}})
	keys := randomKeys(1, 1000)
	for i, id := range ids {
		n := 60 * (i + 1)
		_ = x.Store(Holder{Worker: id}, keys[:n])
		_ = x.Store(Holder{Worker: id, Group: 1}, keys[max(0, n-64):n])
		_ = x.Store(Holder{Worker: id, Medium: CPU}, keys[:min(n+20, len(keys))])
		_ = x.Store(Holder{Worker: id, Medium: CPU, Group: 1}, keys[:min(n+20, len(keys))])
	}
	q := Query{Keys: keys, Tokens: 16*len(keys) + 1}
	var r Result
	b.ReportAllocs()
	for b.Loop() {
		_ = x.Match(&q, &r)
	}
}

// BenchmarkUnknown matches a prompt whose first block nobody holds.
func BenchmarkUnknown(b *testing.B) {
	x, ids := benchIndex(b, 64, ProfileOptions{HashUnit: 16})
	for i, id := range ids {
		_ = x.Store(Holder{Worker: id}, randomKeys(uint64(i), 10000))
	}
	prompts := randomKeys(999, 4096)
	var r Result
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		q := Query{Keys: prompts[i&4095 : i&4095+1], Tokens: 17}
		_, _ = x.Prefixes(&q, &r)
		i++
	}
}

// BenchmarkClear clears a worker that holds a million blocks, and then gives
// their memory back.
func BenchmarkClear(b *testing.B) {
	x, ids := benchIndex(b, 8, ProfileOptions{HashUnit: 16})
	keys := randomKeys(1, 1_000_000)
	for _, id := range ids[1:] {
		_ = x.Store(Holder{Worker: id}, randomKeys(uint64(id), 100_000))
	}
	var clearing, tidying time.Duration
	n := 0
	for b.Loop() { // most of the time goes into storing: look at the metrics
		for at := 0; at < len(keys); at += 512 {
			_ = x.Store(Holder{Worker: ids[0]}, keys[at:min(at+512, len(keys))])
		}
		t := time.Now()
		_ = x.Clear(ids[0])
		clearing += time.Since(t)
		t = time.Now()
		x.Tidy()
		tidying += time.Since(t)
		n++
	}
	b.ReportMetric(float64(clearing.Microseconds())/float64(n), "clear-us")
	b.ReportMetric(float64(tidying.Microseconds())/float64(n), "tidy-us")
}

// BenchmarkChurn stores and evicts b.N blocks at a constant occupancy of half a
// million, prompts of 300 blocks, deepest first; -benchtime 100000000x is the
// soak. Memory must stay where it was after the first tenth.
func BenchmarkChurn(b *testing.B) {
	const held, prompt = 500_000, 300
	x, ids := benchIndex(b, 8, ProfileOptions{HashUnit: 16})
	type stored struct {
		h    Holder
		from uint64
	}
	var queue []stored
	keys := make([]uint64, prompt)
	fill := func(from uint64, backwards bool) {
		for i := range keys {
			at := i
			if backwards {
				at = prompt - 1 - i
			}
			keys[at] = (from+uint64(i))*0xbf58476d1ce4e5b9 ^ 0x5bd1e995
		}
	}
	blocks, next, early := 0, uint64(1), 0
	b.ReportAllocs()
	for b.Loop() {
		if blocks++; blocks%prompt != 0 {
			continue
		}
		h := Holder{Worker: ids[int(next/prompt)%len(ids)]}
		fill(next, false)
		_ = x.Store(h, keys)
		queue = append(queue, stored{h, next})
		next += prompt
		if len(queue)*prompt > held {
			fill(queue[0].from, true)
			_ = x.Remove(queue[0].h, keys)
			queue = queue[1:]
		}
		if early == 0 && blocks > max(2*held, b.N/10) {
			early = x.Stats().Bytes
		}
	}
	s := x.Stats()
	b.ReportMetric(float64(early), "early-bytes")
	b.ReportMetric(float64(s.Bytes), "late-bytes")
	b.ReportMetric(float64(s.Unmatched+s.Lost), "faults")
}

// BenchmarkShared stores and removes, deepest first, a chain that another worker
// holds, as for a long system prompt; ns a block, in and out.
func BenchmarkShared(b *testing.B) {
	x, ids := benchIndex(b, 2, ProfileOptions{HashUnit: 16})
	keys := randomKeys(1, 6400)
	deepest := slices.Clone(keys)
	slices.Reverse(deepest)
	if err := x.Store(Holder{Worker: ids[0]}, keys); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := errors.Join(x.Store(Holder{Worker: ids[1]}, keys), x.Remove(Holder{Worker: ids[1]}, deepest)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/block")
}
