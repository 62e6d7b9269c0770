package kvevents

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// vectors are payloads from public bug reports, in hexadecimal; V5 are from
// SGLang, V6 from vLLM.
var vectors = map[string]string{
	"V5 stored removed cleared":     "93cb40290000000000009387a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392ff02b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da347505583a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391ffa66d656469756da347505581a474797065b0416c6c426c6f636b73436c656172656404",
	"V5 stored omitted optionals":   "93cb3ff00000000000009186a474797065ab426c6f636b53746f726564ac626c6f636b5f6861736865739107b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473920b0caa626c6f636b5f73697a6502a76c6f72615f6964c000",
	"V5 salt session signed parent": "93cb40040000000000009189a474797065ab426c6f636b53746f726564ac626c6f636b5f6861736865739109b1706172656e745f626c6f636b5f68617368fea9746f6b656e5f6964739105aa626c6f636b5f73697a6504a76c6f72615f696403a66d656469756daa4350555f50494e4e4544aa63616368655f73616c74a673616c742d61aa73657373696f6e5f6964a973657373696f6e2d6101",
	"V5 int64 limits":               "93cb40080000000000009186a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657393d38000000000000000cf7fffffffffffffffffb1706172656e745f626c6f636b5f68617368d38000000000000000a9746f6b656e5f69647390aa626c6f636b5f73697a6501a76c6f72615f6964c0c0",
	"V5 removed omitted medium":     "93cb40100000000000009182a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391fd02",
	"V5 empty batch":                "93cb40140000000000009000",
	"V6-a":                          "93cb3ff40000000000009389a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573912ab1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473920102aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0a967726f75705f6964780084a474797065ac426c6f636b52656d6f766564ac626c6f636b5f686173686573912aa66d656469756da3475055a967726f75705f6964780081a474797065b0416c6c426c6f636b73436c656172656403",
	"V6-b":                          "92cb3ff40000000000009196ab426c6f636b53746f72656491c420000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1ffb92010202c0",
	"V6-c":                          "93cb3ff40000000000009197ab426c6f636b53746f7265649864ccc8cd9c40ceb2d05e00cf8000000000000000cfffffffffffffffffffd38000000000000000c09000c0a343505500",
	"V6-d":                          "93cb3ff40000000000009397ab426c6f636b53746f726564912ac092010202c0a347505592ac426c6f636b52656d6f76656491cfffffffffffffffff91b0416c6c426c6f636b73436c656172656403",
}

func vector(t testing.TB, name string) []byte {
	t.Helper()
	b, err := hex.DecodeString(vectors[name])
	require.NoError(t, err)
	require.NotEmpty(t, b, name)
	return b
}

// compare holds the fast decoder against the oracle.
func compare(t testing.TB, payload []byte) {
	t.Helper()
	var dec Decoder
	var got Batch
	err := dec.Decode(payload, &got)
	want, wantErr := oracleDecode(payload)
	if wantErr != nil {
		require.Error(t, err, "%x: oracle: %v", payload, wantErr)
		require.Empty(t, got.Events)
		require.Empty(t, got.Malformed)
		return
	}
	require.NoError(t, err, "%x", payload)
	require.Equal(t, len(want.Malformed), len(got.Malformed), "%x", payload)
	for i, m := range want.Malformed {
		require.Equal(t, m, got.Malformed[i], "%x", payload)
	}
	require.Equal(t, want.UnknownTypes, got.UnknownTypes)
	require.Equal(t, want.UnknownFields, got.UnknownFields)
	if want.Timestamp != want.Timestamp { // not equal to itself
		require.NotEqual(t, got.Timestamp, got.Timestamp)
		got.Timestamp, want.Timestamp = 0, 0
	}
	for i := range min(len(want.Events), len(got.Events)) {
		require.Equal(t, want.Events[i].HashBytes, got.Events[i].HashBytes)
		require.Equal(t, want.Events[i].Wire, got.Events[i].Wire)
	}
	requireSameBatch(t, want, &got, "%x", payload)
}

// FuzzDecode: for any bytes, Decode neither panics nor differs from the
// oracle; what it accepts and the encoder can say survives another round.
func FuzzDecode(f *testing.F) {
	for name := range vectors {
		f.Add(vector(f, name))
	}
	for _, b := range oddPayloads() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		compare(t, payload)
		var dec Decoder
		var b, again Batch
		if dec.Decode(payload, &b) != nil {
			return
		}
		for _, form := range []Form{mustForm(t, "vllm", "0.33.0"), mustForm(t, "vllm", "0.22.0"), mustForm(t, "sglang", "0.5.23")} {
			bytes := AppendBatch(nil, &b, form)
			require.NoError(t, dec.Decode(bytes, &again))
			require.Equal(t, len(b.Events), len(again.Events))
			twice := AppendBatch(nil, &again, form)
			require.Equal(t, bytes, twice)
		}
	})
}

func mustForm(t testing.TB, engine, version string) Form {
	t.Helper()
	f, err := FormFor(engine, version)
	require.NoError(t, err)
	return f
}

// FuzzFrames: frames of any sizes are parsed or refused, never a panic, and a
// parsed message has all it must have.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 8, 3}, []byte("\x00\x00\x00\x00\x00\x00\x00\x07abc"))
	f.Add([]byte{0, 0, 8, 0}, []byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte{2, 8, 1}, []byte("kv\x00\x00\x00\x00\x00\x00\x00\x07a"))
	f.Fuzz(func(t *testing.T, sizes, data []byte) {
		var frames [][]byte
		for _, n := range sizes {
			n := min(int(n), len(data))
			frames, data = append(frames, data[:n]), data[n:]
		}
		if m, err := ParseMessage(frames); err == nil {
			require.Len(t, frames, 3)
			require.NotEmpty(t, m.Payload)
		} else {
			require.ErrorContains(t, err, "want")
		}
		if r, err := ParseReplay(frames); err == nil {
			require.Equal(t, r.End, len(r.Payload) == 0)
			require.True(t, len(frames) >= 2 && len(frames) <= 4)
		}
	})
}

// FuzzAnswers reads any bytes as what engines say of their publishers: a target that
// names an endpoint for each rank, or an error. A topic is read, or not.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5700","replay_endpoint":"tcp://*:5800","topic":"t"}}`), "kv@10.0.0.1:80@m")
	f.Add([]byte(`{"kv_events":{"publisher":"zmq","endpoint_port_base":5557,"replay_endpoint_port_base":6557,"topic":"","dp_size":4}}`), "")
	f.Fuzz(func(t *testing.T, answer []byte, topic string) {
		for _, read := range []func(worker, host string, answer []byte) (Target, error){VLLMTarget, SGLangTarget} {
			target, err := read("w", "10.0.0.7", answer)
			if err != nil {
				continue
			}
			if live, replay, err := target.endpoints(); err == nil {
				require.Len(t, live, max(target.Ranks, 1))
				require.True(t, len(replay) == 0 || len(replay) == len(live))
			}
		}
		if parsed, ok := ParseTopic(topic); ok {
			require.NotEmpty(t, parsed.Pod)
		}
		_, _ = RankEndpoints(topic, 3)
	})
}
