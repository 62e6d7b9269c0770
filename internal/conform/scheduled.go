package conform

import (
	"fmt"
	"slices"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// Traces of the scheduler say more than those of the cache manager alone: which
// events of a message came from the offload connector, which had happened but
// were not published yet when a prompt was looked up, and what a reset emptied.
// With that, each look-up is predicted from the events that had happened by
// then, so that what is checked are the rules, not the delay.

// source is where an event came from.
type source int

const (
	fromEngine    source = iota // the device pool
	fromConnector               // the offload connector's pool
	fromTier                    // the connector's further tiers
	numSources
)

// scheduledWorker adds the connector to the description of a worker.
func scheduledWorker(w *kvatlas.Worker, t *recording.Trace) error {
	switch t.Connector {
	case "":
		return nil
	case "OffloadingConnector":
		w.Cache.Connector = radix.Offloading
		w.Cache.ChunkBlocks = number(t.ConnectorExtra["blocks_per_chunk"])
		if size := number(t.ConnectorExtra["block_size"]); size > 0 {
			w.Cache.ChunkBlocks = size / t.Groups[0].BlockSize
		}
	case "SimpleCPUOffloadConnector":
		w.Cache.Connector = radix.SimpleOffload
	default:
		return fmt.Errorf("connector %q: known are OffloadingConnector and SimpleCPUOffloadConnector", t.Connector)
	}
	return nil
}

func number(v any) int {
	f, _ := v.(float64)
	return int(f)
}

// source tells an event's source from the recorder's note.
func (r *traceRun) source(op *recording.TraceOp, i int, e *kvevents.Event) source {
	switch {
	case op.LocalEvents == nil || i < *op.LocalEvents:
		return fromEngine
	case string(e.Medium) == "STORAGE" && r.trace.Connector == "OffloadingConnector":
		return fromTier
	}
	return fromConnector
}

// advance applies the events of a message, of each source up to a count, and
// leaves out those that were applied ahead of it. A clear empties the pool of
// its source: the recording knows what no consumer can.
func (r *traceRun) advance(op *recording.TraceOp, upTo [numSources]int) error {
	var dec kvevents.Decoder
	if err := dec.Decode(op.Payload, &r.batch); err != nil {
		return fmt.Errorf("line %d: %w", op.Line, err)
	}
	var seen [numSources]int
	for i := range r.batch.Events {
		e := &r.batch.Events[i]
		s := r.source(op, i, e)
		seen[s]++
		if seen[s] <= r.ahead[s] || seen[s] > upTo[s] {
			continue
		}
		r.ahead[s]++
		var err error
		switch {
		case e.Kind == kvevents.AllBlocksCleared && s == fromConnector:
			err = r.atlas.Clear("engine", "CPU")
		case e.Kind == kvevents.AllBlocksCleared:
			err = r.atlas.Clear("engine", "GPU")
		default:
			err = r.atlas.ApplyBatch("engine", &kvevents.Batch{Events: r.batch.Events[i : i+1]})
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", op.Line, err)
		}
	}
	return nil
}

// whole applies all that is left of a message.
func (r *traceRun) whole(op *recording.TraceOp) error {
	const all = 1 << 30
	err := r.advance(op, [numSources]int{all, all, all})
	r.ahead = [numSources]int{}
	return err
}

// catchUp applies what had happened when a prompt was looked up, but is in the
// next message only; false where the recording ends before it.
func (r *traceRun) catchUp(at int) (bool, error) {
	pending := r.trace.Ops[at].Pending
	upTo := [numSources]int{pending["GPU"], pending["TIER"], pending["TIER2"]}
	if upTo == [numSources]int{} {
		return true, nil
	}
	next := slices.IndexFunc(r.trace.Ops[at:], func(op recording.TraceOp) bool { return op.Op == "events" })
	if next < 0 {
		return false, nil
	}
	return true, r.advance(&r.trace.Ops[at+next], upTo)
}

// reset empties the connector's pool, which the offload connector does without
// an event (releases before 0.22 cannot do it).
func (r *traceRun) reset(op *recording.TraceOp) error {
	if op.ResetConnector && r.trace.Connector == "OffloadingConnector" && minor(r.trace.Version) >= 22 {
		return r.atlas.Clear("engine", "CPU")
	}
	return nil
}

// blindConnector tells whether the connector announces no stores and its
// removals as if they were of the device (SimpleCPUOffloadConnector before 0.30):
// predictions are then a lower bound.
func blindConnector(t *recording.Trace) bool {
	return t.Connector == "SimpleCPUOffloadConnector" && minor(t.Version) < 30
}

// minor is the second number of a release 0.x, which is what vLLM's have been so
// far; of any other it is above all of them.
func minor(version string) int {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil || major > 0 {
		return 1 << 20
	}
	return minor
}
