package scrape

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/kvatlas/kvatlas/scoring"
)

// Options configures a [Scraper]. The zero value is usable.
type Options struct {
	// Client sends the requests; nil means one of its own that keeps one
	// connection an engine.
	Client *http.Client
	// Period is the time between two requests to one engine; default 1 s.
	Period time.Duration
	// Timeout bounds one request, its body included; default Period.
	Timeout time.Duration
	// Stale is the age at which an answer is no longer used: the load is then
	// unknown. Default 5 periods.
	Stale time.Duration
	// Gzip asks engines to compress their pages. Over a fast network that costs
	// more than it saves; compressed pages are read in any case.
	Gzip bool
	// Updated, if set, is called after each request, by the goroutine of that engine: with the page, which is
	// valid during the call only, or the error.
	Updated func(name string, p *Page, err error)
}

// ErrUnknownEngine is returned for a name that was not added.
const ErrUnknownEngine = constError("scrape: no such engine")

// Status is what a scraper knows of one engine's page.
type Status struct {
	// At is when the last good page came; zero before the first.
	At time.Time
	// Pages and Failures count requests, Unreadable lines of wanted metrics.
	Pages, Failures, Unreadable uint64
	// Resets counts how often a counter went back: the engine restarted.
	Resets uint64
	// Err is the error of the last request, nil if it was good.
	Err error
}

// Scraper polls engines. All methods are safe for concurrent use; make it with
// [New] and close it.
type Scraper struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.RWMutex
	engines map[string]*engine
}

type engine struct {
	cancel context.CancelFunc

	mu     sync.RWMutex
	page   Page // the last good one
	status Status
}

// New returns a scraper without engines. The error names the option at fault.
func New(o Options) (*Scraper, error) {
	for name, d := range map[string]time.Duration{"Period": o.Period, "Timeout": o.Timeout, "Stale": o.Stale} {
		if d < 0 {
			return nil, fmt.Errorf("scrape: Options.%s is %v, want 0 or more", name, d)
		}
	}
	o.Period = cmp.Or(o.Period, time.Second)
	o.Timeout = cmp.Or(o.Timeout, o.Period)
	o.Stale = cmp.Or(o.Stale, 5*o.Period)
	if o.Client == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost, t.MaxIdleConns = 1, 0
		t.DisableCompression = true // asked for here, so that it can be left out
		o.Client = &http.Client{Transport: t}
	}
	s := &Scraper{o: o, engines: map[string]*engine{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Add starts polling an engine at the URL of its metrics page
// ("http://10.0.0.1:8000/metrics"). Another URL under a known name takes the place of
// the first; what was known is forgotten.
func (s *Scraper) Add(name, page string) error {
	u, err := url.Parse(page)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("scrape: engine %q: %q is not a URL such as http://10.0.0.1:8000/metrics", name, page)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return errors.New("scrape: the scraper is closed")
	}
	if old, ok := s.engines[name]; ok {
		old.cancel()
	}
	ctx, cancel := context.WithCancel(s.ctx)
	e := &engine{cancel: cancel}
	s.engines[name] = e
	s.wg.Go(func() { s.poll(ctx, name, page, e) })
	return nil
}

// Remove stops polling an engine and forgets it. It reports whether the engine
// was there.
func (s *Scraper) Remove(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.engines[name]
	if ok {
		e.cancel()
		delete(s.engines, name)
	}
	return ok
}

// Close stops all polling and waits for it to end.
func (s *Scraper) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
}

// Load returns what an engine's rank last said of its load. All of it is unknown
// when the engine is, when its page was not read for Options.Stale, or when
// it did not name the rank.
func (s *Scraper) Load(name string, rank int) scoring.Load {
	r, _ := s.Rank(name, rank)
	return r.Load
}

// Rank returns all that an engine's rank last said, under the conditions of Load.
func (s *Scraper) Rank(name string, rank int) (Rank, bool) {
	e := s.engine(name)
	if e == nil {
		return Rank{}, false
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if time.Since(e.status.At) > s.o.Stale {
		return Rank{}, false
	}
	for i := range e.page.Ranks {
		if e.page.Ranks[i].Rank == rank {
			return e.page.Ranks[i], true
		}
	}
	return Rank{}, false
}

// Status returns the state of polling an engine.
func (s *Scraper) Status(name string) (Status, error) {
	e := s.engine(name)
	if e == nil {
		return Status{}, fmt.Errorf("%w: %q", ErrUnknownEngine, name)
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.status, nil
}

func (s *Scraper) engine(name string) *engine {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.engines[name]
}

// poll asks one engine again and again, from a random moment of the period on, so
// that many engines are not asked at once.
func (s *Scraper) poll(ctx context.Context, name, page string, e *engine) {
	timer := time.NewTimer(rand.N(s.o.Period))
	defer timer.Stop()
	var body bytes.Buffer
	var next Page
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		started := time.Now()
		err := s.get(ctx, page, &body)
		if err == nil {
			err = Parse(&next, body.Bytes())
		}
		if ctx.Err() != nil {
			return
		}
		e.update(&next, err)
		if s.o.Updated != nil {
			if err != nil {
				s.o.Updated(name, nil, err)
			} else {
				s.o.Updated(name, &next, nil)
			}
		}
		timer.Reset(max(s.o.Period-time.Since(started), s.o.Period/10))
	}
}

// update takes a new page over, or counts the failure.
func (e *engine) update(next *Page, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.status.Err = err; err != nil {
		e.status.Failures++
		return
	}
	e.status.Pages++
	e.status.Unreadable += uint64(next.Unreadable)
	if wentBack(&e.page, next) {
		e.status.Resets++
	}
	e.page.Ranks = append(e.page.Ranks[:0], next.Ranks...)
	e.page.Unreadable = next.Unreadable
	e.status.At = time.Now()
}

// wentBack tells whether a counter of a rank is lower than it was.
func wentBack(before, now *Page) bool {
	for i := range now.Ranks {
		for j := range before.Ranks {
			a, b := &before.Ranks[j], &now.Ranks[i]
			if a.Rank != b.Rank {
				continue
			}
			for _, f := range [...]field{queries, hits, externalQueries, externalHits, preemptions} {
				if x, y := a.gauge(f), b.gauge(f); x.Known && y.Known && y.Value < x.Value {
					return true
				}
			}
		}
	}
	return false
}

// get reads a page into body.
func (s *Scraper) get(ctx context.Context, page string, body *bytes.Buffer) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return fmt.Errorf("scrape: %w", err)
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4, application/openmetrics-text;q=0.5")
	if s.o.Gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	resp, err := s.o.Client.Do(req)
	if err != nil {
		return fmt.Errorf("scrape: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
		return fmt.Errorf("scrape: %s: %s", page, resp.Status)
	}
	var r io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if r, err = gzip.NewReader(resp.Body); err != nil {
			return fmt.Errorf("scrape: %s: %w", page, err)
		}
	}
	body.Reset()
	if _, err := body.ReadFrom(io.LimitReader(r, MaxPage+1)); err != nil {
		return fmt.Errorf("scrape: %s: %w", page, err)
	}
	return nil
}
