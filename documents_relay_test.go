package kvatlas_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/zeebo/xxh3"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/dynamo"
	"github.com/kvatlas/kvatlas/kvevents/mooncake"
	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/kvatlas/kvatlas/radix"
)

// Dynamo's event plane, to a match.

type eventPlane struct {
	t         testing.TB
	f         *dynamo.Follower
	publisher int
	next      int
}

func newEventPlane(t testing.TB, a *kvatlas.Atlas) *eventPlane {
	t.Helper()
	f, err := dynamo.NewFollower(dynamo.Options{Handler: a.Handler()})
	require.NoError(t, err)
	return &eventPlane{t: t, f: f, publisher: 1}
}

// send puts events into an envelope, each of worker 7.
func (e *eventPlane) send(tier string, data ...string) {
	e.t.Helper()
	var all []string
	for _, d := range data {
		all = append(all, fmt.Sprintf(`{"worker_id":7,"storage_tier":%q,"event":{"event_id":%d,"data":%s,"dp_rank":0}}`, tier, e.next, d))
	}
	require.NoError(e.t, e.f.Envelope(fmt.Appendf(nil, `{"publisher_id":%d,"topic":"kv_events","sequence":%d,"published_at":%d,"payload":%q}`,
		e.publisher, e.next, 1000+e.next, base64.StdEncoding.EncodeToString([]byte("["+strings.Join(all, ",")+"]")))))
	e.next++
}

// tokensHash is Dynamo's hash of a block's tokens.
func tokensHash(ids ...uint32) uint64 {
	var b []byte
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return xxh3.HashSeed(b, 1337)
}

func dynamoStored(parent string, blocks ...string) string {
	return `{"stored":{"parent_hash":` + parent + `,"start_position":null,"blocks":[` + strings.Join(blocks, ",") + `]}}`
}

func dynamoBlock(hash, tokens uint64) string {
	return fmt.Sprintf(`{"block_hash":%d,"tokens_hash":%d,"mm_extra_info":null}`, hash, tokens)
}

func TestDynamo(t *testing.T) {
	for _, release := range []string{"1.0.0", "1.6.0"} {
		w := kvatlas.Worker{Name: "7", Engine: "dynamo", Release: release, BlockSize: 4, PlainOnly: release == "1.0.0"}
		a := newAtlas(t, w)
		e := newEventPlane(t, a)
		match := func(p blockhash.Prompt) kvatlas.WorkerMatch {
			var m kvatlas.Match
			require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
			require.True(t, m.Workers[0].UpperBound)
			return m.Workers[0]
		}
		// HASH_1_4 and HASH_5_8 of Dynamo's lib/tokens; the worker's hashes are its own.
		e.send("device", dynamoStored("null", dynamoBlock(101, 14643705804678351452), dynamoBlock(102, 16777012769546811212)))
		p := blockhash.Prompt{Tokens: []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}}
		require.Equal(t, 8, match(p).Usable)
		e.send("device", dynamoStored("102", dynamoBlock(103, tokensHash(9, 10, 11, 12))))
		require.Equal(t, 12, match(p).Usable)
		require.Equal(t, 8, match(blockhash.Prompt{Tokens: p.Tokens[:12]}).Usable)

		// The same block on another tier, and away from the first.
		e.send("host_pinned", dynamoStored("102", dynamoBlock(103, tokensHash(9, 10, 11, 12))))
		e.send("device", `{"removed":{"block_hashes":[103]}}`)
		require.Equal(t, 8, match(p).Usable)
		require.Equal(t, 3, match(p).Combined)
		e.send("host_pinned", `{"removed":{"block_hashes":[103]}}`)
		require.Equal(t, 2, match(p).Combined)

		// Announced twice, removed once.
		e.send("device", dynamoStored("101", dynamoBlock(102, tokensHash(5, 6, 7, 8))), `{"removed":{"block_hashes":[102]}}`)
		require.Equal(t, 4, match(p).Usable)

		// Before 1.6 the hashes of an adapter are those of the base model.
		var m kvatlas.Match
		p.LoRA = &blockhash.LoRA{Name: "adapter"}
		if err := a.Match(&kvatlas.Request{Prompt: p}, &m); release == "1.0.0" {
			require.ErrorContains(t, err, "no known rule for adapters")
		} else {
			require.NoError(t, err)
			require.Zero(t, m.Workers[0].Usable)
		}
		p.LoRA = nil

		// A child before its parent, then a hole among the messages.
		e.send("device", dynamoStored("201", dynamoBlock(202, tokensHash(7, 7, 7, 7))))
		e.send("device", dynamoStored("null", dynamoBlock(201, tokensHash(6, 6, 6, 6))))
		q := blockhash.Prompt{Tokens: []uint32{6, 6, 6, 6, 7, 7, 7, 7, 8}}
		require.Equal(t, 8, match(q).Usable)
		e.next += 2
		e.send("device", dynamoStored("null", dynamoBlock(101, 14643705804678351452)))
		require.Zero(t, match(q).Usable)
		require.Equal(t, 4, match(p).Usable)
		stats, _, err := a.Stats("7")
		require.NoError(t, err)
		require.True(t, stats.FromDocuments)
		require.EqualValues(t, 2, stats.LostBatches)

		e.send("device", `"cleared"`)
		require.Zero(t, match(p).Combined)

		// The next process of the worker, from which nothing was heard before.
		e.send("device", dynamoStored("null", dynamoBlock(101, 14643705804678351452)))
		require.Equal(t, 4, match(p).Usable)
		e.publisher, e.next = 2, 0
		e.send("host_pinned", `{"removed":{"block_hashes":[]}}`)
		require.Zero(t, match(p).Combined)
	}
}

// TestDynamoAdapters: trial T34. From 1.6 the seed of an adapter's tokens is its own:
// the same tokens in three ways are three chains.
func TestDynamoAdapters(t *testing.T) {
	a := newAtlas(t, kvatlas.Worker{Name: "7", Engine: "dynamo", Release: "1.6.0", BlockSize: 4})
	e := newEventPlane(t, a)
	ids := []uint32{1, 2, 3, 4, 5}
	for i, lora := range []string{"", "a", "b"} {
		seed := uint64(1337)
		if lora != "" {
			seed += xxh3.HashStringSeed(lora, 0)
		}
		var b []byte
		for _, id := range ids[:4] {
			b = binary.LittleEndian.AppendUint32(b, id)
		}
		e.send("device", dynamoStored("null", dynamoBlock(uint64(i), xxh3.HashSeed(b, seed))))
	}
	match := func(lora string) int {
		p := blockhash.Prompt{Tokens: ids}
		if lora != "" {
			p.LoRA = &blockhash.LoRA{Name: lora}
		}
		return usable(t, a, p)["7"]
	}
	require.Equal(t, []int{4, 4, 4, 0}, []int{match(""), match("a"), match("b"), match("c")})
	e.send("device", `{"removed":{"block_hashes":[1]}}`)
	require.Equal(t, []int{4, 0, 4, 0}, []int{match(""), match("a"), match("b"), match("c")})

	// Before, one cannot tell them apart: nothing is known.
	a = newAtlas(t, kvatlas.Worker{Name: "7", Engine: "dynamo", Release: "1.5.0", BlockSize: 4})
	e = newEventPlane(t, a)
	e.send("device", dynamoStored("null", dynamoBlock(1, 14643705804678351452)))
	var m kvatlas.Match
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: ids}}, &m))
	require.Contains(t, m.Workers[0].Unknown, "declare the worker PlainOnly")
	require.Zero(t, m.Workers[0].Usable)
}

// TestDynamoBackend: events in vLLM's form, as "Publish KV Events from a Custom
// Backend" of Dynamo's documentation has it: [timestamp, [maps], rank], signed hashes.
func TestDynamoBackend(t *testing.T) {
	a := newAtlas(t, kvatlas.Worker{Name: "w", Engine: "dynamo", Release: "1.6.0", BlockSize: 4})
	form, err := kvevents.FormFor("vllm", "0.24.0") // the same maps
	require.NoError(t, err)
	first, second := uint64(1<<63+1), uint64(2)
	ids := []uint32{1, 2, 3, 4, 5, 6, 7, 8}
	apply := func(e kvevents.Event) {
		require.NoError(t, a.Apply("w", kvevents.AppendBatch(nil, &kvevents.Batch{Events: []kvevents.Event{e}, HasRank: true}, form)))
	}
	apply(kvevents.Event{Kind: kvevents.BlockStored, Hashes: []uint64{first}, Tokens: ids[:4], BlockSize: 4})
	apply(kvevents.Event{Kind: kvevents.BlockStored, Hashes: []uint64{second}, Parent: first, HasParent: true, Tokens: ids[4:], BlockSize: 4})
	p := blockhash.Prompt{Tokens: append(slices.Clone(ids), 9)}
	require.Equal(t, map[string]int{"w": 8}, usable(t, a, p))
	apply(kvevents.Event{Kind: kvevents.BlockRemoved, Hashes: []uint64{second}})
	require.Equal(t, map[string]int{"w": 4}, usable(t, a, p))
}

// TestDynamoNeverOvercounts: random caches on two tiers, with holes among the
// messages; what matches is there, and without holes all that is there matches.
func TestDynamoNeverOvercounts(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 6))
		lossy := seed%2 == 1
		a := newAtlas(t, kvatlas.Worker{Name: "7", Engine: "dynamo", Release: "1.6.0", BlockSize: 4})
		e := newEventPlane(t, a)
		tiers := []string{"device", "host_pinned"}
		held := [2]map[string]bool{{}, {}} // tier, path
		hash := func(path string) uint64 { return xxh3.HashString(path) }
		for range 120 {
			path := ""
			for range 1 + r.IntN(4) {
				path += string(rune('a' + r.IntN(2)))
			}
			tier := r.IntN(2)
			var data string
			switch r.IntN(8) {
			case 0, 1, 2, 3: // a prefix of it becomes known
				from := 0
				parent := "null"
				for from < len(path) && held[tier][path[:from+1]] {
					from++
					parent = fmt.Sprint(hash(path[:from]))
				}
				var blocks []string
				for i := from; i < len(path); i++ {
					held[tier][path[:i+1]] = true
					c := uint32(path[i])
					blocks = append(blocks, dynamoBlock(hash(path[:i+1]), tokensHash(c, c, c, c)))
				}
				data = dynamoStored(parent, blocks...)
			case 4, 5, 6:
				delete(held[tier], path)
				data = fmt.Sprintf(`{"removed":{"block_hashes":[%d]}}`, hash(path))
			default:
				if r.IntN(5) > 0 {
					continue
				}
				clear(held[0])
				clear(held[1])
				data = `"cleared"`
			}
			if lossy && r.IntN(6) == 0 {
				e.next++ // on its way
				continue
			}
			e.send(tiers[tier], data)
			for range 5 {
				var p blockhash.Prompt
				path, device, any, stop := "", 0, 0, false
				for range 1 + r.IntN(4) {
					c := 'a' + r.IntN(2)
					path += string(rune(c))
					p.Tokens = append(p.Tokens, uint32(c), uint32(c), uint32(c), uint32(c))
					if stop = stop || !held[0][path]; !stop {
						device++
					}
					if any == len(path)-1 && (held[0][path] || held[1][path]) {
						any++
					}
				}
				p.Tokens = append(p.Tokens, 7)
				var m kvatlas.Match
				require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
				if lossy {
					require.LessOrEqual(t, m.Workers[0].Usable, 4*device, "seed %d", seed)
					require.LessOrEqual(t, m.Workers[0].Combined, any, "seed %d", seed)
				} else {
					require.Equal(t, 4*device, m.Workers[0].Usable, "seed %d", seed)
					require.Equal(t, any, m.Workers[0].Combined, "seed %d", seed)
				}
			}
		}
	}
}

// Mooncake's events, to a match.

// mooncakeEvent makes an event of worker-0, numbered in its medium's stream.
func mooncakeEvent(id int, kind, medium, rest string) string {
	return fmt.Sprintf(`{"event_id":%d,"timestamp":%d,"event_type":%q,"model_name":"m","block_size":4,"additional_salt":null,`+
		`"lora_name":null,"tenant_id":"default","backend_id":"worker-0","medium":%q,"dp_rank":0%s}`, id, 1739145600000+int64(id), kind, medium, rest)
}

// seqHashes are the rolling hashes of RFC 1527 for whole blocks of 4.
func seqHashes(seed uint64, ids []uint32) (all []uint64) {
	for i := 0; i+4 <= len(ids); i += 4 {
		var b []byte
		for _, id := range ids[i : i+4] {
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

func list[T any](all []T) string { return strings.ReplaceAll(fmt.Sprint(all), " ", ",") }

func TestMooncake(t *testing.T) {
	const seed = 42
	p := blockhash.Prompt{Tokens: tokens(14)}
	for _, standard := range []bool{true, false} {
		w := kvatlas.Worker{Name: "worker-0", Engine: "mooncake", Release: "0.3.0", BlockSize: 4}
		hashes := []uint64{11, 12, 13}
		if standard {
			w.XXH3Seed = seed
			hashes = seqHashes(seed, p.Tokens)
		}
		stored := func(from, to int, parent string) string {
			s := fmt.Sprintf(`,"seq_hashes":%s,"base_block_idx":%d,"parent_hash":%s`, list(hashes[from:to]), from, parent)
			if !standard {
				s += `,"token_ids":` + list(p.Tokens[4*from:4*to])
			}
			return s
		}
		a := newAtlas(t, w)
		f, err := mooncake.NewFollower(mooncake.Options{Handler: a.Handler(), Model: "m"})
		require.NoError(t, err)
		next := map[string]int{}
		send := func(kind, medium, rest string) {
			t.Helper()
			require.NoError(t, f.Events([]byte(mooncakeEvent(next[medium], kind, medium, rest))))
			next[medium]++
		}
		match := func() kvatlas.WorkerMatch {
			var m kvatlas.Match
			require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
			require.True(t, m.Workers[0].UpperBound)
			require.Empty(t, m.Workers[0].Unknown)
			return m.Workers[0]
		}
		send("stored", "gpu", stored(0, 2, "null"))
		require.Equal(t, 8, match().Usable)
		send("stored", "gpu", stored(2, 3, fmt.Sprint(hashes[1])))
		require.Equal(t, 12, match().Usable)

		// Trial T102: a removal takes a block from its medium only.
		send("stored", "cpu", stored(0, 3, "null"))
		send("stored", "disk", stored(0, 3, "null"))
		send("removed", "cpu", `,"seq_hashes":`+list(hashes[1:2]))
		m := match()
		require.Equal(t, 12, m.Usable)
		require.Equal(t, int32(1), m.Blocks[radix.CPU])
		require.Equal(t, int32(3), m.Blocks[radix.Storage])
		send("removed", "gpu", `,"seq_hashes":`+list(hashes[1:]))
		require.Equal(t, 4, match().Usable)
		require.Equal(t, 3, match().Combined)
		send("cleared", "disk", "")
		require.Equal(t, 1, match().Combined)
		require.Equal(t, 4, match().Usable)

		// Announced again: the third block was never put anywhere but after its parent.
		send("stored", "gpu", stored(1, 2, fmt.Sprint(hashes[0])))
		require.Equal(t, 8, match().Usable)

		// A hole in a stream.
		next["gpu"] += 5
		send("stored", "gpu", stored(0, 1, "null"))
		require.Equal(t, 4, match().Usable)
		stats, _, err := a.Stats("worker-0")
		require.NoError(t, err)
		require.True(t, stats.FromDocuments)
		require.EqualValues(t, 5, stats.LostBatches)
		require.Empty(t, stats.Contradiction)

		// Of another model, tenant, or adapter: nothing.
		for _, change := range []string{`"model_name":"m"`, `"tenant_id":"default"`, `"lora_name":null`, `"additional_salt":null`} {
			event := mooncakeEvent(next["gpu"], "stored", "gpu", stored(1, 2, fmt.Sprint(hashes[0])))
			require.NoError(t, f.Events([]byte(strings.Replace(event, change, change[:strings.Index(change, ":")]+`:"other"`, 1))))
			require.Equal(t, 4, match().Usable)
		}
	}
}

// TestMooncakeHashesAlone: without the seed and without tokens nothing matches, and it
// shows.
func TestMooncakeHashesAlone(t *testing.T) {
	a := newAtlas(t, kvatlas.Worker{Name: "worker-0", Engine: "mooncake", Release: "0.3.0", BlockSize: 4})
	f, err := mooncake.NewFollower(mooncake.Options{Handler: a.Handler(), Model: "m"})
	require.NoError(t, err)
	ids := tokens(9)
	require.NoError(t, f.Events([]byte(mooncakeEvent(0, "stored", "gpu", `,"seq_hashes":`+list(seqHashes(7, ids))+`,"base_block_idx":0`))))
	require.Equal(t, map[string]int{"worker-0": 0}, usable(t, a, blockhash.Prompt{Tokens: ids}))
	stats, _, err := a.Stats("worker-0")
	require.NoError(t, err)
	require.EqualValues(t, 2, stats.Unplaced)
}

// TestMooncakeNeverOvercounts: random caches on three media in three streams, with
// holes; what matches is there, and without holes all that is there matches.
func TestMooncakeNeverOvercounts(t *testing.T) {
	media := []string{"gpu", "cpu", "disk"}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 8))
		lossy, standard := seed%2 == 1, seed%4 < 2
		w := kvatlas.Worker{Name: "worker-0", Engine: "mooncake", Release: "0.3.0", BlockSize: 4}
		if standard {
			w.XXH3Seed = 99
		}
		a := newAtlas(t, w)
		f, err := mooncake.NewFollower(mooncake.Options{Handler: a.Handler(), Model: "m"})
		require.NoError(t, err)
		prompt := func(path string) (ids []uint32) {
			for _, c := range path {
				ids = append(ids, uint32(c), 1, uint32(c), 2)
			}
			return ids
		}
		held := [3]map[string]bool{{}, {}, {}}
		next := [3]int{}
		for range 120 {
			path := ""
			for range 1 + r.IntN(4) {
				path += string(rune('a' + r.IntN(2)))
			}
			m := r.IntN(3)
			hashes := seqHashes(99, prompt(path))
			kind, rest := "stored", ""
			switch n := r.IntN(12); {
			case n < 7:
				from := 0
				for from < len(path)-1 && held[m][path[:from+1]] {
					from++
				}
				parent := "null"
				if from > 0 {
					parent = fmt.Sprint(hashes[from-1])
				}
				rest = fmt.Sprintf(`,"seq_hashes":%s,"base_block_idx":%d,"parent_hash":%s`, list(hashes[from:]), from, parent)
				if !standard {
					rest += `,"token_ids":` + list(prompt(path[from:]))
				}
				for i := from; i < len(path); i++ {
					held[m][path[:i+1]] = true
				}
			case n < 11:
				kind, rest = "removed", `,"seq_hashes":`+list(hashes[len(hashes)-1:])
				delete(held[m], path)
			default:
				kind = "cleared"
				clear(held[m])
			}
			id := next[m]
			next[m]++
			if lossy && r.IntN(8) == 0 {
				continue
			}
			require.NoError(t, f.Events([]byte(mooncakeEvent(id, kind, media[m], rest))))
			for range 5 {
				path := ""
				gpu, any := 0, 0
				for range 1 + r.IntN(4) {
					path += string(rune('a' + r.IntN(2)))
					if gpu == len(path)-1 && held[0][path] {
						gpu++
					}
					if any == len(path)-1 && (held[0][path] || held[1][path] || held[2][path]) {
						any++
					}
				}
				var match kvatlas.Match
				require.NoError(t, a.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: append(prompt(path), 5)}}, &match))
				got := match.Workers[0]
				switch {
				case !lossy:
					require.Equal(t, 4*gpu, got.Usable, "seed %d", seed)
					require.Equal(t, any, got.Combined, "seed %d", seed)
				case m == 0: // the stream that spoke is known up to now
					require.LessOrEqual(t, got.Usable, 4*gpu, "seed %d", seed)
				}
			}
		}
	}
}

// overZMQ publishes messages on a socket, and hands them to take as they arrive.
func overZMQ(t testing.TB, take func(frames [][]byte) error) (publish func(frames ...[]byte)) {
	t.Helper()
	pub, err := zmtp.NewPub(zmtp.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { pub.Close() })
	at, err := pub.Bind("tcp://127.0.0.1:0")
	require.NoError(t, err)
	sub, err := zmtp.NewSub(zmtp.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { sub.Close() })
	require.NoError(t, sub.Subscribe(""))
	require.NoError(t, sub.Dial(at))
	require.Eventually(t, func() bool { return pub.Subscriptions() > 0 }, 10*time.Second, time.Millisecond)
	return func(frames ...[]byte) {
		t.Helper()
		require.NoError(t, pub.Send(frames...))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var m zmtp.Message
		require.NoError(t, sub.Recv(ctx, &m))
		require.NoError(t, take(m.Frames))
	}
}

// TestMooncakeMaster: what mooncake_master publishes for a pool, over ZMQ; keys that are
// hashes of RFC 1527.
func TestMooncakeMaster(t *testing.T) {
	const seed = 42
	a := newAtlas(t, kvatlas.Worker{Name: "pool", Engine: "mooncake", Release: "0.3.0", BlockSize: 4, XXH3Seed: seed})
	f, err := mooncake.NewFollower(mooncake.Options{Handler: a.Handler()})
	require.NoError(t, err)
	publish := overZMQ(t, f.Frames)
	p := blockhash.Prompt{Tokens: tokens(14)}
	hashes := seqHashes(seed, p.Tokens)
	number := uint64(0)
	send := func(kind, medium string, hashes ...uint64) {
		t.Helper()
		number++
		events := []any{}
		for i, h := range hashes {
			e := map[string]any{
				"event_id": 100*number + uint64(i), "timestamp": 1000 + number, "event_type": kind, "model_name": nil, "block_size": nil,
				"additional_salt": nil, "lora_name": nil, "tenant_id": "default", "backend_id": "pool", "group_id": nil, "medium": medium,
				"dp_rank": nil, "object_key": fmt.Sprint(h), "seq_hashes": []uint64{h}, "block_hashes": []int64{int64(h)}, "base_block_idx": nil,
			}
			if kind == "stored" {
				e["base_block_idx"], e["parent_hash"], e["token_ids"] = uint32(0), nil, nil
			}
			events = append(events, e)
		}
		payload, err := msgpack.Marshal([]any{1000 + number, events, uint32(0)})
		require.NoError(t, err)
		publish([]byte{}, binary.BigEndian.AppendUint64(nil, number), payload)
	}
	match := func() kvatlas.WorkerMatch {
		var m kvatlas.Match
		require.NoError(t, a.Match(&kvatlas.Request{Prompt: p}, &m))
		return m.Workers[0]
	}
	send("stored", "cpu", hashes[2], hashes[0], hashes[1])
	require.Equal(t, int32(3), match().Blocks[radix.CPU])
	require.Zero(t, match().Usable, "the pool is no device")
	send("stored", "disk", hashes[0])
	send("removed", "cpu", hashes[1])
	require.Equal(t, int32(1), match().Blocks[radix.CPU])
	require.Equal(t, int32(1), match().Blocks[radix.Storage])
	number++ // dropped
	send("stored", "cpu", hashes[0])
	require.Equal(t, int32(1), match().Blocks[radix.CPU])
	require.Zero(t, match().Blocks[radix.Storage])
	stats, _, err := a.Stats("pool")
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.LostBatches)
	require.Empty(t, stats.Contradiction)
}

// TestDynamoOverZMQ: the frames of Dynamo's event plane.
func TestDynamoOverZMQ(t *testing.T) {
	a := newAtlas(t, kvatlas.Worker{Name: "7", Engine: "dynamo", Release: "1.6.0", BlockSize: 4})
	f, err := dynamo.NewFollower(dynamo.Options{Handler: a.Handler()})
	require.NoError(t, err)
	publish := overZMQ(t, f.Frames)
	p := blockhash.Prompt{Tokens: []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}}
	for i, data := range []any{
		map[string]any{"stored": map[string]any{"parent_hash": nil, "start_position": nil, "blocks": []any{
			map[string]any{"block_hash": uint64(101), "tokens_hash": uint64(14643705804678351452), "mm_extra_info": nil},
			map[string]any{"block_hash": uint64(102), "tokens_hash": uint64(16777012769546811212), "mm_extra_info": nil},
		}}},
		map[string]any{"removed": map[string]any{"block_hashes": []uint64{102}}},
		"cleared",
	} {
		payload, err := msgpack.Marshal([]any{map[string]any{
			"worker_id": uint64(7), "storage_tier": "device", "event": map[string]any{"event_id": i, "data": data, "dp_rank": 0},
		}})
		require.NoError(t, err)
		envelope, err := msgpack.Marshal(map[string]any{
			"publisher_id": uint64(5), "sequence": i, "published_at": 1000 + i, "topic": "kv_events", "payload": payload, "published_at_ns": 0,
		})
		require.NoError(t, err)
		header := binary.BigEndian.AppendUint32([]byte{1}, uint32(len(envelope)))
		publish([]byte("kv_events"), binary.BigEndian.AppendUint64(nil, 5), binary.BigEndian.AppendUint64(nil, uint64(i)), append(header, envelope...))
		require.Equal(t, map[string]int{"7": []int{8, 4, 0}[i]}, usable(t, a, p))
	}
}
