package radix

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// state lists what an index holds, for comparison.
func state(t *testing.T, x *Index) map[string]int {
	out := map[string]int{}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, k := range x.workers {
		if k == nil {
			continue
		}
		for _, h := range k.holders {
			n := 0
			x.each(h, func(key uint64, copies uint32) bool {
				out[fmt.Sprint(k.name, x.media.names[h.Medium], h.Group, key)] = int(copies)
				n++
				return true
			})
			require.EqualValues(t, n, h.blocks.Load())
		}
	}
	return out
}

func TestSnapshot(t *testing.T) {
	w := newWorld(t, 4, 5, 60, func(r *rand.Rand) *ProfileOptions {
		o := randomProfile(r)
		o.Copies = Count
		return &o
	})
	for range 400 {
		w.step()
	}
	var all bytes.Buffer
	require.NoError(t, w.x.WriteSnapshot(&all))
	fresh := func() *Index {
		x, err := New(Options{})
		require.NoError(t, err)
		for _, name := range w.x.Workers() {
			_, err := x.AddWorker(name, nil)
			require.NoError(t, err)
		}
		return x
	}
	x := fresh()
	require.NoError(t, x.ReadSnapshot(bytes.NewReader(all.Bytes()), 0))
	require.Equal(t, state(t, w.x), state(t, x))
	require.Equal(t, w.x.Stats().Copies, x.Stats().Copies)
	require.Equal(t, w.x.Stats().Memberships, x.Stats().Memberships)
	// Again, over what is there: replaced, not added to.
	require.NoError(t, x.ReadSnapshot(bytes.NewReader(all.Bytes()), 0))
	require.Equal(t, state(t, w.x), state(t, x))
	// One worker alone.
	var one bytes.Buffer
	require.NoError(t, w.x.WriteSnapshot(&one, w.workers[2]))
	y := fresh()
	require.NoError(t, y.ReadSnapshot(&one, 0))
	for key := range state(t, y) {
		require.True(t, strings.HasPrefix(key, "w2"))
	}
	require.ErrorIs(t, w.x.WriteSnapshot(io.Discard, 999), ErrUnknownWorker)

	// Damaged or cut off anywhere: refused, with nothing changed.
	z := fresh()
	for id := range z.Workers() {
		require.NoError(t, z.Store(Holder{Worker: id}, seqKeys(70)))
		require.NoError(t, z.Store(Holder{Worker: id}, seqKeys(3)))
	}
	before := state(t, z)
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		bad := bytes.Clone(all.Bytes())
		if r.IntN(2) == 0 {
			bad = bad[:r.IntN(len(bad))]
		} else {
			bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		}
		require.ErrorIs(t, z.ReadSnapshot(bytes.NewReader(bad), 0), ErrSnapshot)
	}
	require.ErrorIs(t, z.ReadSnapshot(bytes.NewReader(all.Bytes()), 3), ErrSnapshot)
	broken := errors.New("broken")
	require.ErrorIs(t, z.ReadSnapshot(io.MultiReader(bytes.NewReader(all.Bytes()[:50]), errReader{broken}), 0), broken)
	require.Equal(t, before, state(t, z))
}

// TestSnapshotIsBounded: what a stream may make the reader keep is limited, also
// where it names no blocks.
func TestSnapshotIsBounded(t *testing.T) {
	x, _ := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A")
	worker, holder := "\x01\x01\x00A", "\x02\x03CPU\x00\x00"
	for name, c := range map[string]struct{ body, want string }{
		"workers": {strings.Repeat("\x01\x00\x00", MaxWorkers+1), "workers"},
		"holders": {worker + strings.Repeat(holder, MaxMedia*(MaxGroup+2)+1), "holders"},
	} {
		t.Run(name, func(t *testing.T) {
			err := x.ReadSnapshot(strings.NewReader(snapshotMagic+c.body), 0)
			require.ErrorIs(t, err, ErrSnapshot)
			require.ErrorContains(t, err, "more "+c.want)
		})
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

func FuzzReadSnapshot(f *testing.F) {
	x, w := simpleIndex(f, ProfileOptions{HashUnit: 16}, "A")
	_ = x.Store(Holder{Worker: w[0]}, seqKeys(3))
	var b bytes.Buffer
	_ = x.WriteSnapshot(&b)
	f.Add(b.Bytes())
	f.Add([]byte(snapshotMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, _ := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A")
		if x.ReadSnapshot(bytes.NewReader(data), 1000) != nil {
			require.Zero(t, x.Stats().Memberships)
		}
	})
}

func TestHoldersAndDump(t *testing.T) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A", "B")
	keys := append(seqKeys(3), 0)
	require.NoError(t, x.Store(Holder{Worker: w[0]}, keys))
	require.NoError(t, x.Store(Holder{Worker: w[0]}, keys[:1]))
	require.NoError(t, x.Store(Holder{Worker: w[1], Medium: CPU, Group: 2}, keys[:2]))
	var got []Holding
	for h := range x.Holders(keys[0]) {
		got = append(got, h)
	}
	require.ElementsMatch(t, []Holding{{Holder{w[0], GPU, 0}, 2}, {Holder{w[1], CPU, 2}, 1}}, got)
	for range x.Holders(12345) {
		t.Fatal("nobody holds it")
	}
	var r Result
	require.NoError(t, x.Match(&Query{Keys: keys}, &r)) // the key 0 is a key like others
	require.Equal(t, 4, r.Workers[0].Combined)
	var b strings.Builder
	require.NoError(t, x.Dump(&b, 1))
	require.Contains(t, b.String(), `"B" CPU group 2: 2 blocks`)
	require.Equal(t, 2, strings.Count(b.String(), "\t"))
}

// TestSnapshotOfLongNames: as long as a name may be written, it is read.
func TestSnapshotOfLongNames(t *testing.T) {
	with := func(name string) (*Index, WorkerID) {
		x, err := New(Options{})
		require.NoError(t, err)
		id, err := x.AddWorker(name, nil)
		require.NoError(t, err)
		return x, id
	}
	for _, n := range []int{8 * snapshotRun, 8*snapshotRun + 1, math.MaxUint16} {
		name := strings.Repeat("w", n)
		from, a := with(name)
		to, _ := with(name)
		require.NoError(t, from.Store(Holder{Worker: a, Medium: from.Medium("GPU"), Group: NoGroup}, []uint64{1, 2, 3}))
		var data bytes.Buffer
		require.NoError(t, from.WriteSnapshot(&data))
		require.NoError(t, to.ReadSnapshot(&data, 0))
		require.Equal(t, state(t, from), state(t, to))
		require.Len(t, state(t, to), 3, n)
	}
	x, _ := with(strings.Repeat("w", math.MaxUint16+1))
	require.ErrorContains(t, x.WriteSnapshot(new(bytes.Buffer)), "does not fit a snapshot")
}
