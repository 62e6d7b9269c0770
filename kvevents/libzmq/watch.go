//go:build cgo && !windows

package libzmq

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/pebbe/zmq4"
)

// watch follows the monitor of a socket: it counts connections and tells a
// zmtp.Monitor of them.
type watch struct {
	z       *zmq4.Socket
	w       *waiter
	monitor zmtp.Monitor

	mu     sync.Mutex
	counts zmtp.Stats
	// libzmq tells of a failed handshake and then of a disconnection, with
	// nothing but the endpoint to see that they are of one connection.
	failed    map[string]int
	listening map[string]bool
}

var watches atomic.Uint64

// newWatch must be called before any other goroutine uses the socket.
func newWatch(of *zmq4.Socket, monitor zmtp.Monitor) (*watch, error) {
	addr := fmt.Sprintf("inproc://kvatlas-watch-%d", watches.Add(1))
	if err := of.Monitor(addr, zmq4.EVENT_ALL); err != nil {
		return nil, fmt.Errorf("libzmq: monitor: %w", err)
	}
	z, err := zmq4.NewSocket(zmq4.PAIR)
	if err != nil {
		return nil, fmt.Errorf("libzmq: monitor: %w", err)
	}
	w := &watch{z: z, monitor: monitor, failed: make(map[string]int), listening: make(map[string]bool)}
	if err = z.Connect(addr); err == nil {
		w.w, err = newWaiter(z)
	}
	if err != nil {
		z.Close()
		return nil, fmt.Errorf("libzmq: monitor: %w", err)
	}
	return w, nil
}

// bound tells of an endpoint that is listened at.
func (w *watch) bound(endpoint string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listening[endpoint] = true
}

func (w *watch) stats() zmtp.Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// run is the goroutine of the watch; it ends with the socket it watches.
func (w *watch) run() {
	defer func() {
		w.z.Close()
		w.w.close()
	}()
	stopped := false
	for !stopped {
		err := w.w.wait(func() bool {
			kind, endpoint, value, err := w.z.RecvEvent(zmq4.DONTWAIT)
			if errors.Is(err, zmq4.Errno(syscall.EAGAIN)) {
				return false
			}
			stopped = err != nil || kind == zmq4.EVENT_MONITOR_STOPPED
			if ev := w.count(kind, endpoint, value); !stopped && ev.Kind != 0 && w.monitor != nil {
				w.monitor.ConnEvent(ev)
			}
			return true
		})
		stopped = stopped || err != nil
	}
}

// count translates an event; the zero Event is of no interest.
func (w *watch) count(kind zmq4.Event, endpoint string, value int) (ev zmtp.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ev.Endpoint = endpoint
	switch kind {
	case zmq4.EVENT_HANDSHAKE_SUCCEEDED:
		ev.Kind = zmtp.Connected
		w.counts.Connects++
		w.counts.Peers++
	case zmq4.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
		ev.Kind, ev.Err = zmtp.HandshakeFailed, fmt.Errorf("libzmq: handshake failed: %w", syscall.Errno(value))
	case zmq4.EVENT_HANDSHAKE_FAILED_PROTOCOL:
		ev.Kind, ev.Err = zmtp.HandshakeFailed, fmt.Errorf("libzmq: handshake failed: protocol error %#x", value)
	case zmq4.EVENT_HANDSHAKE_FAILED_AUTH:
		ev.Kind, ev.Err = zmtp.HandshakeFailed, fmt.Errorf("libzmq: handshake failed: peer refused with status %d", value)
	case zmq4.EVENT_DISCONNECTED:
		if w.failed[endpoint] > 0 {
			if w.failed[endpoint]--; w.failed[endpoint] == 0 {
				delete(w.failed, endpoint)
			}
			return zmtp.Event{}
		}
		if w.counts.Peers == 0 {
			return zmtp.Event{} // within the handshake, on this side's own account
		}
		ev.Kind = zmtp.Disconnected
		w.counts.Disconnects++
		w.counts.Peers--
	case zmq4.EVENT_CLOSED:
		if w.listening[endpoint] {
			return zmtp.Event{}
		}
		ev.Kind = zmtp.DialFailed
		w.counts.DialFailures++
	case zmq4.EVENT_ACCEPT_FAILED:
		ev.Kind, ev.Err = zmtp.Rejected, fmt.Errorf("libzmq: accept: %w", syscall.Errno(value))
		w.counts.Rejected++
	default:
		return zmtp.Event{}
	}
	if ev.Kind == zmtp.HandshakeFailed {
		w.counts.HandshakeFailures++
		w.failed[endpoint]++
	}
	return ev
}
