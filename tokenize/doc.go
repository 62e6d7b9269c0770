// Package tokenize gives the token ids that an inference engine gives.
//
// [Load] reads a Hugging Face tokenizer.json, and [Tokenizer.AppendIDs]
// encodes with it in pure Go, some thirty times faster than the library that
// engines use, and to the same ids. It is built from what was read in that
// library (tokenizers 0.22.0) and asked of it; testdata/tokenize holds the
// answers. What is not proved there is refused when a file is loaded, by
// name ([UnsupportedError]). There are no approximate ids.
//
// Proved are: BPE models, on bytes or on characters with byte fallback, an
// unknown token, or neither; the splits of GPT-2, cl100k, Qwen, o200k,
// tekken and DeepSeek-V3 by their exact patterns, Digits, Metaspace; the
// normalizers NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace of a text,
// and sequences of them; added tokens with all of their flags; template
// post-processors. Not known are other patterns, Unigram and WordPiece
// models, and normalizers that are rare in generating models.
//
// # The file that counts
//
// An engine encodes with what transformers makes of a model's files, which
// is not always the tokenizer.json beside them. Load what it really uses:
//
//	AutoTokenizer.from_pretrained(MODEL).backend_tokenizer.save("tokenizer.json")
//
// with the engine's release of transformers, and check the result against
// the engine (package remote, Client.Verify) before the first use.
//
// # Conversations
//
// A [Cache] remembers the ids between special tokens, so that a conversation
// with one more turn costs little more than that turn. Chat templates are
// rendered by package chat; requests are understood by package request;
// package remote asks the engine for what this one refuses.
//
// # Long texts
//
// A [Stream] takes a text in pieces as it arrives and gives the ids of the
// whole, while it holds no more than some [StreamBytes] of it.
//
// # Fast and without allocations
//
// Results go into the caller's slice; working memory is pooled in the
// tokenizer, two per processor at most are kept. AppendIDs, AppendIDsBytes
// and Cache.AppendIDs, for what it finds, don't allocate once they have seen
// texts as long. Texts are not copied unless they must be normalized.
//
// All functions are safe on untrusted texts and files: lengths are limited,
// time is at most n log n in the length of a text, and no input panics.
package tokenize
