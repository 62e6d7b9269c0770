// Package kvotel makes OpenTelemetry spans of the decisions of package kvatlas,
// with their explanation as attributes.
//
//	spans := kvotel.New(kvotel.Options{})
//	tokens, err := spans.Tokenize(ctx, func(context.Context) ([]uint32, error) { return tok.Encode(text) })
//	...
//	err = spans.Route(ctx, atlas, &kvatlas.Request{Prompt: blockhash.Prompt{Tokens: tokens}}, &choice)
//
// Where a span is not recorded, because it is not sampled or there is no SDK, a
// call costs the making of that span and nothing is explained.
//
// # Spans
//
//	kvatlas.tokenize   Tokenize   tokens of the prompt
//	kvatlas.match      Match      what each worker holds of it
//	kvatlas.score      Decide     each candidate's total, each scorer's part, who was filtered out
//	kvatlas.route      Route      both, as its children
//
// Attributes are lists in the order of kvatlas.match.workers or of
// kvatlas.score.candidates, cut off at [Options.MaxWorkers]. No span has tokens,
// texts, salts, adapters or sessions: they belong to users.
//
// The module is apart so that nobody else gets its dependencies.
package kvotel
