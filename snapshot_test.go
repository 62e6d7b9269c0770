package kvatlas_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/conform"
	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/kveventstest"
	"github.com/kvatlas/kvatlas/radix"
)

// router is an Atlas that follows one worker by a stream.
type router struct {
	testing.TB
	*kvatlas.Atlas
	stream *kvevents.Stream
	name   string
}

var start = time.Unix(1_700_000_000, 0)

func newRouter(t testing.TB, w kvatlas.Worker, snapshot []byte) *router {
	t.Helper()
	r := &router{TB: t, Atlas: newAtlas(t, w), name: w.Name}
	if snapshot != nil {
		left, err := r.ReadSnapshot(bytes.NewReader(snapshot))
		require.NoError(t, err)
		require.Empty(t, left)
	}
	sink, err := r.Sink(w.Name)
	require.NoError(t, err)
	r.stream, err = kvevents.NewStream(kvevents.StreamOptions{Worker: w.Name, Replay: true}, sink)
	require.NoError(t, err)
	if at, ok := r.Resume(kvevents.Source{Worker: w.Name}); ok {
		require.True(t, r.stream.Resume(at))
	}
	return r
}

func (r *router) snapshot() []byte {
	r.Helper()
	var to bytes.Buffer
	require.NoError(r, r.WriteSnapshot(&to))
	return to.Bytes()
}

// connect connects to a publisher that keeps these messages, and takes its replays.
func (r *router) connect(conn uint64, kept []kvevents.Message) {
	r.stream.Connected(start, conn)
	r.replays(kept)
}

func (r *router) replays(kept []kvevents.Message) {
	for q, ok := r.stream.Request(); ok; q, ok = r.stream.Request() {
		r.stream.Sent(start, q.ID)
		for _, m := range kept {
			if m.Seq >= q.From {
				r.stream.Reply(start, q.ID, kvevents.Reply{Seq: m.Seq, Payload: m.Payload})
			}
		}
		r.stream.Reply(start, q.ID, kvevents.Reply{End: true})
	}
}

func (r *router) restored() uint64 {
	s, _, err := r.Stats(r.name)
	require.NoError(r, err)
	return s.Restored
}

// TestSnapshotOfRecordedServers: a router that begins in the middle of a recorded
// session with another's snapshot, and follows from there, answers as one that saw all.
func TestSnapshotOfRecordedServers(t *testing.T) {
	restored, compared := 0, 0
	for _, name := range golden.Files(t, "vllm/server/*/truth-*.jsonl") {
		s, err := recording.ReadSession(bytes.NewReader(golden.Read(t, name)))
		require.NoError(t, err)
		w, err := conform.SessionWorker(s.Meta)
		require.NoError(t, err)
		w.Name = "w"
		rng := rand.New(rand.NewPCG(1, uint64(len(s.Ops))))
		for range 6 {
			all := newRouter(t, w, nil)
			if mode, _ := all.Mode("w"); mode != kvatlas.ByHash {
				require.NotContains(t, string(all.snapshot()), `"name"`)
				continue
			}
			all.connect(1, nil)
			// The snapshot is taken at one line, and used at a later one.
			taken := rng.IntN(len(s.Ops))
			used := taken + rng.IntN(min(20, len(s.Ops)-taken))
			var snapshot []byte
			var late *router
			var kept []kvevents.Message
			for i, op := range s.Ops {
				switch op.Op {
				case "event":
					m := kvevents.Message{Seq: uint64(op.Seq), Payload: op.Payload}
					kept = append(kept, m)
					all.stream.Message(start, 1, m)
					if late != nil {
						late.stream.Message(start, 1, m)
					}
				case "reset_prefix_cache":
					require.NoError(t, all.Clear("w"))
					if late != nil {
						require.NoError(t, late.Clear("w"))
					}
					if late == nil && snapshot != nil {
						used = len(s.Ops) // its operator knew what the late router could not
					}
				case "server_killed_and_restarted":
					used = len(s.Ops)
				case "request":
					p := conform.SessionPrompt(op.Request)
					want := matchOn(t, all.Atlas, "w", p)
					if late != nil {
						compared++
						require.Equal(t, want, matchOn(t, late.Atlas, "w", p), "%s, line %d", name, op.Line)
					}
				}
				if i == taken {
					snapshot = all.snapshot()
				}
				if i == used {
					late = newRouter(t, w, snapshot)
					require.Zero(t, late.restored(), "before the engine is known to be the same")
					late.connect(1, kept)
					restored += int(late.restored())
					require.Equal(t, all.stream.Status(start), late.stream.Status(start))
				}
			}
		}
	}
	require.Greater(t, restored, 100)
	require.Greater(t, compared, 100)
}

// TestSnapshotOfWhatIsGone: a block that was removed, and an engine that restarted,
// between the snapshot and its use: nothing of it is ever matched.
func TestSnapshotOfWhatIsGone(t *testing.T) {
	w := worker("w")
	p := blockhash.Prompt{Tokens: tokens(17)}
	keys := keysOf(t, w, p)
	message := func(seq uint64, at float64, events ...kvevents.Event) kvevents.Message {
		form, err := kvevents.FormFor("vllm", w.Release)
		require.NoError(t, err)
		return kvevents.Message{Seq: seq, Payload: kvevents.AppendBatch(nil, &kvevents.Batch{Timestamp: at, Events: events}, form)}
	}
	kept := []kvevents.Message{message(0, 10, stored(keys, p.Tokens[:16])), message(1, 11, removed(keys[3], keys[2]))}
	first := newRouter(t, w, nil)
	first.connect(1, kept[:1])
	require.Equal(t, 16, usable(t, first.Atlas, p)["w"])
	snapshot := first.snapshot()

	for name, c := range map[string]struct {
		do   func(*router)
		want int
	}{
		"not followed yet":    {func(r *router) {}, 0},
		"the same engine":     {func(r *router) { r.connect(1, kept[:1]) }, 16},
		"one that removed":    {func(r *router) { r.connect(1, kept) }, 8},
		"one that restarted":  {func(r *router) { r.connect(1, []kvevents.Message{message(0, 20)}) }, 0},
		"a truncated replay":  {func(r *router) { r.connect(1, kept[1:]) }, 0},
		"another's word":      {func(r *router) { sinkOf(r).(kvevents.Confirmer).Confirm(2) }, 0},
		"cleared by operator": {func(r *router) { require.NoError(r, r.Clear("w")); r.connect(1, kept[:1]) }, 0},
		"reset":               {func(r *router) { require.NoError(r, r.Reset("w")); r.connect(1, kept[:1]) }, 0},
		"no stream": {func(r *router) {
			require.NoError(r, r.Apply("w", kept[1].Payload))
			sinkOf(r).(kvevents.Confirmer).Confirm(1)
		}, 0},
		"no replay to be had": {func(r *router) {
			r.stream.Connected(start, 1)
			q, _ := r.stream.Request()
			r.stream.Failed(start, q.ID)
			r.stream.Message(start, 1, kept[1])
		}, 0},
	} {
		r := newRouter(t, w, snapshot)
		c.do(r)
		require.Equal(t, c.want, usable(t, r.Atlas, p)["w"], name)
		s, _, err := r.Stats("w")
		require.NoError(t, err)
		require.Equal(t, c.want > 0, s.Restored > 0, name)
	}

	// Where is the stream? After a clear, or with too much, nowhere.
	require.NoError(t, first.Clear("w"))
	require.NotContains(t, string(first.snapshot()), `"name"`)
	first.stream.Message(start, 1, message(1, 11))
	require.Contains(t, string(first.snapshot()), `"name"`)
	sinkOf(first).Lost(kvevents.Loss{Worker: "w", From: 1, To: 1, Removals: true})
	require.NotContains(t, string(first.snapshot()), `"name"`)
	fed := newAtlas(t, w)
	require.NoError(t, fed.Apply("w", kept[0].Payload))
	var to bytes.Buffer
	require.NoError(t, fed.WriteSnapshot(&to))
	require.NotContains(t, to.String(), `"name"`, "no stream, no position")

	// A malformed store is missing there too; what contradicts its description is not
	// handed on.
	first.connect(2, kept)
	require.NotContains(t, string(first.snapshot()), `"Missing":true`)
	first.stream.Message(start, 2, message(2, 12, stored(keys, p.Tokens[:16])))
	sinkOf(first).Lost(kvevents.Loss{Worker: "w", From: 2, To: 2, Cause: kvevents.LossEvent})
	require.Contains(t, string(first.snapshot()), `"Missing":true`)
	many := newRouter(t, w, nil)
	many.connect(1, kept[:1])
	for i := range uint64(radix.MaxMedia) {
		e := kvevents.Event{Kind: kvevents.BlockStored, Hashes: keys, Medium: fmt.Appendf(nil, "tape %d", i)}
		require.Equal(t, i+3 < radix.MaxMedia, strings.Contains(string(many.snapshot()), `"name"`), i)
		many.stream.Message(start, 1, message(i+1, 20, e))
	}
	second := stored(keys, p.Tokens[:16])
	second.HasGroup, second.Group = true, 1
	first.stream.Message(start, 2, message(3, 13, second))
	require.NotEmpty(t, matchOn(t, first.Atlas, "w", p).Unknown)
	require.NotContains(t, string(first.snapshot()), `"name"`)
}

func sinkOf(r *router) kvevents.Sink {
	s, err := r.Sink(r.name)
	require.NoError(r, err)
	return s
}

// TestSnapshotOfAutomaticWorkers: what is restored of a worker waits, as its batches do,
// until it is known what its engine is; what is given up of them takes it along.
func TestSnapshotOfAutomaticWorkers(t *testing.T) {
	engine, auto := worker("w"), kvatlas.Worker{Name: "w", Auto: true}
	p, other := blockhash.Prompt{Tokens: tokens(17)}, blockhash.Prompt{Tokens: tokens(40)[20:]}
	form, err := kvevents.FormFor("vllm", engine.Release)
	require.NoError(t, err)
	message := func(seq uint64, events ...kvevents.Event) kvevents.Message {
		return kvevents.Message{Seq: seq, Payload: kvevents.AppendBatch(nil, &kvevents.Batch{Timestamp: float64(10 + seq), Events: events}, form)}
	}
	keys := keysOf(t, engine, p)
	kept := []kvevents.Message{
		message(0, stored(keys, p.Tokens[:16])), message(1, removed(keys[3])), message(2, stored(keysOf(t, engine, other), other.Tokens)),
	}
	first := newRouter(t, auto, nil)
	require.NotContains(t, string(first.snapshot()), `"name"`, "nothing is known")
	first.connect(1, kept[:1])
	snapshot := first.snapshot()

	late := newRouter(t, auto, snapshot)
	late.connect(1, kept[:2])
	require.NotEmpty(t, matchOn(t, late.Atlas, "w", p).Unknown)
	late.stream.Message(start, 1, kept[2])
	require.Equal(t, 12, matchOn(t, late.Atlas, "w", p).Usable)
	require.EqualValues(t, 4, late.restored())
	_, ok := late.Resume(kvevents.Source{Worker: "w"})
	require.False(t, ok)

	for name, spoil := range map[string]func(*router){
		"cleared": func(r *router) { require.NoError(r, r.Clear("w")) },
		"too much waits": func(r *router) {
			many := make([]uint64, 1<<16)
			for seq := uint64(2); seq < 12; seq++ { // by hash alone: nothing tells what the engine is
				r.stream.Message(start, 1, message(seq, kvevents.Event{Kind: kvevents.BlockStored, Hashes: many, Parent: 1, HasParent: true}))
			}
		},
	} {
		r := newRouter(t, auto, snapshot)
		r.connect(1, kept[:2])
		spoil(r)
		next := r.stream.Status(start).Next
		r.stream.Message(start, 1, message(next, stored(keysOf(t, engine, other), other.Tokens)))
		require.Zero(t, matchOn(t, r.Atlas, "w", p).Usable, name)
		require.Equal(t, 16, matchOn(t, r.Atlas, "w", other).Usable, name)
		require.Zero(t, r.restored(), name)
	}
}

// TestSnapshotDamaged: what is cut off or changed anywhere is refused, and nothing is
// changed by it.
func TestSnapshotDamaged(t *testing.T) {
	w := worker("w")
	p := blockhash.Prompt{Tokens: tokens(9)}
	kept := []kvevents.Message{{Seq: 0, Payload: payload(t, w.Release, stored(keysOf(t, w, p), p.Tokens[:8]))}}
	r := newRouter(t, w, nil)
	r.connect(1, kept)
	good := r.snapshot()
	late := newAtlas(t, w)
	for n := range good {
		_, err := late.ReadSnapshot(bytes.NewReader(good[:n]))
		require.ErrorIs(t, err, kvatlas.ErrSnapshot, "%d of %d bytes", n, len(good))
		bad := slices.Clone(good)
		bad[n] ^= 0x41
		_, err = late.ReadSnapshot(bytes.NewReader(bad))
		require.ErrorIs(t, err, kvatlas.ErrSnapshot, "byte %d of %d", n, len(good))
	}
	_, ok := late.Resume(kvevents.Source{Worker: "w"})
	require.False(t, ok)
	_, err := late.ReadSnapshot(nil)
	require.ErrorIs(t, err, kvatlas.ErrNil)
	require.ErrorIs(t, late.WriteSnapshot(nil), kvatlas.ErrNil)

	// Not for whom it is, and not twice.
	byContent := kvatlas.Worker{Name: "w", Release: "0.32.0", BlockSize: unit, Algorithm: blockhash.XXHash}
	for reason, a := range map[string]*kvatlas.Atlas{"no such worker": newAtlas(t), "known by content": newAtlas(t, byContent), "followed already": r.Atlas} {
		left, err := a.ReadSnapshot(bytes.NewReader(good))
		require.NoError(t, err)
		require.Contains(t, left["w"], reason)
	}
	left, err := late.ReadSnapshot(bytes.NewReader(good))
	require.NoError(t, err)
	require.Empty(t, left)
	left, err = late.ReadSnapshot(bytes.NewReader(good))
	require.NoError(t, err)
	require.Contains(t, left["w"], "followed already")
}

// TestSnapshotLeavesOut: workers that are known by content, and those that were given
// batches which are not of the stream, so that its position does not tell what is held.
func TestSnapshotLeavesOut(t *testing.T) {
	nothing := newAtlas(t)
	var none bytes.Buffer
	require.NoError(t, nothing.WriteSnapshot(&none))
	for name, w := range map[string]kvatlas.Worker{
		"by content": {Name: "w", Release: "0.32.0", BlockSize: unit, Algorithm: blockhash.XXHash},
		"applied":    worker("w"),
	} {
		p := blockhash.Prompt{Tokens: tokens(9)}
		batch := payload(t, w.Release, stored(keysOf(t, worker("w"), p), p.Tokens[:8]))
		r := newRouter(t, w, nil)
		r.connect(1, []kvevents.Message{{Seq: 0, Payload: batch}})
		if name == "applied" {
			require.NotEqual(t, none.Bytes(), r.snapshot())
			require.NoError(t, r.Apply("w", batch))
		}
		require.Equal(t, none.Bytes(), r.snapshot(), name)
	}
}

// TestSnapshotOfAnother: a record that has another worker's blocks changes nothing there,
// for it is not that worker's stream that confirms it.
func TestSnapshotOfAnother(t *testing.T) {
	w := worker("a")
	p := blockhash.Prompt{Tokens: tokens(9)}
	r := newRouter(t, w, nil)
	r.connect(1, []kvevents.Message{{Seq: 0, Payload: payload(t, w.Release, stored(keysOf(t, w, p), p.Tokens[:8]))}})
	made := r.snapshot()
	made = bytes.Replace(made[:len(made)-8], []byte(`"name":"a"`), []byte(`"name":"b"`), 1)
	made = binary.LittleEndian.AppendUint64(made, crc64.Checksum(made, crc64.MakeTable(crc64.ECMA)))
	a := newAtlas(t, w, worker("b"))
	left, err := a.ReadSnapshot(bytes.NewReader(made))
	require.NoError(t, err)
	require.Empty(t, left)
	sink, err := a.Sink("b")
	require.NoError(t, err)
	sink.(kvevents.Confirmer).Confirm(1)
	require.Zero(t, matchOn(t, a, "a", p).Usable)
	require.Zero(t, matchOn(t, a, "b", p).Usable)
}

// TestSnapshotAtRandom: snapshots at any moment, used at any later one, of an engine that
// evicts, clears and restarts and keeps little for its replays: the late router never
// matches more than the engine holds after the last batch that it could know, and the
// same as the first where its stream says that nothing is missing.
func TestSnapshotAtRandom(t *testing.T) {
	const prompts = 6
	w := worker("w")
	form, err := kvevents.FormFor("vllm", w.Release)
	require.NoError(t, err)
	all, keys := make([]blockhash.Prompt, prompts), make([][]uint64, prompts)
	for i := range all {
		all[i] = blockhash.Prompt{Tokens: slices.Clone(tokens(17 + i)[i:])}
		keys[i] = keysOf(t, w, all[i])
	}
	exact, restored := 0, 0
	for seed := range uint64(80) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var kept []kvevents.Message
		clock, seq, conn := 1e6, uint64(0), uint64(1)
		held := make([][]int, prompts)
		restart := func() {
			kept, seq = nil, 0
			for i := range held {
				held[i] = make([]int, 4)
			}
		}
		restart()
		publish := func() kvevents.Message {
			i, b := rng.IntN(prompts), rng.IntN(4)
			key := keys[i][b : b+1]
			e := removed(key...)
			switch n := rng.IntN(24); {
			case n == 0:
				e = kvevents.Event{Kind: kvevents.AllBlocksCleared}
				for i := range held {
					clear(held[i])
				}
			case n < 16:
				e = stored(key, all[i].Tokens[b*unit:(b+1)*unit])
				held[i][b]++
			default:
				held[i][b] = max(held[i][b]-1, 0)
			}
			clock += rng.Float64() + 0.001
			m := kvevents.Message{Seq: seq, Payload: kvevents.AppendBatch(nil, &kvevents.Batch{Timestamp: clock, Events: []kvevents.Event{e}}, form)}
			seq++
			kept = append(kept, m)
			kept = kept[max(0, len(kept)-12):]
			return m
		}
		first := newRouter(t, w, nil)
		first.connect(conn, kept)
		late := (*router)(nil)
		var snapshot []byte
		for range 400 {
			switch n := rng.IntN(60); {
			case n == 0:
				restart()
				conn++
				for range rng.IntN(40) { // before anybody is there again
					publish()
				}
				first.connect(conn, kept)
				if late != nil {
					late.connect(conn, kept)
				}
			case n < 5:
				snapshot = first.snapshot()
			case n < 8 && snapshot != nil:
				late = newRouter(t, w, snapshot)
				if rng.IntN(4) > 0 {
					late.connect(conn, kept)
				}
				restored += int(late.restored())
			default:
				m := publish()
				first.stream.Message(start, conn, m)
				first.replays(kept)
				if late != nil {
					late.stream.Message(start, conn, m)
					late.replays(kept)
				}
			}
			if late == nil {
				continue
			}
			for i := range all {
				truth := 0
				for truth < 4 && held[i][truth] > 0 {
					truth++
				}
				got := matchOn(t, late.Atlas, "w", all[i]).Usable
				require.LessOrEqual(t, got, truth*unit, "seed %d", seed)
				if late.stream.Status(start).State == kvevents.Live && late.stream.Status(start).Next == seq {
					exact++
					require.Equal(t, truth*unit, got, "seed %d", seed)
				}
			}
		}
	}
	require.Greater(t, exact, 10_000)
	require.Greater(t, restored, 100)
	t.Logf("%d equal, %d blocks restored", exact, restored)
}

// TestSnapshotOverSockets: a second router begins with the first one's snapshot and
// follows the same engine; it restarts, and nothing of before is left.
func TestSnapshotOverSockets(t *testing.T) {
	const size = 16
	scheme, err := blockhash.SchemeFor("vllm", "0.32.0")
	require.NoError(t, err)
	hash, err := kveventstest.HashAs(blockhash.Options{Scheme: scheme, BlockSize: size})
	require.NoError(t, err)
	e, err := kveventstest.Start(kveventstest.Options{Release: "0.32.0", BlockSize: size, Blocks: 64, Replay: true, Hash: hash})
	require.NoError(t, err)
	defer e.Close()
	w := kvatlas.Worker{Name: "w", Release: "0.32.0", BlockSize: size}
	prompt := func(i int) []uint32 { return slices.Repeat([]uint32{uint32(i)}, 8*size+1) }
	follow := func(snapshot []byte) (*kvatlas.Atlas, *kvevents.Subscriber) {
		a := newAtlas(t, w)
		if snapshot != nil {
			left, err := a.ReadSnapshot(bytes.NewReader(snapshot))
			require.NoError(t, err)
			require.Empty(t, left)
		}
		sub, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: a.Handler(), Resume: a.Resume})
		require.NoError(t, err)
		t.Cleanup(func() { _ = sub.Close() })
		require.NoError(t, sub.Add(kvevents.Target{Worker: "w", Endpoint: e.Endpoint(), ReplayEndpoint: e.ReplayEndpoint()}))
		return a, sub
	}
	caughtUp := func(a *kvatlas.Atlas, sub *kvevents.Subscriber, next uint64) {
		t.Helper()
		require.Eventually(t, func() bool {
			st := sub.AppendStatus(nil)[0]
			return st.State == kvevents.Live && st.Next == next
		}, 20*time.Second, time.Millisecond)
	}
	equal := func(a *kvatlas.Atlas) (total int) {
		t.Helper()
		held := e.Held()
		for i := range 30 {
			hit := 0
			for _, h := range e.Hashes(prompt(i)) {
				if held[kveventstest.Block{Hash: h, Medium: "GPU"}] == 0 {
					break
				}
				hit += size
			}
			require.Equal(t, hit, matchOn(t, a, "w", blockhash.Prompt{Tokens: prompt(i)}).Usable, "prompt %d", i)
			total += hit
		}
		return total
	}
	first, sub := follow(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, e.WaitSubscribed(ctx, 1))
	for i := range 12 {
		e.Serve(prompt(i))
	}
	caughtUp(first, sub, e.Seq())
	equal(first)
	var snapshot bytes.Buffer
	require.NoError(t, first.WriteSnapshot(&snapshot))
	for i := 12; i < 18; i++ { // evicts some of it
		e.Serve(prompt(i))
	}
	late, lateSub := follow(snapshot.Bytes())
	caughtUp(late, lateSub, e.Seq())
	require.Positive(t, equal(late))
	s, _, err := late.Stats("w")
	require.NoError(t, err)
	require.Positive(t, s.Restored)
	require.Less(t, s.Batches, e.Seq(), "it did not need all of them")

	require.NoError(t, e.Restart())
	e.Serve(prompt(3))
	after, afterSub := follow(snapshot.Bytes())
	caughtUp(after, afterSub, e.Seq())
	equal(after)
}
