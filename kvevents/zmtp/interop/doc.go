// Package interop tries package zmtp against go-zeromq/zmq4, another
// implementation in Go, which speaks ZMTP 3.0. It has tests only, and a module of
// its own so that go-zeromq does not reach importers. Real libzmq is tried in
// kvevents/libzmq.
package interop
