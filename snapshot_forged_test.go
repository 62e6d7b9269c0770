package kvatlas_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
)

// sealed is a snapshot whose checksum is right, whatever is in it.
func sealed(parts ...[]byte) []byte {
	b := bytes.Join(parts, nil)
	return binary.LittleEndian.AppendUint64(b, crc64.Checksum(b, crc64.MakeTable(crc64.ECMA)))
}

// part is a worker's: its head and what follows that.
func part(head, rest []byte) []byte {
	return append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(head))), head...), rest...)
}

// at is a batch that stores the blocks of a prompt, after which the stream is at a position.
func at(t *testing.T, w kvatlas.Worker, p blockhash.Prompt, position kvevents.Position) *kvevents.Batch {
	t.Helper()
	return &kvevents.Batch{Events: []kvevents.Event{stored(keysOf(t, w, p), p.Tokens[:len(p.Tokens)/unit*unit])}, Position: position}
}

// streamed gives a worker a batch as its stream does.
func streamed(t *testing.T, a *kvatlas.Atlas, name string, b *kvevents.Batch) kvevents.Sink {
	t.Helper()
	sink, err := a.Sink(name)
	require.NoError(t, err)
	sink.Apply(0, b)
	return sink
}

func snapshotOf(t *testing.T, a *kvatlas.Atlas) []byte {
	t.Helper()
	var to bytes.Buffer
	require.NoError(t, a.WriteSnapshot(&to))
	return to.Bytes()
}

// TestSnapshotForged: what no checksum tells is refused by what it says.
func TestSnapshotForged(t *testing.T) {
	w := worker("w")
	p := blockhash.Prompt{Tokens: tokens(9)}
	a := newAtlas(t, w)
	streamed(t, a, "w", at(t, w, p, kvevents.Position{Next: 1}))
	good := snapshotOf(t, a)
	magic, n := good[:8], binary.LittleEndian.Uint32(good[8:])
	head, rest := good[12:12+n], good[12+n:len(good)-8]
	padded := func(n int) []byte { return append(bytes.Repeat([]byte(" "), n-len(head)), head...) }
	later := newAtlas(t, w)
	for want, bad := range map[string][]byte{
		`begins with "KVFLEET2", want "KVFLEET1"`: sealed([]byte("KVFLEET2"), part(head, rest)),
		"a worker of 1048577 bytes":               sealed(magic, part(padded(1<<20+1), rest)),
		`worker "{\"name\":`:                      sealed(magic, part(bytes.Replace(head, []byte(`"Next":1`), []byte(`"Next":0`), 1), rest)),
		`worker "?"`:                              sealed(magic, part([]byte("?"), rest)),
		`worker "w": radix: invalid snapshot`:     sealed(magic, part(head, append(make([]byte, 8), make([]byte, 4)...))),
		"damaged (checksum)":                      append(sealed(magic, part(head, rest))[:len(good)-8], 1, 2, 3, 4, 5, 6, 7, 8),
	} {
		_, err := later.ReadSnapshot(bytes.NewReader(bad))
		require.ErrorIs(t, err, kvatlas.ErrSnapshot)
		require.ErrorContains(t, err, want)
	}
	broken := errors.New("the disk is gone")
	for n := range len(good) {
		_, err := later.ReadSnapshot(io.MultiReader(bytes.NewReader(good[:n]), iotest.ErrReader(broken)))
		require.Equal(t, broken, err, "the reader's own, after %d bytes", n)
	}
	_, ok := later.Resume(kvevents.Source{Worker: "w"})
	require.False(t, ok, "nothing is changed by them")
	left, err := later.ReadSnapshot(bytes.NewReader(sealed(magic, part(padded(1<<20), rest))))
	require.NoError(t, err, "as much as may be")
	require.Empty(t, left)
}

// TestSnapshotHasTheWholePosition: the stream of another router goes on with all that the
// first one's knew.
func TestSnapshotHasTheWholePosition(t *testing.T) {
	want := kvevents.Position{Next: 7, Print: 1<<63 + 5, Time: 12.5, Since: 3.25, Missing: true, Base: 4, Tiers: true}
	w := worker("w")
	p := blockhash.Prompt{Tokens: tokens(9)}
	first, second := newAtlas(t, w), newAtlas(t, w)
	batch := at(t, w, p, want)
	batch.Events = append(batch.Events, kvevents.Event{Kind: kvevents.BlockStored, Medium: []byte("CPU"), Hashes: batch.Events[0].Hashes[:1]})
	streamed(t, first, "w", batch)
	left, err := second.ReadSnapshot(bytes.NewReader(snapshotOf(t, first)))
	require.NoError(t, err)
	require.Empty(t, left)
	got, ok := second.Resume(kvevents.Source{Worker: "w"})
	require.True(t, ok)
	require.Equal(t, want, got)
	_, ok = second.Resume(kvevents.Source{Worker: "another"})
	require.False(t, ok)

	// Another's word, and the word for a source that is not here, change nothing.
	h := second.Handler().(kvevents.SourceConfirmer)
	h.Confirm(kvevents.Source{Worker: "another"}, 7)
	h.Confirm(kvevents.Source{Worker: "w"}, 8)
	require.True(t, matchOn(t, second, "w", p).Unheard)
	h.Confirm(kvevents.Source{Worker: "w"}, 7)
	h.Confirm(kvevents.Source{Worker: "w"}, 7)
	require.False(t, matchOn(t, second, "w", p).Unheard, "its stream goes on")
	require.Equal(t, 8, matchOn(t, second, "w", p).Usable)
	_, ok = second.Resume(kvevents.Source{Worker: "w"})
	require.False(t, ok, "it has gone on")
	counted, _, err := second.Stats("w")
	require.NoError(t, err)
	require.EqualValues(t, 3, counted.Restored, "on all media")

	// And what was restored may be handed on at once.
	third := newAtlas(t, w)
	left, err = third.ReadSnapshot(bytes.NewReader(snapshotOf(t, second)))
	require.NoError(t, err)
	require.Empty(t, left)
	got, ok = third.Resume(kvevents.Source{Worker: "w"})
	require.True(t, ok)
	require.Equal(t, want, got)
}

// TestSnapshotOfEachAlone: a worker's part has its blocks and no other's.
func TestSnapshotOfEachAlone(t *testing.T) {
	a := newAtlas(t, worker("first-worker"), worker("second-worker"))
	p := blockhash.Prompt{Tokens: tokens(9)}
	for _, name := range []string{"first-worker", "second-worker"} {
		streamed(t, a, name, at(t, worker(name), p, kvevents.Position{Next: 1}))
	}
	text := string(snapshotOf(t, a))
	for _, name := range []string{"first-worker", "second-worker"} {
		require.Equal(t, 2, strings.Count(text, name), "in the head and in front of the blocks")
	}
}

// TestSnapshotCannotBeWritten: what does not fit is an error that names the worker.
func TestSnapshotCannotBeWritten(t *testing.T) {
	p := blockhash.Prompt{Tokens: tokens(9)}
	for name, c := range map[string]struct {
		position kvevents.Position
		want     string
	}{
		strings.Repeat("w", math.MaxUint16+1): {kvevents.Position{Next: 1}, "worker name of 65536 bytes does not fit"},
		"w":                                   {kvevents.Position{Next: 1, Time: math.NaN()}, "NaN"},
	} {
		a := newAtlas(t, worker(name))
		streamed(t, a, name, at(t, worker(name), p, c.position))
		err := a.WriteSnapshot(new(bytes.Buffer))
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, `worker "w`)
	}
	longest := strings.Repeat("\x01", math.MaxUint16) // six times as long in JSON
	a, b := newAtlas(t, worker(longest)), newAtlas(t, worker(longest))
	streamed(t, a, longest, at(t, worker(longest), p, kvevents.Position{Next: 1}))
	left, err := b.ReadSnapshot(bytes.NewReader(snapshotOf(t, a)))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestSnapshotQuotesLittle: what a snapshot calls its workers may be long, what is said of it
// is not: the first bytes of a name, and how many it has.
func TestSnapshotQuotesLittle(t *testing.T) {
	name := "long-" + strings.Repeat("\x01", math.MaxUint16-5)
	w, p := worker(name), blockhash.Prompt{Tokens: tokens(9)}
	a := newAtlas(t, w)
	sink := streamed(t, a, name, at(t, w, p, kvevents.Position{Next: 1}))
	good := snapshotOf(t, a)
	magic, n := good[:8], binary.LittleEndian.Uint32(good[8:])
	head, rest := good[12:12+n], good[12+n:len(good)-8]
	short := func(text, size string) {
		t.Helper()
		require.Less(t, len(text), 512)
		require.Contains(t, text, "long-")
		require.Contains(t, text, size)
	}
	for size, bad := range map[string][]byte{
		"(65535 bytes)": sealed(magic, part(head, append(make([]byte, 8), make([]byte, 4)...))),
		fmt.Sprintf("(%d bytes)", len(head)): sealed(magic,
			part(bytes.Replace(head, []byte(`"Next":1`), []byte(`"Next":0`), 1), rest)),
	} {
		_, err := newAtlas(t).ReadSnapshot(bytes.NewReader(bad))
		require.ErrorIs(t, err, kvatlas.ErrSnapshot)
		short(err.Error(), size)
	}
	left, err := newAtlas(t).ReadSnapshot(bytes.NewReader(good))
	require.NoError(t, err)
	require.Len(t, left, 1, "under its whole name")
	short(left[name], "(65535 bytes)")

	sink.Apply(0, at(t, w, p, kvevents.Position{Next: 1, Time: math.NaN()}))
	err = a.WriteSnapshot(new(bytes.Buffer))
	require.ErrorContains(t, err, "NaN")
	short(err.Error(), "(65535 bytes)")

	exact := strings.Repeat("n", 64)
	left, err = newAtlas(t).ReadSnapshot(bytes.NewReader(sealed(magic, part(bytes.Replace(head, jsonOf(t, name), jsonOf(t, exact), 1), rest))))
	require.NoError(t, err)
	require.Equal(t, `kvatlas: no such worker: "`+exact+`"`, left[exact], "whole")
}

func jsonOf(t *testing.T, name string) []byte {
	t.Helper()
	b, err := json.Marshal(name)
	require.NoError(t, err)
	return b
}

// TestSnapshotIsForTheUnfollowed: a worker that was given anything takes nothing.
func TestSnapshotIsForTheUnfollowed(t *testing.T) {
	w, auto := worker("w"), kvatlas.Worker{Name: "w", Auto: true}
	p := blockhash.Prompt{Tokens: tokens(9)}
	a := newAtlas(t, w)
	streamed(t, a, "w", at(t, w, p, kvevents.Position{Next: 1}))
	snapshot := snapshotOf(t, a)
	orphan := &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.BlockStored, Hashes: []uint64{2}, Parent: 1, HasParent: true}}}
	for name, c := range map[string]struct {
		worker kvatlas.Worker
		do     func(kvevents.Sink)
	}{
		"a batch":            {w, func(s kvevents.Sink) { s.Apply(0, &kvevents.Batch{}) }},
		"a loss":             {w, func(s kvevents.Sink) { s.Lost(kvevents.Loss{Worker: "w", From: 1, To: 1}) }},
		"a batch that waits": {auto, func(s kvevents.Sink) { s.Apply(0, orphan) }},
	} {
		b := newAtlas(t, c.worker)
		sink, err := b.Sink("w")
		require.NoError(t, err)
		c.do(sink)
		left, err := b.ReadSnapshot(bytes.NewReader(snapshot))
		require.NoError(t, err)
		require.Contains(t, left["w"], "followed already", name)
		sink.(kvevents.Confirmer).Confirm(1)
		s, _, err := b.Stats("w")
		require.NoError(t, err)
		require.Zero(t, s.Restored, name)
	}
	var head struct{ Name string }
	require.NoError(t, json.NewDecoder(bytes.NewReader(snapshot[12:])).Decode(&head))
	require.Equal(t, "w", head.Name)
}

// TestSnapshotOfOneKnownByContent: what a snapshot says by hash is left out of a worker that
// turns out to be known by content, and that is told.
func TestSnapshotOfOneKnownByContent(t *testing.T) {
	engine := worker("w")
	engine.Seed = blockhash.SeedRoot(make([]byte, 32))
	p := blockhash.Prompt{Tokens: tokens(17)}
	first := newAtlas(t, engine)
	streamed(t, first, "w", at(t, engine, p, kvevents.Position{Next: 1}))
	var log bytes.Buffer
	a, err := kvatlas.New(kvatlas.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NoError(t, a.AddWorker(kvatlas.Worker{Name: "w", Auto: true})) // does not know the root
	left, err := a.ReadSnapshot(bytes.NewReader(snapshotOf(t, first)))
	require.NoError(t, err)
	require.Empty(t, left)
	a.Handler().(kvevents.SourceConfirmer).Confirm(kvevents.Source{Worker: "w"}, 1)
	_, ok := a.Resume(kvevents.Source{Worker: "w"})
	require.False(t, ok, "its stream has gone on, though nothing is known yet")
	other := blockhash.Prompt{Tokens: tokens(40)[20:]}
	for range 3 {
		require.NoError(t, a.Apply("w", announced(t, engine, other)))
	}
	m := matchOn(t, a, "w", other)
	require.Equal(t, kvatlas.ByContent, m.Mode)
	require.Equal(t, 16, m.Usable, "the last token is computed")
	s, x, err := a.Stats("w")
	require.NoError(t, err)
	require.Zero(t, s.Restored)
	require.Equal(t, 5, x.Held[0].Blocks, "and nothing else is held")
	require.Contains(t, log.String(), "what a snapshot says is left out")
}
