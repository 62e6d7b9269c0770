package scrape

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// statusError is the answer of an engine that is not a page.
type statusError struct{ page, status string }

func (e *statusError) Error() string { return "scrape: " + e.page + ": " + e.status }

// fetcher reads the pages of one engine. It belongs to one goroutine.
type fetcher struct {
	o      *Options
	client *http.Client
	conn   *connection // nil: by client
}

// newFetcher reads over a connection of its own where net/http has nothing to
// add: over plain HTTP, with no proxy, and no client that the caller chose.
func newFetcher(o *Options, client *http.Client, u *url.URL) *fetcher {
	f := &fetcher{o: o, client: client}
	ascii := strings.IndexFunc(u.Host, func(r rune) bool { return r >= 0x80 }) < 0
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if o.Client == nil && u.Scheme == "http" && u.User == nil && ascii && proxy == nil && err == nil {
		f.conn = &connection{address: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80"))}
	}
	return f
}

func (f *fetcher) close() {
	if f.conn != nil {
		f.conn.close()
	}
}

// request makes the request for a page. Only the text format is asked for:
// prometheus_client takes the first format it likes, whatever its weight, and
// writes its OpenMetrics under other names.
func (f *fetcher) request(page string) (*http.Request, error) {
	r, err := http.NewRequest(http.MethodGet, page, nil)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	r.Header.Set("Accept", "text/plain;version=0.0.4")
	if f.o.Gzip {
		r.Header.Set("Accept-Encoding", "gzip")
	}
	return r, nil
}

// get reads a page into body. Over a connection of its own it does not look for
// the answer before the given time, unless that would take half the time-out.
func (f *fetcher) get(ctx context.Context, notBefore time.Time, page *http.Request, body *bytes.Buffer) error {
	if f.conn == nil {
		ctx, cancel := context.WithTimeout(ctx, f.o.Timeout)
		defer cancel()
		resp, err := f.client.Do(page.WithContext(ctx))
		if err != nil {
			return fmt.Errorf("scrape: %w", err)
		}
		defer resp.Body.Close()
		_, err = f.read(page, resp, body)
		return err
	}
	now := time.Now()
	if notBefore.Sub(now) > f.o.Timeout/2 {
		notBefore = now
	}
	resp, err := f.conn.ask(ctx, page, notBefore, now.Add(f.o.Timeout))
	if err != nil {
		return fmt.Errorf("scrape: %s: %w", page.URL, err)
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		f.conn.close()
		f.conn = nil // leave it to the client from now on
		return f.get(ctx, notBefore, page, body)
	}
	ended, err := f.read(page, resp, body)
	if !ended || resp.Close {
		f.conn.close()
	}
	return err
}

// read reads an answer to its end, or a little beyond MaxPage. It reports whether
// that was the end.
func (f *fetcher) read(page *http.Request, resp *http.Response, body *bytes.Buffer) (ended bool, err error) {
	body.Reset()
	if resp.StatusCode != http.StatusOK {
		_, err := io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
		return err == io.EOF, &statusError{page.URL.String(), resp.Status}
	}
	from := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			return false, fmt.Errorf("scrape: %s: %w", page.URL, err)
		}
		defer func() { // the end of gzip may not be the end of the answer
			n, err := io.CopyN(io.Discard, resp.Body, 1)
			ended = n == 0 && err == io.EOF
		}()
		from = z
	}
	if _, err := body.ReadFrom(io.LimitReader(from, MaxPage+1)); err != nil {
		return false, fmt.Errorf("scrape: %s: %w", page.URL, err)
	}
	return body.Len() <= MaxPage, nil
}

// connection is an HTTP/1.1 connection that is kept. A Transport of net/http gives
// each two goroutines of its own; waking them costs more than the rest of a
// request that is sent once a second.
type connection struct {
	address string
	conn    net.Conn
	stop    func() bool
	in      *bufio.Reader
	limit   io.LimitedReader // of what one answer may have, so that none fills the memory
	out     bytes.Buffer
	timer   *time.Timer // stopped or expired
}

// ask sends a request and reads the head of its answer, whose body must then be
// read, or the connection closed. An old connection that does not work is replaced
// once: the engine may have been restarted, or tired of waiting.
func (c *connection) ask(ctx context.Context, r *http.Request, notBefore, deadline time.Time) (*http.Response, error) {
	for {
		old := c.conn != nil
		if !old {
			if err := c.dial(ctx, deadline); err != nil {
				return nil, err
			}
		}
		resp, err := c.once(ctx, r, notBefore, deadline)
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
	c.conn, c.stop = conn, context.AfterFunc(ctx, func() { conn.Close() })
	c.limit.R = conn
	if c.in == nil {
		c.in = bufio.NewReaderSize(&c.limit, 2<<10)
	}
	c.in.Reset(&c.limit)
	return nil
}

func (c *connection) once(ctx context.Context, r *http.Request, notBefore, deadline time.Time) (*http.Response, error) {
	if err := c.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	c.out.Reset()
	if err := r.Write(&c.out); err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(c.out.Bytes()); err != nil {
		return nil, err
	}
	if err := c.wait(ctx, notBefore); err != nil {
		return nil, err
	}
	c.limit.N = 2 * MaxPage // chunks have some overhead
	for range 5 {
		resp, err := http.ReadResponse(c.in, r)
		if err != nil || resp.StatusCode >= 200 {
			return resp, err
		}
	}
	return nil, errors.New("nothing but informational answers")
}

func (c *connection) wait(ctx context.Context, until time.Time) error {
	d := time.Until(until)
	if d <= 0 {
		return nil
	}
	if c.timer == nil {
		c.timer = time.NewTimer(d)
	} else {
		c.timer.Reset(d)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.timer.C:
		return nil
	}
}

func (c *connection) close() {
	if c.conn != nil {
		c.stop()
		c.conn.Close()
		c.conn = nil
	}
}
