// A module of its own keeps the vectors out of the root module's download.
module github.com/kvatlas/kvatlas/blockhash/conformance/testdata

go 1.26
