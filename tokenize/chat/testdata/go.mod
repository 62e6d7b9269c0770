// A module of its own keeps the templates and renders out of the root module's
// download.
module github.com/kvatlas/kvatlas/tokenize/chat/testdata

go 1.26
