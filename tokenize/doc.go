// Package tokenize gives the token ids that an inference engine gives.
//
// [Load] reads a Hugging Face tokenizer.json and encodes with it in pure Go.
// What is not proved to be reproduced exactly is refused when it is loaded.
package tokenize
