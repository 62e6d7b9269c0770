package chat

import "fmt"

type constError string

func (e constError) Error() string { return string(e) }

const (
	// ErrLimit is returned when a template or a render needs more than
	// [Limits] allows. Errors that wrap it say which limit.
	ErrLimit = constError("chat: limit exceeded")

	// ErrNoTemplate is returned by [LoadConfig] when a tokenizer_config.json
	// has no chat template and none is given beside it.
	ErrNoTemplate = constError("chat: no chat template")
)

// UnsupportedError is returned when a template, or a render, needs something
// that this package does not reproduce. The render must be left to the
// engine.
type UnsupportedError struct {
	// Kind is what is not supported: "filter", "test", "statement",
	// "method", "function", "value" and the like.
	Kind string
	// Name is its name.
	Name string
	// Line is the template's line, 0 when the data is the reason.
	Line int
}

// Error names what is not supported and says what to do instead.
func (e *UnsupportedError) Error() string {
	where := ""
	if e.Line > 0 {
		where = fmt.Sprintf(" (line %d)", e.Line)
	}
	return fmt.Sprintf("chat: %s %q%s is not supported; let the engine render this template", e.Kind, e.Name, where)
}

// SyntaxError is returned by [Parse] for a template that Jinja rejects too.
type SyntaxError struct {
	Line   int
	Reason string
}

// Error says what is wrong, and where.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("chat: template line %d: %s", e.Line, e.Reason)
}

// RenderError is returned when rendering fails in the engine too: the
// template called raise_exception, or did what Python does not allow.
type RenderError struct {
	// Reason is the text given to raise_exception, or says what went wrong.
	Reason string
	// Raised tells that the template itself called raise_exception.
	Raised bool
}

// Error says why there is no render.
func (e *RenderError) Error() string { return "chat: template rejects the request: " + e.Reason }

func unsupported(kind, name string) error { return &UnsupportedError{Kind: kind, Name: name} }

func failf(format string, args ...any) error {
	return &RenderError{Reason: fmt.Sprintf(format, args...)}
}

func limitf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrLimit}, args...)...)
}
