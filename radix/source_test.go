package radix

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type panicSource struct{}

func (panicSource) Next() (uint64, bool) { panic("source") }

// TestPanickingSource: a reader that dies leaves, or no memory would be reused.
func TestPanickingSource(t *testing.T) {
	x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A")
	require.NoError(t, x.Store(Holder{Worker: w[0]}, seqKeys(3)))
	var r Result
	require.Panics(t, func() { _ = x.Match(&Query{Source: panicSource{}, Tokens: 99}, &r) })
	require.Equal(t, x.epochs.now.Load(), x.epochs.oldest())
	require.NoError(t, x.Match(&Query{Keys: seqKeys(3)}, &r))
	require.Equal(t, 3, r.Workers[0].Combined)
}

// blockingSource keeps a reader inside while the test writes.
type blockingSource struct {
	keys []uint64
	at   int
	act  func(at int)
}

func (s *blockingSource) Next() (uint64, bool) {
	if s.at == len(s.keys) {
		return 0, false
	}
	s.act(s.at)
	s.at++
	return s.keys[s.at-1], true
}

// TestSlowReader: while a reader is inside, lines are evicted, stored anew, moved
// and cleared around it. What it has not come to yet it sees as it is by then;
// memory that it may still read is not reused.
func TestSlowReader(t *testing.T) {
	for _, eager := range []bool{false, true} {
		x, w := simpleIndex(t, ProfileOptions{HashUnit: 16}, "A", "B")
		x.pack.eager = eager
		keys := randomKeys(3, 400)
		a, b := Holder{Worker: w[0]}, Holder{Worker: w[1]}
		require.NoError(t, x.Store(a, keys))
		require.NoError(t, x.Store(b, keys[:200]))
		junk := 0
		s := &blockingSource{keys: keys, act: func(at int) {
			if at%10 != 5 {
				return
			}
			junk++
			// B gives up what lies ahead and gets it back; A keeps all.
			require.NoError(t, x.Remove(b, keys[150:200]))
			require.NoError(t, x.Store(b, randomKeys(uint64(junk+100), 200)))
			require.NoError(t, x.Store(b, keys[150:200]))
			require.NoError(t, x.Clear(w[1], CPU))
		}}
		var r Result
		require.NoError(t, x.Match(&Query{Source: s, Tokens: 16*400 + 1}, &r))
		require.Equal(t, 400, r.Workers[0].Combined, "eager %v", eager)
		require.Equal(t, 200, r.Workers[1].Combined, "eager %v", eager)
		// A clear while the reader is inside: it may see either state of it.
		s.at, s.act = 0, func(at int) {
			if at == 100 {
				require.NoError(t, x.Clear(w[0]))
			}
		}
		require.NoError(t, x.Match(&Query{Source: s, Tokens: 16*400 + 1}, &r))
		require.Contains(t, []int{100, 101, 400}, r.Workers[0].Combined)
		require.NoError(t, x.Match(&Query{Keys: keys}, &r))
		require.Zero(t, r.Workers[0].Combined)
	}
}
