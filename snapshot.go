package kvatlas

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc64"
	"io"
	"math"

	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// A snapshot is, in little-endian order:
//
//	"KVFLEET1"
//	for each worker: length u32 of a snapshotWorker in JSON, that; length u64 of a snapshot
//	  of its index with it alone (radix.Index.WriteSnapshot), that
//	0 u32
//	CRC-64/ECMA of all before, u64
const snapshotMagic = "KVFLEET1"

// maxSnapshotHead is more than a name that fits radix's snapshot (64 KiB) takes in JSON.
const maxSnapshotHead = 1 << 20

var snapshotTable = crc64.MakeTable(crc64.ECMA)

// ErrSnapshot is wrapped by the errors of [Atlas.ReadSnapshot] that are about the data:
// no snapshot, another version, damaged or cut off.
const ErrSnapshot = constError("kvatlas: invalid snapshot")

type snapshotWorker struct {
	Name     string            `json:"name"`
	Position kvevents.Position `json:"position"`
}

// restored is what a snapshot says that a worker held when its stream was at a position.
type restored struct {
	position  kvevents.Position
	blocks    []byte // as radix writes them
	confirmed bool   // the stream goes on from that position
}

// WriteSnapshot writes what the workers hold, each with the position of its stream, so
// that another router can begin with it ([Atlas.ReadSnapshot]). Each worker is as of one
// instant, and its events wait while it is copied to memory; matches do not.
//
// In it are the workers that are followed by a stream (a kvevents.Subscriber, or a
// kvevents.Stream that feeds [Atlas.Sink]) which knows where it is, and whose blocks are
// known by hash. The others are left out: those by content, those of LMCache's chunks and
// of adapters whose namespace only the engine knows, workers fed by [Atlas.Apply], by
// pollers and relays, and all where engines named [radix.MaxMedia] media or more. Their
// blocks are announced again by traffic, or by a replay.
func (a *Atlas) WriteSnapshot(to io.Writer) error {
	if to == nil {
		return ErrNil
	}
	sum := crc64.New(snapshotTable)
	buffered := bufio.NewWriterSize(to, 1<<16)
	out := io.MultiWriter(buffered, sum)
	if _, err := io.WriteString(out, snapshotMagic); err != nil {
		return err
	}
	var blocks bytes.Buffer
	for _, w := range a.current().workers {
		blocks.Reset()
		position, err := w.snapshot(&blocks)
		if err != nil {
			return workerError(w.Name, err)
		}
		if position.Next == 0 {
			continue
		}
		head, err := json.Marshal(snapshotWorker{w.Name, position})
		if err != nil { // a position that no stream gives
			return workerError(w.Name, err)
		}
		head = append(binary.LittleEndian.AppendUint32(nil, uint32(len(head))), head...)
		if _, err := out.Write(binary.LittleEndian.AppendUint64(head, uint64(blocks.Len()))); err != nil {
			return err
		}
		if _, err := out.Write(blocks.Bytes()); err != nil {
			return err
		}
	}
	if _, err := out.Write(make([]byte, 4)); err != nil {
		return err
	}
	if _, err := buffered.Write(binary.LittleEndian.AppendUint64(nil, sum.Sum64())); err != nil {
		return err
	}
	return buffered.Flush()
}

// snapshot copies what the worker holds and says where its stream is; nowhere for one
// that cannot be restored.
func (w *worker) snapshot(to *bytes.Buffer) (at kvevents.Position, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.at.Load()
	if p == nil || p.mode != ByHash || w.unknown() != "" || w.position.Next == 0 {
		return at, nil
	}
	if p.domain.index.MediumName(radix.MaxMedia-1) != "" { // media share it, and would be told apart elsewhere
		return at, nil
	}
	return w.position, p.domain.index.WriteSnapshot(to, p.id)
}

// ReadSnapshot takes what [Atlas.WriteSnapshot] of another Atlas wrote, for the
// registered workers of the same names that were given nothing yet. left has the other
// workers of the snapshot by name, and why nothing was taken for them. Its errors wrap
// [ErrSnapshot] or are the reader's; nothing is changed then. The snapshot is kept in
// memory.
//
// Nothing that it says is matched until the worker's stream goes on where the other one
// was, and has seen that the engine is still the same: for a Subscriber by
// SubscriberOptions.Resume, which is [Atlas.Resume]; so read before Subscriber.Add. A
// replay brings what came since. Where the engine restarted, or its replay does not
// reach back that far or cannot be had, what the snapshot says of the worker is
// forgotten: what was removed since could not be known. WorkerStats.Restored counts
// what was taken.
func (a *Atlas) ReadSnapshot(from io.Reader) (left map[string]string, err error) {
	if from == nil {
		return nil, ErrNil
	}
	type record struct {
		snapshotWorker
		blocks []byte
	}
	sum := crc64.New(snapshotTable)
	buffered := bufio.NewReaderSize(from, 1<<16)
	in := io.TeeReader(buffered, sum)
	take := func(n uint64) ([]byte, error) {
		var b bytes.Buffer // grows with what is there, whatever a length says
		if _, err := io.CopyN(&b, in, int64(min(n, math.MaxInt64))); err == io.EOF {
			return nil, fmt.Errorf("%w: cut off", ErrSnapshot)
		} else if err != nil {
			return nil, err
		}
		return b.Bytes(), nil
	}
	b, err := take(uint64(len(snapshotMagic)))
	if err != nil {
		return nil, err
	}
	if string(b) != snapshotMagic {
		return nil, fmt.Errorf("%w: begins with %q, want %q", ErrSnapshot, b, snapshotMagic)
	}
	nobody, err := radix.New(radix.Options{}) // where nothing is registered, so that all is only checked
	if err != nil {
		return nil, err
	}
	var all []record
	for {
		if b, err = take(4); err != nil {
			return nil, err
		}
		n := binary.LittleEndian.Uint32(b)
		if n == 0 {
			break
		}
		if n > maxSnapshotHead {
			return nil, fmt.Errorf("%w: a worker of %d bytes", ErrSnapshot, n)
		}
		var r record
		if b, err = take(uint64(n)); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(b, &r.snapshotWorker); err != nil || r.Position.Next == 0 {
			return nil, fmt.Errorf("%w: worker %s", ErrSnapshot, quoted(string(b)))
		}
		if b, err = take(8); err != nil {
			return nil, err
		}
		if r.blocks, err = take(binary.LittleEndian.Uint64(b)); err != nil {
			return nil, err
		}
		if err := nobody.ReadSnapshot(bytes.NewReader(r.blocks), 0); err != nil {
			return nil, fmt.Errorf("%w: worker %s: %w", ErrSnapshot, quoted(r.Name), err)
		}
		all = append(all, r)
	}
	want := sum.Sum64()
	if b, err = take(8); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint64(b) != want {
		return nil, fmt.Errorf("%w: damaged (checksum)", ErrSnapshot)
	}
	left = map[string]string{}
	for _, r := range all {
		err := a.onWorker(r.Name, func(w *worker) error { return w.restore(&restored{position: r.Position, blocks: r.blocks}) })
		if err != nil {
			left[r.Name] = err.Error()
		}
	}
	return left, nil
}

// restore keeps what a snapshot says until the stream goes on from there.
func (w *worker) restore(r *restored) error {
	p := w.at.Load()
	switch {
	case w.stats.Batches > 0 || w.stats.Losses > 0 || w.history.before != nil || len(w.history.batches) > 0:
		return constError("kvatlas: the worker is followed already")
	case p != nil && p.mode != ByHash:
		return constError("kvatlas: the worker's blocks are known by content")
	}
	w.history.before = r
	return nil
}

// Resume returns the position at which a snapshot that was read has the stream of a
// source go on: what a kvevents.Subscriber asks for (SubscriberOptions.Resume). ok is
// false for a source without one.
func (a *Atlas) Resume(src kvevents.Source) (at kvevents.Position, ok bool) {
	w, ok := a.current().bySource[src]
	if !ok {
		return at, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.history.before; r != nil && !w.gone && !r.confirmed {
		return r.position, true
	}
	return at, false
}

// Confirm is the stream's word that it goes on where the snapshot was taken.
func (s sink) Confirm(next uint64) {
	_ = s.w.locked(func() error {
		r := s.w.history.before
		if r == nil || r.position.Next != next {
			return nil
		}
		r.confirmed = true
		s.w.heard.Store(heardEvents)
		if p := s.w.at.Load(); p != nil {
			return s.w.enterRestored(p)
		}
		return nil
	})
}

func (h handler) Confirm(src kvevents.Source, next uint64) {
	if s, ok := h.sink(src); ok {
		s.Confirm(next)
	}
}

// enterRestored puts what was confirmed of a snapshot at the worker's place, before
// everything that came since.
func (w *worker) enterRestored(p *place) error {
	r := w.history.before
	if r == nil || !r.confirmed {
		return nil
	}
	w.history.before = nil
	if p.mode != ByHash {
		w.log.Warn("what a snapshot says is left out: the worker's blocks are known by content")
		return nil
	}
	if err := p.domain.index.ReadSnapshot(bytes.NewReader(r.blocks), 0, p.id); err != nil {
		return err
	}
	if held, err := p.domain.index.WorkerStats(p.id); err == nil {
		for _, h := range held.Held {
			w.stats.Restored += uint64(h.Blocks)
		}
	}
	w.position = r.position
	return nil
}
