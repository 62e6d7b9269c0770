package kvatlas_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc64"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
)

// FuzzApply feeds any bytes as messages to workers matched by hash, by content, found
// out by their events, and described wrongly. Nothing panics, an error changes
// nothing, and a worker never holds more of the prompt than there is.
func FuzzApply(f *testing.F) {
	real, err := base64.StdEncoding.DecodeString(message)
	require.NoError(f, err)
	f.Add(real, real[:40])
	f.Add([]byte{0x93, 0, 0x90, 0xc0}, []byte{})
	f.Add(payload(f, "0.20.2", stored([]uint64{1, 2}, tokens(8)), removed(1)), payload(f, "0.24.0", stored([]uint64{3}, tokens(4))))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		byHash := kvatlas.Worker{Name: "a", Release: "0.32.0", BlockSize: 32}
		byContent := kvatlas.Worker{Name: "b", Release: "0.32.0", BlockSize: 32, Algorithm: blockhash.XXHash}
		a := newAtlas(t, byHash, byContent, kvatlas.Worker{Name: "auto", Auto: true}, kvatlas.Worker{Name: "plain", Auto: true, PlainOnly: true},
			kvatlas.Worker{Name: "wrong", Release: "0.24.0", BlockSize: 32, Seed: blockhash.SeedText("?")})
		p := blockhash.Prompt{Tokens: prompt}
		for _, name := range []string{"a", "b", "wrong", "auto", "plain"} {
			for _, m := range [][]byte{first, second} {
				before := usable(t, a, p)[name]
				if a.Apply(name, m) != nil {
					require.Equal(t, before, usable(t, a, p)[name])
				}
			}
			held := usable(t, a, p)[name]
			if name == "auto" || name == "plain" { // blocks are of any size
				require.True(t, held >= 0 && held <= 32, held)
				continue
			}
			require.Contains(t, []int{0, 32}, held)
		}
		a.Snapshot()
		for _, name := range []string{"a", "b", "wrong", "auto", "plain"} {
			require.NoError(t, a.Reset(name))
			require.True(t, a.RemoveWorker(name))
		}
		require.Zero(t, a.Snapshot().Index.Memberships)
	})
}

// FuzzReadSnapshot reads any bytes, as they are and with a checksum behind them: an
// error, or something that is not matched before it is confirmed and is then written
// again as it was.
func FuzzReadSnapshot(f *testing.F) {
	const end = "\x00\x00\x00\x00"
	f.Add([]byte("KVFLEET1" + end))
	f.Add([]byte("KVFLEET1\x24\x00\x00\x00{\"name\":\"w\",\"position\":{\"Next\":1}}\x00\x00\x00\x00\x00\x00\x00\x00" + end))
	r := newRouter(f, worker("w"), nil)
	r.connect(1, []kvevents.Message{{Seq: 0, Payload: payload(f, "0.32.0", stored([]uint64{1, 2, 2}, tokens(12)))}})
	whole := r.snapshot()
	f.Add(whole[:len(whole)-8])
	table := crc64.MakeTable(crc64.ECMA)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, binary.LittleEndian.AppendUint64(slices.Clone(data), crc64.Checksum(data, table))} {
			a := newAtlas(t, worker("w"))
			if _, err := a.ReadSnapshot(bytes.NewReader(data)); err != nil {
				require.ErrorIs(t, err, kvatlas.ErrSnapshot)
				continue
			}
			_, x, err := a.Stats("w")
			require.NoError(t, err)
			require.Empty(t, x.Held)
			at, ok := a.Resume(kvevents.Source{Worker: "w"})
			if !ok {
				continue
			}
			sink, err := a.Sink("w")
			require.NoError(t, err)
			sink.(kvevents.Confirmer).Confirm(at.Next)
			var again bytes.Buffer
			require.NoError(t, a.WriteSnapshot(&again))
			b := newAtlas(t, worker("w"))
			left, err := b.ReadSnapshot(&again)
			require.NoError(t, err)
			require.Empty(t, left)
			same, _ := b.Resume(kvevents.Source{Worker: "w"})
			require.Equal(t, at, same)
		}
	})
}

// FuzzAnswers reads any bytes as what engines say of themselves: a worker that can be
// added, or an error.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"version":"0.32.0"}`))
	f.Add([]byte(`{"version":"1"}`))
	f.Add([]byte(`{"version":"0.5.23","page_size":16,"dcp_size":2,"kv_events_config":"{}","kv_events":{"block_size":32}}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		for _, read := range []func(string, []byte) (kvatlas.Worker, error){kvatlas.VLLMWorker, kvatlas.SGLangWorker} {
			w, err := read("w", answer)
			if err != nil {
				require.Zero(t, w)
				continue
			}
			require.NoError(t, newAtlas(t).AddWorker(w))
		}
	})
}
