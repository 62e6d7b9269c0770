package kvevents

import "time"

// Source is one publisher: a data-parallel rank of a worker.
type Source struct {
	Worker string
	Rank   int32
}

// Handler receives the events of all sources of a [Subscriber]. Calls for one
// source come one at a time, in order; those for different sources come from
// different goroutines at once. A call may take its time: its source then
// falls behind, and nothing is lost unsaid. It must not call methods of the
// Subscriber.
type Handler interface {
	// Apply is given each batch once. The batch is valid during the call only.
	Apply(src Source, seq uint64, b *Batch)
	// Clear forgets everything that was applied for the source so far.
	Clear(src Source, c ClearCause)
	// Lost tells of a hole before what follows it.
	Lost(Loss)
}

// SourceEmptier is [Emptier] for a [Handler].
type SourceEmptier interface{ Empty(src Source) }

// The hooks of SubscriberOptions.Hooks, for metrics and the like. Each has one
// method, which is called like those of a [Handler] and must return soon.
type (
	// BatchHook sees every batch that was applied. Lag is the time between the
	// engine's timestamp and now, on two clocks.
	BatchHook interface {
		OnBatch(src Source, b *Batch, lag time.Duration)
	}
	// LossHook sees every loss.
	LossHook interface{ OnLoss(Loss) }
	// ClearHook sees every clear.
	ClearHook interface{ OnClear(Source, ClearCause) }
	// StateHook sees every change of a stream's state.
	StateHook interface {
		OnState(src Source, from, to State)
	}
	// SilenceHook sees a source fall silent and speak again.
	SilenceHook interface {
		OnSilence(src Source, silent bool)
	}
)
