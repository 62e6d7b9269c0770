package scrape

import (
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
	"strings"
	"time"
)

// pageError says which page an error is about.
type pageError struct {
	page *url.URL
	err  error
}

func (e *pageError) Error() string {
	return "scrape: " + e.page.Redacted() + ": " + strings.TrimPrefix(e.err.Error(), "scrape: ")
}

func (e *pageError) Unwrap() error { return e.err }

// statusError is the answer of an engine that is not a page.
type statusError struct{ status string }

func (e *statusError) Error() string { return e.status }

// errNotYet is the end of what has arrived of an answer.
const errNotYet = constError("scrape: the answer has not arrived")

// request is one for a page, and its bytes.
type request struct {
	*http.Request
	wire []byte
}

// fetcher reads the pages of one engine. It belongs to one goroutine at a time.
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
		f.conn = newConnection(net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")))
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
func (f *fetcher) request(page string) (*request, error) {
	r, err := http.NewRequest(http.MethodGet, page, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "text/plain;version=0.0.4")
	if f.o.Gzip {
		r.Header.Set("Accept-Encoding", "gzip")
	}
	var wire bytes.Buffer
	if err := r.Write(&wire); err != nil {
		return nil, err
	}
	return &request{r, wire.Bytes()}, nil
}

// ask sends a request without waiting for anything. It reports whether it could:
// then the answer is read by arrived or, whatever that says, by get.
func (f *fetcher) ask(r *request) bool {
	return f.conn != nil && f.conn.ask(r.wire, time.Now().Add(f.o.Timeout))
}

// arrived reads the answer to what was asked into body, if all of it is there. Else,
// or if it is no answer, the error is errNotYet, and get goes on.
func (f *fetcher) arrived(r *request, in *inbox, body *bytes.Buffer) error {
	c := f.conn
	resp, err := c.arrived(r, in)
	if err == nil && !redirects(resp) {
		var ended bool
		ended, err = f.read(resp, body)
		if bad := (*statusError)(nil); ended && (err == nil || errors.As(err, &bad)) {
			c.answered(!resp.Close)
			return err
		}
	}
	c.early = append([]byte(nil), in.got()...)
	return errNotYet
}

// get reads a page into body, asking for it if that was not done.
func (f *fetcher) get(ctx context.Context, r *request, body *bytes.Buffer) error {
	if f.conn == nil {
		ctx, cancel := context.WithTimeout(ctx, f.o.Timeout)
		defer cancel()
		resp, err := f.client.Do(r.WithContext(ctx))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = f.read(resp, body)
		return err
	}
	resp, err := f.conn.get(ctx, r, time.Now().Add(f.o.Timeout))
	if err != nil {
		return err
	}
	if redirects(resp) {
		f.conn.close()
		f.conn = nil // leave it to the client from now on
		return f.get(ctx, r, body)
	}
	ended, err := f.read(resp, body)
	f.conn.answered(ended && !resp.Close)
	return err
}

func redirects(resp *http.Response) bool { return resp.StatusCode >= 300 && resp.StatusCode < 400 }

// read reads an answer to its end, or a little beyond MaxPage. It reports whether
// that was the end.
func (f *fetcher) read(resp *http.Response, body *bytes.Buffer) (ended bool, err error) {
	body.Reset()
	if resp.StatusCode < 200 { // another protocol begins, which has no end that a context would bring
		return false, &statusError{resp.Status}
	}
	if resp.StatusCode != http.StatusOK {
		_, err := io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
		return err == io.EOF, &statusError{resp.Status}
	}
	from := io.Reader(resp.Body)
	switch coding := resp.Header.Get("Content-Encoding"); strings.ToLower(coding) {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			return false, err
		}
		defer func() { // the end of gzip may not be the end of the answer
			n, err := io.CopyN(io.Discard, resp.Body, 1)
			ended = n == 0 && err == io.EOF
		}()
		from = z
	default:
		return false, fmt.Errorf("Content-Encoding is %q, want gzip or none", coding)
	}
	if _, err := body.ReadFrom(io.LimitReader(from, MaxPage+1)); err != nil {
		return false, err
	}
	return body.Len() <= MaxPage, nil
}
