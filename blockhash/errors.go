package blockhash

import (
	"fmt"
	"strings"
)

type constError string

func (e constError) Error() string { return string(e) }

// Conditions that callers can test for with [errors.Is]. The errors returned
// wrap them and say what was wrong and what is accepted.
const (
	// ErrAlgorithm is returned for a hash algorithm that does not exist, is
	// refused by name, or that the scheme's releases do not have.
	ErrAlgorithm = constError("blockhash: unknown algorithm")
	// ErrScheme is returned for an engine or version without a known scheme,
	// and for the zero Scheme.
	ErrScheme = constError("blockhash: unknown scheme")
	// ErrRoot is returned when the engine's root hash cannot be known: it is
	// made of random bytes of the engine's process. Pin PYTHONHASHSEED on the
	// engine, pass a recorded root ([SeedRoot]), or use [Content] keys.
	ErrRoot = constError("blockhash: root is not reproducible")
	// ErrOptions is returned for options outside what is documented.
	ErrOptions = constError("blockhash: invalid options")
	// ErrPrompt is returned for a prompt that no engine of the scheme could
	// have hashed: see [PromptError] for the facts.
	ErrPrompt = constError("blockhash: invalid prompt")
	// ErrOpaque is returned when the events of the scheme's releases do not
	// tell enough to know the content of a block.
	ErrOpaque = constError("blockhash: content is not known from events")
)

// PromptError says which part of a prompt was refused and why. It wraps
// [ErrPrompt].
type PromptError struct {
	Field  string // "Tokens", "WideTokens", "Items", "LoRA", "CacheSalt", "Embeds" or "ExtraKey"
	Index  int    // index into Field, or -1
	Reason string // what was wrong and what is accepted
}

// Error returns a text of the form "blockhash: invalid prompt: Items[2]: reason".
func (e *PromptError) Error() string {
	if e == nil {
		return ErrPrompt.Error()
	}
	if e.Index < 0 {
		return fmt.Sprintf("%s: %s: %s", ErrPrompt, e.Field, e.Reason)
	}
	return fmt.Sprintf("%s: %s[%d]: %s", ErrPrompt, e.Field, e.Index, e.Reason)
}

// Unwrap returns [ErrPrompt].
func (e *PromptError) Unwrap() error { return ErrPrompt }

func promptError(field string, index int, format string, args ...any) error {
	return &PromptError{Field: field, Index: index, Reason: fmt.Sprintf(format, args...)}
}

func optionError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
}

// quoteList formats names for the "accepted: ..." part of an error text.
func quoteList(names []string) string {
	return `"` + strings.Join(names, `", "`) + `"`
}
