package radix_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// tooHigh are the queries that no consumer of these events can predict (README
// of the traces, "Misses"; testdata/vllm/truth/RULES.md 4.4, cases 1 and 2): events before
// 0.20 do not name their group, and full reports look like further copies. The
// value is what the events say.
var tooHigh = map[string]int{
	"0.10.2/swa q26":        144,
	"0.13.0/mamba-mult q8":  64,
	"0.13.0/mamba q7":       448,
	"0.13.0/mamba q23":      256,
	"0.13.0/mamba q26":      384,
	"0.13.0/mamba q27":      192,
	"0.13.0/swa q26":        144,
	"0.29.0/u16-report q20": 608,
	"0.32.0/u16-report q27": 416,
}

// late are queries asked while events were still inside the engine (case 3).
var late = map[string]int{
	"0.32.0/u16-steps q11": 0,
	"0.32.0/u16-steps q18": 0,
}

func TestTruth(t *testing.T) {
	files := golden.Files(t, "vllm/truth/*/*.jsonl")
	require.GreaterOrEqual(t, len(files), 100)
	high, behind, queries, nonzero := map[string]int{}, map[string]int{}, 0, 0
	for _, name := range files {
		tr := openTrace(t, name, radix.Count)
		run := replayTruth(t, tr, replay{})
		short := strings.TrimSuffix(strings.TrimPrefix(name, "vllm/truth/"), ".jsonl")
		for _, q := range run {
			queries++
			if q.want > 0 {
				nonzero++
			}
			id := fmt.Sprintf("%s %s", short, q.id)
			switch {
			case q.got == q.want:
			case q.pending > 0:
				behind[id] = q.got
			default:
				high[id] = q.got
				require.Greater(t, q.got, q.want, "%s: too low", id)
				require.Equal(t, !strings.Contains(short, "report"), q.upperBound, id)
			}
		}
	}
	require.Equal(t, tooHigh, high)
	require.Equal(t, late, behind)
	t.Logf("%d queries of %d files, %d of them hits; %d too high and %d late, as documented",
		queries, len(files), nonzero, len(high), len(behind))
}

// TestTruthWithGroups gives the old releases' events the groups that the
// recorder noted beside them: the rules hold, only the stream lacks the groups.
func TestTruthWithGroups(t *testing.T) {
	seen := 0
	for _, name := range golden.Files(t, "vllm/truth/*/*.jsonl") {
		tr := openTrace(t, name, radix.Count)
		if tr.GroupInEvents || len(tr.Groups) == 1 {
			continue
		}
		for _, q := range replayTruth(t, tr, replay{labelled: true}) {
			require.Equal(t, q.want, q.got, "%s %s", name, q.id)
			require.False(t, q.upperBound)
			seen++
		}
	}
	require.Greater(t, seen, 100)
}

// TestCopyPolicies measures what each policy gets wrong: the table of
// [radix.CopyPolicy]. Late look-ups are left out, and so are releases whose events
// lack the group: neither is a matter of copies.
func TestCopyPolicies(t *testing.T) {
	type wrong struct{ asked, low, high int }
	type row struct {
		stream string
		policy radix.CopyPolicy
	}
	got := map[row]wrong{}
	for _, policy := range []radix.CopyPolicy{radix.Count, radix.Set} {
		for _, name := range golden.Files(t, "vllm/truth/*/*.jsonl") {
			tr := openTrace(t, name, policy)
			if !tr.GroupInEvents && len(tr.Groups) > 1 {
				continue
			}
			at := row{"manager", policy}
			if tr.ReportMode == "mixed" {
				at.stream = "full reports"
			}
			n := got[at]
			for _, q := range replayTruth(t, tr, replay{}) {
				if q.pending > 0 {
					continue
				}
				n.asked++
				if q.got < q.want {
					n.low++
				} else if q.got > q.want {
					n.high++
				}
			}
			got[at] = n
		}
		for _, name := range golden.Files(t, "vllm/scheduler/*/*.jsonl") {
			at := row{"scheduler", policy}
			m, asked, _ := replayScheduled(t, openTrace(t, name, policy))
			n := got[at]
			got[at] = wrong{n.asked + asked, n.low + m.localLow, n.high + m.localHigh}
		}
	}
	require.Equal(t, map[row]wrong{
		{"manager", radix.Count}:      {3826, 0, 0},
		{"manager", radix.Set}:        {3826, 89, 0},
		{"scheduler", radix.Count}:    {2658, 0, 0},
		{"scheduler", radix.Set}:      {2658, 3, 0},
		{"full reports", radix.Count}: {59, 0, 2},
		{"full reports", radix.Set}:   {59, 0, 0},
	}, got)
}

// TestWarmReplica: an index that read another's snapshot in the middle of a
// recorded stream and followed the rest of it answers as one that saw all.
func TestWarmReplica(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 6))
	hits := 0
	for i, name := range golden.Files(t, "vllm/truth/*/*.jsonl") {
		policy := radix.CopyPolicy(i % 2)
		want := replayTruth(t, openTrace(t, name, policy), replay{})
		tr := openTrace(t, name, policy)
		warm := 1 + r.IntN(len(tr.Ops)-1)
		require.Equal(t, want, replayTruth(t, tr, replay{warm: warm}), "%s: snapshot at operation %d", name, warm)
		for _, q := range want {
			hits += min(q.got, 1)
		}
	}
	require.Greater(t, hits, 2000)
}

type answer struct {
	id         string
	want, got  int
	pending    int
	upperBound bool
}

// replay says how a trace is replayed.
type replay struct {
	labelled bool // with the groups noted beside the events
	// warm goes on from this operation with another index, which read a snapshot
	// of the first; 0 = never.
	warm int
}

func replayTruth(t *testing.T, tr *trace, how replay) (answers []answer) {
	x, w := traceIndex(t, tr)
	var (
		decoder kvevents.Decoder
		batch   kvevents.Batch
		result  radix.Result
	)
	for i := range tr.Ops {
		op := &tr.Ops[i]
		if how.warm > 0 && i == how.warm {
			var snapshot bytes.Buffer
			require.NoError(t, x.WriteSnapshot(&snapshot))
			x, w = traceIndex(t, tr)
			require.NoError(t, x.ReadSnapshot(&snapshot, 0))
		}
		switch op.Op {
		case "events":
			require.NoError(t, decoder.Decode(op.Payload, &batch))
			for j := range batch.Events {
				var label *int16
				if how.labelled && op.EventGroups != nil {
					label = op.EventGroups[j]
				}
				tr.apply(t, x, w, &batch.Events[j], 0, label)
			}
		case "finish":
			tr.texts.Finish(op)
		case "query", "requery":
			if op.Op == "query" {
				tr.arrive(t, op)
			}
			q := tr.query(t, op)
			require.NoError(t, x.Match(&q, &result))
			m := &result.Workers[0]
			answers = append(answers, answer{op.ID, op.HitTokens, m.Usable, op.PendingEvents, m.UpperBound})
			lazy := q
			lazy.Keys, lazy.Source = nil, &keySource{q.Keys}
			require.NoError(t, x.Match(&lazy, &result))
			require.Equal(t, answers[len(answers)-1].got, result.Workers[0].Usable, "lazy")
		}
	}
	s, err := x.WorkerStats(w)
	require.NoError(t, err)
	if tr.copies == radix.Count {
		require.Zero(t, s.Unmatched, tr.name)
	}
	return answers
}

func traceIndex(t *testing.T, tr *trace) (*radix.Index, radix.WorkerID) {
	x, err := radix.New(radix.Options{})
	require.NoError(t, err)
	w, err := x.AddWorker("w", tr.profile)
	require.NoError(t, err)
	return x, w
}

type keySource struct{ keys []uint64 }

func (s *keySource) Next() (key uint64, ok bool) {
	if len(s.keys) == 0 {
		return 0, false
	}
	key, s.keys = s.keys[0], s.keys[1:]
	return key, true
}

// miss counts look-ups whose answer differs from the engine's.
type miss struct{ localLow, localHigh, extLow, extHigh int }

// Before 0.30 the simple connector announces no stores, and removals of its
// blocks as if they were the device's (golden/tiers README, "Where events do not
// suffice" 1). All other files are exact.
var tierMisses = map[string]miss{
	"tiers/0.24.0/simple-small": {extLow: 4},
	"tiers/0.29.0/simple-small": {localLow: 11, extLow: 74},
}

// TestScheduler and TestTiers predict every look-up of the real scheduler from
// the events that had happened by then ("peek" in the READMEs: pending ones are
// the head of the next message).
func TestScheduler(t *testing.T) { testScheduled(t, "scheduler", 20) }
func TestTiers(t *testing.T)     { testScheduled(t, "tiers", 30) }

func testScheduled(t *testing.T, kind string, atLeast int) {
	files := golden.Files(t, "vllm/"+kind+"/*/*.jsonl")
	require.GreaterOrEqual(t, len(files), atLeast)
	misses := map[string]miss{}
	looked, externals := 0, 0
	for _, name := range files {
		tr := openTrace(t, name, radix.Count)
		m, n, ext := replayScheduled(t, tr)
		looked, externals = looked+n, externals+ext
		if m != (miss{}) {
			misses[strings.TrimSuffix(strings.TrimPrefix(name, "vllm/"), ".jsonl")] = m
		}
	}
	want := maps.Clone(tierMisses)
	maps.DeleteFunc(want, func(name string, _ miss) bool { return !strings.HasPrefix(name, kind) })
	require.Equal(t, want, misses)
	t.Logf("%d look-ups of %d files, %d with an external answer", looked, len(files), externals)
}

func replayScheduled(t *testing.T, tr *trace) (m miss, looked, externals int) {
	x, w := traceIndex(t, tr)
	var (
		decoder kvevents.Decoder
		batch   kvevents.Batch
		result  radix.Result
		ahead   [3]int // events of the next message applied already, by source
	)
	// advance applies the events of a message up to a count for each source,
	// without those that were applied before.
	advance := func(op *recording.TraceOp, upTo [3]int) {
		require.NoError(t, decoder.Decode(op.Payload, &batch))
		var seen [3]int
		for j := range batch.Events {
			e := &batch.Events[j]
			s := tr.source(op, j, e)
			if seen[s]++; seen[s] > ahead[s] && seen[s] <= upTo[s] {
				tr.apply(t, x, w, e, s, nil)
				ahead[s]++
			}
		}
		for s, n := range upTo {
			require.True(t, n == 1<<30 || ahead[s] >= n, "%s: pending events are not in the next message", tr.name)
		}
	}
	for i := range tr.Ops {
		op := &tr.Ops[i]
		switch op.Op {
		case "events":
			advance(op, [3]int{1 << 30, 1 << 30, 1 << 30})
			ahead = [3]int{}
		case "reset":
			// The offload connector's pool forgets without an event.
			if op.ResetConnector && tr.Connector == "OffloadingConnector" && !strings.HasPrefix(tr.Version, "0.20") {
				require.NoError(t, x.Clear(w, radix.CPU))
			}
		case "arrive":
			tr.arrive(t, op)
		case "finish":
			tr.texts.Finish(op)
		case "query", "requery":
			if _, known := tr.texts.Get(op.ID); op.Op == "query" && !known { // dcp: no arrival apart
				tr.arrive(t, op)
			}
			upTo := [3]int{op.Pending["GPU"], op.Pending["TIER"], op.Pending["TIER2"]}
			if upTo != [3]int{} {
				next := slices.IndexFunc(tr.Ops[i:], func(o recording.TraceOp) bool { return o.Op == "events" })
				require.GreaterOrEqual(t, next, 0)
				advance(&tr.Ops[i+next], upTo)
			}
			q := tr.query(t, op)
			require.NoError(t, x.Match(&q, &result))
			got := &result.Workers[0]
			looked++
			if got.Usable < op.HitTokens {
				m.localLow++
			} else if got.Usable > op.HitTokens {
				m.localHigh++
			}
			if tr.Connector != "" && op.External != nil {
				externals++
				if got.External < *op.External {
					m.extLow++
				} else if got.External > *op.External {
					m.extHigh++
				}
			}
		}
	}
	return m, looked, externals
}
