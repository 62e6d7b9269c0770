package blockhash

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// longPrompt draws a prompt of some spans from a small world, so that prompts
// share beginnings and differ in all that a digest depends on.
func longPrompt(d dice, blockSize int) *Prompt {
	p := &Prompt{}
	n := d.IntN(5 * MemoSpan * blockSize)
	fork := d.IntN(3*MemoSpan*blockSize + 1)
	version := uint32(d.IntN(3))
	for i := range n {
		id := uint32(i * 7919 % 150_000)
		if i >= fork {
			id += version
		}
		p.Tokens = append(p.Tokens, id)
	}
	if d.IntN(3) == 0 {
		p.LoRA = &LoRA{Name: "a", Path: []string{"p", "q"}[d.IntN(2)], ID: 1 + int64(d.IntN(2))}
	}
	if d.IntN(3) == 0 {
		p.CacheSalt = []string{"", "s", "t"}[d.IntN(3)]
	}
	at := 0
	for range d.IntN(4) {
		at += d.IntN(MemoSpan * blockSize)
		length := d.IntN(2 * MemoSpan * blockSize)
		p.Items = append(p.Items, Item{[]string{"i", "j"}[d.IntN(2)], at, length})
		at += length
	}
	if d.IntN(9) == 0 {
		p.Embeds = &Embeds{make([]byte, n), 1}
	}
	if d.IntN(9) == 0 {
		for _, id := range p.Tokens {
			p.WideTokens = append(p.WideTokens, int64(id))
		}
		p.Tokens = nil
	}
	return p
}

// TestMemoAgainstPlain: with a memo, every way to hash gives what it gives
// without, whatever was remembered or evicted before.
func TestMemoAgainstPlain(t *testing.T) {
	rounds := 600
	if raceEnabled {
		rounds = 60
	}
	for _, scheme := range vllmSchemes() {
		for _, memoBytes := range []int64{1, 8 << 10, 1 << 20} {
			d := rand.New(rand.NewPCG(uint64(memoBytes), uint64(scheme.id)))
			opt := Options{Scheme: scheme, BlockSize: 1 + d.IntN(4), Seed: SeedText("0")}
			if scheme.era().lookahead {
				opt.Lookahead = d.IntN(4)
			}
			if scheme.era().xxhash {
				opt.Algorithm = XXHash // fast
			}
			plain := mustNew(t, opt)
			opt.MemoBytes = memoBytes
			h := mustNew(t, opt)
			var c Chain
			for range rounds / 8 {
				p := longPrompt(d, opt.BlockSize)
				want, err := plain.AppendDigests(nil, p)
				require.NoError(t, err)
				got, err := h.AppendDigests(nil, p)
				require.NoError(t, err)
				require.Equal(t, want, got)
				// From a place in the middle, and extended.
				cut := d.IntN(p.Len() + 1)
				size := h.DigestSize()
				blocks := min(d.IntN(cut/opt.BlockSize+1), len(want)/size)
				from := h.AppendRoot(nil)
				if blocks > 0 {
					from = want[(blocks-1)*size : blocks*size]
				}
				require.NoError(t, h.Resume(&c, p.slice(0, cut), blocks, from))
				got = append([]byte(nil), want[:blocks*size]...)
				for _, to := range []int{cut, p.Len()} {
					extend(&c, p, c.Len(), to)
					for {
						if _, ok := c.Next(); !ok {
							break
						}
						got = append(got, c.Digest()...)
					}
				}
				require.Equal(t, want, got)
			}
			st := h.MemoStats()
			require.LessOrEqual(t, st.Bytes, memoBytes)
			if memoBytes == 1<<20 {
				require.NotZero(t, st.Hits)
				require.NotZero(t, st.Misses)
			}
		}
	}
}

func TestMemoOff(t *testing.T) {
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 1, Seed: SeedText("0")})
	_, err := h.AppendKeys(nil, &Prompt{Tokens: make([]uint32, 500)})
	require.NoError(t, err)
	require.Zero(t, h.MemoStats())
	_, err = New(Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 1, Seed: SeedText("0"), MemoBytes: -1})
	require.ErrorIs(t, err, ErrOptions)
}

// TestMemoFlood: prompts that are sent once do not displace one that is used
// again and again, however many they are, and memory stays within its bound.
func TestMemoFlood(t *testing.T) {
	const limit = 1 << 20
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 16, Seed: SeedText("0"), MemoBytes: limit})
	good := &Prompt{Tokens: benchTokens(50_000)} // 48 spans and 53 blocks, 110 kB
	hits := func() uint64 {
		before := h.MemoStats().Hits
		keySink, _ = h.AppendKeys(keySink[:0], good)
		return h.MemoStats().Hits - before
	}
	require.Zero(t, hits())
	all := hits()
	require.Equal(t, uint64(49), all, "48 spans, and half of what is left")
	for i := range 300 {
		flood := &Prompt{Tokens: append([]uint32{uint32(i)}, good.Tokens[:12_000]...)}
		keySink, _ = h.AppendKeys(keySink[:0], flood)
		st := h.MemoStats()
		require.LessOrEqual(t, st.Bytes, int64(limit))
		require.Equal(t, int64(limit), st.MaxBytes)
	}
	require.NotZero(t, h.MemoStats().Evicted)
	require.Equal(t, all, hits(), "the working set is still there")
}

// TestMemoConcurrentSafe: many goroutines, one small memo.
func TestMemoConcurrentSafe(t *testing.T) {
	opt := Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 4, Seed: SeedText("0")}
	plain := mustNew(t, opt)
	opt.MemoBytes = 256 << 10
	h := mustNew(t, opt)
	var prompts []*Prompt
	var want []string
	d := rand.New(rand.NewPCG(4, 4))
	for range 20 {
		p := longPrompt(d, 4)
		prompts = append(prompts, p)
		want = append(want, fmt.Sprint(nonNil(keysOf(t, plain, p))))
	}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			d := rand.New(rand.NewPCG(5, uint64(g)))
			for range 40 {
				i := d.IntN(len(prompts))
				keys, err := h.AppendKeys(nil, prompts[i])
				if err != nil || fmt.Sprint(nonNil(keys)) != want[i] {
					t.Error("keys differ", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestMemoMemory: what MemoStats calls memory is what the heap grows by.
func TestMemoMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, a := range []Algorithm{SHA256, XXHash} {
		h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), Algorithm: a, BlockSize: 8, Seed: SeedText("0"), MemoBytes: 16 << 20})
		p := &Prompt{Tokens: make([]uint32, 8*MemoSpan*500)}
		keySink, _ = h.AppendKeys(keySink[:0], p)
		before := heap() - h.MemoStats().Bytes
		for i := range 40 {
			p.Tokens[0] = uint32(i + 1)
			keySink, _ = h.AppendKeys(keySink[:0], p)
		}
		grown, said := heap()-before, h.MemoStats().Bytes
		require.Greater(t, said, int64(15<<20))
		require.InEpsilon(t, said, grown, 0.2, "%v: grown %d, said %d", a, grown, said)
		runtime.KeepAlive(h)
	}
}

// TestMemoNextTurn: the next turn of a conversation takes all whole spans of the
// one before from the memo, and half of the span in which that ended.
func TestMemoNextTurn(t *testing.T) {
	opt := Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 16, Seed: SeedText("0")}
	plain := mustNew(t, opt)
	opt.MemoBytes = 1 << 20
	h := mustNew(t, opt)
	p := &Prompt{Tokens: benchTokens(68_000)}
	keysOf(t, h, &Prompt{Tokens: p.Tokens[:63_000]}) // 61 spans and 33 blocks
	before := h.MemoStats()
	require.Equal(t, 62, before.Entries)
	require.Equal(t, keysOf(t, plain, p), keysOf(t, h, p))
	after := h.MemoStats()
	require.Equal(t, uint64(61+1), after.Hits-before.Hits)
	require.Equal(t, 62+5, after.Entries, "the span that was halved and four new ones")
}
