package conductor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ClientOptions configure a [Client]. URL is required.
type ClientOptions struct {
	// URL is the server's, such as "http://conductor:13333"; queries go to /query
	// below it.
	URL string
	// Client makes the requests; nil means one of its own.
	Client *http.Client
	// Timeout bounds a request, default 1 s.
	Timeout time.Duration
	// MaxAnswer bounds an answer in bytes, default 16 MiB.
	MaxAnswer int64
}

// Client asks a Conductor. Make it with [NewClient]; use it from any goroutine.
type Client struct {
	o   ClientOptions
	url string
}

// NewClient makes a client. The error names the option at fault.
func NewClient(o ClientOptions) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("conductor: URL is %q, want one such as http://host:13333", o.URL)
	}
	if o.Timeout < 0 || o.MaxAnswer < 0 {
		return nil, fmt.Errorf("conductor: Timeout is %v, MaxAnswer %d, want 0 or more", o.Timeout, o.MaxAnswer)
	}
	if o.Client == nil {
		o.Client = &http.Client{}
	}
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = 16 << 20
	}
	return &Client{o, strings.TrimSuffix(u.String(), "/") + "/query"}, nil
}

// Query asks what the instances hold of a prompt. An answer with another status than
// 200 is an [*Error].
func (c *Client) Query(ctx context.Context, q *Query) (Answer, error) {
	if q == nil {
		return nil, errors.New("conductor: no query")
	}
	sent := *q
	if sent.TokenIDs == nil {
		sent.TokenIDs = []uint32{} // null is no list
	}
	body, err := json.Marshal(&sent)
	if err != nil {
		return nil, fmt.Errorf("conductor: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("conductor: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.o.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("conductor: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, c.o.MaxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("conductor: %w", err)
	case int64(len(text)) > c.o.MaxAnswer:
		return nil, fmt.Errorf("conductor: the answer is over the limit of %d bytes", c.o.MaxAnswer)
	case resp.StatusCode != http.StatusOK:
		e := &Error{}
		if json.Unmarshal(text, e) != nil || e.Message == "" {
			e = &Error{Message: http.StatusText(resp.StatusCode)}
		}
		e.Status = resp.StatusCode
		return nil, e
	}
	var answer Answer
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("conductor: answer: %w", err)
	}
	return answer, nil
}
