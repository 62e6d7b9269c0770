//go:build cgo && hftok

package hftok

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/daulet/tokenizers"

	"github.com/kvatlas/kvatlas/tokenize"
)

type constError string

func (e constError) Error() string { return string(e) }

const (
	// ErrNUL is returned for texts with U+0000: the library would silently
	// drop it and all that follows.
	ErrNUL = constError("hftok: the text holds U+0000, where the library would cut it off")

	// ErrNoIDs is returned when a text that is not empty has no ids. The
	// library says so when it failed, and says nothing else.
	ErrNoIDs = constError("hftok: no ids: the library failed, or the tokenizer leaves nothing of the text")
)

// Tokenizer is the library's. It is made by [Load] or [LoadFile], is safe
// for concurrent use, and must be closed.
type Tokenizer struct{ lib *tokenizers.Tokenizer }

// Load reads a tokenizer.json of any kind that the library knows.
func Load(data []byte) (*Tokenizer, error) {
	if len(data) == 0 {
		return nil, errors.New("hftok: an empty tokenizer.json")
	}
	lib, err := tokenizers.FromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("hftok: %w", err)
	}
	return &Tokenizer{lib}, nil
}

// LoadFile is [Load] of the file of that name.
func LoadFile(name string) (*Tokenizer, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("hftok: %w", err)
	}
	return Load(data)
}

// Close frees the library's memory. No call may be under way or follow.
func (t *Tokenizer) Close() error { return t.lib.Close() }

// AppendIDs appends the ids of text to dst. Special tokens in the text are
// recognized, invalid UTF-8 becomes U+FFFD, a truncation of the file
// applies. It allocates in C and in Go.
//
// The error is [ErrNUL] or [ErrNoIDs]; then dst is returned unchanged.
func (t *Tokenizer) AppendIDs(dst []uint32, text string, o tokenize.EncodeOptions) ([]uint32, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return dst, ErrNUL
	}
	ids := t.lib.EncodeWithOptions(text, o.AddSpecialTokens).IDs
	if len(ids) == 0 && text != "" {
		return dst, ErrNoIDs
	}
	return append(dst, ids...), nil
}
