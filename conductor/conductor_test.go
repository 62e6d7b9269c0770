package conductor

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/mooncake"
)

// The response of docs/source/api-reference/http/conductor-indexer.md.
const documented = `{"default":{"vllm-prefill-node1":{"longest_matched":256,"GPU":128,"DP":{"0":128,"1":256},"CPU":256,"DISK":0}}}`

func TestDocumentedAnswer(t *testing.T) {
	want := Answer{"default": {"vllm-prefill-node1": {Longest: 256, Media: map[string]int{"GPU": 128, "CPU": 256, "DISK": 0}, DP: map[int32]int{0: 128, 1: 256}}}}
	lower := strings.NewReplacer("GPU", "gpu", "DP", "dp", "CPU", "cpu", "DISK", "disk", `"dp":{`, `"rank_matches":[{"dp_rank":0}],"dp":{`).Replace(documented)
	for _, text := range []string{documented, lower} {
		var got Answer
		require.NoError(t, json.Unmarshal([]byte(text), &got))
		require.Equal(t, want, got)
	}
	text, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, documented, string(text))
	for _, text := range []string{`{"DP":7}`, `{"longest_matched":"x"}`, `[]`} {
		var i Instance
		require.Error(t, json.Unmarshal([]byte(text), &i), text)
	}
}

// Seed, block size and instance of the documentation's examples.
const (
	seed      = 5
	blockSize = 64
	node      = "vllm-prefill-node1"
)

func promptOf(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i*7 + 1)
	}
	return ids
}

func seqHashes(ids []uint32) (all []uint64) {
	for i := 0; i+blockSize <= len(ids); i += blockSize {
		var b []byte
		for _, id := range ids[i : i+blockSize] {
			b = binary.LittleEndian.AppendUint32(b, id)
		}
		h := xxh3.HashSeed(b, seed)
		if i > 0 {
			b = binary.LittleEndian.AppendUint64(nil, all[len(all)-1])
			h = xxh3.HashSeed(binary.LittleEndian.AppendUint64(b, h), seed)
		}
		all = append(all, h)
	}
	return all
}

// fleet is an instance of two ranks, and one of another block size.
func fleet(t testing.TB) (*kvatlas.Atlas, *mooncake.Follower) {
	t.Helper()
	a, err := kvatlas.New(kvatlas.Options{})
	require.NoError(t, err)
	for _, w := range []kvatlas.Worker{
		{Name: "rank0", Replica: node, BlockSize: blockSize},
		{Name: "rank1", Replica: node, Rank: 1, BlockSize: blockSize},
		{Name: "small", BlockSize: 16},
	} {
		w.Engine, w.Release, w.XXH3Seed = "mooncake", "0.3.0", seed
		require.NoError(t, a.AddWorker(w))
	}
	f, err := mooncake.NewFollower(mooncake.Options{Handler: a.Handler(), AnyModel: true})
	require.NoError(t, err)
	return a, f
}

func event(t testing.TB, f *mooncake.Follower, id int, kind, medium string, rank int, hashes []uint64) {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"event_id": id, "timestamp": id + 1, "event_type": kind, "block_size": blockSize, "backend_id": node, "medium": medium, "dp_rank": rank,
		"seq_hashes": hashes, "base_block_idx": 0,
	})
	require.NoError(t, err)
	require.NoError(t, f.Events(text))
}

func serve(t testing.TB, o Options) (*Client, string) {
	t.Helper()
	h, err := NewHandler(o)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/query", h)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	c, err := NewClient(ClientOptions{URL: srv.URL + "/"})
	require.NoError(t, err)
	return c, srv.URL + "/query"
}

// TestQuery: the documentation's example, from events to the answer.
func TestQuery(t *testing.T) {
	a, f := fleet(t)
	c, _ := serve(t, Options{Atlas: a, Model: "deepseek"})
	ids := promptOf(300)
	hashes := seqHashes(ids)
	event(t, f, 0, "stored", "gpu", 0, hashes[:2])
	event(t, f, 0, "stored", "cpu", 1, hashes[:4])
	q := Query{Model: "deepseek", TokenIDs: ids, BlockSize: blockSize}
	ask := func() Answer {
		t.Helper()
		answer, err := c.Query(t.Context(), &q)
		require.NoError(t, err)
		return answer
	}
	text, err := json.Marshal(ask())
	require.NoError(t, err)
	require.JSONEq(t, documented, string(text))

	event(t, f, 1, "removed", "cpu", 1, hashes[3:4])
	event(t, f, 0, "stored", "disk", 1, hashes[:1])
	require.Equal(t, Instance{Longest: 192, Media: map[string]int{"GPU": 128, "CPU": 192, "DISK": 64}, DP: map[int32]int{0: 128, 1: 192}}, ask()["default"][node])
	event(t, f, 0, "stored", "nvme", 0, hashes[:4])
	require.Equal(t, Instance{Longest: 256, Media: map[string]int{"GPU": 128, "CPU": 192, "DISK": 64, "NVME": 256}, DP: map[int32]int{0: 256, 1: 192}}, ask()["default"][node])
	event(t, f, 0, "stored", "nvme", 1, hashes[:3]) // what both ranks have is not more than each has
	require.Equal(t, Instance{Longest: 256, Media: map[string]int{"GPU": 128, "CPU": 192, "DISK": 64, "NVME": 256}, DP: map[int32]int{0: 256, 1: 192}}, ask()["default"][node])

	q.Instance = node
	require.Len(t, ask()["default"], 1)
	q.Instance = "small" // of another block size
	require.Equal(t, Answer{"default": {}}, ask())
	q.BlockSize = 16
	require.Equal(t, Answer{"default": {"small": {Media: map[string]int{"GPU": 0, "CPU": 0, "DISK": 0}, DP: map[int32]int{0: 0}}}}, ask())
	q.Instance, q.BlockSize = "", 32
	require.Equal(t, Answer{"default": {}}, ask())
	q.BlockSize, q.Model = blockSize, "llama"
	require.Equal(t, Answer{"default": {}}, ask())
	q.Model, q.Tenant = "deepseek", "other"
	require.Equal(t, Answer{"other": {}}, ask())
	q.Tenant, q.TokenIDs = "default", nil
	require.Equal(t, 0, ask()["default"][node].Longest)

	// Mooncake's hashes have no rule for salts: what cannot be known is no 0.
	q.TokenIDs, q.CacheSalt = ids, "w8a8"
	_, err = c.Query(t.Context(), &q)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, 400, e.Status)
	require.Contains(t, e.Message, "salt")
}

// TestAdaptersAndSalts: of vLLM, whose hashes know both.
func TestAdaptersAndSalts(t *testing.T) {
	a, err := kvatlas.New(kvatlas.Options{})
	require.NoError(t, err)
	require.NoError(t, a.AddWorker(kvatlas.Worker{Name: "w", Release: "0.20.2", BlockSize: 4, Seed: blockhash.SeedText("0")}))
	scheme, err := blockhash.SchemeFor("vllm", "0.20.2")
	require.NoError(t, err)
	hasher, err := blockhash.New(blockhash.Options{Scheme: scheme, BlockSize: 4, Seed: blockhash.SeedText("0")})
	require.NoError(t, err)
	p := blockhash.Prompt{Tokens: promptOf(9), CacheSalt: "s", LoRA: &blockhash.LoRA{Name: "sql-adapter"}}
	keys, err := hasher.AppendKeys(nil, &p)
	require.NoError(t, err)
	require.NoError(t, a.ApplyBatch("w", &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.BlockStored, Hashes: keys}}}))
	c, _ := serve(t, Options{Atlas: a, Model: "m"})
	for i, c2 := range []struct {
		lora, salt string
		want       int
	}{{"sql-adapter", "s", 8}, {"sql-adapter", "", 0}, {"", "s", 0}, {"other", "s", 0}} {
		answer, err := c.Query(t.Context(), &Query{Model: "m", TokenIDs: p.Tokens, BlockSize: 4, LoRAName: c2.lora, CacheSalt: c2.salt})
		require.NoError(t, err)
		require.Equal(t, c2.want, answer["default"]["w"].Longest, i)
	}
}

func TestErrors(t *testing.T) {
	a, _ := fleet(t)
	_, url := serve(t, Options{Atlas: a, Model: "m", MaxBody: 400})
	post := func(body string) (int, map[string]any) {
		resp, err := http.Post(url, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer resp.Body.Close()
		var got map[string]any
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&got), body)
		return resp.StatusCode, got
	}
	for _, c := range []struct {
		body, reason, field string
		index               any
	}{
		{``, "invalid_json", "", nil},
		{`[]`, "invalid_json", "", nil},
		{`{"model":"m"`, "invalid_json", "", nil},
		{`{"model":"m"}x`, "invalid_json", "", nil},
		{`{"token_ids":[1],"block_size":64}`, "missing", "model", nil},
		{`{"model":"m","block_size":64}`, "missing", "token_ids", nil},
		{`{"model":"m","token_ids":[]}`, "missing", "block_size", nil},
		{`{"model":null,"token_ids":[],"block_size":64}`, "invalid_value", "model", nil},
		{`{"model":7}`, "invalid_type", "model", nil},
		{`{"lora_id":1,"lora_name":"a","model":"m","token_ids":[],"block_size":64}`, "invalid_value", "lora_id", nil},
		{`{"lora_id":"1"}`, "invalid_type", "lora_id", nil},
		{`{"token_ids":7}`, "not_array", "token_ids", nil},
		{`{"token_ids":[1,"2"]}`, "invalid_type", "token_ids", 1.0},
		{`{"token_ids":[1.5]}`, "invalid_type", "token_ids", 0.0},
		{`{"token_ids":[1,2,-3]}`, "out_of_range", "token_ids", 2.0},
		{`{"token_ids":[4294967296]}`, "out_of_range", "token_ids", 0.0},
		{`{"token_ids":[1,`, "invalid_json", "", nil},
		{`{"block_size":0}`, "out_of_range", "block_size", nil},
		{`{"block_size":1.5}`, "invalid_type", "block_size", nil},
		{`{"novel":1}`, "unknown_field", "novel", nil},
	} {
		status, got := post(c.body)
		require.Equal(t, 400, status, c.body)
		require.Equal(t, c.reason, got["reason"], c.body)
		require.Equal(t, c.index, got["index"], c.body)
		require.NotEmpty(t, got["error"])
		if c.field != "" {
			require.Equal(t, c.field, got["field"], c.body)
		}
	}
	status, _ := post(`{"model":"m","block_size":64,"token_ids":[` + strings.Repeat("1,", 300) + `1]}`)
	require.Equal(t, 413, status)
	resp, err := http.Get(url)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 405, resp.StatusCode)
	require.Equal(t, "POST", resp.Header.Get("Allow"))
	status, got := post(`{"model":"m","block_size":64,"token_ids":[1],"lora_id":null,"lora_name":null,"tenant_id":null,"instance_id":"none"}`)
	require.Equal(t, 200, status)
	require.Equal(t, map[string]any{"default": map[string]any{}}, got)

	for _, o := range []Options{{Model: "m"}, {Atlas: a}, {Atlas: a, Model: "m", MaxBody: -1}} {
		_, err := NewHandler(o)
		require.ErrorContains(t, err, "conductor: ")
	}
	for _, o := range []ClientOptions{{}, {URL: "host:1"}, {URL: "http://h", Timeout: -1}} {
		_, err := NewClient(o)
		require.ErrorContains(t, err, "conductor: ")
	}
}

// TestClientErrors: answers that are none.
func TestClientErrors(t *testing.T) {
	status, body := 200, ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		if !bytes.Contains(sent, []byte(`"token_ids":[]`)) {
			status = 500
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	defer srv.Close()
	c, err := NewClient(ClientOptions{URL: srv.URL, MaxAnswer: 60})
	require.NoError(t, err)
	ask := func(s int, b string) error {
		status, body = s, b
		_, err := c.Query(t.Context(), &Query{Model: "m", BlockSize: 16})
		return err
	}
	require.NoError(t, ask(200, "{}"))
	require.ErrorContains(t, ask(200, "{"), "answer")
	require.ErrorContains(t, ask(200, strings.Repeat(" ", 61)), "limit of 60 bytes")
	require.EqualError(t, ask(503, "<html>"), "conductor: status 503: Service Unavailable")
	var e *Error
	require.ErrorAs(t, ask(400, `{"error":"no","reason":"missing","field":"model","index":3}`), &e)
	require.Equal(t, "missing model 3", fmt.Sprint(e.Reason, " ", e.Field, " ", *e.Index))
	_, err = c.Query(t.Context(), nil)
	require.Error(t, err)
	srv.Close()
	require.Error(t, ask(200, "{}"))
}

// TestConcurrentQueries while events come: no answer has more than was ever held.
func TestConcurrentQueries(t *testing.T) {
	a, f := fleet(t)
	c, _ := serve(t, Options{Atlas: a, Model: "m"})
	ids := promptOf(300)
	hashes := seqHashes(ids)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				answer, err := c.Query(t.Context(), &Query{Model: "m", TokenIDs: ids, BlockSize: blockSize})
				if err != nil || answer["default"][node].Longest > 256 || answer["default"][node].DP[0] > 128 {
					t.Errorf("%v %v", answer, err)
					return
				}
			}
		})
	}
	for id := range 300 {
		kind := []string{"stored", "removed"}[id%2]
		event(t, f, id, kind, "gpu", 0, hashes[:2])
		event(t, f, id, kind, "cpu", 1, hashes[:4])
	}
	close(done)
	wg.Wait()
}

// compare holds the parser against encoding/json.
func compare(t testing.TB, body string) {
	t.Helper()
	var got Query
	e := parse(body, &got)
	d := json.NewDecoder(strings.NewReader(body))
	d.DisallowUnknownFields()
	var want Query
	err := d.Decode(&want)
	if e != nil {
		require.Equal(t, badRequest, e.Status)
		require.NotEmpty(t, e.Reason)
		return
	}
	if !utf8.ValidString(body) { // encoding/json writes U+FFFD
		return
	}
	if err != nil || d.More() {
		t.Fatalf("%q was accepted: %v", body, err)
	}
	if want.Tenant == "" {
		want.Tenant = DefaultTenant
	}
	require.Equal(t, want.TokenIDs, append([]uint32{}, got.TokenIDs...))
	got.TokenIDs = want.TokenIDs
	require.Equal(t, want, got)
}

func TestParse(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		q := Query{Model: "m\"é\n", BlockSize: 1 + r.IntN(1<<20), TokenIDs: []uint32{}}
		for range r.IntN(50) {
			q.TokenIDs = append(q.TokenIDs, r.Uint32()>>r.IntN(32))
		}
		for _, text := range []*string{&q.Tenant, &q.Instance, &q.CacheSalt} {
			*text = strings.Repeat("é", r.IntN(3))
		}
		if r.IntN(2) == 0 {
			id := r.Int64() - r.Int64()
			q.LoRAID = &id
		} else {
			q.LoRAName = strings.Repeat("l", r.IntN(3))
		}
		body, err := json.Marshal(q)
		require.NoError(t, err)
		require.Nil(t, parse(string(body), &Query{}), "%s", body)
		compare(t, string(body))
		compare(t, string(body[:r.IntN(len(body))]))
		at := r.IntN(len(body))
		compare(t, string(body[:at])+string(rune(' '+r.IntN(95)))+string(body[at+1:]))
	}
}

// FuzzParse: what is accepted says what encoding/json says.
func FuzzParse(f *testing.F) {
	f.Add(`{"model":"deepseek","lora_name":"sql-adapter","token_ids":[101,15,100,55,89],"tenant_id":"default","instance_id":"vllm-prefill-node1","block_size":64,"cache_salt":"w8a8"}`)
	f.Add(`{"model":"m","token_ids":[],"block_size":1,"lora_id":7}`)
	f.Fuzz(func(t *testing.T, body string) { compare(t, body) })
}
