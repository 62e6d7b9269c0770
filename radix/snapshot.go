package radix

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc64"
	"io"
	"math"
	"slices"
)

// A snapshot is, in little-endian order:
//
//	"KVATLAS1"
//	for each worker: 1, its name (length u16, bytes), then
//	  for each holder: 2, its medium's name (length u8, bytes), group i16,
//	    then runs of blocks: 3, n u16, copies u32, n keys u64
//	0
//	CRC-64/ECMA of all before, u64
//
// Workers' profiles are not in it: the reader registers its workers itself.
const snapshotMagic = "KVATLAS1"

const (
	snapshotEnd byte = iota
	snapshotWorker
	snapshotHolder
	snapshotBlocks
	snapshotRun = 4096 // keys at most
)

// ErrSnapshot is wrapped by the errors of [Index.ReadSnapshot] that are about the
// data: no snapshot, another version, damaged or cut off.
const ErrSnapshot = constError("radix: invalid snapshot")

var snapshotTable = crc64.MakeTable(crc64.ECMA)

// WriteSnapshot writes what the given workers hold, or all workers if none is
// given, so that another index can begin with it ([Index.ReadSnapshot]). It
// holds the writers' lock holder by holder, so that each holder's blocks are
// those of one instant; readers are not held up. To follow the workers' streams
// from there, note their positions before the call and apply what came since: for
// that, writes to them must rest during the call.
func (x *Index) WriteSnapshot(w io.Writer, workers ...WorkerID) error {
	if !x.made() {
		return ErrIndex
	}
	if w == nil {
		return fmt.Errorf("%w: nothing to write a snapshot to", ErrOptions)
	}
	v := x.view.Load()
	if len(workers) == 0 {
		for i := range v.workers {
			workers = append(workers, v.workers[i].id)
		}
	}
	sum := crc64.New(snapshotTable)
	buffered := bufio.NewWriterSize(w, 1<<16)
	out := snapshotWriter{io.MultiWriter(buffered, sum), nil}
	out.bytes([]byte(snapshotMagic))
	for _, id := range workers {
		k, _ := v.worker(id)
		if k == nil {
			return fmt.Errorf("%w: worker %d", ErrUnknownWorker, id)
		}
		if len(k.name) > math.MaxUint16 {
			return fmt.Errorf("radix: worker name of %d bytes does not fit a snapshot", len(k.name))
		}
		out.bytes([]byte{snapshotWorker})
		out.bytes(binary.LittleEndian.AppendUint16(nil, uint16(len(k.name))))
		out.bytes([]byte(k.name))
		for _, h := range k.holders {
			out.holder(v.names[h.Medium], h.Group)
			runs := x.runs(h)
			for _, r := range runs {
				out.run(r)
			}
		}
	}
	out.bytes([]byte{snapshotEnd})
	if out.err != nil {
		return out.err
	}
	if _, err := buffered.Write(binary.LittleEndian.AppendUint64(nil, sum.Sum64())); err != nil {
		return err
	}
	return buffered.Flush()
}

// keyRun is keys with equal numbers of copies.
type keyRun struct {
	keys   []uint64
	copies uint32
}

// runs copies what a holder holds. One that was cleared holds nothing.
func (x *Index) runs(h *holder) (runs []keyRun) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k := x.worker(h.Worker); k == nil || k.holderOf(h.hid) != h {
		return nil
	}
	x.each(h, func(key uint64, copies uint32) bool {
		if n := len(runs); n == 0 || runs[n-1].copies != copies || len(runs[n-1].keys) == snapshotRun {
			runs = append(runs, keyRun{copies: copies})
		}
		r := &runs[len(runs)-1]
		r.keys = append(r.keys, key)
		return true
	})
	return runs
}

type snapshotWriter struct {
	w   io.Writer
	err error
}

func (s *snapshotWriter) bytes(b []byte) {
	if s.err == nil {
		_, s.err = s.w.Write(b)
	}
}

func (s *snapshotWriter) holder(medium string, group int16) {
	b := []byte{snapshotHolder, byte(len(medium))}
	b = append(b, medium...)
	s.bytes(binary.LittleEndian.AppendUint16(b, uint16(group)))
}

func (s *snapshotWriter) run(r keyRun) {
	b := []byte{snapshotBlocks}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.keys)))
	b = binary.LittleEndian.AppendUint32(b, r.copies)
	for _, key := range r.keys {
		b = binary.LittleEndian.AppendUint64(b, key)
	}
	s.bytes(b)
}

// ReadSnapshot replaces what the snapshot's workers hold by what it says. Workers
// are found by name; those that are not registered are left out, and all but the
// given ones if any is given. Nothing is changed unless the whole snapshot is
// sound: it is kept in memory until then, up to limit blocks (0 = [MaxBlocks]).
// Its errors wrap [ErrSnapshot] or are the reader's.
func (x *Index) ReadSnapshot(r io.Reader, limit int, only ...WorkerID) error {
	if !x.made() {
		return ErrIndex
	}
	if r == nil {
		return fmt.Errorf("%w: nothing to read a snapshot from", ErrOptions)
	}
	if limit <= 0 || limit > MaxBlocks {
		limit = MaxBlocks
	}
	in := snapshotReader{r: bufio.NewReaderSize(r, 1<<16), sum: crc64.New(snapshotTable), left: limit}
	workers, err := in.read()
	if err != nil {
		return err
	}
	for _, w := range workers {
		id, ok := x.Worker(w.name)
		if !ok || len(only) > 0 && !slices.Contains(only, id) {
			continue
		}
		if err := x.Clear(id); err != nil {
			continue // removed meanwhile
		}
		for _, h := range w.holders {
			holder := Holder{Worker: id, Medium: x.Medium(h.medium), Group: h.group}
			for _, run := range h.runs {
				if err := x.restore(holder, run); err != nil {
					break
				}
			}
		}
	}
	return nil
}

// restore stores a run of keys with all their copies.
func (x *Index) restore(h Holder, run keyRun) error {
	if err := x.Store(h, run.keys); err != nil || run.copies == 1 {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.worker(h.Worker)
	if k == nil || k.profile.copies == Set {
		return nil
	}
	o := k.holder(h.Medium, h.Group)
	for _, key := range run.keys {
		pos := x.find(normal(key))
		if o == nil || pos == 0 {
			continue
		}
		if own, _ := masks(x.recs.entries(x.arena.page(pos)), o.hid); own>>(pos%pageKeys)&1 == 0 {
			continue
		}
		if x.copies.drop(copyKey(o.hid, pos)) == 0 {
			x.arena.state(pos).copies++
		}
		x.copies.put(copyKey(o.hid, pos), run.copies-1)
		o.copies += uint64(run.copies - 1)
		k.stats.Copies += uint64(run.copies - 1)
	}
	return nil
}

type snapshotReader struct {
	r    *bufio.Reader
	sum  hash.Hash64
	left int                  // blocks that may follow
	buf  [math.MaxUint16]byte // a name, or a run's 8 * snapshotRun
}

type snapshotHolderData struct {
	medium string
	group  int16
	runs   []keyRun
}

type snapshotWorkerData struct {
	name    string
	holders []snapshotHolderData
}

func (s *snapshotReader) take(n int) ([]byte, error) {
	b := s.buf[:n]
	if _, err := io.ReadFull(s.r, b); err != nil {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil, fmt.Errorf("%w: cut off", ErrSnapshot)
		}
		return nil, err
	}
	_, _ = s.sum.Write(b)
	return b, nil
}

func (s *snapshotReader) read() (workers []snapshotWorkerData, err error) {
	b, err := s.take(len(snapshotMagic))
	if err != nil {
		return nil, err
	}
	if string(b) != snapshotMagic {
		return nil, fmt.Errorf("%w: begins with %q, want %q", ErrSnapshot, b, snapshotMagic)
	}
	for {
		if b, err = s.take(1); err != nil {
			return nil, err
		}
		switch kind := b[0]; {
		case kind == snapshotEnd:
			want := s.sum.Sum64()
			if b, err = s.take(8); err != nil {
				return nil, err
			}
			if binary.LittleEndian.Uint64(b) != want {
				return nil, fmt.Errorf("%w: damaged (checksum)", ErrSnapshot)
			}
			return workers, nil
		case kind == snapshotWorker:
			name, err := s.text(2)
			if err != nil {
				return nil, err
			}
			if len(workers) == MaxWorkers {
				return nil, fmt.Errorf("%w: more workers than %d", ErrSnapshot, MaxWorkers)
			}
			workers = append(workers, snapshotWorkerData{name: name})
		case kind == snapshotHolder && len(workers) > 0:
			w := &workers[len(workers)-1]
			medium, err := s.text(1)
			if err != nil {
				return nil, err
			}
			if b, err = s.take(2); err != nil {
				return nil, err
			}
			group := int16(binary.LittleEndian.Uint16(b))
			if group < NoGroup || group > MaxGroup {
				return nil, fmt.Errorf("%w: group %d", ErrSnapshot, group)
			}
			if len(w.holders) == MaxMedia*(MaxGroup+2) {
				return nil, fmt.Errorf("%w: more holders of a worker than there are media and groups", ErrSnapshot)
			}
			w.holders = append(w.holders, snapshotHolderData{medium: medium, group: group})
		case kind == snapshotBlocks && len(workers) > 0 && len(workers[len(workers)-1].holders) > 0:
			w := &workers[len(workers)-1]
			h := &w.holders[len(w.holders)-1]
			run, err := s.blocks()
			if err != nil {
				return nil, err
			}
			h.runs = append(h.runs, run)
		default:
			return nil, fmt.Errorf("%w: record of kind %d out of place", ErrSnapshot, kind)
		}
	}
}

func (s *snapshotReader) text(width int) (string, error) {
	b, err := s.take(width)
	if err != nil {
		return "", err
	}
	n := int(b[0])
	if width == 2 {
		n = int(binary.LittleEndian.Uint16(b))
	}
	b, err = s.take(n)
	return string(b), err
}

func (s *snapshotReader) blocks() (run keyRun, err error) {
	b, err := s.take(6)
	if err != nil {
		return run, err
	}
	n := int(binary.LittleEndian.Uint16(b))
	run.copies = binary.LittleEndian.Uint32(b[2:])
	if n == 0 || n > snapshotRun || run.copies == 0 {
		return run, fmt.Errorf("%w: run of %d blocks with %d copies", ErrSnapshot, n, run.copies)
	}
	if s.left -= n; s.left < 0 {
		return run, fmt.Errorf("%w: more blocks than allowed", ErrSnapshot)
	}
	if b, err = s.take(8 * n); err != nil {
		return run, err
	}
	run.keys = make([]uint64, n)
	for i := range run.keys {
		run.keys[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return run, nil
}
