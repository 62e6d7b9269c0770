package relay

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/kvevents"
)

type recorder []string

func (r *recorder) Apply(src kvevents.Source, seq uint64, _ *kvevents.Batch) {
	*r = append(*r, fmt.Sprintf("apply %s/%d %d", src.Worker, src.Rank, seq))
}

func (r *recorder) Clear(src kvevents.Source, c kvevents.ClearCause) {
	*r = append(*r, fmt.Sprintf("clear %s/%d: %v", src.Worker, src.Rank, c))
}

func (r *recorder) Lost(l kvevents.Loss) {
	*r = append(*r, fmt.Sprintf("lost %s/%d %d-%d: %v", l.Worker, l.Rank, l.From, l.To, l.Cause))
}

func (r *recorder) take() []string {
	said := *r
	*r = nil
	return said
}

func TestGuard(t *testing.T) {
	var r recorder
	g := Guard{Handler: &r, Exclusive: true}
	take := func(key string, id uint64, at float64) *Publisher {
		p, ok := g.Take(key, id, at, id)
		require.Equal(t, ok, p != nil)
		return p
	}
	a0, a1 := kvevents.Source{Worker: "a"}, kvevents.Source{Worker: "a", Rank: 1}

	p := take("p", 5, 10)
	require.True(t, g.See(p, a1))
	require.Equal(t, []string{"lost a/1 1-4: published before we listened"}, r.take())
	p = take("p", 6, 11)
	require.True(t, g.See(p, a1))
	require.Empty(t, r.take())
	require.True(t, g.See(p, a0), "later, but nothing was known of it before either")
	require.Equal(t, []string{"lost a/0 1-4: published before we listened"}, r.take())

	take("p", 9, 12) // both are told of a hole
	require.Equal(t, []string{
		"lost a/0 7-8: gap without a replay endpoint", "clear a/0: batches lost",
		"lost a/1 7-8: gap without a replay endpoint", "clear a/1: batches lost",
	}, r.take())
	require.Nil(t, take("p", 9, 12))
	require.Empty(t, r.take())
	require.Nil(t, take("p", 8, 11.5)) // nothing tells whose
	require.Equal(t, []string{
		"lost a/0 8-8: publisher may be another one", "clear a/0: batches lost",
		"lost a/1 8-8: publisher may be another one", "clear a/1: batches lost",
	}, r.take())
	take("p", 0, 13)
	require.Equal(t, []string{"clear a/0: engine restarted", "clear a/1: engine restarted"}, r.take())

	q := take("q", 1, 1) // a number of 1 misses nothing
	require.True(t, g.See(q, a0))
	require.Equal(t, []string{"clear a/0: engine restarted"}, r.take())
	take("p", 5, 14)
	require.Equal(t, []string{"lost a/1 1-4: gap without a replay endpoint", "clear a/1: batches lost"}, r.take())

	g.Broken(q, nil, 7, kvevents.LossPayload, true)
	require.Equal(t, []string{"lost a/0 7-7: payload unreadable", "clear a/0: batches lost"}, r.take())
	g.Broken(p, &a1, 8, kvevents.LossEvent, false)
	require.Equal(t, []string{"lost a/1 8-8: malformed events"}, r.take())
	require.EqualValues(t, 1, g.Duplicates)
	require.EqualValues(t, 2, g.Restarts)
	require.EqualValues(t, 6, g.Losses)
	require.EqualValues(t, 4+2+1+4+1+1, g.Lost)
}

// TestGuardBound: publishers without end are forgotten, and what they announced.
func TestGuardBound(t *testing.T) {
	var r recorder
	g := Guard{Handler: &r, Most: 4}
	for i := range 100 {
		p, ok := g.Take(fmt.Sprint(i), 0, 0, 0)
		require.True(t, ok)
		for rank := range int32(i%3 + 1) {
			g.See(p, kvevents.Source{Worker: fmt.Sprint(i), Rank: rank})
		}
		publishers, sources := g.Publishers()
		require.LessOrEqual(t, publishers, 4)
		require.LessOrEqual(t, sources, 4)
		require.LessOrEqual(t, len(g.owner), 4)
	}
	require.EqualValues(t, 98, g.Evicted)
	require.Contains(t, r, "clear 7/1: worker removed")
	p, _ := g.Take("99", 1, 0, 0)
	for rank := range int32(10) {
		require.Equal(t, rank < 4, g.See(p, kvevents.Source{Worker: "99", Rank: rank}))
	}
}

// TestSourcesKeepNoMessage: a name that is a part of a message does not keep all of it.
func TestSourcesKeepNoMessage(t *testing.T) {
	var r recorder
	g := Guard{Handler: &r}
	message := strings.Repeat("x", 1<<10)
	p, _ := g.Take("p", 1, 0, 0)
	require.True(t, g.See(p, kvevents.Source{Worker: message[100:110]}))
	kept := p.Sources()[0].Worker
	require.Equal(t, message[100:110], kept)
	require.NotSame(t, unsafe.StringData(message[100:]), unsafe.StringData(kept))
}
