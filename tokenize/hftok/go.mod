module github.com/kvatlas/kvatlas/tokenize/hftok

go 1.26

require (
	github.com/daulet/tokenizers v1.24.0
	github.com/kvatlas/kvatlas v0.0.0
)

replace github.com/kvatlas/kvatlas => ../..
