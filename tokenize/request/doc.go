// Package request gives the exact token ids of an HTTP request's prompt: in
// process where that is proved, else from the engine, else a typed reason
// ([CannotError]). It never guesses.
//
//	req, err := request.Read(httpRequest, request.Options{}) // the body stays for forwarding
//	res, err := model.Tokens(ctx, req)
//
// Package tokenize encodes text, package chat renders conversations, package
// remote asks the engine. This package parses bodies and joins the three as
// the engine does: how the fields of a body become what a chat template sees
// is the engine's own code, mirrored here for the releases of vLLM that
// [VLLMRelease] knows (ChatCompletionRequest.build_chat_params,
// parse_chat_messages and safe_apply_chat_template, compared with those
// functions over testdata). A [Model] says what is known of one served model.
//
// Everything is safe on untrusted input and for concurrent use.
package request
