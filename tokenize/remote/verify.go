package remote

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvatlas/kvatlas/tokenize"
)

// MismatchError is returned when the engine gives other ids than the
// tokenizer in this process. Its model must be asked remotely: the engine's
// effective tokenizer is another one.
type MismatchError struct {
	Text         string
	AddSpecial   bool
	Ours, Theirs []uint32
}

// Error shows the text and both results.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("remote: the engine's tokenizer is another one: %.200q (special tokens %v) gives %v there and %v here",
		e.Text, e.AddSpecial, clip(e.Theirs), clip(e.Ours))
}

func clip(ids []uint32) []uint32 { return ids[:min(len(ids), 40)] }

// Verify compares t with the engine's /tokenize on texts, or on [Canaries]
// when there are none, with special tokens and without. Call it before the
// first use of a tokenizer, and now and then with real prompts. The error is
// a [*MismatchError] for the first text that differs, or one of asking.
func (c *Client) Verify(ctx context.Context, model string, t *tokenize.Tokenizer, texts ...string) error {
	if len(texts) == 0 {
		texts = Canaries()
	}
	for _, text := range texts {
		for _, special := range []bool{false, true} {
			ours, err := t.AppendIDs(nil, text, tokenize.EncodeOptions{AddSpecialTokens: special})
			if err != nil {
				return err
			}
			theirs, err := c.Tokenize(ctx, model, text, special)
			if err != nil {
				return err
			}
			if !slices.Equal(ours, theirs) {
				return &MismatchError{text, special, ours, theirs}
			}
		}
	}
	return nil
}

// Canaries are short texts on which tokenizers that differ are known to
// differ: spaces at both ends, literal U+2581, letters with marks in both
// forms, digits, contractions, special tokens of many models.
func Canaries() []string {
	return []string{
		"Hello, world!", " leading", "trailing ", "two  spaces   three", "tab\tand\r\nlines\n\n\n  indented",
		" \u2581a", "a\u2581b", "caf\u00e9 cafe\u0301 \u1e9b\u0323 \ufb01", "1234567 3.14 \u0663\u0664 \u00bd",
		"don't I'LL we'Ve '\u017f", "\u6f22\u5b57\u304b\u306a \ud55c\uae00 \u0e2d\u0e22\u0e39\u0e48", "\U0001F44D\U0001F3FD \U0001F468\u200D\U0001F469\u200D\U0001F467",
		"HTTPServer getElementById snake_case", "x\u0338 >\u0338 \u0301", "a\u0000b\u200b\ufeff",
		"<|im_start|>user\nhi<|im_end|>\n", "<s>[INST] x [/INST]</s>", "<|begin_of_text|><|eot_id|>", "<bos><start_of_turn>user\n<end_of_turn>",
		"<think>\n\n</think>", "<\uff5cbegin\u2581of\u2581sentence\uff5c><\uff5cUser\uff5c>",
	}
}
