package scrape

import (
	"net"
	"syscall"
	"unsafe"
)

// socket is a connection's, for calls that do not wait: Go's sockets never do. They
// are raw, for the runtime takes others for calls that may block and wakes a thread to
// watch them, which in an idle process costs more than they do.
type socket struct {
	raw   syscall.RawConn
	quiet bool
}

// quietBytes must have arrived before a quiet socket wakes anybody.
const quietBytes = 256 << 10

func newSocket(c net.Conn) (s socket) {
	if c, ok := c.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			s.raw = raw
		}
	}
	return s
}

// send sends b if all of it can be sent at once. The answer is then to arrive in
// silence: nothing wakes the process until it looks.
func (s *socket) send(b []byte) bool {
	if s.raw == nil {
		return false
	}
	sent := false
	err := s.raw.Control(func(fd uintptr) {
		if !s.quiet {
			s.quiet = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, quietBytes) == nil
		}
		n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		sent = errno == 0 && int(n) == len(b)
	})
	return err == nil && sent
}

// idle tells whether nothing is there: what comes unasked would be taken for the next
// answer, and all others for the one after theirs.
func (s *socket) idle() (idle bool) {
	if s.raw == nil {
		return true
	}
	var b [1]byte
	_ = s.raw.Control(func(fd uintptr) {
		_, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&b[0])), 1)
		idle = errno == syscall.EAGAIN // else it has hung up
	})
	return idle
}

// receive returns how many bytes it has put into b: 0 if there are none, if the
// other side has hung up, or on an error, which the next one to wait will meet.
func (s *socket) receive(b []byte) (n int) {
	_ = s.raw.Control(func(fd uintptr) {
		got, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		if errno == 0 {
			n = int(got)
		}
	})
	return n
}

// wakes is for one who waits: whatever arrives wakes him.
func (s *socket) wakes() {
	if s.quiet {
		_ = s.raw.Control(func(fd uintptr) {
			s.quiet = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, 1) != nil
		})
	}
}
