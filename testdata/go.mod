module github.com/kvatlas/kvatlas/testdata

go 1.26
