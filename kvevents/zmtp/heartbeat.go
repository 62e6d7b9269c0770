package zmtp

import (
	"errors"
	"net"
	"os"
	"time"
)

// heartbeat reads a connection and notices silence. The deadline of the
// connection is its clock: it is set once per tick, not once per read, and when
// it passes the reader looks at whether anything came in the meantime. So a busy
// connection pays nothing, and an idle one needs no timer or goroutine of its
// own. Used by the reading goroutine only.
type heartbeat struct {
	nc   net.Conn
	ping func() // nil for a peer that does not know PING

	tick    time.Duration // zero while off
	timeout time.Duration
	active  bool          // something came since the last tick
	quiet   time.Duration // how long nothing came, at least
}

// start turns the heartbeat on. Without ping there is no way to tell a silent
// peer from a dead one, so only a time to live asked for by the peer counts.
func (h *heartbeat) start(interval, timeout time.Duration, ping func()) error {
	h.ping = ping
	if interval <= 0 || ping == nil {
		return h.nc.SetDeadline(time.Time{})
	}
	h.tick, h.timeout = interval, timeout
	if err := h.nc.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	return h.nc.SetReadDeadline(time.Now().Add(h.tick))
}

// expect gives the peer up after ttl of silence, as it asked in a PING.
func (h *heartbeat) expect(ttl time.Duration) error {
	if ttl <= 0 || h.timeout > 0 && ttl >= h.timeout {
		return nil
	}
	h.timeout = ttl
	if h.tick == 0 || h.tick > ttl {
		h.tick = ttl
		return h.nc.SetReadDeadline(time.Now().Add(h.tick))
	}
	return nil
}

// Read reads what comes, through any number of ticks.
func (h *heartbeat) Read(p []byte) (int, error) {
	for {
		n, err := h.nc.Read(p)
		if n > 0 {
			h.active = true
			return n, nil
		}
		if err == nil || h.tick == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if h.active {
			h.active, h.quiet = false, 0
		} else {
			h.quiet += h.tick
		}
		if h.quiet >= h.timeout {
			return 0, ErrPeerSilent
		}
		if h.quiet > 0 && h.ping != nil {
			h.ping()
		}
		if err := h.nc.SetReadDeadline(time.Now().Add(h.tick)); err != nil {
			return 0, err
		}
	}
}
