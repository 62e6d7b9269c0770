package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Options are the choices of [New]. URL is required.
type Options struct {
	// URL is where the server is, such as "http://10.0.0.7:8000".
	URL string
	// Engine is what the server is; the zero value is [VLLM].
	Engine Engine
	// Timeout bounds one exchange; 0 means 2 s. A caller's context may end
	// its own wait earlier.
	Timeout time.Duration
	// MaxResponseBytes bounds an answer; 0 means 64 MiB.
	MaxResponseBytes int64
	// Failures in a row, of the network or with status 5xx, after which
	// the endpoint is not asked for Pause, then once to try; 0 means 5
	// and 5 s.
	Failures int
	Pause    time.Duration
	// Header is sent with every request, such as Authorization.
	Header http.Header
	// Transport replaces the client's own pool of connections.
	Transport http.RoundTripper
}

func (o *Options) validate() error {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("remote: Options.URL %q is no http or https URL", o.URL)
	}
	if o.Engine > SGLang {
		return constError("remote: Options.Engine is neither VLLM nor SGLang")
	}
	if o.Timeout < 0 || o.MaxResponseBytes < 0 || o.Failures < 0 || o.Pause < 0 {
		return constError("remote: Options: negative Timeout, MaxResponseBytes, Failures or Pause")
	}
	return nil
}

// Client asks one server. Made by [New]; safe for concurrent use; must not
// be copied. Equal requests at the same time are sent once.
type Client struct {
	base    string
	options Options
	http    http.Client
	breaker breaker

	mu      sync.Mutex
	flights map[flightKey]*flight
}

// New returns a client. It does not connect yet.
func New(o Options) (*Client, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Second
	}
	if o.MaxResponseBytes == 0 {
		o.MaxResponseBytes = 64 << 20
	}
	if o.Failures == 0 {
		o.Failures = 5
	}
	if o.Pause == 0 {
		o.Pause = 5 * time.Second
	}
	if o.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 64
		o.Transport = t
	}
	o.Header = o.Header.Clone()
	return &Client{
		base:    strings.TrimSuffix(o.URL, "/"),
		options: o,
		http:    http.Client{Transport: o.Transport},
		breaker: breaker{most: o.Failures, pause: o.Pause},
		flights: make(map[flightKey]*flight),
	}, nil
}

// Close gives idle connections back. Exchanges under way end by themselves.
func (c *Client) Close() { c.http.CloseIdleConnections() }

type flightKey struct{ path, body string }

// flight is one exchange that several callers wait for.
type flight struct {
	done   chan struct{}
	answer []byte
	err    error
}

// post sends body and returns the answer, which callers share and must not
// change. The exchange goes on for the others when ctx ends.
func (c *Client) post(ctx context.Context, path string, body []byte) ([]byte, error) {
	key := flightKey{path, string(body)}
	c.mu.Lock()
	f, ok := c.flights[key]
	if !ok {
		f = &flight{done: make(chan struct{})}
		c.flights[key] = f
		go func() {
			f.answer, f.err = c.exchange(path, key.body) // the caller's may change when it is gone
			c.mu.Lock()
			delete(c.flights, key)
			c.mu.Unlock()
			close(f.done)
		}()
	}
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.answer, f.err
	case <-ctx.Done():
		return nil, fmt.Errorf("remote: %s: %w", path, context.Cause(ctx))
	}
}

func (c *Client) exchange(path, body string) (answer []byte, err error) {
	if !c.breaker.allow() {
		return nil, ErrOpen
	}
	defer func() { c.breaker.record(!IsUnavailable(err)) }()
	ctx, cancel := context.WithTimeout(context.Background(), c.options.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("remote: %s: %w", path, err)
	}
	for name, values := range c.options.Header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/json")
	// What is asked has no effect there. So says this key, which is not sent
	// without a value, and the transport asks again when the server closes an
	// idle connection at that moment.
	request.Header["Idempotency-Key"] = nil
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("remote: %s: %w", path, err)
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, c.options.MaxResponseBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("remote: %s: %w", path, err)
	case int64(len(answer)) > c.options.MaxResponseBytes:
		return nil, ErrResponseTooLarge
	case response.StatusCode != http.StatusOK:
		return nil, &StatusError{path, response.StatusCode, message(answer)}
	}
	return answer, nil
}

// message takes the text out of an engine's error.
func message(answer []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
		Message string `json:"message"` // SGLang's
	}
	text := string(answer)
	if json.Unmarshal(answer, &e) == nil {
		text = cmp.Or(e.Error.Message, e.Message, text)
	}
	return text[:min(len(text), 500)]
}

// breaker stops asking after failures in a row.
type breaker struct {
	most  int
	pause time.Duration

	mu       sync.Mutex
	failures int
	until    time.Time // when the next try is due, while failures >= most
	trying   bool
}

func (b *breaker) allow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < b.most {
		return true
	}
	if b.trying || time.Now().Before(b.until) {
		return false
	}
	b.trying = true
	return true
}

func (b *breaker) record(ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = false
	if ok {
		b.failures = 0
		return
	}
	if b.failures++; b.failures >= b.most {
		b.until = time.Now().Add(b.pause)
	}
}

// Open reports that the breaker keeps the endpoint from being asked now.
func (c *Client) Open() bool {
	b := &c.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures >= b.most && (b.trying || time.Now().Before(b.until))
}
