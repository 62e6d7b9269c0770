module github.com/kvatlas/kvatlas/benchmarks

go 1.26

require (
	github.com/kvatlas/kvatlas v0.0.0
	github.com/zeebo/xxh3 v1.1.0
)

require (
	github.com/klauspost/cpuid/v2 v2.2.10 // indirect
	golang.org/x/sys v0.30.0 // indirect
)

replace github.com/kvatlas/kvatlas => ../
