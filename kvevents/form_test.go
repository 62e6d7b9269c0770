package kvevents

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFormFor(t *testing.T) {
	for _, c := range []struct {
		engine, version, form string
		maps, topic           bool
		stored                int
	}{
		{"vllm", "0.10.2", "vllm 0.10.2", false, false, 6},
		{"vLLM", "v0.13.0", "vllm 0.10.2", false, false, 6},
		{"vllm", "0.14", "vllm 0.14.0", false, false, 7},
		{"vllm", "0.19.1rc2", "vllm 0.17.0", false, false, 8},
		{"vllm", "0.20.2", "vllm 0.20.0", false, false, 9},
		{"vllm", "0.23.0+cpu", "vllm 0.22.0", false, false, 11},
		{"vllm", "0.25.1", "vllm 0.24.0", true, false, 11},
		{"vllm", "0.29.0", "vllm 0.26.0", true, true, 13},
		{"vllm", "0.32.0", "vllm 0.30.0", true, true, 14},
		{"vllm", "0.33.0", "vllm 0.33.0", true, true, 15},
		{"vllm", "1.2.3", "vllm 0.33.0", true, true, 15},
		{"sglang", "0.4.6.post5", "sglang 0.4.6", false, false, 5},
		{"sglang", "0.5.19", "sglang 0.5.18", false, false, 7},
		{"sglang", "0.5.23", "sglang 0.5.22", true, true, 9},
	} {
		f, err := FormFor(c.engine, c.version)
		require.NoError(t, err, c)
		require.Equal(t, c.form, f.String())
		require.Equal(t, c.maps, f.Maps(), c)
		require.Equal(t, c.topic, f.ReplayTopic(), c)
		require.Equal(t, c.stored, f.Fields(BlockStored).Len(), c)
	}
	for _, c := range [][2]string{{"vllm", "0.10.1"}, {"sglang", "0.4.5"}, {"tgi", "1.0"}, {"vllm", ""}, {"vllm", "0"}, {"vllm", "main"}, {"vllm", "99999999999999999999.1"}} {
		_, err := FormFor(c[0], c[1])
		require.ErrorContains(t, err, "kvevents: ", c)
	}
}

// TestRoundTripEveryForm: what a release can say comes back, what it cannot
// is left out, in every form, as integers and as digests.
func TestRoundTripEveryForm(t *testing.T) {
	full := Batch{Timestamp: 12.5, Rank: 3, HasRank: true, Events: []Event{
		{Kind: BlockStored, Hashes: []uint64{1, 1 << 63}, HasParent: true, Parent: 300, Tokens: []uint32{1, 200, 70000, 5}, BlockSize: 2,
			HasLoRAID: true, LoRAID: 4, LoRAName: []byte("adapter"), Medium: []byte("GPU"),
			ExtraKeys: [][]ExtraKey{{{Kind: ExtraText, Text: []byte("adapter")}, {Kind: ExtraItem, Text: []byte("img"), Offset: -70000}}, nil},
			HasGroup:  true, Group: 2, SpecKind: []byte("sliding_window"), SlidingWindow: 128, Locality: []byte("LOCAL"), Ownership: []byte("kvcr"),
			SessionID: []byte("s"), CacheSalt: []byte("salt"), Lookahead: [][]uint32{{7}, {8}}},
		{Kind: BlockStored, Hashes: []uint64{5}, Tokens: []uint32{1, 2, 2, 3}, TokenForm: TokensPairs, BlockSize: 2},
		{Kind: BlockRemoved, Hashes: []uint64{1, 2, 3}, Medium: []byte("CPU"), HasGroup: true, Group: 2, Locality: []byte("REMOTE")},
		{Kind: AllBlocksCleared},
		{Kind: Unknown, Type: []byte("BlockMoved")},
	}}
	var dec Decoder
	for i := range eras {
		for _, digest := range []int{0, 16, 32} {
			form := Form{era: &eras[i]}.WithDigests(digest)
			var got Batch
			payload := AppendBatch(nil, &full, form)
			compare(t, payload)
			require.NoError(t, dec.Decode(payload, &got), form)
			require.Empty(t, got.Malformed, form)
			require.Equal(t, !eras[i].noRank, got.HasRank)
			require.Equal(t, 1, got.UnknownTypes)
			for j := range full.Events {
				w, g := full.Events[j], got.Events[j]
				if w.Kind == Unknown {
					require.Equal(t, w.Type, g.Type)
					continue
				}
				if len(w.Hashes) > 0 {
					require.Equal(t, digest, g.HashBytes)
				}
				require.True(t, form.Admits(&g), "%v event %d", form, j)
				if j == 0 {
					require.False(t, form.Omits(&g), form)
				}
				g.HashBytes, g.Wire, g.Fields, g.Type = 0, 0, 0, nil
				require.Equal(t, onlyFields(w, form.Fields(w.Kind)), g, "%v event %d", form, j)
			}
		}
	}
}

// TestAdmits: what was recorded of a release rules out the others that differ.
func TestAdmits(t *testing.T) {
	forms := func(name string) (possible []string) {
		var all []Form
		for _, engine := range []string{"vllm", "sglang"} {
			all = append(all, Forms(engine)...)
		}
		for _, m := range readRecording(t, name) {
			var b Batch
			if m.payload == nil {
				continue
			}
			require.NoError(t, (&Decoder{}).Decode(m.payload, &b))
			for i := range b.Events {
				all = slices.DeleteFunc(all, func(f Form) bool { return !f.Admits(&b.Events[i]) || f.Omits(&b.Events[i]) })
			}
		}
		for _, f := range all {
			possible = append(possible, f.Engine()+" "+f.Since())
		}
		return possible
	}
	for name, want := range map[string][]string{
		"vllm/server/0.13.0/truth-main.jsonl":                        {"vllm 0.10.2"},
		"vllm/server/0.20.2/truth-main.jsonl":                        {"vllm 0.20.0"},
		"vllm/server/0.29.0/truth-main.jsonl":                        {"vllm 0.24.0", "vllm 0.26.0", "vllm 0.30.0", "vllm 0.33.0"},
		"vllm/truth/0.33.0/lookahead.jsonl":                          {"vllm 0.33.0"},
		"sglang/truth/0.5.8-page16.jsonl":                            {"sglang 0.4.6", "sglang 0.4.7"},
		"sglang/truth/0.5.9-page16.jsonl":                            {"sglang 0.5.9", "sglang 0.5.17", "sglang 0.5.18"},
		"sglang/truth/0.5.18-page16-namespaces.jsonl":                {"sglang 0.5.18"}, // a salt
		"sglang/truth/0.5.23-unified-page16.jsonl":                   {"sglang 0.5.20", "sglang 0.5.22"},
		"sglang/truth/0.5.23-unified-page16-lora.jsonl":              {"sglang 0.5.22"},
		"sglang/truth/0.5.23-unified-page16-hicache-writeback.jsonl": {"sglang 0.5.20", "sglang 0.5.22"},
	} {
		require.Equal(t, want, forms(name), name)
	}
	require.Empty(t, Forms("tgi"))
	byHand := Event{Kind: BlockStored, Hashes: []uint64{1}, Tokens: []uint32{1}, Fields: fields(FieldLookahead)}
	require.True(t, Form{}.Admits(&byHand), "who sent it is not known")
	require.False(t, Form{}.Omits(&byHand))
}

// TestClone: a copy outlives what it was made of, and its size is about what it takes.
func TestClone(t *testing.T) {
	for _, name := range []string{"vllm/truth/0.33.0/lookahead.jsonl", "vllm/server/0.32.0/truth-lora.jsonl", "sglang/truth/0.5.23-unified-page16-dynamo.jsonl"} {
		for _, m := range readRecording(t, name) {
			if m.payload == nil {
				continue
			}
			var b, want Batch
			payload := slices.Clone(m.payload)
			require.NoError(t, (&Decoder{}).Decode(payload, &b))
			require.NoError(t, (&Decoder{}).Decode(m.payload, &want))
			c := b.Clone()
			for i := range payload {
				payload[i] = 0xc1
			}
			require.Error(t, (&Decoder{}).Decode(payload, &b))
			require.Equal(t, want.Events, c.Events)
			require.Equal(t, want.Timestamp, c.Timestamp)
			require.Greater(t, c.Size(), len(m.payload)/2)
		}
	}
	require.Empty(t, new(Batch).Clone().Events)
}

// onlyFields empties what a release cannot say.
func onlyFields(ev Event, known FieldSet) Event {
	if !known.Has(FieldLoRAName) {
		ev.LoRAName = nil
	}
	if !known.Has(FieldMedium) {
		ev.Medium = nil
	}
	if !known.Has(FieldExtraKeys) {
		ev.ExtraKeys = nil
	}
	if !known.Has(FieldGroup) {
		ev.HasGroup, ev.Group = false, 0
	}
	if !known.Has(FieldSpecKind) {
		ev.SpecKind = nil
	}
	if !known.Has(FieldWindow) {
		ev.SlidingWindow = 0
	}
	if !known.Has(FieldLocality) {
		ev.Locality = nil
	}
	if !known.Has(FieldOwnership) {
		ev.Ownership = nil
	}
	if !known.Has(FieldSessionID) {
		ev.SessionID = nil
	}
	if !known.Has(FieldCacheSalt) {
		ev.CacheSalt = nil
	}
	if !known.Has(FieldLookahead) {
		ev.Lookahead = nil
	}
	return ev
}

func TestFieldSet(t *testing.T) {
	s := fields(FieldHashes, FieldGroup)
	require.Equal(t, "block_hashes group_idx", s.String())
	require.Equal(t, 2, s.Len())
	require.False(t, s.Has(FieldMedium))
	require.Equal(t, "field?", Field(200).String())
	require.Equal(t, "bad hash", ReasonHash.String())
	require.Equal(t, "unknown reason", Reason(0).String())
	require.Equal(t, "Unknown", Kind(77).String())
}
