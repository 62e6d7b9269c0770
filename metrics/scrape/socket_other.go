//go:build !linux

package scrape

import "net"

// socket can do nothing without waiting.
type socket struct{}

func newSocket(net.Conn) socket        { return socket{} }
func (*socket) idle() bool             { return true }
func (*socket) send([]byte) bool       { return false }
func (*socket) receive([]byte) (n int) { return 0 }
func (*socket) wakes()                 {}
