package parity

import (
	"slices"
	"strings"
	"sync"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/release"
	"github.com/kvatlas/kvatlas/kvevents"
)

// Era is a range of an engine's releases that hash and publish in one way. The zero
// value is none. Eras can be compared.
type Era struct {
	// Since is the first of its releases; Next is the first one after it that
	// hashes or publishes in another way, "" where none is known.
	Since, Next string
	// Scheme is how they hash; it names the engine.
	Scheme blockhash.Scheme

	form kvevents.Form
}

// String returns the range, such as "vllm from 0.24.0, before 0.26.0".
func (e Era) String() string { return Releases([]Era{e}) }

// Releases describes eras in one line, neighbours as one range.
func Releases(eras []Era) string {
	var parts []string
	for i := 0; i < len(eras); {
		first := eras[i]
		for i++; i < len(eras) && eras[i].Since == eras[i-1].Next && eras[i].Scheme.Engine() == first.Scheme.Engine(); i++ {
		}
		part := first.Scheme.Engine() + " from " + first.Since
		if next := eras[i-1].Next; next != "" {
			part += ", before " + next
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; or ")
}

// EraOf returns the era of a release. The errors are those of
// blockhash.SchemeFor and kvevents.FormFor.
func EraOf(engine, release string) (Era, error) {
	scheme, err := blockhash.SchemeFor(engine, release)
	if err != nil {
		return Era{}, err
	}
	form, err := kvevents.FormFor(engine, release)
	if err != nil {
		return Era{}, err
	}
	for _, e := range allEras() {
		if e.Scheme.Engine() == scheme.Engine() && e.Scheme.Since() == scheme.Since() && e.form == form {
			return e, nil
		}
	}
	return Era{Since: release, Scheme: scheme, form: form}, nil // between two tables: an era of its own
}

// allEras are those of every engine that publishes by itself, oldest first within
// each.
var allEras = sync.OnceValue(func() (all []Era) {
	for _, engine := range []string{"vllm", "sglang"} {
		var since []string
		for _, s := range blockhash.Schemes() {
			if s.Engine() == engine {
				since = append(since, s.Since())
			}
		}
		for _, f := range kvevents.Forms(engine) {
			since = append(since, f.Since())
		}
		slices.SortFunc(since, release.Compare)
		since = slices.Compact(since)
		for i, s := range since {
			scheme, err := blockhash.SchemeFor(engine, s)
			form, err2 := kvevents.FormFor(engine, s)
			if err != nil || err2 != nil {
				continue // older than what both know
			}
			e := Era{Since: s, Scheme: scheme, form: form}
			if i+1 < len(since) {
				e.Next = since[i+1]
			}
			all = append(all, e)
		}
	}
	return all
})
