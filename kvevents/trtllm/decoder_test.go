package trtllm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/kvevents"
)

func newDecoder(t testing.TB, o Options) *Decoder {
	t.Helper()
	d, err := NewDecoder(o)
	require.NoError(t, err)
	return d
}

// decode gives the events of one event, without a fault.
func decode(t testing.TB, d *Decoder, event string) []kvevents.Event {
	t.Helper()
	var b kvevents.Batch
	_, err := d.Decode([]byte(event), &b)
	require.NoError(t, err, event)
	require.Empty(t, b.Malformed, event)
	return b.Events
}

// compare holds the decoder against the oracle.
func compare(t testing.TB, event []byte, blockSize int) {
	t.Helper()
	id, want, unknown, ok := oracle(event, blockSize)
	if !ok {
		return
	}
	var b kvevents.Batch
	got, err := newDecoder(t, Options{BlockSize: blockSize}).Decode(event, &b)
	require.NoError(t, err, "%s", event)
	require.Equal(t, id, got)
	require.Empty(t, b.Malformed, "%s", event)
	require.Equal(t, unknown, b.UnknownTypes == 1, "%s", event)
	all := split(b.Events)
	require.Len(t, all, len(want), "%s", event)
	for i := range want {
		require.Equal(t, want[i], all[i], "%s: event %d", event, i)
	}
}

// TestOracle: seeded events of all forms.
func TestOracle(t *testing.T) {
	for seed := range uint64(3000) {
		w := writer{rand.New(rand.NewPCG(seed, 1)), seed%2 == 1}
		compare(t, []byte(w.event(seed, 1+int(seed%5))), 1+int(seed%5))
	}
}

// What the example of TensorRT-LLM's documentation prints
// (examples/llm-api/llm_inference_kv_events.py), its first two events; the tokens
// after the first are not printed there.
const documented = `[{"event_id": 0, "data": {"type": "created", "num_blocks_per_cache_level": [101230, 0]}},
 {"event_id": 1, "data": {"type": "stored", "parent_hash": null, "blocks": [{"type": "stored_block", "block_hash": 4203099703668305365,
  "tokens": [{"type": "unique_token", "token_id": 1, "token_extra_id": 0}]}]}}]`

// forward is the first fixture of components/src/dynamo/trtllm/tests/fixtures/
// trtllm_v2_mm_kv_events.json of ai-dynamo/dynamo (b37c409b), made there with
// TensorRT-LLM's serializer (pull request 19529): two pictures over three blocks.
const forward = `{"event_id": 0, "attention_dp_rank": 0, "layer_group_id": 0, "window_size": 128, "hash_algo": "v1_block_key", "data": {
 "type": "stored", "parent_hash": 77, "blocks": [
 {"type": "stored_block", "block_hash": 101, "tokens": [
  {"type": "unique_token", "token_id": 1, "token_extra_id": 0},
  {"type": "unique_token", "token_id": "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "token_extra_id": 0},
  {"type": "unique_token", "token_id": 1001, "token_extra_id": 0},
  {"type": "unique_token", "token_id": 1002, "token_extra_id": 0}],
  "cache_salt": null, "cache_level": 0, "priority": 0, "mm_keys": [
  {"type": "mm_key", "hash": "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "uuid": "9dc26f865941d289", "start_offset": 0}]},
 {"type": "stored_block", "block_hash": 102, "tokens": [
  {"type": "unique_token", "token_id": 1003, "token_extra_id": 0},
  {"type": "unique_token", "token_id": 7, "token_extra_id": 0},
  {"type": "unique_token", "token_id": 1004, "token_extra_id": 0},
  {"type": "unique_token", "token_id": 1005, "token_extra_id": 0}],
  "cache_salt": null, "cache_level": 0, "priority": 0, "mm_keys": [
  {"type": "mm_key", "hash": "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "uuid": "9dc26f865941d289", "start_offset": 3}]}]}}`

func plain(ids ...uint32) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `{"type": "unique_token", "token_id": %d, "token_extra_id": 0}`, id)
	}
	return b.String()
}

func TestPublishedForms(t *testing.T) {
	var list []json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(documented), &list))
	first := newDecoder(t, Options{BlockSize: 1})
	require.Equal(t, []kvevents.Event{{Kind: kvevents.AllBlocksCleared}}, decode(t, first, string(list[0])))
	require.Equal(t, []kvevents.Event{{
		Kind: kvevents.BlockStored, Hashes: []uint64{4203099703668305365}, Tokens: []uint32{1}, BlockSize: 1, Medium: []byte("GPU"),
	}}, decode(t, first, string(list[1])))

	d := newDecoder(t, Options{BlockSize: 4})
	require.Equal(t, []kvevents.Event{
		{Kind: kvevents.BlockStored, Hashes: []uint64{101}, Medium: []byte("GPU")},
		{Kind: kvevents.BlockStored, Hashes: []uint64{102}, Medium: []byte("GPU")},
	}, decode(t, d, forward), "pictures match nothing")
	require.Equal(t, Stats{Special: 2}, d.Stats())

	// TestV2... of tests/unittest/kv_cache_manager_v2_tests/test_kv_cache_event_manager.py:
	// hashes as text, and a change of level.
	d = newDecoder(t, Options{BlockSize: 2})
	stored := decode(t, d, `{"event_id": 1, "data": {"type": "stored", "parent_hash": null, "blocks": [{"type": "stored_block", "block_hash": "abcd",
		"tokens": [`+plain(1, 2)+`], "cache_level": 0, "priority": 0, "mm_keys": [], "cache_salt": null}]}, "window_size": 128, "hash_algo": "v2_sha256"}`)
	require.Equal(t, []uint32{1, 2}, stored[0].Tokens)
	moved := decode(t, d, `{"event_id": 2, "window_size": 128, "hash_algo": "v2_sha256", "data": {"type": "updated", "block_hash": "abcd",
		"cache_level": {"type": "event_diff", "new_value": 1, "old_value": 0}, "priority": {"type": "event_diff", "new_value": 2, "old_value": 1}}}`)
	require.Equal(t, []kvevents.Event{
		{Kind: kvevents.BlockRemoved, Hashes: stored[0].Hashes, Medium: []byte("GPU")},
		{Kind: kvevents.BlockStored, Hashes: stored[0].Hashes, Medium: []byte("CPU")},
	}, moved)
	require.Equal(t, []kvevents.Event{{Kind: kvevents.BlockRemoved, Hashes: stored[0].Hashes}},
		decode(t, d, `{"event_id": 3, "data": {"type": "removed", "block_hashes": ["abcd"]}, "window_size": 128, "hash_algo": "v2_sha256"}`))
}

func TestHashes(t *testing.T) {
	d := newDecoder(t, Options{BlockSize: 1})
	for text, want := range map[string]uint64{
		// tests of tensorrt_llm/grpc/kv_events.py: one value, unsigned and signed
		"9622824665191806685":                                9622824665191806685,
		"-8823919408517744931":                               9622824665191806685,
		"18446744073709551615":                               1<<64 - 1,
		`"` + strings.Repeat("00", 24) + `80000000000000ff"`: 0x80000000000000ff,
	} {
		e := decode(t, d, `{"event_id":0,"data":{"type":"removed","block_hashes":[`+text+`]}}`)
		require.Equal(t, []uint64{want}, e[0].Hashes, text)
	}
}

func TestWholeAndPartialBlocks(t *testing.T) {
	block := func(hash int, ids ...uint32) string {
		return fmt.Sprintf(`{"block_hash":%d,"tokens":[%s],"cache_level":0}`, hash, plain(ids...))
	}
	d := newDecoder(t, Options{BlockSize: 2})
	got := decode(t, d, `{"event_id":0,"data":{"type":"stored","parent_hash":9,"blocks":[`+block(1, 1, 2)+`,`+block(2, 3, 4)+`,`+block(3, 5)+`]}}`)
	require.Equal(t, []kvevents.Event{
		{Kind: kvevents.BlockStored, Hashes: []uint64{1, 2}, Parent: 9, HasParent: true, Tokens: []uint32{1, 2, 3, 4}, BlockSize: 2, Medium: []byte("GPU")},
		{Kind: kvevents.BlockStored, Hashes: []uint64{3}, Medium: []byte("GPU")},
	}, got)
	require.EqualValues(t, 1, d.Stats().Partial)

	// Another block size than the engine's shows where a block has one after it.
	got = decode(t, newDecoder(t, Options{BlockSize: 4}), `{"event_id":0,"data":{"type":"stored","parent_hash":null,"blocks":[`+block(1, 1, 2)+`,`+block(2, 3, 4)+`]}}`)
	require.Equal(t, 2, got[0].BlockSize)
	got = decode(t, newDecoder(t, Options{BlockSize: 1}), `{"event_id":0,"data":{"type":"stored","parent_hash":null,"blocks":[`+block(1, 1, 2)+`]}}`)
	require.Equal(t, 2, got[0].BlockSize)

	// What follows a salted block is not plain either.
	salted := `{"block_hash":1,"tokens":[` + plain(1, 2) + `],"cache_salt":"t"}`
	got = decode(t, d, `{"event_id":0,"data":{"type":"stored","parent_hash":null,"blocks":[`+salted+`,`+block(2, 3, 4)+`]}}`)
	require.Len(t, got, 2)
	require.Empty(t, got[0].Tokens)
	require.Empty(t, got[1].Tokens)
}

func stored(window, layer int, hash int) string {
	extra := ""
	if window > 0 {
		extra += fmt.Sprintf(`,"window_size":%d`, window)
	}
	if layer >= 0 {
		extra += fmt.Sprintf(`,"layer_group_id":%d`, layer)
	}
	return fmt.Sprintf(`{"event_id":0,"data":{"type":"stored","parent_hash":null,"blocks":[{"block_hash":%d,"tokens":[%s]}]}%s}`, hash, plain(5), extra)
}

func TestWindows(t *testing.T) {
	kinds := func(events []kvevents.Event) (s string) {
		for _, e := range events {
			s += e.Kind.String() + " "
		}
		return strings.TrimSpace(s)
	}
	d := newDecoder(t, Options{BlockSize: 1})
	created := `{"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[9,0]},"window_size":%d}`
	require.Equal(t, "AllBlocksCleared", kinds(decode(t, d, fmt.Sprintf(created, 128))))
	require.Equal(t, "AllBlocksCleared", kinds(decode(t, d, fmt.Sprintf(created, 4096))))
	require.Empty(t, decode(t, d, stored(128, -1, 1)))
	require.Equal(t, "BlockStored", kinds(decode(t, d, stored(4096, -1, 1))))
	require.Equal(t, Stats{OtherWindows: 1}, d.Stats())

	// Joined late: the first window seen is not the largest.
	d = newDecoder(t, Options{BlockSize: 1})
	require.Equal(t, "BlockStored", kinds(decode(t, d, stored(128, -1, 1))))
	require.Equal(t, "AllBlocksCleared BlockStored", kinds(decode(t, d, stored(4096, -1, 1))))
	require.Empty(t, decode(t, d, stored(128, -1, 2)))
	require.Equal(t, Stats{OtherWindows: 1, NewWindows: 1}, d.Stats())

	// A window that is larger than one that was not named, or has later layer groups.
	d = newDecoder(t, Options{BlockSize: 1})
	require.Equal(t, "BlockStored", kinds(decode(t, d, `{"event_id":0,"data":{"type":"stored","blocks":[{"block_hash":1,"tokens":[1]}]}}`)))
	require.Equal(t, "AllBlocksCleared BlockStored", kinds(decode(t, d, stored(128, 0, 1))))
	require.Equal(t, "AllBlocksCleared BlockStored", kinds(decode(t, d, stored(4096, 1, 1))))

	// Layer groups of one window: the first.
	d = newDecoder(t, Options{BlockSize: 1})
	require.Equal(t, "BlockStored", kinds(decode(t, d, stored(128, 1, 1))))
	require.Equal(t, "AllBlocksCleared BlockStored", kinds(decode(t, d, stored(128, 0, 1))))
	require.Empty(t, decode(t, d, stored(128, 1, 1)))

	// Windows that are cache groups.
	d = newDecoder(t, Options{BlockSize: 1, Windows: []int{4096, 128}})
	for window, group := range map[int]int32{4096: 0, 128: 1} {
		e := decode(t, d, stored(window, -1, 1))
		require.True(t, e[0].HasGroup)
		require.Equal(t, group, e[0].Group)
	}
	require.Empty(t, decode(t, d, stored(64, -1, 1)))
}

func TestMalformed(t *testing.T) {
	for name, c := range map[string]struct {
		data   string
		reason kvevents.Reason
		kind   kvevents.Kind
	}{
		"no type":             {`{"blocks":[]}`, kvevents.ReasonNoType, 0},
		"a number for a type": {`{"type":1}`, kvevents.ReasonNoType, 0},
		"a list":              {`[]`, kvevents.ReasonNotAnEvent, 0},
		"no blocks":           {`{"type":"stored","parent_hash":null}`, kvevents.ReasonMissingField, kvevents.BlockStored},
		"no hashes":           {`{"type":"removed"}`, kvevents.ReasonMissingField, kvevents.BlockRemoved},
		"null hash":           {`{"type":"removed","block_hashes":[null]}`, kvevents.ReasonHash, kvevents.BlockRemoved},
		"half a hash":         {`{"type":"removed","block_hashes":[1.5]}`, kvevents.ReasonHash, kvevents.BlockRemoved},
		"too large a hash":    {`{"type":"removed","block_hashes":[18446744073709551616]}`, kvevents.ReasonHash, kvevents.BlockRemoved},
		"block without hash":  {`{"type":"stored","blocks":[{"tokens":[]}]}`, kvevents.ReasonHash, kvevents.BlockStored},
		"block without token": {`{"type":"stored","blocks":[{"block_hash":1}]}`, kvevents.ReasonMissingField, kvevents.BlockStored},
		"one hash too many":   {`{"type":"stored","block_hash":9,"blocks":[{"block_hash":1,"tokens":[1,2]}]}`, kvevents.ReasonLength, kvevents.BlockStored},
		"token without id":    {`{"type":"stored","blocks":[{"block_hash":1,"tokens":[{}]}]}`, kvevents.ReasonMissingField, kvevents.BlockStored},
		"negative level":      {`{"type":"stored","blocks":[{"block_hash":1,"tokens":[],"cache_level":-1}]}`, kvevents.ReasonFieldType, kvevents.BlockStored},
		"half a change":       {`{"type":"updated","block_hash":1,"cache_level":{"new_value":1}}`, kvevents.ReasonMissingField, 0},
		"change of nothing":   {`{"type":"updated","cache_level":{"new_value":1,"old_value":0}}`, kvevents.ReasonMissingField, 0},
		"too many hashes":     {`{"type":"removed","block_hashes":[1,2,3,4,5]}`, kvevents.ReasonLimit, kvevents.BlockRemoved},
		"too many tokens":     {`{"type":"stored","blocks":[{"block_hash":1,"tokens":[1,2,3,4,5]}]}`, kvevents.ReasonLimit, kvevents.BlockStored},
	} {
		d := newDecoder(t, Options{BlockSize: 2, Limits: kvevents.Limits{Hashes: 4, Tokens: 4}})
		var b kvevents.Batch
		id, err := d.Decode([]byte(`{"data":`+c.data+`,"event_id":7}`), &b)
		require.NoError(t, err, name)
		require.EqualValues(t, 7, id, name)
		require.Empty(t, b.Events, name)
		require.Equal(t, []kvevents.Malformed{{Reason: c.reason, Kind: c.kind}}, b.Malformed, name)
	}
	d := newDecoder(t, Options{BlockSize: 2})
	var b kvevents.Batch
	for _, event := range []string{"", "null", "[]", "{}", `{"event_id":-1}`, `{"event_id":1`, `{"event_id":1} 2`, `{"event_id":1.5}`} {
		_, err := d.Decode([]byte(event), &b)
		require.IsType(t, &EventError{}, err, event)
	}
	_, err := d.Decode([]byte(`{"event_id":1,"new":2,"data":{"type":"removed","block_hashes":[],"why":"x"}}`), &b)
	require.NoError(t, err)
	require.Equal(t, 2, b.UnknownFields)
	for _, o := range []Options{{}, {BlockSize: 1, Windows: []int{0}}, {BlockSize: 1, Windows: []int{4, 4}}, {BlockSize: 1, Windows: make([]int, 256)}} {
		_, err := NewDecoder(o)
		require.ErrorContains(t, err, "want")
	}
}

// FuzzDecode: no bytes make the decoder panic, and what the oracle can read it reads
// equally; events never name blocks without hashes or tokens that are not theirs.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(forward))
	f.Add([]byte(`{"event_id":1,"data":{"type":"updated","block_hash":1,"cache_level":{"new_value":1,"old_value":0}},"attention_dp_rank":3}`))
	w := writer{rand.New(rand.NewPCG(1, 2)), true}
	for id := range uint64(20) {
		f.Add([]byte(w.event(id, 3)))
	}
	f.Fuzz(func(t *testing.T, event []byte) {
		d := newDecoder(t, Options{BlockSize: 3})
		var b kvevents.Batch
		if _, err := d.Decode(event, &b); err != nil {
			require.Empty(t, b.Events)
			return
		}
		for _, e := range b.Events {
			require.True(t, e.Kind == kvevents.AllBlocksCleared || len(e.Hashes) > 0)
			require.Len(t, e.Tokens, e.BlockSize*len(e.Hashes))
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	w := writer{rand.New(rand.NewPCG(1, 2)), false}
	var ids []uint32
	for range 32 {
		ids = append(ids, uint32(w.IntN(100_000)))
	}
	block := fmt.Sprintf(`{"type":"stored_block","block_hash":%s,"tokens":[%s],"cache_level":0,"priority":35,"mm_keys":[],"cache_salt":null}`, w.hash(), plain(ids...))
	event := []byte(`{"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[` + strings.Repeat(block+",", 63) + block + `]},"window_size":4096}`)
	d := newDecoder(b, Options{BlockSize: 32})
	var batch kvevents.Batch
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(event, &batch); err != nil || len(batch.Events) != 1 {
			b.Fatal(err, len(batch.Events))
		}
	}
}
