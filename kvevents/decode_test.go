package kvevents

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

// pack encodes Go values with the generic library, for payloads that no
// engine sends.
func pack(t testing.TB, v any) []byte {
	t.Helper()
	var b strings.Builder
	e := msgpack.NewEncoder(&b)
	e.UseCompactInts(true)
	require.NoError(t, e.Encode(v))
	return []byte(b.String())
}

func decodeBatch(t testing.TB, payload []byte) *Batch {
	t.Helper()
	compare(t, payload)
	var dec Decoder
	b := &Batch{}
	require.NoError(t, dec.Decode(payload, b))
	return b
}

type arr = []any

// kv is a map with an order.
type kv []any

func (m kv) EncodeMsgpack(e *msgpack.Encoder) error {
	if err := e.EncodeMapLen(len(m) / 2); err != nil {
		return err
	}
	for _, v := range m {
		if err := e.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

var goodStored = kv{"type", "BlockStored", "block_hashes", arr{1, 2}, "parent_block_hash", nil, "token_ids", arr{1, 2, 3, 4}, "block_size", 2, "lora_id", nil}

// oddPayloads are seeds for the fuzzer: shapes at the border of the rules.
func oddPayloads() (all [][]byte) {
	t := &testing.T{}
	stored := func(more ...any) kv { return append(goodStored[:len(goodStored):len(goodStored)], more...) }
	for _, ev := range []any{
		kv{}, arr{}, "x", 5, nil, true,
		kv{"type", 5}, kv{"no", 1}, kv{"type", "BlockStored", "type", "BlockStored"},
		kv{"block_hashes", arr{1}, "type", "BlockRemoved"},
		kv{"type", "New", "block_hashes", kv{}}, arr{"New", 1, 2},
		stored("extra_keys", arr{nil, arr{"a", arr{"id", -3}, []byte("digest"), 7, nil, 1.5, arr{"tag", "x"}}}),
		stored("extra_keys", arr{nil}), stored("extra_keys", arr{}), stored("extra_keys", 5), stored("extra_keys", arr{"salt", kv{"a", 1}}),
		stored("lookahead_token_ids", arr{arr{1}, arr{2, 3}}), stored("lookahead_token_ids", arr{arr{-1}, arr{}}), stored("lookahead_token_ids", arr{nil, arr{}}),
		stored("lora_name", kv{"cache_salt", "s", 5, 5}), stored("cache_salt", "a", "lora_name", kv{"cache_salt", "s"}),
		stored("medium", 5), stored("group_idx", -1), stored("group_idx", 3.0), stored("block_size", 2), stored(arr{}, 1, 5, 5),
		arr{"BlockStored", arr{1}, nil, arr{arr{1, 2}, arr{2, 3}}, 2, nil, "GPU", kv{"cache_salt", "salt"}},
		arr{"BlockStored", arr{1}, nil, arr{-1, 2}, 2, nil}, arr{"BlockStored", arr{1}, nil, arr{arr{1, 2}, 5}, 2},
		arr{"BlockStored", arr{"short"}, nil, arr{}, 2}, arr{"BlockRemoved", arr{1.5}}, arr{"BlockRemoved", nil}, arr{"AllBlocksCleared", 1},
	} {
		all = append(all, pack(t, arr{1.25, arr{ev, goodStored}, 0}))
	}
	return append(all,
		pack(t, kv{"ts", 1, "events", arr{goodStored}, "attn_dp_rank", 3, "more", 1}),
		pack(t, kv{"events", arr{}, "ts", 1, "data_parallel_rank", nil}),
		pack(t, kv{"events", arr{}, "ts", 1, "events", arr{}}), pack(t, kv{"events", arr{}}),
		pack(t, arr{1.5, arr{}, 1, "more", kv{}}), pack(t, arr{nil, arr{}}), pack(t, arr{1.5, arr{}, "x"}), pack(t, arr{1.5}),
		pack(t, arr{float32(1.5), arr{}}), pack(t, arr{-3, arr{}}))
}

func TestOddPayloads(t *testing.T) {
	for _, p := range oddPayloads() {
		compare(t, p)
	}
}

// TestBatchAsMap: the batch itself as a map, with either name of the rank.
func TestBatchAsMap(t *testing.T) {
	b := decodeBatch(t, pack(t, kv{"ts", 1.5, "events", arr{goodStored}, "attn_dp_rank", 3, "more", 1}))
	require.Equal(t, 1.5, b.Timestamp)
	require.True(t, b.HasRank)
	require.EqualValues(t, 3, b.Rank)
	require.Len(t, b.Events, 1)
	require.Equal(t, 1, b.UnknownFields)
	b = decodeBatch(t, pack(t, kv{"data_parallel_rank", nil, "events", arr{}, "ts", 2}))
	require.False(t, b.HasRank)
	require.Equal(t, 2.0, b.Timestamp)
}

// TestRandomDamage compares decoder and oracle on vectors with random bytes
// changed, cut out or doubled.
func TestRandomDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	seeds := oddPayloads()
	for name := range vectors {
		seeds = append(seeds, vector(t, name))
	}
	for range 20000 {
		p := append([]byte{}, seeds[rng.IntN(len(seeds))]...)
		for range 1 + rng.IntN(3) {
			if len(p) == 0 {
				break
			}
			at := rng.IntN(len(p))
			switch rng.IntN(4) {
			case 0:
				p[at] = byte(rng.Uint32())
			case 1:
				p[at] = []byte{0xc0, 0xc1, 0xc4, 0x90, 0x91, 0x80, 0x92, 0xdc, 0xdd, 0xde, 0xff, 0xa0, 0xd9, 0xcb, 0xc7, 0xd4}[rng.IntN(16)]
			case 2:
				p = append(p[:at], p[min(at+1+rng.IntN(3), len(p)):]...)
			default:
				p = append(p[:at:at], append([]byte{p[at]}, p[at:]...)...)
			}
		}
		compare(t, p)
	}
}

// TestDeepNesting: nesting costs neither stack nor memory.
func TestDeepNesting(t *testing.T) {
	deep := strings.Repeat("\x91", 4<<20) + "\x01"
	ev := "\x82\xa4type\xb0AllBlocksCleared\xa1x" + deep
	var dec Decoder
	var b Batch
	require.NoError(t, dec.Decode([]byte("\x92\x01\x91"+ev), &b))
	require.Len(t, b.Events, 1)
	require.Equal(t, 1, b.UnknownFields)
	require.NoError(t, dec.Decode([]byte("\x92\x01\x91"+deep), &b))
	require.Equal(t, []Malformed{{Index: 0, Reason: ReasonNoType}}, b.Malformed)
	require.ErrorIs(t, dec.Decode([]byte("\x92\x01\x91"+ev[:len(ev)-1]), &b), ErrTruncated)
}

// TestLimits: claims are checked before memory is taken for them.
func TestLimits(t *testing.T) {
	var b Batch
	var dec Decoder
	for _, claim := range []string{
		"\x92\x01\xdd\x3b\x9a\xca\x00",                                                   // 10^9 events
		"\x92\x01\x91\x92\xacBlockRemoved\xdd\x3b\x9a\xca\x00\x01",                       // 10^9 hashes
		"\x92\x01\x91\x94\xabBlockStored\x91\x01\xc0\xdd\x3b\x9a\xca\x00\x01",            // 10^9 tokens
		"\x92\x01\x91\x92\xacBlockRemoved\x91\xc6\xff\xff\xff\xff\x01",                   // a digest of 4 GiB
		"\xdf\xff\xff\xff\xff\xa2ts\x01",                                                 // a map of 4 G entries
		"\x92\x01\x91\xdf\xff\xff\xff\xff\xa4type",                                       // an event of as many
		"\x92\x01\x91\x82\xa4type\xb0AllBlocksCleared\xa1x\xdd\xff\xff\xff\xff\xc0\xc0x", // an unknown field of as many
	} {
		allocs := testing.AllocsPerRun(1, func() { require.ErrorIs(t, dec.Decode([]byte(claim), &b), ErrTruncated) })
		require.Less(t, allocs, 100.0)
		require.Less(t, cap(b.hashes)+cap(b.tokens), 100)
		compare(t, []byte(claim))
	}

	dec.Limits = Limits{Events: 3, Hashes: 4, Tokens: 8, ExtraKeys: 2, PayloadBytes: 1000}
	removed := func(hashes int) any { return arr{"BlockRemoved", make([]int, hashes)} }
	require.ErrorIs(t, dec.Decode(pack(t, arr{1, arr{removed(1), removed(1), removed(1), removed(1)}}), &b), ErrLimit)
	require.ErrorIs(t, dec.Decode(make([]byte, 1001), &b), ErrLimit)
	require.NoError(t, dec.Decode(pack(t, arr{1, arr{removed(3), removed(2), removed(1)}}), &b))
	require.Len(t, b.Events, 2)
	require.Equal(t, []Malformed{{1, ReasonLimit, BlockRemoved}}, b.Malformed)
	require.NoError(t, dec.Decode(pack(t, arr{1, arr{arr{"BlockStored", arr{1}, nil, make([]int, 9), 9}}}), &b))
	require.Equal(t, []Malformed{{0, ReasonLimit, BlockStored}}, b.Malformed)
	require.NoError(t, dec.Decode(pack(t, arr{1, arr{arr{"BlockStored", arr{1}, nil, arr{arr{1, 2}, arr{1, 2}, arr{1, 2}, arr{1, 2}, arr{1, 2}}, 9}}}), &b))
	require.Equal(t, []Malformed{{0, ReasonLimit, BlockStored}}, b.Malformed)
	require.NoError(t, dec.Decode(pack(t, arr{1, arr{append(goodStored, "extra_keys", arr{nil, arr{"a", "b", "c"}})}}), &b))
	require.Equal(t, []Malformed{{0, ReasonLimit, BlockStored}}, b.Malformed)
}

// TestMalformedLeavesNoTrace: what a malformed event had put into the batch is
// taken back, limits included.
func TestMalformedLeavesNoTrace(t *testing.T) {
	bad := arr{"BlockStored", arr{1, 2, 3}, nil, arr{1, 2, 3}, 1, nil, "GPU", nil, arr{arr{"x"}}, 1, nil, nil, 4}
	b := decodeBatch(t, pack(t, arr{1, arr{bad, goodStored, bad, goodStored}}))
	require.Len(t, b.Events, 2)
	require.Equal(t, []Malformed{{0, ReasonLength, BlockStored}, {2, ReasonLength, BlockStored}}, b.Malformed)
	require.Equal(t, 4, len(b.hashes))
	require.Equal(t, 8, len(b.tokens))
	require.Zero(t, b.UnknownFields)
}

// TestDecodeAllocs: decoding, frames and encoding do not allocate once warm.
func TestDecodeAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var dec Decoder
	var b Batch
	for _, form := range []Form{mustForm(t, "vllm", "0.18.0"), mustForm(t, "vllm", "0.33.0"), mustForm(t, "sglang", "0.5.18")} {
		payload := AppendBatch(nil, busyBatch(64, 16), form)
		frames := [][]byte{nil, make([]byte, 8), payload}
		buf := make([]byte, 0, 2*len(payload))
		require.Zero(t, testing.AllocsPerRun(100, func() {
			m, err := ParseMessage(frames)
			if err != nil || dec.Decode(m.Payload, &b) != nil {
				t.Fatal("cannot decode")
			}
			buf = AppendBatch(buf[:0], &b, form)
		}), form)
		require.Equal(t, payload, buf)
	}
}

// busyBatch is the message of a step that stored one event of many blocks and
// removed as many, with what a busy engine sends along.
func busyBatch(blocks, blockSize int) *Batch {
	rng := rand.New(rand.NewPCG(3, 4))
	ev := Event{Kind: BlockStored, HasParent: true, Parent: rng.Uint64(), BlockSize: blockSize, Medium: []byte("GPU"),
		HasGroup: true, SpecKind: []byte("full_attention"), SessionID: []byte("session-1")}
	b := &Batch{Timestamp: 1.7e9, HasRank: true}
	for range blocks {
		ev.Hashes = append(ev.Hashes, rng.Uint64())
		for range blockSize {
			ev.Tokens = append(ev.Tokens, rng.Uint32N(150000))
		}
		ev.ExtraKeys = append(ev.ExtraKeys, []ExtraKey{{Kind: ExtraItem, Text: []byte("image-1"), Offset: 4}})
	}
	b.Events = append(b.Events, ev)
	for range blocks {
		b.Events = append(b.Events, Event{Kind: BlockRemoved, Hashes: []uint64{rng.Uint64()}, Medium: []byte("GPU"), HasGroup: true})
	}
	return b
}

func BenchmarkDecode(b *testing.B) {
	for _, era := range [][2]string{{"vllm", "0.18.0"}, {"vllm", "0.32.0"}} {
		full := busyBatch(64, 16)
		full.Events = full.Events[:1]
		payload := AppendBatch(nil, full, mustForm(b, era[0], era[1]))
		b.Run(era[0]+"-"+era[1], func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(payload)))
			var dec Decoder
			var batch Batch
			for b.Loop() {
				if err := dec.Decode(payload, &batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
		})
	}
}
