package metrics

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvatlas/kvatlas/kvevents"
)

// MaxMedia is how many media have series of their own: "GPU", "CPU" and
// "STORAGE", then the first by name.
const MaxMedia = 8

const (
	fleetLabel = "fleet"
	other      = "other"
)

// bounded is a set of label values beside "other", sorted.
type bounded []string

// bound keeps the first n of the names. Those in first go before others.
func bound(names []string, n int, first ...string) bounded {
	slices.SortFunc(names, func(a, b string) int {
		if x, y := rank(first, a), rank(first, b); x != y {
			return x - y
		}
		return strings.Compare(a, b)
	})
	names = slices.Compact(names)
	names = names[:min(len(names), n)]
	slices.Sort(names)
	return names
}

func rank(first []string, name string) int {
	if i := slices.Index(first, name); i >= 0 {
		return i
	}
	return len(first)
}

// of returns the label value of a name.
func (b bounded) of(name string) string {
	if _, ok := slices.BinarySearch(b, name); ok {
		return name
	}
	return other
}

// text makes a label value of a name that may be anything: media come from the
// wire, and Prometheus takes nothing but UTF-8.
func text(name string) string { return strings.ToValidUTF8(name, "\ufffd") }

// streamName is the worker label of a stream: ranks are workers of their own.
func streamName(src kvevents.Source) string {
	if src.Rank == 0 {
		return text(src.Worker)
	}
	return fmt.Sprintf("%s/%d", text(src.Worker), src.Rank)
}

// reasons are the label values of [kvevents.Reason].
var reasons = [...]string{
	0:                           other,
	kvevents.ReasonNotAnEvent:   "not_an_event",
	kvevents.ReasonNoType:       "no_type",
	kvevents.ReasonDuplicateKey: "duplicate_key",
	kvevents.ReasonMissingField: "missing_field",
	kvevents.ReasonHash:         "hash",
	kvevents.ReasonFieldType:    "field_type",
	kvevents.ReasonLength:       "length",
	kvevents.ReasonLimit:        "limit",
}

// losses are the label values of [kvevents.Cause]; a cause added later counts as
// the first, "other".
var losses = [...]string{
	0:                         other,
	kvevents.LossJoined:       "joined",
	kvevents.LossNoReplay:     "no_replay",
	kvevents.LossReplayFailed: "replay_failed",
	kvevents.LossTruncated:    "truncated",
	kvevents.LossHole:         "hole",
	kvevents.LossReplayEnd:    "replay_end",
	kvevents.LossPending:      "pending",
	kvevents.LossPayload:      "payload",
	kvevents.LossEvent:        "event",
	kvevents.LossIdentity:     "identity",
}

// clears are the label values of [kvevents.ClearCause].
var clears = [...]string{
	0:                       other,
	kvevents.ClearRestart:   "restart",
	kvevents.ClearLoss:      "loss",
	kvevents.ClearResync:    "resync",
	kvevents.ClearDecay:     "decay",
	kvevents.ClearDisproved: "disproved",
	kvevents.ClearRemoved:   "removed",
}
