package kvatlas_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
)

// Trials are public bug reports of others: see TRIALS.md.

// TestTrialT52ShorterThanABlock: a prompt of 500 tokens and blocks of 528.
func TestTrialT52ShorterThanABlock(t *testing.T) {
	a := newAtlas(t, kvatlas.Worker{Name: "a", Release: "0.32.0", BlockSize: 528})
	var c kvatlas.Choice
	require.NoError(t, a.Route(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(500)}}, &c))
	w := c.Match.Workers[0]
	require.Zero(t, w.Usable)
	require.Zero(t, w.Combined)
	require.Zero(t, w.Score)
	require.Empty(t, w.Unknown)
	require.Equal(t, "the prompt of 500 tokens is shorter than one block of 528", c.Match.Reason(0))
	require.NoError(t, a.Route(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens(528)}}, &c))
	require.Empty(t, c.Match.Reason(0), "it has a block, but is not held")
}

// TestTrialT63RemovalOfUnknownGroup: after a worker came back its first event names a
// group that nobody knows.
func TestTrialT63RemovalOfUnknownGroup(t *testing.T) {
	a := newAtlas(t, worker("a"))
	gone := removed(1, 2)
	gone.Group, gone.HasGroup = 7, true
	require.NoError(t, a.Apply("a", payload(t, "0.32.0", gone)))
	_, x, err := a.Stats("a")
	require.NoError(t, err)
	require.Equal(t, uint64(2), x.Unmatched)
}

// TestTrialT131Retokenized, T132: the next turn departs inside a block: the match
// ends before that block, neither later nor with an error.
// TestTrialT115BlockSizeOne: an entry a token is much memory, and said unless it is
// bounded.
func TestTrialT115BlockSizeOne(t *testing.T) {
	for _, c := range []struct {
		size, limit int
		warns       bool
	}{{1, 0, true}, {1, 64 << 20, false}, {16, 0, false}} {
		var log bytes.Buffer
		a, err := kvatlas.New(kvatlas.Options{IndexBytes: c.limit, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		require.NoError(t, a.AddWorker(kvatlas.Worker{Name: "w", Release: "0.32.0", BlockSize: c.size}))
		require.Equal(t, c.warns, strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "blocks of 1 token"), log.String())
	}
}

func TestTrialT131Retokenized(t *testing.T) {
	w := kvatlas.Worker{Name: "a", Release: "0.32.0", BlockSize: 16}
	a := newAtlas(t, w)
	first := blockhash.Prompt{Tokens: tokens(71324)}
	keys := keysOf(t, w, first)
	e := stored(keys, first.Tokens[:len(keys)*16])
	e.BlockSize = 16
	require.NoError(t, a.Apply("a", payload(t, w.Release, e)))
	next := blockhash.Prompt{Tokens: append(append([]uint32(nil), first.Tokens[:71320]...), 1, 2, 3, 4, 5, 6, 7, 8, 9)}
	var m kvatlas.Match
	require.NoError(t, a.Match(&kvatlas.Request{Prompt: next}, &m))
	require.Equal(t, 4457, m.Workers[0].Combined)
	require.Equal(t, 4457*16, m.Workers[0].Usable)
}

// TestTrialT110OrderOfRanks: ranks interleave, each in its own order, with the same
// outcome however many goroutines feed them.
func TestTrialT110OrderOfRanks(t *testing.T) {
	p := blockhash.Prompt{Tokens: tokens(33)}
	keys := keysOf(t, worker("x"), p)
	for _, goroutines := range []int{1, 2, 16} {
		a := newAtlas(t)
		var names []string
		for i := range 16 {
			names = append(names, string(rune('a'+i)))
			require.NoError(t, a.AddWorker(worker(names[i])))
		}
		done := make(chan error, goroutines)
		for g := range goroutines {
			go func() {
				for i := g; i < len(names); i += goroutines {
					for _, e := range []kvevents.Event{stored(keys, p.Tokens[:32]), removed(keys[4:]...), stored(keys[4:6], p.Tokens[16:24])} {
						if err := a.ApplyBatch(names[i], &kvevents.Batch{Events: []kvevents.Event{e}}); err != nil {
							done <- err
							return
						}
					}
				}
				done <- nil
			}()
		}
		for range goroutines {
			require.NoError(t, <-done)
		}
		for _, n := range usable(t, a, p) {
			require.Equal(t, 24, n)
		}
	}
}
