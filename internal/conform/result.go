package conform

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Result is what came of one file.
type Result struct {
	File  string `json:"file"`
	Check string `json:"check"`
	// What says in words what the file holds.
	What   string `json:"what"`
	Passed int    `json:"passed"`
	Failed int    `json:"failed"`
	// Unchecked says why nothing of the file was checked; empty if something was. Such a file
	// counts as one failure.
	Unchecked string `json:"unchecked,omitempty"`
	// Apart counts cases that the recording declares unknowable; they are
	// neither passed nor failed.
	Apart int `json:"apart,omitempty"`
	// Bound counts passed cases of which only a bound can be known, and the bound held.
	Bound int `json:"bound,omitempty"`
	// Differences are the first failures.
	Differences []Difference `json:"differences,omitempty"`
	// Notes are facts worth knowing that fail nothing.
	Notes []string `json:"notes,omitempty"`
}

// Difference is one failure.
type Difference struct {
	Where string `json:"where"`
	Want  string `json:"want"`
	Got   string `json:"got"`
	// About says what was compared or hashed.
	About string `json:"about,omitempty"`
}

// maxDifferences bounds what is kept of a file in which everything fails.
const maxDifferences = 5

func (r *Result) pass() { r.Passed++ }

func (r *Result) fail(d Difference) {
	r.Failed++
	if len(r.Differences) < maxDifferences {
		r.Differences = append(r.Differences, d)
	}
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// incomplete notes what a whole file of this kind would have too. A part of one is as right
// as what it has.
func (r *Result) incomplete(missing []string) {
	if len(missing) > 0 {
		slices.Sort(missing)
		r.note("incomplete: %d missing, such as %s", len(missing), missing[0])
	}
}

// Broken is the result of a file that could not be read or checked at all.
func Broken(check, file string, err error) *Result {
	return &Result{File: file, Check: check, What: "not checked", Unchecked: err.Error(), Failed: 1}
}

// sound turns a result of nothing into a failure: a file that holds no case shows
// nothing.
func (r *Result) sound() *Result {
	if r.Passed+r.Failed+r.Apart == 0 {
		return Broken(r.Check, r.File, errors.New("holds no case"))
	}
	return r
}

// Print writes the result for people.
func (r *Result) Print(w io.Writer) {
	if r.Unchecked != "" {
		fmt.Fprintf(w, "FAIL %s: not checked: %s\n", r.File, r.Unchecked)
		return
	}
	verdict := "ok  "
	if r.Failed > 0 {
		verdict = "FAIL"
	}
	fmt.Fprintf(w, "%s %s: %s: %d equal, %d different", verdict, r.File, r.What, r.Passed-r.Bound, r.Failed)
	if r.Bound > 0 {
		fmt.Fprintf(w, ", %d within the bound", r.Bound)
	}
	if r.Apart > 0 {
		fmt.Fprintf(w, ", %d apart", r.Apart)
	}
	fmt.Fprintln(w)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "       %s\n", n)
	}
	for _, d := range r.Differences {
		fmt.Fprintf(w, "     %s\n       want %s\n       got  %s\n", d.Where, d.Want, d.Got)
		if d.About != "" {
			fmt.Fprintf(w, "       of   %s\n", strings.ReplaceAll(d.About, "\n", "\n            "))
		}
	}
	if n := r.Failed - len(r.Differences); n > 0 {
		fmt.Fprintf(w, "     and %d more\n", n)
	}
}
