package lmcache

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/internal/recorded"
	"github.com/kvatlas/kvatlas/internal/recording"
)

func keysOf(t testing.TB, a *recording.Answer) (keys []Key) {
	for _, k := range a.Keys {
		bits, negative, err := k.Bits()
		require.NoError(t, err)
		keys = append(keys, Key{Bits: bits, Negative: negative})
	}
	return keys
}

func layoutOf(a *recording.Answer) Layout {
	layout := Layout{}
	for _, p := range a.Layout {
		layout = append(layout, Placement{p.Instance, p.Location, p.Tokens})
	}
	return layout
}

func tokensOf(t testing.TB, a *recording.Answer) []uint32 {
	ids, wide := recorded.Tokens(a.Tokens)
	require.Nil(t, wide)
	return ids
}

// lines reads a file of testdata/lmcache/lookup.
func lines(t testing.TB, name string) (header recording.AnswersHeader, ops []recording.Answer) {
	require.NoError(t, recording.Lines(bytes.NewReader(golden.Read(t, name)), func(n int, line []byte) (err error) {
		if n == 1 {
			header, err = recording.ReadAnswersHeader(line)
			return err
		}
		a, err := recording.ReadAnswer(line)
		ops = append(ops, a)
		return err
	}))
	return header, ops
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func hasher(t testing.TB, h *recording.AnswersHeader) *blockhash.Hasher {
	if h.Algorithm == "builtin" {
		return nil
	}
	scheme, err := blockhash.SchemeFor("lmcache", h.LMCache)
	require.NoError(t, err)
	alg, err := blockhash.ParseAlgorithm(h.Algorithm)
	require.NoError(t, err)
	x, err := blockhash.New(blockhash.Options{Scheme: scheme, Algorithm: alg, BlockSize: h.ChunkSize, PartialChunk: true, Seed: blockhash.SeedText(*h.Seed)})
	require.NoError(t, err)
	return x
}

// TestAnswersAsTheController replays what LMCache's own controller was sent and
// compares every reply, byte by byte, and every look-up.
func TestAnswersAsTheController(t *testing.T) {
	for _, name := range golden.Files(t, "lmcache/lookup/*.jsonl") {
		header, ops := lines(t, name)
		o := Options{Hasher: hasher(t, &header)}
		if header.LMCache == "0.3.9" {
			o.Rules = Single
		}
		c, err := NewController(o)
		require.NoError(t, err)
		lookups, replies, unknownPeers := 0, 0, 0
		for i, op := range ops {
			where := fmt.Sprintf("%s, line %d, %s", name, i+2, op.Type)
			switch op.Op {
			case "message":
				reply, err := c.HandleFrame(op.Sent)
				require.NoError(t, err, where)
				if _, err := Decode(op.Reply); op.Reply != nil && err != nil {
					// The controller to 0.3.9 answers None where it knows no address.
					require.ErrorContains(t, err, "want text, got None", where)
					unknownPeers++
					continue
				}
				require.Equal(t, op.Reply, reply, where)
				replies += btoi(reply != nil)
			case "lookup":
				keys := keysOf(t, &op)
				require.Equal(t, layoutOf(&op), c.LookupKeys(keys, header.ChunkSize, len(op.Tokens)), where)
				if o.Hasher != nil {
					got, err := c.Lookup(tokensOf(t, &op))
					require.NoError(t, err)
					require.Equal(t, layoutOf(&op), got, where)
					byTokens, err := c.Prefixes(tokensOf(t, &op))
					require.NoError(t, err)
					require.Equal(t, c.PrefixesKeys(keys, header.ChunkSize, len(op.Tokens)), byTokens)
				}
				lookups++
			case "state":
				require.Equal(t, op.Gaps, c.Stats().Gaps)
				require.Equal(t, op.Chunks, c.Stats().Keys)
			default:
				t.Fatal(where)
			}
		}
		require.Greater(t, lookups, 50, name)
		require.Greater(t, replies, 10, name)
		if o.Rules == Batched {
			require.Zero(t, unknownPeers)
		}
	}
}

// TestLookupIsNotTheSameAsPrefixes: the first holder of the first chunk holds all of
// them too.
func TestLookupIsNotTheSameAsPrefixes(t *testing.T) {
	c, err := NewController(Options{})
	require.NoError(t, err)
	admit := func(instance string, keys ...uint64) {
		m := &BatchedKVOperationMsg{InstanceID: instance, Location: "LocalCPUBackend"}
		for i, k := range keys {
			m.Operations = append(m.Operations, KVOpEvent{OpType: Admit, Key: Key{Bits: k}, SeqNum: int64(i)})
		}
		_, err := c.Handle(m)
		require.NoError(t, err)
	}
	admit("nobody", 1) // is not registered
	for _, id := range []string{"b", "a"} {
		_, err := c.Handle(&RegisterMsg{InstanceID: id, IP: "10.0.0.1"})
		require.NoError(t, err)
	}
	admit("a", 1, 2, 3)
	admit("b", 1, 3)
	keys := []Key{{Bits: 1}, {Bits: 2}, {Bits: 3}, {Bits: 4}}
	require.Equal(t, Layout{{"b", "LocalCPUBackend", 768}, {"a", "LocalCPUBackend", 512}}, c.LookupKeys(keys, 256, 1000))
	require.Equal(t, []Prefix{{"b", 0, 1, 256}, {"a", 0, 3, 768}}, c.PrefixesKeys(keys, 256, 1000))
	require.Equal(t, Stats{Workers: 2, Keys: 5, Dropped: 1}, c.Stats())
	_, err = c.Lookup([]uint32{1})
	require.ErrorIs(t, err, ErrHasher)
	_, err = c.Prefixes([]uint32{1})
	require.ErrorIs(t, err, ErrHasher)
	_, err = c.Handle(&PinMsg{})
	require.ErrorIs(t, err, ErrObserver)
	reply, err := c.HandleFrame([]byte("x"))
	require.ErrorIs(t, err, ErrMessage)
	m, _ := Decode(reply)
	require.Contains(t, m.(*ErrorMsg).Error, "want a map")

	_, err = c.Handle(&DeRegisterMsg{InstanceID: "a", IP: "10.0.0.1"})
	require.NoError(t, err)
	require.Equal(t, Stats{Workers: 1, Keys: 2, Dropped: 1}, c.Stats())
	require.Len(t, c.holders, 2, "nothing is left of it")
}

func TestOptions(t *testing.T) {
	vllm, err := blockhash.SchemeFor("vllm", "0.32.0")
	require.NoError(t, err)
	h, err := blockhash.New(blockhash.Options{Scheme: vllm, BlockSize: 16, Seed: blockhash.SeedText("0")})
	require.NoError(t, err)
	digests, err := blockhash.SchemeFor("lmcache", "0.3.15")
	require.NoError(t, err)
	d, err := blockhash.New(blockhash.Options{Scheme: digests, BlockSize: 16, Seed: blockhash.SeedText("0")})
	require.NoError(t, err)
	for _, o := range []Options{{Rules: 2}, {CompletionThreshold: 2}, {CompletionThreshold: -1}, {Hasher: h}, {Hasher: d}} {
		_, err := NewController(o)
		require.ErrorIs(t, err, ErrOptions)
	}
	c, err := NewController(Options{})
	require.NoError(t, err)
	_, err = c.Handle(nil)
	require.ErrorIs(t, err, ErrMessage)
}

// slow is the obvious controller: a list of what is held, in order.
type slow struct{ held []heldKey }

type heldKey struct {
	instance string
	worker   int64
	location string
	key      Key
}

func (s *slow) prefix(instance string, worker int64, keys []Key) (n int) {
	for n < len(keys) && slices.ContainsFunc(s.held, func(h heldKey) bool {
		return h.instance == instance && h.worker == worker && h.key == keys[n]
	}) {
		n++
	}
	return n
}

func TestPrefixesAgainstReference(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c, err := NewController(Options{Rules: Rules(seed % 2)})
		require.NoError(t, err)
		var ref slow
		if seed%2 == 0 {
			for w := range 6 {
				_, err := c.Handle(&RegisterMsg{InstanceID: string(rune('a' + w%3)), WorkerID: int64(w / 3)})
				require.NoError(t, err)
			}
		}
		for range 600 {
			h := heldKey{string(rune('a' + rng.IntN(3))), int64(rng.IntN(2)), []string{"cpu", "disk"}[rng.IntN(2)], Key{Bits: rng.Uint64N(8)}}
			op := []OpType{Admit, Admit, Evict}[rng.IntN(3)]
			var m Message = &BatchedKVOperationMsg{InstanceID: h.instance, WorkerID: h.worker, Location: h.location, Operations: []KVOpEvent{{OpType: op, Key: h.key}}}
			if seed%2 == 1 {
				x := KVOperationMsg{InstanceID: h.instance, WorkerID: h.worker, Location: h.location, Key: h.key}
				if m = (*KVAdmitMsg)(&x); op == Evict {
					m = (*KVEvictMsg)(&x)
				}
			}
			_, err := c.Handle(m)
			require.NoError(t, err)
			ref.held = slices.DeleteFunc(ref.held, func(o heldKey) bool { return o == h })
			if op == Admit {
				ref.held = append(ref.held, h)
			}
			require.Equal(t, len(ref.held), c.Stats().Keys)
			keys := make([]Key, 5)
			for i := range keys {
				keys[i].Bits = rng.Uint64N(8)
			}
			found := 0
			for _, p := range c.PrefixesKeys(keys, 4, 18) {
				require.Equal(t, ref.prefix(p.InstanceID, p.WorkerID, keys), p.Chunks)
				require.Equal(t, min(4*p.Chunks, 18), p.Tokens)
				found++
			}
			for w := range 6 {
				found -= btoi(ref.prefix(string(rune('a'+w%3)), int64(w/3), keys) > 0)
			}
			require.Zero(t, found)
		}
	}
}

// TestConcurrentSafe: messages and look-ups at once, for the race detector.
func TestConcurrentSafe(t *testing.T) {
	header, ops := lines(t, "lmcache/lookup/lookup-0.5.6-sha256_cbor.jsonl")
	c, err := NewController(Options{Hasher: hasher(t, &header)})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, op := range ops {
				switch op.Op {
				case "message":
					if _, err := c.HandleFrame(op.Sent); err != nil {
						t.Error(err)
					}
				case "lookup":
					if _, err := c.Prefixes(tokensOf(t, &op)); err != nil {
						t.Error(err)
					}
				}
				c.Stats()
			}
		})
	}
	wg.Wait()
}
