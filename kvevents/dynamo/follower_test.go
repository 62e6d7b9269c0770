package dynamo

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvatlas/kvatlas/kvevents"
)

// recorder writes down what a handler is told.
type recorder []string

func (r *recorder) Apply(src kvevents.Source, seq uint64, b *kvevents.Batch) {
	line := fmt.Sprintf("%s/%d %d:", src.Worker, src.Rank, seq)
	for _, e := range b.Events {
		line += fmt.Sprintf(" %v %s %x", e.Kind, e.Medium, e.Hashes)
		if e.TokenHashes != nil {
			line += fmt.Sprintf("=%x after %v %x", e.TokenHashes, e.HasParent, e.Parent)
		}
	}
	*r = append(*r, line)
}

func (r *recorder) Clear(src kvevents.Source, c kvevents.ClearCause) {
	*r = append(*r, fmt.Sprintf("clear %s/%d: %v", src.Worker, src.Rank, c))
}

func (r *recorder) Lost(l kvevents.Loss) {
	*r = append(*r, fmt.Sprintf("lost %s/%d %d-%d: %v", l.Worker, l.Rank, l.From, l.To, l.Cause))
}

func (r *recorder) take() []string {
	said := append([]string{}, *r...)
	*r = nil
	return said
}

func follower(t testing.TB) (*Follower, *recorder) {
	t.Helper()
	r := &recorder{}
	f, err := NewFollower(Options{Handler: r})
	require.NoError(t, err)
	return f, r
}

// Events as lib/kv-router/src/protocols.rs declares them. The hashes are those that the
// tests of Dynamo's lib/tokens have for the tokens 1 to 8 in blocks of 4, salt 1337:
// HASH_1_4 and HASH_5_8, and SEQ_HASH_5_8 as the second block's own.
const (
	stored  = `{"worker_id":7,"storage_tier":"device","event":{"event_id":1,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":14643705804678351452,"tokens_hash":14643705804678351452,"mm_extra_info":null},{"block_hash":4945711292740353085,"tokens_hash":16777012769546811212}]}},"dp_rank":0}}`
	removed = `{"worker_id":7,"storage_tier":"host_pinned","residency_domain":"worker","event":{"event_id":2,"data":{"removed":{"block_hashes":[14643705804678351452]}},"dp_rank":1}}`
	cleared = `{"worker_id":7,"event":{"event_id":3,"data":"cleared"}}`
)

func TestEvents(t *testing.T) {
	f, r := follower(t)
	require.NoError(t, f.Events([]byte("["+stored+","+removed+","+cleared+"]")))
	require.Equal(t, []string{
		"7/0 1: BlockStored GPU [cb38e4d7fb2dca5c 44a2b2379d6d3c3d]=[cb38e4d7fb2dca5c e8d3ec39b907b74c] after false 0",
		"7/1 2: BlockRemoved CPU [cb38e4d7fb2dca5c]",
		"7/0 3: AllBlocksCleared  []",
	}, r.take())
	for event, want := range map[string]string{
		// Multimodal from the second block on.
		`{"worker_id":1,"event":{"event_id":1,"data":{"stored":{"parent_hash":9,"blocks":[{"block_hash":1,"tokens_hash":11},{"block_hash":2,"tokens_hash":12,"mm_extra_info":{"mm_objects":[]}},{"block_hash":3,"tokens_hash":13}]}}}}`: "1/0 1: BlockStored GPU [1]=[b] after true 9 BlockStored GPU [2 3]",
		// Not from the start, and after nothing.
		`{"worker_id":1,"storage_tier":"disk","event":{"event_id":1,"data":{"stored":{"parent_hash":null,"start_position":4,"blocks":[{"block_hash":1,"tokens_hash":11}]}}}}`:   "1/0 1: BlockStored STORAGE [1]",
		`{"worker_id":1,"storage_tier":"external","event":{"event_id":1,"data":{"stored":{"parent_hash":3,"start_position":4,"blocks":[{"block_hash":-1,"tokens_hash":11}]}}}}`: "1/0 1: BlockStored EXTERNAL [ffffffffffffffff]=[b] after true 3",
		`{"worker_id":18446744073709551615,"event":{"event_id":1,"data":{"cleared":null},"dp_rank":3}}`:                                                                         "18446744073709551615/3 1: AllBlocksCleared  []",
	} {
		require.NoError(t, f.Events([]byte(event)))
		require.Equal(t, []string{want}, r.take(), event)
	}
	require.EqualValues(t, 2, f.Status().Multimodal)

	// Left out, and counted.
	for _, event := range []string{
		`{"worker_id":1,"residency_domain":"cache_owner","event":{"event_id":1,"data":"cleared"}}`,
		`{"worker_id":1,"residency_domain":null,"event":{"event_id":1,"data":"cleared"}}`,
		`{"worker_id":1,"storage_tier":"tape","event":{"event_id":1,"data":{"removed":{"block_hashes":[1]}}}}`,
		`{"worker_id":1,"more":[1],"event":{"event_id":1,"data":{"moved":{"block_hashes":[1]}}}}`,
		`{"worker_id":1,"event":{"event_id":1,"data":"frozen"}}`,
	} {
		require.NoError(t, f.Events([]byte(event)))
		require.Empty(t, r.take(), event)
	}
	st := f.Status()
	require.EqualValues(t, 2, st.OtherDomains)
	require.EqualValues(t, 1, st.OtherTiers)
	require.EqualValues(t, 2, st.UnknownTypes)
	require.EqualValues(t, 1, st.UnknownFields)
	require.Zero(t, st.Losses)

	// Malformed ones do no harm to those beside them, and are losses.
	for event, removals := range map[string]bool{
		`{"worker_id":1,"event":{"event_id":1,"data":{"stored":{"blocks":[{"block_hash":1}]}}}}`: false,
		`{"worker_id":1,"event":{"event_id":1,"data":{"stored":{"parent_hash":null}}}}`:          false,
		`{"worker_id":1,"event":{"event_id":1,"data":{"stored":{"blocks":[7]}}}}`:                false,
		`{"worker_id":1,"event":{"event_id":1,"data":{"removed":{"block_hashes":[1,null]}}}}`:    true,
		`{"worker_id":1,"event":{"event_id":1,"data":{"removed":{}}}}`:                           true,
		`{"worker_id":1,"event":{"event_id":1,"data":{}}}`:                                       true,
		`{"worker_id":1,"event":{"event_id":1,"data":7}}`:                                        true,
		`{"worker_id":1,"event":{"event_id":1}}`:                                                 true,
		`{"worker_id":1}`:                                                                        true,
		`{"worker_id":1,"event":{"event_id":"x","data":"cleared"}}`:                              true,
	} {
		require.NoError(t, f.Events([]byte("["+event+","+cleared+"]")))
		said := r.take()
		want := "lost 1/0 1-1: malformed events"
		if removals {
			require.Len(t, said, 3, event)
			require.Equal(t, "clear 1/0: batches lost", said[1])
		} else {
			require.Len(t, said, 2, event)
		}
		require.Contains(t, []string{want, "lost 1/0 0-0: malformed events"}, said[0])
	}
	require.EqualValues(t, 10, f.Status().Malformed)

	// Nobody knows whose.
	require.NoError(t, f.Events([]byte(`[{"event":{"event_id":1,"data":"cleared"}},7,`+cleared+`]`)))
	require.Equal(t, []string{"7/0 3: AllBlocksCleared  []"}, r.take())
	require.EqualValues(t, 12, f.Status().Malformed)

	for _, message := range []string{"", "[", "{}x", `{"a"}`, "\x81", "\xc1"} {
		var e *MessageError
		require.ErrorAs(t, f.Events([]byte(message)), &e, "%q", message)
	}
}

// pack makes an envelope as rmp_serde::to_vec_named does.
func pack(t testing.TB, publisher, sequence uint64, ms int64, events ...string) []byte {
	t.Helper()
	var list []any
	for _, e := range events {
		list = append(list, tree(t, e))
	}
	payload, err := msgpack.Marshal(list)
	require.NoError(t, err)
	envelope, err := msgpack.Marshal(map[string]any{
		"publisher_id": publisher, "sequence": sequence, "published_at": ms, "topic": "kv_events", "payload": payload,
		"published_at_ns": ms * 1e6,
	})
	require.NoError(t, err)
	return envelope
}

// tree reads JSON so that numbers become integers.
func tree(t testing.TB, text string) any {
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				v[k] = walk(v[k])
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case json.Number:
			var u uint64
			if json.Unmarshal([]byte(v), &u) == nil {
				return u
			}
			i, err := v.Int64()
			require.NoError(t, err)
			return i
		}
		return v
	}
	var v any
	require.NoError(t, unmarshal([]byte(text), &v))
	return walk(v)
}

func TestEnvelope(t *testing.T) {
	f, r := follower(t)
	first := pack(t, 5, 0, 1000, stored)
	require.NoError(t, f.Envelope(first))
	message := pack(t, 5, 1, 1001, removed, cleared)
	frame := append([]byte{1}, binary.BigEndian.AppendUint32(nil, uint32(len(message)))...)
	require.NoError(t, f.Frames([][]byte{[]byte("kv_events"), make([]byte, 8), make([]byte, 8), append(frame, message...)}))
	require.Equal(t, []string{
		"7/0 0: BlockStored GPU [cb38e4d7fb2dca5c 44a2b2379d6d3c3d]=[cb38e4d7fb2dca5c e8d3ec39b907b74c] after false 0",
		"7/1 1: BlockRemoved CPU [cb38e4d7fb2dca5c]",
		"7/0 1: AllBlocksCleared  []",
	}, r.take())

	// Once more, and one that comes too late.
	require.NoError(t, f.Envelope(message))
	require.NoError(t, f.Envelope(first))
	require.Empty(t, r.take())

	// A hole, a payload that is broken, an event that is nobody's.
	require.NoError(t, f.Envelope(pack(t, 5, 3, 1002, cleared)))
	require.Equal(t, []string{
		"lost 7/0 2-2: gap without a replay endpoint", "clear 7/0: batches lost",
		"lost 7/1 2-2: gap without a replay endpoint", "clear 7/1: batches lost",
		"7/0 3: AllBlocksCleared  []",
	}, r.take())
	text := func(sequence int, payload string) []byte {
		return fmt.Appendf(nil, `{"topic":"kv_events","publisher_id":5,"sequence":%d,"published_at":1003,"payload":%q}`, sequence,
			base64.StdEncoding.EncodeToString([]byte(payload)))
	}
	var e *MessageError
	require.ErrorAs(t, f.Envelope(text(4, "["+cleared+",")), &e)
	require.Equal(t, []string{
		"7/0 4: AllBlocksCleared  []", "lost 7/0 4-4: payload unreadable", "clear 7/0: batches lost",
		"lost 7/1 4-4: payload unreadable", "clear 7/1: batches lost",
	}, r.take())
	for i, payload := range []string{`{"event":{"data":"cleared"}}`, `{"worker_id":7,"event":{"dp_rank":-1,"data":"cleared"}}`} {
		require.NoError(t, f.Envelope(text(5+i, payload)))
		require.Equal(t, strings.Split(strings.ReplaceAll("lost 7/0 N-N: malformed events,clear 7/0: batches lost,"+
			"lost 7/1 N-N: malformed events,clear 7/1: batches lost", "N", fmt.Sprint(5+i)), ","), r.take())
	}
	require.ErrorAs(t, f.Envelope([]byte(`{"publisher_id":5,"topic":"kv_events","sequence":7,"published_at":1004,"payload":[1]}`)), &e)
	require.Equal(t, "lost 7/0 7-7: payload unreadable", r.take()[0])

	// The publisher's next process, whose clock was set back.
	require.NoError(t, f.Envelope(pack(t, 5, 0, 500, stored)))
	require.Equal(t, []string{
		"clear 7/0: engine restarted", "clear 7/1: engine restarted",
		"7/0 0: BlockStored GPU [cb38e4d7fb2dca5c 44a2b2379d6d3c3d]=[cb38e4d7fb2dca5c e8d3ec39b907b74c] after false 0",
	}, r.take())

	// The worker's next process.
	require.NoError(t, f.Envelope(pack(t, 6, 0, 2000, cleared)))
	require.Equal(t, []string{"clear 7/0: engine restarted", "7/0 0: AllBlocksCleared  []"}, r.take())

	for _, message := range []string{"", "[]", `{"sequence":1}`, `{"publisher_id":-1,"sequence":1}`, "\x81\xa1a\x01"} {
		require.ErrorAs(t, f.Envelope([]byte(message)), &e, "%q", message)
	}
	for _, frames := range [][][]byte{nil, {nil}, {frame}, {append([]byte{2}, append(frame[1:], message...)...)}} {
		require.ErrorAs(t, f.Frames(frames), &e)
	}
	st := f.Status()
	require.Equal(t, 2, st.Publishers)
	require.EqualValues(t, 2, st.Duplicates)
	require.EqualValues(t, 2, st.Restarts)
	require.Less(t, st.Unreadable, st.Messages)
	_, err := NewFollower(Options{})
	require.EqualError(t, err, "dynamo: a follower needs a Handler")
}

func unmarshal(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(v)
}

// oracle says what a handler is told of events that are well formed.
func oracle(t testing.TB, events []byte) []string {
	said := []string{}
	var list []struct {
		WorkerID uint64  `json:"worker_id"`
		Tier     *string `json:"storage_tier"`
		Domain   *string `json:"residency_domain"`
		Event    struct {
			ID   uint64          `json:"event_id"`
			Rank uint32          `json:"dp_rank"`
			Data json.RawMessage `json:"data"`
		} `json:"event"`
	}
	require.NoError(t, json.Unmarshal(events, &list))
	for _, e := range list {
		medium := "GPU"
		if e.Tier != nil {
			medium = map[string]string{"device": "GPU", "host_pinned": "CPU", "disk": "STORAGE", "external": "EXTERNAL"}[*e.Tier]
		}
		if e.Domain != nil && *e.Domain != "worker" {
			continue
		}
		head := fmt.Sprintf("%d/%d %d:", e.WorkerID, e.Event.Rank, e.Event.ID)
		if string(e.Event.Data) == `"cleared"` {
			said = append(said, head+" AllBlocksCleared  []")
			continue
		}
		var data struct {
			Stored *struct {
				Parent *uint64 `json:"parent_hash"`
				Start  *uint32 `json:"start_position"`
				Blocks []struct {
					Block  uint64 `json:"block_hash"`
					Tokens uint64 `json:"tokens_hash"`
					MM     any    `json:"mm_extra_info"`
				}
			}
			Removed *struct {
				Hashes []uint64 `json:"block_hashes"`
			}
		}
		require.NoError(t, json.Unmarshal(e.Event.Data, &data))
		if data.Removed != nil {
			if len(data.Removed.Hashes) > 0 {
				head += fmt.Sprintf(" BlockRemoved %s %x", medium, data.Removed.Hashes)
			}
			said = append(said, head)
			continue
		}
		var hashes, tokens, rest []uint64
		known := data.Stored.Parent != nil || data.Stored.Start == nil || *data.Stored.Start == 0
		for _, b := range data.Stored.Blocks {
			known = known && b.MM == nil
			if !known {
				rest = append(rest, b.Block)
				continue
			}
			hashes, tokens = append(hashes, b.Block), append(tokens, b.Tokens)
		}
		if len(hashes) > 0 {
			parent := uint64(0)
			if data.Stored.Parent != nil {
				parent = *data.Stored.Parent
			}
			head += fmt.Sprintf(" BlockStored %s %x=%x after %v %x", medium, hashes, tokens, data.Stored.Parent != nil, parent)
		}
		if len(rest) > 0 {
			head += fmt.Sprintf(" BlockStored %s %x", medium, rest)
		}
		said = append(said, head)
	}
	return said
}

func randomEvents(r *rand.Rand) []byte {
	var list []any
	for range r.IntN(6) {
		event := map[string]any{"event_id": r.Uint64() >> r.IntN(64)}
		if r.IntN(2) == 0 {
			event["dp_rank"] = r.IntN(math.MaxInt32)
		}
		hashes := make([]uint64, r.IntN(5))
		for i := range hashes {
			hashes[i] = r.Uint64() >> r.IntN(64)
		}
		switch r.IntN(4) {
		case 0:
			event["data"] = "cleared"
		case 1:
			event["data"] = map[string]any{"removed": map[string]any{"block_hashes": hashes}}
		default:
			blocks := []any{}
			for _, h := range hashes {
				block := map[string]any{"block_hash": h, "tokens_hash": r.Uint64()}
				if r.IntN(5) == 0 {
					block["mm_extra_info"] = map[string]any{"mm_objects": []any{}}
				} else if r.IntN(2) == 0 {
					block["mm_extra_info"] = nil
				}
				blocks = append(blocks, block)
			}
			s := map[string]any{"blocks": blocks}
			if r.IntN(2) == 0 {
				s["parent_hash"] = r.Uint64()
			}
			if r.IntN(2) == 0 {
				s["start_position"] = r.IntN(3)
			}
			event["data"] = map[string]any{"stored": s}
		}
		e := map[string]any{"worker_id": r.Uint64() >> r.IntN(64), "event": event}
		if r.IntN(2) == 0 {
			e["storage_tier"] = []string{"device", "host_pinned", "disk", "external"}[r.IntN(4)]
		}
		if r.IntN(2) == 0 {
			e["residency_domain"] = []string{"worker", "cache_owner"}[r.IntN(2)]
		}
		list = append(list, e)
	}
	text, _ := json.Marshal(list)
	return text
}

// TestOracle: seeded events, in JSON and in msgpack.
func TestOracle(t *testing.T) {
	for seed := range uint64(2000) {
		text := randomEvents(rand.New(rand.NewPCG(seed, 7)))
		want := oracle(t, text)
		f, r := follower(t)
		require.NoError(t, f.Events(text))
		require.Equal(t, want, r.take(), "%s", text)
		if list, ok := tree(t, string(text)).([]any); ok {
			packed, err := msgpack.Marshal(list)
			require.NoError(t, err)
			require.NoError(t, f.Events(packed))
			require.Equal(t, want, r.take(), "%s", text)
		}
	}
}

// FuzzMessages: whatever comes, the same events twice are told the same way, and a
// message that was taken and has a time is not taken again.
func FuzzMessages(f *testing.F) {
	f.Add(pack(f, 5, 1, 1001, stored, removed, cleared))
	f.Add([]byte(`{"topic":"t","publisher_id":5,"sequence":3,"published_at":1003,"payload":"e30="}`))
	f.Add([]byte(stored))
	f.Add([]byte("[" + removed + "," + cleared + "]"))
	f.Fuzz(func(t *testing.T, message []byte) {
		x, r := follower(t)
		first := x.Events(message)
		said := r.take()
		require.Equal(t, first, x.Events(message))
		require.Equal(t, said, r.take())
		x.Envelope(message)
		if r.take(); x.Status().Publishers == 0 {
			return
		}
		x.Envelope(message)
		require.True(t, x.Status().Duplicates == 1 && len(r.take()) == 0 || x.Status().Restarts > 0)
	})
}

// BenchmarkEnvelope: a message with one event of 64 blocks, in msgpack, which repeats:
// all but the handler's part.
func BenchmarkEnvelope(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	blocks := []any{}
	for range 64 {
		blocks = append(blocks, map[string]any{"block_hash": r.Uint64(), "tokens_hash": r.Uint64(), "mm_extra_info": nil})
	}
	event := map[string]any{"worker_id": 7, "storage_tier": "device", "event": map[string]any{
		"event_id": 1, "dp_rank": 0, "data": map[string]any{"stored": map[string]any{"parent_hash": nil, "start_position": nil, "blocks": blocks}},
	}}
	payload, err := msgpack.Marshal(event)
	require.NoError(b, err)
	messages := make([][]byte, 2)
	for i := range messages {
		messages[i], err = msgpack.Marshal(map[string]any{"publisher_id": 5, "sequence": i, "published_at": 0, "topic": "kv_events", "payload": payload})
		require.NoError(b, err)
	}
	f, err := NewFollower(Options{Handler: nobody{}})
	require.NoError(b, err)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := f.Envelope(messages[i%2]); err != nil {
			b.Fatal(err)
		}
	}
}

type nobody struct{}

func (nobody) Apply(kvevents.Source, uint64, *kvevents.Batch) {}
func (nobody) Clear(kvevents.Source, kvevents.ClearCause)     {}
func (nobody) Lost(kvevents.Loss)                             {}
