// Package remote asks an engine for token ids: SGLang's /tokenize, vLLM's and its
// render endpoints, which `vllm launch render` serves without a GPU. It is
// the reference for package tokenize, and what to fall back on for what that
// refuses.
//
// The forms are those recorded from vLLM 0.13.0 to 0.32.0. Render endpoints
// exist from 0.20 on, for messages from 0.29, for responses from 0.32; some
// servers enable them only when told to (--enable-scale-out in 0.32).
// SGLang's /tokenize ([Options].Engine) was recorded from its own HTTP
// application, without scheduler and model, in 0.5.4, 0.5.13, 0.5.18 and
// 0.5.23: the ids are those that its chat handler runs.
package remote
