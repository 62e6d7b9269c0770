package kveventstest_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/kveventstest"
	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/stretchr/testify/require"
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, o kveventstest.Options) *kveventstest.Engine {
	t.Helper()
	e, err := kveventstest.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

// listen returns a function that receives the next message of an engine.
func listen(t *testing.T, e *kveventstest.Engine) func() kvevents.Message {
	t.Helper()
	sub, err := zmtp.NewSub(zmtp.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { sub.Close() })
	require.NoError(t, sub.Subscribe(""))
	require.NoError(t, sub.Dial(e.Endpoint()))
	require.NoError(t, e.WaitSubscribed(testContext(t), 1))
	return func() kvevents.Message {
		var m zmtp.Message
		require.NoError(t, sub.Recv(testContext(t), &m))
		msg, err := kvevents.ParseMessage(m.Frames)
		require.NoError(t, err)
		return msg
	}
}

// prompts repeats some of a few texts, so that there is something to reuse.
func prompts(rng *rand.Rand) []uint32 {
	tokens := make([]uint32, 40+rng.IntN(200))
	if rng.IntN(3) == 0 {
		tokens = tokens[:32] // whole blocks: the last is computed again
	}
	text := uint32(rng.IntN(6))
	for i := range tokens {
		tokens[i] = text*1000 + uint32(i)
		if i > 100 {
			tokens[i] += uint32(rng.IntN(2)) << 20
		}
	}
	return tokens
}

// TestWire: what a consumer keeps from the wire is what the engine holds, in
// every form, with copies, evictions, clears, groups and an offload tier.
func TestWire(t *testing.T) {
	for _, c := range []kveventstest.Options{
		{Release: "0.10.2", Blocks: 60},
		{Release: "0.18.0", Blocks: 60, Digests: 32},
		{Release: "0.22.0", Blocks: 60, Groups: []kveventstest.Group{{}, {Window: 40}}},
		{Release: "0.32.0", Blocks: 100, CPUBlocks: 80, Topic: "kv-events"},
		{Release: "0.33.0", Blocks: 80, Groups: []kveventstest.Group{{}, {Window: 40}, {Window: 100}}, CPUBlocks: 40},
		{Engine: "sglang", Release: "0.5.17", Blocks: 60},
		{Engine: "sglang", Release: "0.5.23", Blocks: 60},
	} {
		t.Run(fmt.Sprint(c.Engine, c.Release), func(t *testing.T) {
			e := start(t, c)
			next := listen(t, e)
			rng := rand.New(rand.NewPCG(1, 1))
			held := map[kveventstest.Block]int{}
			var dec kvevents.Decoder
			var b kvevents.Batch
			hits, copies := 0, 0
			for i := range 200 {
				before := e.Seq()
				if i%50 == 49 {
					e.Reset()
				}
				hits += e.Serve(prompts(rng))
				if e.Seq() == before {
					continue
				}
				m := next()
				require.Equal(t, before, m.Seq)
				require.Equal(t, c.Topic, string(m.Topic))
				require.NoError(t, dec.Decode(m.Payload, &b))
				require.Empty(t, b.Malformed)
				for _, ev := range b.Events {
					if ev.Kind == kvevents.BlockStored && len(ev.Tokens) > 0 {
						require.GreaterOrEqual(t, len(ev.Tokens), len(ev.Hashes)*ev.BlockSize)
					}
				}
				kveventstest.Track(held, &b)
				want := e.Held()
				require.Equal(t, want, held, "after batch %d", m.Seq)
				for _, n := range held {
					copies = max(copies, n)
				}
			}
			require.Positive(t, hits)
			require.Greater(t, copies, 1)
		})
	}
}

func TestHit(t *testing.T) {
	e := start(t, kveventstest.Options{})
	tokens := make([]uint32, 64)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	require.Zero(t, e.Serve(tokens))
	require.Equal(t, 48, e.Serve(tokens)) // all but the last block, which is computed again
	require.Equal(t, 64, e.Serve(append(tokens, 1)))
	require.Equal(t, 2, e.Held()[kveventstest.Block{Medium: "GPU", Hash: e.Hashes(tokens)[3]}])
	e.Reset()
	require.Zero(t, e.Serve(tokens))
	require.Zero(t, e.Serve(tokens[:5]))
	require.Zero(t, e.Serve(nil))
}

func TestFaults(t *testing.T) {
	e := start(t, kveventstest.Options{Replay: true, BufferSteps: 5})
	next := listen(t, e)
	step := func(n int) {
		for range n {
			e.Publish(kvevents.Event{Kind: kvevents.BlockStored, Hashes: []uint64{e.Seq()}})
		}
	}
	seqs := func(n int) (all []uint64) {
		for range n {
			all = append(all, next().Seq)
		}
		return all
	}
	e.Inject(200, 1) // no fault
	e.Inject(kveventstest.Drop, 1)
	step(2)
	require.Equal(t, []uint64{1}, seqs(1))
	e.Inject(kveventstest.Duplicate, 1)
	step(2)
	require.Equal(t, []uint64{2, 2, 3}, seqs(3))
	e.Inject(kveventstest.Reorder, 1)
	step(2)
	require.Equal(t, []uint64{5, 4}, seqs(2))
	e.Stall(true)
	step(2)
	e.Stall(false)
	require.Equal(t, []uint64{6, 7}, seqs(2))
	e.Inject(kveventstest.Corrupt, 1)
	step(1)
	var dec kvevents.Decoder
	require.Error(t, dec.Decode(next().Payload, &kvevents.Batch{}))

	require.Equal(t, []int64{4, 5, 6, 7, 8, -1}, replay(t, e, 0))
	require.Equal(t, []int64{7, 8, -1}, replay(t, e, 7))
	require.Equal(t, []int64{-1}, replay(t, e, 100))
	e.SetReplayFaults(kveventstest.ReplayFaults{EarlyEnd: 2, Hole: 5, Older: 2})
	require.Equal(t, []int64{4, 6, -1}, replay(t, e, 6))
	e.SetReplayFaults(kveventstest.ReplayFaults{})
	e.TruncateBuffer(1)
	require.Equal(t, []int64{8, -1}, replay(t, e, 0))

	e.Serve(make([]uint32, 32))
	require.Equal(t, []uint64{9}, seqs(1))
	require.NoError(t, e.Restart())
	require.Empty(t, e.Held())
	require.NoError(t, e.WaitSubscribed(testContext(t), 1))
	step(1)
	require.Equal(t, []uint64{0}, seqs(1))
	require.Equal(t, []int64{0, -1}, replay(t, e, 0))
	require.Error(t, e.Revive())
}

// replay asks the engine for its buffer and returns the sequences it sends.
func replay(t *testing.T, e *kveventstest.Engine, from uint64) (seqs []int64) {
	t.Helper()
	d, err := zmtp.NewDealer(zmtp.Options{})
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, d.Dial(e.ReplayEndpoint()))
	require.NoError(t, d.Send(testContext(t), nil, binary.BigEndian.AppendUint64(nil, from)))
	for {
		var m zmtp.Message
		require.NoError(t, d.Recv(testContext(t), &m))
		r, err := kvevents.ParseReplay(m.Frames)
		require.NoError(t, err)
		seqs = append(seqs, int64(r.Seq))
		if r.End {
			return seqs
		}
	}
}

func TestRanks(t *testing.T) {
	all, err := kveventstest.StartRanks(kveventstest.Options{Replay: true}, 3)
	require.NoError(t, err)
	for rank, e := range all {
		defer e.Close()
		next := listen(t, e)
		e.Serve(make([]uint32, 32))
		var dec kvevents.Decoder
		var b kvevents.Batch
		require.NoError(t, dec.Decode(next().Payload, &b))
		require.EqualValues(t, rank, b.Rank)
	}
	_, err = kveventstest.Start(kveventstest.Options{Engine: "other"})
	require.Error(t, err)
	_, err = kveventstest.Start(kveventstest.Options{Blocks: -1})
	require.Error(t, err)
}

// TestHashAs: a fake engine announces what a release would.
func TestHashAs(t *testing.T) {
	tokens := make([]uint32, 100)
	for i := range tokens {
		tokens[i] = uint32(3 * i)
	}
	for _, is := range [][2]string{{"vllm", "0.32.0"}, {"sglang", "0.5.23"}} {
		scheme, err := blockhash.SchemeFor(is[0], is[1])
		require.NoError(t, err)
		o := blockhash.Options{Scheme: scheme, BlockSize: 16}
		hash, err := kveventstest.HashAs(o)
		require.NoError(t, err)
		h, err := blockhash.New(o)
		require.NoError(t, err)
		want, err := h.AppendKeys(nil, &blockhash.Prompt{Tokens: tokens})
		require.NoError(t, err)
		e := start(t, kveventstest.Options{Engine: is[0], Release: is[1], Hash: hash})
		require.Equal(t, want, e.Hashes(tokens))
		e.Serve(tokens)
		for _, key := range want {
			require.Equal(t, 1, e.Held()[kveventstest.Block{Medium: "GPU", Hash: key}])
		}
	}
	_, err := kveventstest.HashAs(blockhash.Options{})
	require.ErrorIs(t, err, blockhash.ErrScheme)
}

// TestPromptLargerThanThePool: it is not run, so that no block of it is announced that
// went before it was announced.
func TestPromptLargerThanThePool(t *testing.T) {
	tokens := make([]uint32, 16*21)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	e := start(t, kveventstest.Options{Blocks: 20})
	require.Zero(t, e.Serve(tokens))
	require.Empty(t, e.Held())
	require.Zero(t, e.Seq())
	fits := tokens[:16*20]
	require.Zero(t, e.Serve(fits))
	require.Len(t, e.Held(), 20)
	require.Equal(t, 16*19, e.Serve(fits))
	require.Zero(t, e.Serve(tokens))
	require.Len(t, e.Held(), 20)

	window := start(t, kveventstest.Options{Blocks: 20, Groups: []kveventstest.Group{{Window: 32}}})
	window.Serve(tokens) // needs the blocks of its window only
	require.NotEmpty(t, window.Held())
}

func TestOptionsRefused(t *testing.T) {
	for _, o := range []kveventstest.Options{{Blocks: -1}, {BlockSize: -1}, {Groups: []kveventstest.Group{{Window: -1}}}, {Engine: "x"}, {Release: "0.1.0"}} {
		_, err := kveventstest.Start(o)
		require.Error(t, err, "%+v", o)
	}
	_, err := kveventstest.StartRanks(kveventstest.Options{}, 0)
	require.Error(t, err)
	start(t, kveventstest.Options{Replay: true}).TruncateBuffer(-1) // nothing is left of nothing
}
