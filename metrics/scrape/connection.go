package scrape

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// connection is an HTTP/1.1 connection that is kept. A Transport of net/http gives
// each two goroutines of its own; waking them costs more than the rest of a
// request that is sent once a second.
type connection struct {
	address string
	conn    net.Conn
	socket  socket
	stop    func() bool
	in      *bufio.Reader
	limit   io.LimitedReader // of what one answer may have, so that none fills the memory
	// Until an answer is read: what of it was read before, and when it is too late;
	// zero if nothing was asked.
	early    []byte
	deadline time.Time
}

func newConnection(address string) *connection {
	return &connection{address: address, in: bufio.NewReaderSize(nil, 2<<10)}
}

// ask sends a request over the connection there is, if that can be done at once.
func (c *connection) ask(request []byte, deadline time.Time) bool {
	if c.conn == nil {
		return false
	}
	if !c.socket.idle() || !c.socket.send(request) {
		c.close() // how much of it was sent is not known
		return false
	}
	c.deadline = deadline
	return true
}

// arrived reads the head of the answer to what was asked out of what is there. After
// the deadline, as when the process stood still, that tells of another time.
func (c *connection) arrived(r *request, in *inbox) (*http.Response, error) {
	in.n, in.read = 0, 0
	if time.Now().After(c.deadline) {
		return nil, errNotYet
	}
	in.fill(&c.socket)
	c.in.Reset(in)
	return c.head(r)
}

// get reads the head of an answer, whose body must then be read, after asking for
// it if that was not done. An old connection that does not work is replaced once: the
// engine may have been restarted, or tired of waiting.
func (c *connection) get(ctx context.Context, r *request, deadline time.Time) (*http.Response, error) {
	if c.conn != nil && c.deadline.IsZero() && !c.socket.idle() {
		c.close()
	}
	for {
		old := c.conn != nil
		if !old {
			if err := c.dial(ctx, deadline); err != nil {
				return nil, err
			}
		}
		resp, err := c.once(r, deadline)
		if err == nil {
			return resp, nil
		}
		c.close()
		if !old || ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
	}
}

func (c *connection) dial(ctx context.Context, deadline time.Time) error {
	d := net.Dialer{Deadline: deadline}
	conn, err := d.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return err
	}
	c.conn, c.socket = conn, newSocket(conn)
	c.stop = context.AfterFunc(ctx, func() { conn.Close() })
	return nil
}

func (c *connection) once(r *request, deadline time.Time) (*http.Response, error) {
	asked := !c.deadline.IsZero()
	if asked {
		deadline = c.deadline
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	c.socket.wakes()
	if !asked {
		if _, err := c.conn.Write(r.wire); err != nil {
			return nil, err
		}
	}
	c.limit = io.LimitedReader{R: c.conn, N: 2 * MaxPage} // chunks have some overhead
	c.in.Reset(io.MultiReader(bytes.NewReader(c.early), &c.limit))
	return c.head(r)
}

func (c *connection) head(r *request) (*http.Response, error) {
	for range 5 {
		resp, err := http.ReadResponse(c.in, r.Request)
		if err != nil || resp.StatusCode >= 200 {
			return resp, err
		}
	}
	return nil, errors.New("nothing but informational answers")
}

// answered makes ready for the next request, if the connection can be kept.
func (c *connection) answered(keep bool) {
	if c.early, c.deadline = nil, (time.Time{}); !keep {
		c.close()
	}
}

func (c *connection) close() {
	c.early, c.deadline = nil, time.Time{}
	if c.conn != nil {
		c.stop()
		c.conn.Close()
		c.conn = nil
	}
}

// inbox is what has arrived on a connection. It is used for one after the other.
type inbox struct {
	b       []byte
	n, read int
}

// maxInbox is more than a socket holds.
const maxInbox = 4 << 20

// fill takes all that is there into an empty inbox.
func (in *inbox) fill(s *socket) {
	if in.b == nil {
		in.b = make([]byte, 256<<10)
	}
	for {
		n := s.receive(in.b[in.n:])
		if in.n += n; in.n < len(in.b) || len(in.b) == maxInbox {
			return
		}
		in.b = append(in.b, make([]byte, len(in.b))...)
	}
}

func (in *inbox) got() []byte { return in.b[:in.n] }

// Read implements [io.Reader].
func (in *inbox) Read(b []byte) (int, error) {
	n := copy(b, in.b[in.read:in.n])
	if in.read += n; n == 0 && len(b) > 0 {
		return 0, errNotYet
	}
	return n, nil
}
