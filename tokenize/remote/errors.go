package remote

import (
	"errors"
	"fmt"
)

type constError string

func (e constError) Error() string { return string(e) }

const (
	// ErrOpen is returned without asking while the circuit breaker is open,
	// after failures in a row.
	ErrOpen = constError("remote: the endpoint failed repeatedly and is not asked for a while")

	// ErrResponseTooLarge is returned for answers over
	// [Options.MaxResponseBytes].
	ErrResponseTooLarge = constError("remote: the answer is larger than the limit")

	// ErrNoRender is returned for requests that no render endpoint takes.
	ErrNoRender = constError("remote: there is no render endpoint for this kind of request")
)

// StatusError is returned when the endpoint answers with another status than
// 200. Below 500 it has judged the request and is well.
type StatusError struct {
	Path    string
	Status  int
	Message string // what the engine says, cut to 500 bytes
}

// Error says what was asked and what was answered.
func (e *StatusError) Error() string {
	return fmt.Sprintf("remote: %s: status %d: %s", e.Path, e.Status, e.Message)
}

// AnswerError is returned for an answer that is not as recorded.
type AnswerError struct {
	Path   string
	Reason string
}

// Error says what is wrong with the answer.
func (e *AnswerError) Error() string { return fmt.Sprintf("remote: %s: answer: %s", e.Path, e.Reason) }

// IsUnavailable tells errors of the endpoint, which another may not have,
// from its judgement of the request.
func IsUnavailable(err error) bool {
	if err == nil {
		return false
	}
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.Status >= 500 || status.Status == 429
	}
	return !errors.Is(err, ErrNoRender) && !errors.Is(err, ErrResponseTooLarge)
}
