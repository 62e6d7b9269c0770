package blockhash

import (
	"fmt"
	"testing"
	"time"
)

func benchTokens(n int) []uint32 {
	ids := make([]uint32, n)
	state := uint64(1)
	for i := range ids {
		state = state*6364136223846793005 + 1442695040888963407
		ids[i] = uint32((state >> 33) % 151_936)
	}
	return ids
}

// BenchmarkAppendKeys reports the whole prompt; see benchmarks/ for times per
// block beside the floor.
func BenchmarkAppendKeys(b *testing.B) {
	p := &Prompt{Tokens: benchTokens(100_000)}
	for a := range numAlgorithms {
		b.Run(fmt.Sprintf("%v/16", a), func(b *testing.B) {
			h := mustNew(b, Options{Scheme: mustScheme(b, "0.31.0"), Algorithm: a, BlockSize: 16, Seed: SeedText("0")})
			b.ReportAllocs()
			for b.Loop() {
				keySink, _ = h.AppendKeys(keySink[:0], p)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(h.Blocks(p.Len())), "ns/block")
		})
	}
}

// BenchmarkEncode is the encoder alone, with blocks of 16; bytes are those it
// writes. GB/s is of the fastest pass of 0.2 ms: other programs disturb the mean.
func BenchmarkEncode(b *testing.B) {
	p := &Prompt{Tokens: benchTokens(100_000)}
	for _, a := range []Algorithm{SHA256, SHA256CBOR} {
		b.Run(a.String(), func(b *testing.B) {
			h := mustNew(b, Options{Scheme: mustScheme(b, "0.31.0"), Algorithm: a, BlockSize: 16, Seed: SeedText("0")})
			var c Chain
			_ = h.Start(&c, p)
			total, fastest := 0, time.Hour
			pass := func() {
				start := time.Now()
				total = 0
				for i := range h.Blocks(p.Len()) {
					total += len(c.encode(i * 16))
				}
				fastest = min(fastest, time.Since(start))
			}
			pass()
			b.ReportAllocs()
			for b.Loop() {
				pass()
			}
			b.ReportMetric(float64(total)/float64(fastest.Nanoseconds()), "GB/s")
		})
	}
}

// BenchmarkMemo is the next turn of a conversation of 68,000 tokens, of which
// 63,000 were seen.
func BenchmarkMemo(b *testing.B) {
	h := mustNew(b, Options{Scheme: mustScheme(b, "0.31.0"), BlockSize: 16, Seed: SeedText("0"), MemoBytes: 64 << 20})
	ids := benchTokens(68_000)
	keySink, _ = h.AppendKeys(keySink[:0], &Prompt{Tokens: ids[:63_000]})
	turn := uint32(0)
	b.ReportAllocs()
	for b.Loop() {
		turn++
		ids[63_000] = turn
		keySink, _ = h.AppendKeys(keySink[:0], &Prompt{Tokens: ids})
	}
}
