package radix

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNilArguments: nothing panics, and what was refused changed nothing.
func TestNilArguments(t *testing.T) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A")
	c, err := NewContentMap(x, w[0], ContentMapOptions{})
	require.NoError(t, err)
	h := Holder{Worker: w[0]}
	for name, c := range map[string]struct {
		call func() error
		want error
	}{
		"match without a query":       {func() error { return x.Match(nil, new(Result)) }, ErrQuery},
		"match without a result":      {func() error { return x.Match(new(Query), nil) }, ErrQuery},
		"prefixes without a query":    {func() error { _, err := x.Prefixes(nil, new(Result)); return err }, ErrQuery},
		"prefixes without a result":   {func() error { _, err := x.Prefixes(new(Query), nil); return err }, ErrQuery},
		"content map without index":   {func() error { _, err := NewContentMap(nil, w[0], ContentMapOptions{}); return err }, ErrIndex},
		"deferred without a function": {func() error { return c.Defer(h, 1, []uint64{2}, nil) }, ErrContent},
		"fewer content keys":          {func() error { return c.Store(h, []uint64{1, 2}, []uint64{3}) }, ErrContent},
		"snapshot to nothing":         {func() error { return x.WriteSnapshot(nil) }, ErrOptions},
		"snapshot from nothing":       {func() error { return x.ReadSnapshot(nil, 0) }, ErrOptions},
		"dump to nothing":             {func() error { return x.Dump(nil, 1) }, ErrOptions},
		"no keys":                     {func() error { return x.Store(h, nil) }, nil},
		"no keys to remove":           {func() error { return x.Remove(h, nil) }, nil},
		"an empty query":              {func() error { return x.Match(new(Query), new(Result)) }, nil},
		"no profile":                  {func() error { _, err := x.AddWorker("A", nil); return err }, nil},
		"dump of nothing":             {func() error { return x.Dump(io.Discard, 0) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, c.call(), c.want)
		})
	}
	require.Zero(t, x.Stats().Blocks)
	require.Zero(t, c.Stats().Waiting)
}

// TestIndexNotMade: an index that New did not make refuses, and so does a
// profile that NewProfile did not make.
func TestIndexNotMade(t *testing.T) {
	for name, x := range map[string]*Index{"nil": nil, "zero": {}} {
		for method, call := range map[string]func() error{
			"AddWorker":     func() error { _, err := x.AddWorker("A", nil); return err },
			"Store":         func() error { return x.Store(Holder{}, seqKeys(1)) },
			"StoreAfter":    func() error { return x.StoreAfter(Holder{}, 1, seqKeys(1)) },
			"Remove":        func() error { return x.Remove(Holder{}, seqKeys(1)) },
			"Clear":         func() error { return x.Clear(0) },
			"EngineClear":   func() error { return x.EngineClear(0, false) },
			"by content":    func() error { return (&ContentMap{index: x}).EngineClear(false) },
			"Match":         func() error { return x.Match(new(Query), new(Result)) },
			"Prefixes":      func() error { _, err := x.Prefixes(new(Query), new(Result)); return err },
			"WorkerStats":   func() error { _, err := x.WorkerStats(0); return err },
			"WriteSnapshot": func() error { return x.WriteSnapshot(io.Discard) },
			"ReadSnapshot":  func() error { return x.ReadSnapshot(strings.NewReader(""), 0) },
			"Dump":          func() error { return x.Dump(io.Discard, 1) },
		} {
			t.Run(name+"/"+method, func(t *testing.T) {
				require.ErrorIs(t, call(), ErrIndex)
			})
		}
	}
	_, err := NewContentMap(new(Index), 0, ContentMapOptions{})
	require.ErrorIs(t, err, ErrIndex)
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A")
	_, err = x.AddWorker("A", new(Profile))
	require.ErrorIs(t, err, ErrProfile)
	require.Equal(t, 16, x.Profile(w[0]).HashUnit())
}
