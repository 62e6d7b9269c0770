package request

import (
	"fmt"
	"sync/atomic"
)

// Reason says why the tokens of a request cannot be told.
type Reason uint8

const (
	// ReasonBody: the body is not of its endpoint's shape; the engine will
	// most likely refuse it.
	ReasonBody Reason = iota
	// ReasonUnknown: the endpoint is none that is known.
	ReasonUnknown
	// ReasonLimit: the body is larger than the limit.
	ReasonLimit
	// ReasonField: a field, or a value of it, makes the prompt one that only
	// the engine can render. Media are among them.
	ReasonField
	// ReasonEngine: the engine's release is not verified for such requests.
	ReasonEngine
	// ReasonEncoder: there is no tokenizer in process, or it failed.
	ReasonEncoder
	// ReasonTemplate: there is no chat template in process, or it needs what
	// package chat does not have.
	ReasonTemplate
	// ReasonRejected: the template or the engine refuses the conversation.
	ReasonRejected
	// ReasonGate: in-process tokens are off, after a canary mismatch most
	// often.
	ReasonGate
	// ReasonRemote: the engine was asked and gave no tokens.
	ReasonRemote
	reasons
)

var reasonNames = [reasons]string{"body", "unknown", "limit", "field", "engine", "encoder", "template", "rejected", "gate", "remote"}

// String returns the reason's short name, for labels of metrics.
func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return "unknown"
}

// CannotError is returned when the exact tokens of a request cannot be told.
type CannotError struct {
	Endpoint Endpoint
	Reason   Reason
	// Detail says more, such as the name of the field.
	Detail string
	// Err is the cause, nil when there is none beyond the reason.
	Err error
}

// Error says what cannot be told and why.
func (e *CannotError) Error() string {
	s := fmt.Sprintf("request: no exact tokens for %s: %s", e.Endpoint, e.Reason)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *CannotError) Unwrap() error { return e.Err }

// Local tells whether it is this process that cannot: the engine can.
func (e *CannotError) Local() bool {
	switch e.Reason {
	case ReasonField, ReasonEngine, ReasonEncoder, ReasonTemplate, ReasonGate:
		return true
	}
	return false
}

// Counters count what became of requests, by endpoint. The zero value is
// ready; it must not be copied. Safe for concurrent use.
type Counters struct {
	local, remote [endpoints]atomic.Uint64
	cannot        [endpoints][reasons]atomic.Uint64
}

// Local returns how many requests got their tokens in process.
func (c *Counters) Local(e Endpoint) uint64 { return c.local[e%endpoints].Load() }

// Remote returns how many requests got their tokens from the engine.
func (c *Counters) Remote(e Endpoint) uint64 { return c.remote[e%endpoints].Load() }

// Cannot returns how many requests got none, by reason.
func (c *Counters) Cannot(e Endpoint, r Reason) uint64 {
	return c.cannot[e%endpoints][r%reasons].Load()
}

// count counts an outcome; it is of use on a nil Counters too.
func (c *Counters) count(e Endpoint, remote bool, err error) {
	if c == nil {
		return
	}
	switch why, failed := err.(*CannotError); {
	case failed:
		c.cannot[e%endpoints][why.Reason%reasons].Add(1)
	case err != nil:
	case remote:
		c.remote[e%endpoints].Add(1)
	default:
		c.local[e%endpoints].Add(1)
	}
}
