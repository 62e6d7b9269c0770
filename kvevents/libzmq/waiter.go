//go:build cgo && !windows

package libzmq

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/pebbe/zmq4"
)

// waiter waits for a socket of libzmq in the poller of Go, so that neither a
// thread nor a pair of sockets is needed to wake its owner.
//
// The descriptor of a socket (ZMQ_FD) becomes readable when the state of the
// socket may have changed, but that is told once: libzmq must be called until it
// has nothing more to give before waiting is of use.
type waiter struct {
	file *os.File
	raw  syscall.RawConn

	mu     sync.Mutex
	closed bool
}

func newWaiter(z *zmq4.Socket) (*waiter, error) {
	fd, err := z.GetFd()
	if err != nil {
		return nil, fmt.Errorf("libzmq: descriptor: %w", err)
	}
	// The descriptor belongs to libzmq; a copy may be closed here.
	fd, err = syscall.Dup(fd)
	if err != nil {
		return nil, fmt.Errorf("libzmq: descriptor: %w", err)
	}
	syscall.CloseOnExec(fd)
	w := &waiter{file: os.NewFile(uintptr(fd), "zmq")}
	if w.raw, err = w.file.SyscallConn(); err == nil {
		err = w.file.SetReadDeadline(time.Time{})
	}
	if err != nil {
		w.file.Close()
		return nil, fmt.Errorf("libzmq: descriptor cannot be waited for: %w", err)
	}
	return w, nil
}

// wait returns when ready says so, or wake was called. It calls ready at first and
// whenever the state of the socket may have changed. By the owner only.
//
// The first call is not for speed: the poller forgets what it knew when a wait
// begins, so the state must be looked at after that.
func (w *waiter) wait(ready func() bool) error {
	err := w.raw.Read(func(uintptr) bool { return ready() })
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// rearm forgets calls of wake. What they were for must be looked at afterwards.
func (w *waiter) rearm() { _ = w.file.SetReadDeadline(time.Time{}) }

// wake ends a wait, or the next one. By any goroutine.
func (w *waiter) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		_ = w.file.SetReadDeadline(time.Unix(1, 0))
	}
}

func (w *waiter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.file.Close()
}
