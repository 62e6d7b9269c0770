// Package chat renders chat templates as Hugging Face's transformers does:
// Jinja with trim_blocks and lstrip_blocks, loop controls, the generation
// tag, tojson without HTML escaping, strftime_now and raise_exception, in
// Jinja's immutable sandbox, on Python's values.
//
// It is an interpreter of the part of Jinja that templates of models use, not
// of all of it. [Parse] refuses a template that uses anything else, by name
// ([UnsupportedError]); so does rendering where only the data shows it. What
// is refused is to be rendered by the engine itself. There are no approximate
// renders. A conversation that the template itself rejects (raise_exception,
// an operation that is an error in Python) gives [RenderError]: the engine
// answers such a request with 400.
//
// Names resolve as in Jinja's compiler (jinja2/idtracking.py of Jinja 3.1.6,
// which symbols.go mirrors), so that loops, macros, set blocks and
// conditional assignments have its scopes. The rest mirrors jinja2's lexer,
// parser, filters, tests and runtime of that release (BSD-3-Clause), and
// transformers/utils/chat_template_utils.py of transformers 5.24
// (Apache-2.0).
//
// A [Template] is immutable and safe for concurrent use. Templates and
// conversations may come from untrusted parties: size, nesting, steps and
// output are limited, and no input makes this package panic.
package chat
