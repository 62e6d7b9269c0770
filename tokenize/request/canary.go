package request

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/kvatlas/kvatlas/tokenize"
	"github.com/kvatlas/kvatlas/tokenize/remote"
)

// CanaryOptions configure [NewCanary]. Client and Tokenizer are required.
type CanaryOptions struct {
	// Client asks the engine, Model is the name by which the engine knows
	// the model; "" is the engine's own.
	Client *remote.Client
	Model  string
	// Tokenizer is the one in process.
	Tokenizer *tokenize.Tokenizer
	// Texts are checked at start, by default [remote.Canaries].
	Texts []string
	// Every is how many texts of [Canary.Sample] pass for one that is
	// checked, by default 1000.
	Every int
	// OnMismatch, when not nil, is called with each mismatch, possibly from
	// several goroutines.
	OnMismatch func(*remote.MismatchError)
	// Logger gets an error for each mismatch; nil means [slog.Default].
	Logger *slog.Logger
}

// Canary says whether a tokenizer in process may stand in for the engine's:
// not before a check has passed, and not from the first mismatch on. Its
// [Canary.OK] is for [Model.InProcess], so that a mismatch sends the model's
// requests to the engine. Safe for concurrent use; must not be copied.
type Canary struct {
	o       CanaryOptions
	passed  atomic.Bool
	tripped atomic.Bool
	seen    atomic.Uint64
}

// NewCanary returns a canary that is not OK yet.
func NewCanary(o CanaryOptions) (*Canary, error) {
	if o.Client == nil || o.Tokenizer == nil {
		return nil, errors.New("request: a canary needs Client and Tokenizer")
	}
	if o.Every < 0 {
		return nil, errors.New("request: CanaryOptions.Every is negative")
	}
	if o.Every == 0 {
		o.Every = 1000
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Canary{o: o}, nil
}

// OK tells whether ids may be made in process.
func (c *Canary) OK() bool { return c.passed.Load() && !c.tripped.Load() }

// Check compares all texts, with and without special tokens. Call it when an
// engine starts, and again when one restarts. The error is a
// [*remote.MismatchError], or says why there was no comparison, which changes
// nothing.
func (c *Canary) Check(ctx context.Context) error {
	if err := c.verify(ctx, c.o.Texts...); err != nil {
		return err
	}
	c.passed.Store(true)
	return nil
}

// Sample compares one text of many, by [CanaryOptions.Every], and returns at
// once for the others. It asks the engine: call it beside the path of the
// request. Errors are those of [Canary.Check].
func (c *Canary) Sample(ctx context.Context, text string) error {
	if c.tripped.Load() || c.seen.Add(1)%uint64(c.o.Every) != 0 {
		return nil
	}
	return c.verify(ctx, text)
}

func (c *Canary) verify(ctx context.Context, texts ...string) error {
	err := c.o.Client.Verify(ctx, c.o.Model, c.o.Tokenizer, texts...)
	if m, ok := errors.AsType[*remote.MismatchError](err); ok {
		c.tripped.Store(true)
		c.o.Logger.ErrorContext(ctx, "the engine's tokenizer is another one: its ids are asked for from now on",
			"model", c.o.Model, "text", m.Text, "special_tokens", m.AddSpecial, "ours", m.Ours, "theirs", m.Theirs)
		if c.o.OnMismatch != nil {
			c.o.OnMismatch(m)
		}
	}
	return err
}

// Reset makes the canary as a new one is, when the cause of a mismatch is
// gone.
func (c *Canary) Reset() {
	c.passed.Store(false)
	c.tripped.Store(false)
}
