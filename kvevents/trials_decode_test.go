package kvevents

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

// The trials are inputs from public bug reports of other projects; the
// numbers are those of TRIALS.md.

func TestTrialT14HashFromDigest(t *testing.T) {
	digest := make([]byte, 32)
	for i := range digest {
		digest[i] = byte(i)
	}
	b := decodeBatch(t, pack(t, arr{1, arr{arr{"BlockRemoved", arr{digest}}}}))
	require.Equal(t, []uint64{1736447835066146335}, b.Events[0].Hashes)
	require.Equal(t, 32, b.Events[0].HashBytes)
}

func TestTrialT15NarrowIntegers(t *testing.T) {
	b := decodeBatch(t, vector(t, "V6-c"))
	require.Equal(t, []uint64{100, 200, 40000, 3000000000, 1 << 63, math.MaxUint64, math.MaxUint64, 1 << 63}, b.Events[0].Hashes)
	require.Zero(t, b.Events[0].HashBytes)
}

func TestTrialT17BytesOrInt(t *testing.T) {
	b := decodeBatch(t, vector(t, "V6-b"))
	ev := &b.Events[0]
	require.True(t, ev.HasParent)
	require.Equal(t, uint64(math.MaxUint64-4), ev.Parent)
	digest := binary.BigEndian.AppendUint64(bytes.Repeat([]byte{0xee}, 24), 0x0102030405060708)
	b = decodeBatch(t, pack(t, arr{1, arr{arr{"BlockRemoved", arr{digest}}, arr{"BlockRemoved", arr{uint64(0x0102030405060708)}}}}))
	require.Equal(t, b.Events[0].Hashes, b.Events[1].Hashes)
}

func TestTrialT19ByteExact(t *testing.T) {
	b := decodeBatch(t, []byte("\x92\x01\x91\x92\xacBlockRemoved\x91\xff"))
	require.Equal(t, []uint64{math.MaxUint64}, b.Events[0].Hashes)

	raw := bytes.Repeat([]byte{0xff, 0xfe, 0x00, 0xc1}, 8)
	b = decodeBatch(t, pack(t, arr{1, arr{append(goodStored, "extra_keys", arr{nil, arr{raw}})}}))
	require.Equal(t, []ExtraKey{{Kind: ExtraBytes, Text: raw}}, b.Events[0].ExtraKeys[1])

	asBin := pack(t, arr{1, arr{arr{"BlockRemoved", arr{raw}}}})
	asStr := pack(t, arr{1, arr{arr{"BlockRemoved", arr{string(raw)}}}})
	require.NotEqual(t, asBin, asStr)
	require.Equal(t, decodeBatch(t, asBin).Events[0].Hashes, decodeBatch(t, asStr).Events[0].Hashes)
}

func TestTrialT20MapsAndArrays(t *testing.T) {
	for name, group := range map[string]bool{"V6-a": true, "V6-d": false} {
		b := decodeBatch(t, vector(t, name))
		require.Equal(t, 1.25, b.Timestamp)
		require.True(t, b.HasRank)
		require.EqualValues(t, 3, b.Rank)
		require.Len(t, b.Events, 3)
		stored, removed, cleared := b.Events[0], b.Events[1], b.Events[2]
		require.Equal(t, []Kind{BlockStored, BlockRemoved, AllBlocksCleared}, []Kind{stored.Kind, removed.Kind, cleared.Kind})
		require.Equal(t, []uint64{42}, stored.Hashes)
		require.Equal(t, []uint32{1, 2}, stored.Tokens)
		require.Equal(t, 2, stored.BlockSize)
		require.Equal(t, "GPU", string(stored.Medium))
		require.False(t, stored.HasParent)
		require.Equal(t, group, stored.HasGroup)
		require.Equal(t, group, removed.HasGroup)
		if group {
			require.Equal(t, []uint64{42}, removed.Hashes)
		} else {
			require.Equal(t, []uint64{math.MaxUint64}, removed.Hashes)
		}
	}
}

func TestTrialT22ArraysOfEveryLength(t *testing.T) {
	all := arr{"BlockStored", arr{7}, nil, arr{1, 2}, 2, 9, "CPU", "adapter", arr{arr{"adapter"}}, 1, "full_attention", 64, "later"}
	for _, n := range []int{5, 6, 7, 8, 9, 10, 11, 12, 13} {
		b := decodeBatch(t, pack(t, arr{1, arr{all[:n]}}))
		require.Len(t, b.Events, 1, n)
		ev := b.Events[0]
		require.Equal(t, []uint64{7}, ev.Hashes)
		require.Equal(t, 2, ev.BlockSize)
		require.Equal(t, n > 5, ev.HasLoRAID)
		require.Equal(t, n > 6, string(ev.Medium) == "CPU")
		require.Equal(t, n > 7, string(ev.LoRAName) == "adapter")
		require.Equal(t, n > 8, ev.ExtraKeys != nil)
		require.Equal(t, n > 9, ev.HasGroup)
		require.Equal(t, n > 10, string(ev.SpecKind) == "full_attention")
		require.Equal(t, n > 11, ev.SlidingWindow == 64)
		require.Equal(t, n > 12, b.UnknownFields == 1)
	}
}

func TestTrialT24MixedBatch(t *testing.T) {
	b := decodeBatch(t, pack(t, arr{1, arr{
		arr{"BlockRemoved", arr{1}}, kv{"type", "BlockRemoved", "block_hashes", arr{2}},
		kv{"block_hashes", arr{3}}, kv{"type", 5, "block_hashes", arr{4}}, arr{},
	}}))
	require.Len(t, b.Events, 2)
	require.Equal(t, []uint64{1}, b.Events[0].Hashes)
	require.Equal(t, []uint64{2}, b.Events[1].Hashes)
	require.Equal(t, []Malformed{{Index: 2, Reason: ReasonNoType}, {Index: 3, Reason: ReasonNoType}, {Index: 4, Reason: ReasonNoType}}, b.Malformed)
}

func TestTrialT26OmittedOptionals(t *testing.T) {
	b := decodeBatch(t, vector(t, "V5 stored omitted optionals"))
	ev := b.Events[0]
	require.Equal(t, []uint64{7}, ev.Hashes)
	require.Equal(t, []uint32{11, 12}, ev.Tokens)
	require.Empty(t, ev.Medium)
	require.False(t, ev.Fields.Has(FieldMedium))
	b = decodeBatch(t, vector(t, "V5 removed omitted medium"))
	require.Equal(t, []uint64{math.MaxUint64 - 2}, b.Events[0].Hashes)
	b = decodeBatch(t, vector(t, "V5 salt session signed parent"))
	ev = b.Events[0]
	require.Equal(t, "salt-a", string(ev.CacheSalt))
	require.Equal(t, "session-a", string(ev.SessionID))
	require.Equal(t, "CPU_PINNED", string(ev.Medium))
	require.Equal(t, uint64(math.MaxUint64-1), ev.Parent)
	require.EqualValues(t, 3, ev.LoRAID)
	b = decodeBatch(t, vector(t, "V5 int64 limits"))
	require.Equal(t, []uint64{1 << 63, math.MaxInt64, math.MaxUint64}, b.Events[0].Hashes)
	require.False(t, b.HasRank)
	b = decodeBatch(t, vector(t, "V5 empty batch"))
	require.Empty(t, b.Events)
	require.True(t, b.HasRank)
}

func TestTrialT27UnknownKeysOfEveryType(t *testing.T) {
	ext := msgpack.RawMessage("\xd6\x05abcd")
	for _, v := range []any{nil, true, -5, uint64(math.MaxUint64), 1.5, float32(2), "text", strings.Repeat("x", 300), []byte("bin"),
		make([]byte, 70000), arr{1, arr{}}, kv{"type", "BlockRemoved", "block_hashes", 5}, ext} {
		before := append(kv{"origin", v}, goodStored...)
		after := append(goodStored[:len(goodStored):len(goodStored)], "event_version", v)
		b := decodeBatch(t, pack(t, arr{1, arr{goodStored, before, after}}))
		require.Len(t, b.Events, 3)
		require.Equal(t, 2, b.UnknownFields)
		for i := range b.Events {
			require.Equal(t, b.Events[0].Fields, b.Events[i].Fields)
			require.Equal(t, b.Events[0].Hashes, b.Events[i].Hashes)
			require.Equal(t, b.Events[0].Tokens, b.Events[i].Tokens)
		}
	}
	b := decodeBatch(t, pack(t, arr{1, arr{append(kv{"type", "BlockStored"}, goodStored...), goodStored}}))
	require.Len(t, b.Events, 1)
	require.Equal(t, []Malformed{{0, ReasonDuplicateKey, BlockStored}}, b.Malformed)
}

func TestTrialT28ShortAndTruncated(t *testing.T) {
	b := decodeBatch(t, pack(t, arr{1, arr{arr{}, arr{"BlockStored"}, goodStored}}))
	require.Len(t, b.Events, 1)
	require.Equal(t, []Malformed{{Index: 0, Reason: ReasonNoType}, {1, ReasonMissingField, BlockStored}}, b.Malformed)

	var dec Decoder
	for name := range vectors {
		full := vector(t, name)
		for n := range full {
			compare(t, full[:n])
			var b Batch
			err := dec.Decode(full[:n], &b)
			require.ErrorIs(t, err, ErrTruncated, "%s cut at %d", name, n)
			require.Equal(t, Batch{Events: b.Events[:0], Malformed: b.Malformed[:0]}, Batch{Events: b.Events, Malformed: b.Malformed})
		}
		require.ErrorIs(t, dec.Decode(append(full, 0), &Batch{}), ErrTrailing)
	}
	for _, p := range oddPayloads() {
		for n := range p {
			compare(t, p[:n])
			require.Error(t, dec.Decode(p[:n], &Batch{}))
		}
	}
}

func TestTrialT29WrongFrames(t *testing.T) {
	seq := binary.BigEndian.AppendUint64(nil, 7)
	payload := vector(t, "V6-a")
	m, err := ParseMessage([][]byte{[]byte("kv"), seq, payload})
	require.NoError(t, err)
	require.Equal(t, Message{[]byte("kv"), 7, payload}, m)
	for _, frames := range [][][]byte{
		nil, {payload}, {nil, payload}, {nil, seq, payload, nil}, {nil, nil, payload}, {nil, seq[1:], payload},
		{nil, append(seq[:8:8], 0), payload}, {nil, seq, nil}, {nil, bytes.Repeat([]byte{0xff}, 8), payload},
	} {
		_, err := ParseMessage(frames)
		var fe *FrameError
		require.ErrorAs(t, err, &fe)
		require.Equal(t, len(frames), fe.Frames)
	}
}

func TestTrialT30FramesOfOthers(t *testing.T) {
	payload := vector(t, "V6-a")
	for _, frames := range [][][]byte{{payload}, {[]byte("kv-events"), payload}} {
		_, err := ParseMessage(frames)
		require.ErrorContains(t, err, "want 3: topic, 8-byte sequence, payload")
	}
	full := arr{"BlockStored", arr{7}, nil, arr{1, 2}, 2, nil, "GPU", nil, nil, nil, nil, nil}
	b := decodeBatch(t, pack(t, arr{1, arr{full, append(full[:len(full):len(full)], 32)}}))
	require.Len(t, b.Events, 2)
	require.Equal(t, b.Events[0], withHashes(b.Events[1], b.Events[0].Hashes, b.Events[0].Tokens))
}

func withHashes(ev Event, h []uint64, tokens []uint32) Event {
	ev.Hashes, ev.Tokens = h, tokens
	return ev
}

func TestReplayFrames(t *testing.T) {
	seq, end, payload := binary.BigEndian.AppendUint64(nil, 9), bytes.Repeat([]byte{0xff}, 8), []byte("x")
	topic := []byte("kv")
	for i, c := range []struct {
		frames [][]byte
		want   Reply
	}{
		{[][]byte{{}, seq, payload}, Reply{Seq: 9, Payload: payload}},
		{[][]byte{{}, topic, seq, payload}, Reply{Topic: topic, Seq: 9, Payload: payload}},
		{[][]byte{{}, {}, seq, payload}, Reply{Topic: []byte{}, Seq: 9, Payload: payload}},
		{[][]byte{seq, payload}, Reply{Seq: 9, Payload: payload}},
		{[][]byte{topic, seq, payload}, Reply{Topic: topic, Seq: 9, Payload: payload}},
		{[][]byte{{}, end, {}}, Reply{Seq: math.MaxUint64, Payload: []byte{}, End: true}},
		{[][]byte{{}, {}, end, {}}, Reply{Topic: []byte{}, Seq: math.MaxUint64, Payload: []byte{}, End: true}},
	} {
		got, err := ParseReplay(c.frames)
		require.NoError(t, err, i)
		require.Equal(t, c.want, got, i)
	}
	for i, frames := range [][][]byte{
		nil, {payload}, {{}, topic, topic, seq, payload}, {topic, topic, seq, payload}, {{}, seq[:7], payload},
		{{}, seq, {}}, {{}, end, payload}, {{}, topic, payload, seq},
	} {
		_, err := ParseReplay(frames)
		require.ErrorContains(t, err, "kvevents: ", fmt.Sprint(i))
	}
}

func TestTrialT36ExtraKeys(t *testing.T) {
	digest := bytes.Repeat([]byte{7}, 32)
	keys := arr{arr{"adapter", "salt"}, nil}
	b := decodeBatch(t, pack(t, arr{1, arr{
		goodStored,
		append(goodStored[:len(goodStored):len(goodStored)], "extra_keys", keys),
		append(goodStored[:len(goodStored):len(goodStored)], "extra_keys", arr{arr{arr{"image", -12}, digest, 5}, nil}),
		append(goodStored[:len(goodStored):len(goodStored)], "extra_keys", arr{nil}),
		kv{"type", "BlockStored", "block_hashes", arr{}, "parent_block_hash", nil, "token_ids", arr{}, "block_size", 0, "lora_id", nil},
	}}))
	require.Equal(t, []Malformed{{3, ReasonLength, BlockStored}}, b.Malformed)
	require.Len(t, b.Events, 4)
	require.Nil(t, b.Events[0].ExtraKeys)
	require.Equal(t, [][]ExtraKey{{{Kind: ExtraText, Text: []byte("adapter")}, {Kind: ExtraText, Text: []byte("salt")}}, nil}, b.Events[1].ExtraKeys)
	require.Equal(t, []ExtraKey{{Kind: ExtraItem, Text: []byte("image"), Offset: -12}, {Kind: ExtraBytes, Text: digest}, {Kind: ExtraInt, Offset: 5}}, b.Events[2].ExtraKeys[0])
}

// TestTrialT98 is the decoder's part: an event that names a place only.
func TestTrialT98LocationOnly(t *testing.T) {
	b := decodeBatch(t, vector(t, "V6-c"))
	ev := b.Events[0]
	require.Len(t, ev.Hashes, 8)
	require.Empty(t, ev.Tokens)
	require.Zero(t, ev.BlockSize)
	require.False(t, ev.HasParent)
	require.Equal(t, "CPU", string(ev.Medium))
}

// TestTrialT157 is the decoder's part: the signed values of SGLang's chain.
func TestTrialT157SignedHashes(t *testing.T) {
	signed := []int64{-685567553150498463, -2177363047410903004, 8175329908256277695, -7918518717108636741}
	first8 := []uint64{0xf67c5ff154ee4961, 0xe1c873d83402d824, 0x71749b3c9f3e04bf, 0x921bc52e4f7533bb}
	ev := Event{Kind: BlockStored, Hashes: first8, BlockSize: 4}
	payload := AppendBatch(nil, &Batch{Events: []Event{ev}}, mustForm(t, "sglang", "0.5.13"))
	b := decodeBatch(t, payload)
	require.Equal(t, first8, b.Events[0].Hashes)
	b = decodeBatch(t, pack(t, arr{1, arr{arr{"BlockRemoved", signed}}}))
	require.Equal(t, first8, b.Events[0].Hashes)
}

// TestTokenForms: ids that do not fit cost the tokens, never the hashes.
func TestTokenForms(t *testing.T) {
	stored := func(tokens any) any { return arr{"BlockStored", arr{7, 8}, nil, tokens, 2, nil} }
	b := decodeBatch(t, pack(t, arr{1, arr{
		stored(arr{1, uint32(math.MaxUint32), 300, 70000}), stored(arr{arr{1, 2}, arr{2, 3}}),
		stored(arr{1, -1}), stored(arr{1, int64(1) << 32}), stored(arr{arr{1, 2}, arr{2}}), stored(arr{arr{1, 2}, 3}), stored(arr{"x"}), stored(nil),
	}}))
	require.Empty(t, b.Malformed)
	want := []struct {
		form   TokenForm
		tokens []uint32
	}{
		{TokensPlain, []uint32{1, math.MaxUint32, 300, 70000}}, {TokensPairs, []uint32{1, 2, 2, 3}},
		{TokensOpaque, nil}, {TokensOpaque, nil}, {TokensOpaque, nil}, {TokensOpaque, nil}, {TokensOpaque, nil}, {TokensPlain, nil},
	}
	for i, w := range want {
		require.Equal(t, w.form, b.Events[i].TokenForm, i)
		require.Equal(t, w.tokens, b.Events[i].Tokens, i)
		require.Equal(t, []uint64{7, 8}, b.Events[i].Hashes)
	}
}
