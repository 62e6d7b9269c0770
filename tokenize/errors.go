package tokenize

import (
	"errors"
	"fmt"

	"github.com/kvatlas/kvatlas/internal/jsonscan"
)

type constError string

func (e constError) Error() string { return string(e) }

const (
	// ErrTextTooLong is returned when a text is longer than
	// [Options.MaxTextBytes].
	ErrTextTooLong = constError("tokenize: text is longer than the limit")

	// ErrTokenizer is returned by methods of a nil or zero [Tokenizer], and of
	// a nil or zero [Stream] or [Cache], which has none.
	ErrTokenizer = constError("tokenize: the tokenizer was not made with Load or LoadBinary, or the Stream or Cache not by one")

	// ErrFileTooLarge is returned when a tokenizer.json, decompressed, is
	// larger than [MaxFileBytes].
	ErrFileTooLarge = constError("tokenize: tokenizer.json is larger than 256 MiB")
)

// MaxFileBytes is the largest tokenizer.json that is read. The largest known
// one has 33 MB.
const MaxFileBytes = 256 << 20

// UnsupportedError is returned at load when a tokenizer.json uses something
// that is not proved to be reproduced exactly. Such a tokenizer is refused
// as a whole: there are no approximate ids.
type UnsupportedError struct {
	// Part names the place in the file, such as "normalizer",
	// "pre_tokenizer.pattern" or "added_tokens[3].id".
	Part string
	// Value is what stands there.
	Value string
	// Reason says more, where the value alone does not.
	Reason string
}

// Error says what is refused, and what to use instead.
func (e *UnsupportedError) Error() string {
	reason := e.Reason
	if reason != "" {
		reason = ": " + reason
	}
	return fmt.Sprintf("tokenize: %s %s is not proved exact%s; for this model use the engine's own /tokenize endpoint or Hugging Face's library", e.Part, e.Value, reason)
}

func unsupported(part string, value any, reason string) error {
	s, ok := value.(string)
	if !ok {
		s = fmt.Sprint(value)
	}
	return &UnsupportedError{Part: part, Value: fmt.Sprintf("%q", shortened(s)), Reason: reason}
}

func shortened(s string) string {
	const most = 400
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}

// FileError is returned at load when a tokenizer.json is not valid.
type FileError struct {
	// Offset is the byte where reading stopped, -1 when it is no matter of
	// syntax.
	Offset int
	// Reason says what is wrong.
	Reason string
}

// Error says what is wrong, and where.
func (e *FileError) Error() string {
	if e.Offset < 0 {
		return "tokenize: tokenizer.json: " + e.Reason
	}
	return fmt.Sprintf("tokenize: tokenizer.json: byte %d: %s", e.Offset, e.Reason)
}

func invalid(format string, args ...any) error {
	return &FileError{Offset: -1, Reason: fmt.Sprintf(format, args...)}
}

func asFileError(err error) error {
	if syntax, ok := errors.AsType[*jsonscan.SyntaxError](err); ok {
		return &FileError{Offset: syntax.Offset, Reason: syntax.Reason}
	}
	return err
}
