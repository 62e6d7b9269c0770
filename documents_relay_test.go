package kvatlas_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/dynamo"
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
		a := newAtlas(t, kvatlas.Worker{Name: "7", Engine: "dynamo", Release: release, BlockSize: 4})
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

		// Trial T34: before 1.6 the hashes of an adapter are those of the base model.
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

// TestDynamoBackend: events in vLLM's form, as "Publish KV Events from a Custom
// Backend" of Dynamo's documentation has it: [timestamp, [maps], rank], signed hashes.
func TestDynamoBackend(t *testing.T) {
	a := newAtlas(t, kvatlas.Worker{Name: "w", Engine: "dynamo", Release: "1.0.0", BlockSize: 4})
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
