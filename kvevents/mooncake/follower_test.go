package mooncake

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
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
		line += fmt.Sprintf(" %v %s %d", e.Kind, e.Medium, e.Hashes)
		if e.Kind == kvevents.BlockStored {
			line += fmt.Sprintf(" of %d after %v %d: %d", e.BlockSize, e.HasParent, e.Parent, e.Tokens)
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

func follower(t testing.TB, o Options) (*Follower, *recorder) {
	t.Helper()
	r := &recorder{}
	o.Handler = r
	f, err := NewFollower(o)
	require.NoError(t, err)
	return f, r
}

// The examples of docs/source/api-reference/http/conductor-indexer.md, one stream.
const (
	envelope = `"model_name":"llama-3.1-8b","block_size":64,"additional_salt":null,"lora_name":null,"tenant_id":"default","backend_id":"worker-0","medium":"gpu","dp_rank":0`
	stored   = `{"event_id":42,"timestamp":1739145600000,"event_type":"stored",` + envelope + `,"seq_hashes":[1234567890,9876543210,1122334455],"base_block_idx":5,"parent_hash":9999999999,"token_ids":null}`
	removed  = `{"event_id":43,"timestamp":1739145601000,"event_type":"removed",` + envelope + `,"seq_hashes":[1122334455],"base_block_idx":7}`
	cleared  = `{"event_id":44,"timestamp":1739145602000,"event_type":"cleared",` + envelope + `}`
)

func TestDocumented(t *testing.T) {
	f, r := follower(t, Options{Model: "llama-3.1-8b"})
	require.NoError(t, f.Events([]byte(stored)))
	require.NoError(t, f.Events([]byte("["+removed+","+cleared+"]")))
	require.Equal(t, []string{
		"lost worker-0/0 1-41: published before we listened",
		"worker-0/0 42: BlockStored GPU [1234567890 9876543210 1122334455] of 64 after true 9999999999: []",
		"worker-0/0 43: BlockRemoved GPU [1122334455]",
		"worker-0/0 44: AllBlocksCleared GPU []",
	}, r.take())

	// Once more; a hole; a new beginning; none of another stream's business.
	require.NoError(t, f.Events([]byte("["+stored+","+removed+","+cleared+"]")))
	require.Empty(t, r.take())
	later := func(event string, id int, at int64) string {
		e := strings.Replace(event, `"event_id":43`, fmt.Sprintf(`"event_id":%d`, id), 1)
		return strings.Replace(e, "1739145601000", fmt.Sprint(at), 1)
	}
	require.NoError(t, f.Events([]byte(later(removed, 46, 1739145603000))))
	require.Equal(t, []string{
		"lost worker-0/0 45-45: gap without a replay endpoint", "clear worker-0/0: batches lost",
		"worker-0/0 46: BlockRemoved GPU [1122334455]",
	}, r.take())
	require.NoError(t, f.Events([]byte(strings.Replace(later(removed, 1, 1739145603000), `"gpu"`, `"disk"`, 1))))
	require.Equal(t, []string{"worker-0/0 1: BlockRemoved STORAGE [1122334455]"}, r.take())
	require.NoError(t, f.Events([]byte(later(removed, 1, 1739145604000))))
	require.Equal(t, []string{"clear worker-0/0: engine restarted", "worker-0/0 1: BlockRemoved GPU [1122334455]"}, r.take())
	st := f.Status()
	require.EqualValues(t, 2, st.Streams)
	require.EqualValues(t, 3, st.Duplicates)
	require.EqualValues(t, 1, st.Restarts)
	require.EqualValues(t, 42, st.Lost)
}

// event makes one of a stream of its own, so that numbers do not matter.
func event(n int, kind, rest string) string {
	return fmt.Sprintf(`{"event_id":0,"event_type":%q,"block_size":2,"backend_id":"b%d",%s}`, kind, n, rest)
}

func TestEvents(t *testing.T) {
	f, r := follower(t, Options{})
	for i, c := range []struct{ kind, rest, want string }{
		{"stored", `"seq_hashes":[1,2],"parent_hash":null,"token_ids":[1,2,3,4]`, " BlockStored  [1 2] of 2 after false 0: [1 2 3 4]"},
		{"stored", `"seq_hashes":[1,2],"base_block_idx":0,"token_ids":[1,2,3,4],"medium":"nvme"`, " BlockStored NVME [1 2] of 2 after false 0: [1 2 3 4]"},
		{"stored", `"seq_hashes":[1],"base_block_idx":3,"parent_hash":8,"token_ids":[1,2],"medium":"CPU"`, " BlockStored CPU [1] of 2 after true 8: [1 2]"},
		// Not at the start, and nothing says where.
		{"stored", `"seq_hashes":[1],"base_block_idx":3,"parent_hash":null,"token_ids":[1,2]`, " BlockStored  [1] of 2 after false 0: []"},
		{"removed", `"seq_hashes":[18446744073709551615],"medium":"cpu"`, " BlockRemoved CPU [18446744073709551615]"},
	} {
		require.NoError(t, f.Events([]byte(event(i, c.kind, c.rest))))
		require.Equal(t, []string{fmt.Sprintf("b%d/0 0:%s", i, c.want)}, r.take())
	}
	require.EqualValues(t, 1, f.Status().Placeless)

	for i, rest := range []string{
		`"seq_hashes":[1],"parent_hash":null,"model_name":"other"`,
		`"seq_hashes":[1],"parent_hash":null,"tenant_id":"other"`,
		`"seq_hashes":[1],"parent_hash":null,"additional_salt":"w8a8"`,
		`"seq_hashes":[1],"parent_hash":null,"lora_name":"sql-adapter"`,
		`"seq_hashes":[],"base_block_idx":0,"parent_hash":null,"object_key":"k","novel":1`,
	} {
		require.NoError(t, f.Events([]byte(event(10+i, "stored", rest))))
		require.Empty(t, r.take(), rest)
	}
	require.NoError(t, f.Events([]byte(event(20, "touched", `"seq_hashes":[1]`))))
	require.Empty(t, r.take())
	st := f.Status()
	require.EqualValues(t, 3, st.Others)
	require.EqualValues(t, 1, st.Adapters)
	require.EqualValues(t, 1, st.NoHashes)
	require.EqualValues(t, 1, st.UnknownFields)
	require.EqualValues(t, 1, st.UnknownTypes)

	// Malformed ones do no harm to those beside them, and are losses.
	for i, c := range []struct{ kind, rest string }{
		{"stored", `"seq_hashes":[1]`},
		{"stored", `"parent_hash":null`},
		{"stored", `"seq_hashes":[1],"parent_hash":null,"token_ids":[1]`},
		{"stored", `"seq_hashes":[1],"parent_hash":null,"token_ids":[1,-2]`},
		{"stored", `"seq_hashes":[1],"parent_hash":null,"token_ids":[[]]`},
		{"stored", `"seq_hashes":[null],"parent_hash":null`},
		{"removed", `"base_block_idx":1`},
		{"removed", `"seq_hashes":7`},
		{"", `"seq_hashes":[7]`},
	} {
		good := event(200+i, "cleared", `"medium":"gpu"`)
		require.NoError(t, f.Events([]byte("["+event(100+i, c.kind, c.rest)+","+good+"]")))
		want := []string{fmt.Sprintf("lost b%d/0 0-0: malformed events", 100+i)}
		if c.kind != "stored" {
			want = append(want, fmt.Sprintf("clear b%d/0: batches lost", 100+i))
		}
		require.Equal(t, append(want, fmt.Sprintf("b%d/0 0: AllBlocksCleared GPU []", 200+i)), r.take(), c.rest)
	}
	// Nobody knows whose, or which; no event at all.
	require.NoError(t, f.Events([]byte(event(1, "removed", `"seq_hashes":[1],"dp_rank":-1`))))
	require.Empty(t, r.take())
	require.NoError(t, f.Events([]byte(`[{"event_id":1,"event_type":"cleared"},{"event_type":"cleared","backend_id":"b","medium":"gpu"}]`)))
	require.Equal(t, []string{"lost b/0 0-0: malformed events", "clear b/0: batches lost"}, r.take())
	require.EqualValues(t, 12, f.Status().Malformed)
	var e *MessageError
	for _, message := range []string{"", "[", "7", `"x"`, "{}x", "[1]", "\x81", "\xc1", `{"a"}`} {
		require.ErrorAs(t, f.Events([]byte(message)), &e, "%q", message)
	}
	for message, name := range map[*Options]string{
		{}: "mooncake: a follower needs a Handler",
		{Handler: r, AnyModel: true, Model: "one"}: `mooncake: AnyModel and Model "one"`,
	} {
		_, err := NewFollower(*message)
		require.EqualError(t, err, name)
	}
	f, r = follower(t, Options{AnyModel: true, Tenant: "t", Salt: "s", Name: func(b string) string { return "x" + b }})
	require.NoError(t, f.Events([]byte(event(1, "cleared", `"model_name":"m","tenant_id":"t","additional_salt":"s"`))))
	require.Equal(t, []string{"xb1/0 0: AllBlocksCleared  []"}, r.take())
}

// TestClockSetBack: the numbers of a stream that begins anew are not taken for events
// that came twice, whatever its clock says.
func TestClockSetBack(t *testing.T) {
	f, r := follower(t, Options{AnyModel: true})
	at := func(id, ms, hash int) []byte {
		return fmt.Appendf(nil, `{"event_id":%d,"timestamp":%d,"event_type":"stored","backend_id":"b","seq_hashes":[%d],"parent_hash":null}`, id, ms, hash)
	}
	require.NoError(t, f.Events(at(0, 9000, 1)))
	require.NoError(t, f.Events(at(1, 9001, 2)))
	r.take()
	require.NoError(t, f.Events([]byte("[ "+string(at(0, 9000, 1))+" ]")), "the same in another message")
	require.Empty(t, r.take())
	require.NoError(t, f.Events(at(0, 5000, 3)))
	require.Equal(t, []string{"clear b/0: engine restarted", "b/0 0: BlockStored  [3] of 0 after false 0: []"}, r.take())
	require.NoError(t, f.Events(at(1, 5001, 4)))
	require.Equal(t, []string{"b/0 1: BlockStored  [4] of 0 after false 0: []"}, r.take())
}

// master makes a message as KvEventPublisher of mooncake-store does: one map an
// object, numbered through all tenants and media.
func master(t testing.TB, seq uint64, ms int64, events ...map[string]any) [][]byte {
	t.Helper()
	list := []any{}
	for i, e := range events {
		m := map[string]any{
			"event_id": 10*seq + uint64(i), "timestamp": ms, "model_name": nil, "block_size": nil, "additional_salt": nil,
			"lora_name": nil, "tenant_id": "default", "backend_id": "pool", "group_id": nil, "medium": "cpu", "dp_rank": nil,
			"object_key": "k", "type": "BlockStored", "block_hashes": []int64{}, "parent_block_hash": nil,
		}
		if e["event_type"] == "stored" {
			m["base_block_idx"], m["parent_hash"], m["token_ids"] = uint32(0), nil, nil
		} else {
			m["base_block_idx"] = nil
		}
		for k, v := range e {
			m[k] = v
		}
		list = append(list, m)
	}
	payload, err := msgpack.Marshal([]any{ms, list, uint32(0)})
	require.NoError(t, err)
	return [][]byte{{}, binary.BigEndian.AppendUint64(nil, seq), payload}
}

func TestMaster(t *testing.T) {
	f, r := follower(t, Options{})
	put := func(hash uint64, medium string) map[string]any {
		return map[string]any{"event_type": "stored", "seq_hashes": []uint64{hash}, "medium": medium}
	}
	drop := func(hash uint64, medium string) map[string]any {
		return map[string]any{"event_type": "removed", "seq_hashes": []uint64{hash}, "medium": medium}
	}
	other := put(4, "cpu")
	other["tenant_id"] = "other"
	require.NoError(t, f.Frames(master(t, 1, 1000, put(1, "cpu"), put(1, "disk"), other, put(2, "cpu"))))
	require.NoError(t, f.Frames(master(t, 2, 1001, drop(1, "cpu"))))
	require.Equal(t, []string{
		"pool/0 1: BlockStored CPU [1] of 0 after false 0: []",
		"pool/0 1: BlockStored STORAGE [1] of 0 after false 0: []",
		"pool/0 1: BlockStored CPU [2] of 0 after false 0: []",
		"pool/0 2: BlockRemoved CPU [1]",
	}, r.take())
	fourth := master(t, 4, 1002, put(3, "cpu"))
	require.NoError(t, f.Frames(fourth))
	require.Equal(t, []string{
		"lost pool/0 3-3: gap without a replay endpoint", "clear pool/0: batches lost",
		"pool/0 4: BlockStored CPU [3] of 0 after false 0: []",
	}, r.take())
	require.NoError(t, f.Frames(fourth))
	require.Empty(t, r.take())

	bad := drop(9, "cpu")
	bad["dp_rank"] = -1
	require.NoError(t, f.Frames(master(t, 5, 1003, bad)))
	require.Equal(t, []string{"lost pool/0 5-5: malformed events", "clear pool/0: batches lost"}, r.take())

	var e *MessageError
	broken := master(t, 6, 1003, put(5, "cpu"))
	broken[2] = broken[2][:len(broken[2])-1]
	require.ErrorAs(t, f.Frames(broken), &e)
	require.Equal(t, []string{"lost pool/0 6-6: payload unreadable", "clear pool/0: batches lost"}, r.take())
	require.NoError(t, f.Frames(master(t, 1, 1004, put(6, "cpu"))))
	require.Equal(t, []string{"clear pool/0: engine restarted", "pool/0 1: BlockStored CPU [6] of 0 after false 0: []"}, r.take())
	// Its clock set back, and long ago: by the second message.
	for seq := range uint64(300) {
		require.NoError(t, f.Frames(master(t, seq+2, 2000, put(7, "cpu"))))
	}
	r.take()
	require.NoError(t, f.Frames(master(t, 0, 500, put(8, "cpu"))))
	require.Equal(t, []string{"lost pool/0 0-0: publisher may be another one", "clear pool/0: batches lost"}, r.take())
	require.NoError(t, f.Frames(master(t, 1, 500, put(9, "cpu"))))
	require.Equal(t, []string{"clear pool/0: engine restarted", "pool/0 1: BlockStored CPU [9] of 0 after false 0: []"}, r.take())
	for _, frames := range [][][]byte{nil, {{}, {}, {}}, {{}, []byte("\xff2345678"), {}}} {
		require.ErrorAs(t, f.Frames(frames), &e)
	}
}

// oracle says what a handler is told of events of the model "m", each of them
// well formed and of a stream of its own.
func oracle(t testing.TB, events []byte) []string {
	var list []struct {
		ID      uint64   `json:"event_id"`
		Type    string   `json:"event_type"`
		Model   *string  `json:"model_name"`
		Size    *int     `json:"block_size"`
		Salt    *string  `json:"additional_salt"`
		LoRA    *string  `json:"lora_name"`
		Tenant  *string  `json:"tenant_id"`
		Backend string   `json:"backend_id"`
		Medium  *string  `json:"medium"`
		Rank    *int     `json:"dp_rank"`
		Hashes  []uint64 `json:"seq_hashes"`
		Base    *int     `json:"base_block_idx"`
		Parent  *uint64  `json:"parent_hash"`
		Tokens  []uint32 `json:"token_ids"`
	}
	require.NoError(t, json.Unmarshal(events, &list))
	said := []string{}
	for _, e := range list {
		if e.Model == nil || *e.Model != "m" || e.Salt != nil && *e.Salt != "" || e.LoRA != nil && *e.LoRA != "" || e.Tenant != nil && *e.Tenant != "default" {
			continue
		}
		medium := ""
		if e.Medium != nil {
			medium = map[string]string{"gpu": "GPU", "cpu": "CPU", "disk": "STORAGE"}[*e.Medium]
		}
		size, rank := 0, 0
		if e.Size != nil {
			size = *e.Size
		}
		if e.Rank != nil {
			rank = *e.Rank
		}
		line := fmt.Sprintf("%s/%d %d:", e.Backend, rank, e.ID)
		switch e.Type {
		case "cleared":
			line += fmt.Sprintf(" AllBlocksCleared %s []", medium)
		case "removed":
			line += fmt.Sprintf(" BlockRemoved %s %d", medium, e.Hashes)
		case "stored":
			parent := uint64(0)
			if e.Parent != nil {
				parent = *e.Parent
			}
			if e.Parent == nil && e.Base != nil && *e.Base > 0 {
				e.Tokens = nil
			}
			line += fmt.Sprintf(" BlockStored %s %d of %d after %v %d: %d", medium, e.Hashes, size, e.Parent != nil, parent, e.Tokens)
		}
		if e.Type != "cleared" && len(e.Hashes) == 0 {
			continue
		}
		if e.ID > 1 {
			said = append(said, fmt.Sprintf("lost %s/%d 1-%d: published before we listened", e.Backend, rank, e.ID-1))
		}
		said = append(said, line)
	}
	return said
}

func randomEvents(r *rand.Rand) []map[string]any {
	list := []map[string]any{}
	maybe := func(m map[string]any, key string, values ...any) {
		if n := r.IntN(len(values) + 1); n > 0 {
			m[key] = values[n-1]
		}
	}
	for i := range r.IntN(6) {
		m := map[string]any{
			"event_id": r.Uint64() >> (1 + r.IntN(63)), "event_type": []string{"stored", "removed", "cleared"}[r.IntN(3)],
			"backend_id": fmt.Sprint(i), "model_name": []string{"m", "m", "m", "other"}[r.IntN(4)], "block_size": 2,
		}
		maybe(m, "timestamp", nil, r.Int64N(1e12))
		maybe(m, "additional_salt", nil, "", nil, "", "s")
		maybe(m, "lora_name", nil, "", nil, "", "l")
		maybe(m, "tenant_id", "default", "default", "other")
		maybe(m, "medium", "gpu", "cpu", "disk", nil)
		maybe(m, "dp_rank", nil, r.IntN(8))
		hashes, tokens := make([]uint64, 1+r.IntN(4)), []uint32{}
		for i := range hashes {
			hashes[i] = r.Uint64() >> r.IntN(64)
			tokens = append(tokens, r.Uint32(), 7)
		}
		if m["event_type"] != "cleared" {
			m["seq_hashes"] = hashes
		}
		if m["event_type"] == "stored" {
			maybe(m, "token_ids", nil, tokens, tokens)
			maybe(m, "base_block_idx", nil, 0, 3)
			maybe(m, "parent_hash", nil, r.Uint64())
			if _, ok := m["base_block_idx"]; !ok {
				m["parent_hash"] = nil
			}
		}
		list = append(list, m)
	}
	return list
}

// TestOracle: seeded events, in JSON and in msgpack, in lists and in batches.
func TestOracle(t *testing.T) {
	for seed := range uint64(2000) {
		list := randomEvents(rand.New(rand.NewPCG(seed, 9)))
		text, err := json.Marshal(list)
		require.NoError(t, err)
		want := oracle(t, text)
		packed, err := msgpack.Marshal(list)
		require.NoError(t, err)
		batch, err := msgpack.Marshal([]any{1234.5, list, nil})
		require.NoError(t, err)
		for _, message := range [][]byte{text, packed, fmt.Appendf(nil, "[17,%s,0]", text), batch} {
			f, r := follower(t, Options{Model: "m"})
			require.NoError(t, f.Events(message))
			require.Equal(t, want, r.take(), "%s", text)
			require.Zero(t, f.Status().Malformed)
		}
	}
}

// FuzzMessages: whatever comes is told the same way to two followers, and a message
// that has a time is not taken twice.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(stored))
	f.Add([]byte("[" + removed + "," + cleared + "]"))
	for _, frames := range [][][]byte{
		master(f, 1, 1000, map[string]any{"event_type": "stored", "seq_hashes": []uint64{1}}),
		master(f, 2, 1001, map[string]any{"event_type": "removed", "seq_hashes": []uint64{1}}),
	} {
		f.Add(frames[2])
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		a, ra := follower(t, Options{AnyModel: true})
		b, rb := follower(t, Options{AnyModel: true})
		require.Equal(t, a.Events(message), b.Events(message))
		require.Equal(t, ra.take(), rb.take())
		number := make([]byte, 8)
		first := a.Frames([][]byte{nil, number, message})
		ra.take()
		second := a.Frames([][]byte{nil, number, message})
		if len(ra.take()) == 0 || a.Status().Restarts > 0 {
			return
		}
		require.Error(t, first)
		require.Error(t, second)
	})
}

// BenchmarkEvents: one event of 64 blocks of 64 tokens in JSON, which repeats: all but
// the handler's part.
func BenchmarkEvents(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	hashes, ids := make([]uint64, 64), make([]uint32, 64*64)
	for i := range hashes {
		hashes[i] = r.Uint64()
	}
	for i := range ids {
		ids[i] = r.Uint32N(100_000)
	}
	event, err := json.Marshal(map[string]any{
		"event_id": 0, "event_type": "stored", "model_name": "m", "block_size": 64, "backend_id": "worker-0", "medium": "gpu",
		"dp_rank": 0, "seq_hashes": hashes, "base_block_idx": 0, "parent_hash": nil, "token_ids": ids,
	})
	require.NoError(b, err)
	f, err := NewFollower(Options{Handler: nobody{}, Model: "m"})
	require.NoError(b, err)
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Events(event); err != nil {
			b.Fatal(err)
		}
	}
}

type nobody struct{}

func (nobody) Apply(kvevents.Source, uint64, *kvevents.Batch) {}
func (nobody) Clear(kvevents.Source, kvevents.ClearCause)     {}
func (nobody) Lost(kvevents.Loss)                             {}
