package lmcache

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvatlas/kvatlas/internal/golden"
)

// sample is a line of testdata/lmcache/messages.
type sample struct {
	Type    string          `json:"type"`
	Payload []byte          `json:"payload_b64"`
	Decoded json.RawMessage `json:"decoded"`
	Refused string          `json:"refused"`
}

func samples(t testing.TB, name string) (all []sample) {
	lines := strings.Split(strings.TrimSpace(string(golden.Read(t, name))), "\n")
	for _, line := range lines[1:] {
		var s sample
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		all = append(all, s)
	}
	return all
}

// TestGolden: every class of every release decodes, and what LMCache encodes from
// 0.3.15 on is encoded to the same bytes.
func TestGolden(t *testing.T) {
	for _, name := range golden.Files(t, "lmcache/messages/*.jsonl") {
		n := 0
		for _, s := range samples(t, name) {
			if s.Refused != "" {
				require.Equal(t, "HeartbeatRetMsg", s.Type)
				continue
			}
			m, err := DecodeAs(s.Type, s.Payload)
			require.NoError(t, err, "%s %s", name, s.Type)
			require.Equal(t, s.Type, Class(m))
			again := Append(nil, m)
			if !strings.Contains(name, "0.3.9") {
				require.Equal(t, s.Payload, again, s.Type)
			}
			back, err := DecodeAs(s.Type, again)
			require.NoError(t, err)
			require.Equal(t, m, back)
			n++
		}
		require.Greater(t, n, 120, name)
	}
}

func TestDecodeRefuses(t *testing.T) {
	pack := func(v any) []byte {
		b, err := msgpack.Marshal(v)
		require.NoError(t, err)
		return b
	}
	type m = map[string]any
	admit := func(change m) []byte {
		v := m{"type": "KVAdmitMsg", "instance_id": "a", "worker_id": 1, "key": 5, "location": "x"}
		for k, x := range change {
			if v[k] = x; x == "gone" {
				delete(v, k)
			}
		}
		return pack(v)
	}
	deep := append([]byte{0x82, 0xa4, 't', 'y', 'p', 'e'}, pack("HealthMsg")...)
	deep = append(deep, 0xa1, 'x')
	deep = append(deep, bytes.Repeat([]byte{0x91}, 5000)...)
	for what, c := range map[string]struct {
		payload []byte
		want    string
	}{
		"nothing":          {nil, "cut off"},
		"not a map":        {pack([]int{1}), "want a map, got a list"},
		"JSON":             {[]byte(`{"type":"LookupMsg"}`), "want a map, got an integer"},
		"no type":          {pack(m{"x": 1}), `no field "type"`},
		"type of no text":  {pack(m{"type": 3}), ".type: want text, got an integer"},
		"class":            {pack(m{"type": "DanceMsg"}), `"DanceMsg" is not known`},
		"missing":          {admit(m{"location": "gone"}), `KVAdmitMsg: no field "location"`},
		"digest":           {admit(m{"key": []byte("0123456789abcdef0123456789abcdef")}), "KVAdmitMsg.key: want an integer, got bytes (digests"},
		"float":            {admit(m{"worker_id": 1.5}), "KVAdmitMsg.worker_id: want an integer, got a float"},
		"nil":              {admit(m{"instance_id": nil}), "KVAdmitMsg.instance_id: want text, got None"},
		"wide":             {admit(m{"worker_id": uint64(1) << 63}), "more than 63 bits"},
		"operation":        {pack(m{"type": "KVOpEvent", "op_type": "stay", "key": 1, "seq_num": 0}), `"stay" is no operation`},
		"tuple":            {pack(m{"type": "MoveWorkerMsg", "worker_event_id": "", "old_position": "", "new_position": []string{"a"}}), "want 2 values, got 1"},
		"negative token":   {pack(m{"type": "LookupMsg", "event_id": "", "tokens": []int{4, -1}}), "LookupMsg.tokens[1]: -1 is negative"},
		"in a list":        {pack(m{"type": "BatchedP2PLookupMsg", "hashes": []any{1, "x"}, "instance_id": "", "worker_id": 0}), "hashes[1]: want an integer, got text"},
		"longer than true": {[]byte{0x81, 0xa4, 't', 'y', 'p', 'e', 0xdb, 0xff, 0xff, 0xff, 0xff}, "cut off"},
		"list too long":    {append(append([]byte{0x82, 0xa4, 't', 'y', 'p', 'e'}, pack("LookupMsg")...), 0xa6, 't', 'o', 'k', 'e', 'n', 's', 0xdd, 0xff, 0xff, 0xff, 0xff), "cut off"},
		"more":             {append(admit(nil), 0), "1 bytes follow"},
		"deep":             {deep, "nested more than 32 deep"},
		"long":             {make([]byte, MaxMessageBytes+1), "at most"},
	} {
		got, err := Decode(c.payload)
		require.ErrorIs(t, err, ErrMessage, what)
		require.Contains(t, err.Error(), c.want, what)
		require.Nil(t, got)
	}
	twice := append([]byte{0x83, 0xa4, 't', 'y', 'p', 'e'}, pack("CheckFinishMsg")...)
	twice = append(append(append(twice, pack("event_id")...), pack("a")...), append(pack("event_id"), pack("b")...)...)
	_, err := Decode(twice)
	require.ErrorContains(t, err, "CheckFinishMsg.event_id: it is there twice")
	_, err = DecodeAs("KVEvictMsg", admit(nil))
	require.ErrorContains(t, err, `it is a "KVAdmitMsg", want a KVEvictMsg`)

	// Fields of later releases are skipped, optional ones may be left out.
	got, err := Decode(admit(m{"later": m{"a": []int{1, 2}}}))
	require.NoError(t, err)
	require.Equal(t, &KVAdmitMsg{InstanceID: "a", WorkerID: 1, Key: Key{Bits: 5}, Location: "x"}, got)
}

func TestSpecialFields(t *testing.T) {
	reason := "controller_restart"
	for _, m := range []Message{
		&HeartbeatRetMsg{Commands: []HeartbeatCommand{{CommandType: "full_sync", Reason: &reason}, {CommandType: "full_sync", Args: Raw{0x81, 0xa1, 'k', 0x01}}}},
		&HealthRetMsg{EventID: "e", ErrorCodes: map[string]int64{"0": 0, "12": -1, "k": 3}},
		&LookupRetMsg{EventID: "e", LayoutInfo: Layout{{"b", "LocalCPUBackend", 512}, {"a", "RemoteBackend", 700}}},
		&KVAdmitMsg{Key: Key{Bits: 1<<64 - 5, Negative: true}},
		&KVAdmitMsg{Key: Key{Bits: 1<<64 - 5}},
		&CompressMsg{Tokens: &[]uint64{}},
		&CompressMsg{},
	} {
		got, err := Decode(Append(nil, m))
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
	// LMCache takes integers for the keys of error_codes, though its samples have text.
	require.Contains(t, string(Append(nil, &HealthRetMsg{ErrorCodes: map[string]int64{"7": 1}})), "\x81\x07\x01")
}

// FuzzDecode: what is refused says so, what is read is written and read again
// unchanged.
func FuzzDecode(f *testing.F) {
	for _, s := range samples(f, "lmcache/messages/messages-0.5.6.jsonl") {
		f.Add(s.Payload)
	}
	f.Add([]byte{0x81, 0xa4, 't', 'y', 'p', 'e', 0xa8, 'E', 'r', 'r', 'o', 'r', 'M', 's', 'g'})
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := Decode(payload)
		if err != nil {
			require.ErrorIs(t, err, ErrMessage)
			return
		}
		wire := Append(nil, m)
		back, err := Decode(wire)
		require.NoError(t, err)
		require.Equal(t, wire, Append(nil, back))
	})
}
