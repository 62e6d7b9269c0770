// A module of its own keeps the recorded bodies and token ids out of the root
// module's download.
module github.com/kvatlas/kvatlas/tokenize/request/testdata

go 1.26
