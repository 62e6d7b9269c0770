// Package conform holds the checks behind examples/conformance: each takes
// what a real engine answered and says, case by case, whether this module
// comes to the same. The tests of the root package run the same checks on the
// committed recordings.
//
// A check never skips: what it cannot do is a failure. Only what a recording
// itself declares unknowable from outside (an answer given while events were
// still inside the engine) is counted apart.
package conform
