// Package hftok is Hugging Face's own tokenizers library, through
// [github.com/daulet/tokenizers] v1.24.0 and cgo: for the tokenizers that
// package tokenize refuses, and as the oracle of its tests.
//
// Without cgo and the build tag hftok the package is empty. With them a
// program needs the static library libtokenizers.a, which `make lib` in this
// folder builds:
//
//	make lib LIB=$PWD/lib
//	CGO_LDFLAGS="-L$PWD/lib" go build -tags hftok ./...
package hftok
