package scoring

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

type constError string

func (e constError) Error() string { return string(e) }

const (
	// ErrNoCandidates is returned by [Policy.Decide] when it is given no
	// candidate at all.
	ErrNoCandidates constError = "scoring: no candidates given; at least one worker is needed"
	// ErrNil is returned by methods of what no constructor made, and for a request,
	// decision, load or note that is nil.
	ErrNil constError = "scoring: not made by its constructor, or the request, decision, load or note is nil; all are needed"
	// ErrAllFiltered is what a [*FilteredError] unwraps to: there were
	// candidates, and none of them may serve the request.
	ErrAllFiltered constError = "scoring: every candidate was filtered out"
	// ErrOption is what an [*OptionError] unwraps to.
	ErrOption constError = "scoring: invalid option"
	// ErrNotFinite is what a [*ScorerError] unwraps to when a scorer or cost
	// produced NaN or an infinity, or left a candidate without a value.
	ErrNotFinite constError = "scoring: value is not a finite number"
	// ErrFigure is what a [*FigureError] unwraps to.
	ErrFigure constError = "scoring: a figure of a worker that cannot be"
	// ErrPeerEvent is wrapped by the error of [Peers.Heard] for an event that it does
	// not know.
	ErrPeerEvent constError = "scoring: unknown event in a note of a peer"
	// ErrPick is returned when a picker answers an index outside the candidates.
	ErrPick constError = "scoring: picker answered an index outside the candidates"
)

// OptionError says which option of a policy or part cannot be used and what is
// accepted instead.
type OptionError struct {
	// Option is the path of the option, such as "Scorers[1].Weight".
	Option string
	// Problem is what is wrong with the value and what is accepted.
	Problem string
}

func (e *OptionError) Error() string {
	return "scoring: " + e.Option + ": " + e.Problem
}

// Unwrap returns [ErrOption].
func (e *OptionError) Unwrap() error { return ErrOption }

// notMade is what is wrong with an option that is nil or that no constructor made.
func notMade(option, constructor string) error {
	return optionErrorf(option, "is nil or was not made by %s", constructor)
}

func optionErrorf(option, format string, args ...any) error {
	return &OptionError{Option: option, Problem: fmt.Sprintf(format, args...)}
}

// under prefixes the path of an OptionError with the part it was found in.
func under(path string, err error) error {
	if o, ok := errors.AsType[*OptionError](err); ok {
		return &OptionError{Option: path + "." + o.Option, Problem: o.Problem}
	}
	return &OptionError{Option: path, Problem: err.Error()}
}

// ScorerError says which scorer or cost failed. It unwraps to the error that the
// scorer returned, or to [ErrNotFinite].
type ScorerError struct {
	// Scorer is the name of the scorer or cost; "total" where only the
	// weighted sum left the range of float64.
	Scorer string
	// Worker and ID are the name and number of the first candidate with a bad
	// value; zero when the scorer returned an error of its own.
	Worker string
	ID     WorkerID
	// Value is that candidate's value.
	Value float64
	// Err is the reason.
	Err error
}

func (e *ScorerError) Error() string {
	if finite(e.Value) { // the scorer returned an error
		return fmt.Sprintf("scoring: scorer %q: %v", e.Scorer, e.Err)
	}
	return fmt.Sprintf("scoring: scorer %q gave %v for worker %s; a finite number is needed",
		e.Scorer, e.Value, who(e.Worker, e.ID))
}

func notFinite(scorer string, c *Candidate, v float64) error {
	return &ScorerError{Scorer: scorer, Worker: c.Name, ID: c.ID, Value: v, Err: ErrNotFinite}
}

// who names a worker: by its name, of which a long one is cut, or by its number.
func who(name string, id WorkerID) string {
	if name == "" {
		return strconv.FormatUint(uint64(id), 10)
	}
	return fmt.Sprintf("%.64q", name)
}

// Unwrap returns the reason.
func (e *ScorerError) Unwrap() error { return e.Err }

// FilteredError says how many candidates each filter dropped when none was left.
type FilteredError struct {
	// Candidates is the number before the first filter.
	Candidates int
	// Dropped counts by filter, in the order of the policy; "subset" first
	// where the request named a subset.
	Dropped []DropCount
}

// DropCount is the number of candidates that one filter dropped.
type DropCount struct {
	Filter string
	Count  int
}

func (e *FilteredError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "scoring: every candidate was filtered out: of %d", e.Candidates)
	for _, d := range e.Dropped {
		fmt.Fprintf(&b, ", %s dropped %d", d.Filter, d.Count)
	}
	return b.String()
}

// Unwrap returns [ErrAllFiltered].
func (e *FilteredError) Unwrap() error { return ErrAllFiltered }
