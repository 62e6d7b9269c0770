package scrape

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kvatlas/kvatlas/scoring"
)

// Options configures a [Scraper]. The zero value is usable.
type Options struct {
	// Client sends the requests, for TLS, tokens and proxies of the caller's; nil
	// keeps one connection an engine, at the least cost.
	Client *http.Client
	// Period is the time between two requests to one engine; default 1 s. Engines
	// are asked in turns of an eighth of a second or of the period, if that is less. On
	// Linux answers are read with the next turn, later ones and elsewhere when they come.
	Period time.Duration
	// Timeout bounds one request, its body included; default Period.
	Timeout time.Duration
	// Stale is the age at which an answer is no longer used: the load is then
	// unknown. Default 5 periods.
	Stale time.Duration
	// Gzip asks engines to compress their pages. Over a fast network that costs
	// more than it saves; compressed pages are read in any case.
	Gzip bool
	// Whole asks for whole pages only. Else engines that can do so are asked for the
	// wanted metrics alone (name[]=... in the query), which saves them most of the
	// work; the whole page is still read every few minutes, and wherever a selection
	// lacks something.
	Whole bool
	// Updated, if set, is called after each turn of an engine, of one at a time for each:
	// with the page, which is valid during the call only, or the error. It must be
	// quick, for other engines may wait for it.
	Updated func(name string, p *Page, err error)
}

const (
	// ErrUnknownEngine is returned for a name that was not added.
	ErrUnknownEngine = constError("scrape: no such engine")
	// ErrScraper is returned by methods of a nil or zero [Scraper].
	ErrScraper = constError("scrape: scraper was not made with New")
)

// Status is what a scraper knows of one engine's page.
type Status struct {
	// At is when the last good page came; zero before the first.
	At time.Time
	// Pages and Failures count requests; Unreadable counts lines of wanted metrics
	// (Page.Unreadable), on pages of which nothing else could be read too.
	Pages, Failures, Unreadable uint64
	// Resets counts how often a counter went back: the engine restarted.
	Resets uint64
	// Selected says that the last page had the wanted metrics only.
	Selected bool
	// Err is the error of the last request, nil if it was good. It names the page.
	Err error
}

// Scraper polls engines. All methods are safe for concurrent use; make it with
// [New] and close it. The zero Scraper knows no engine and takes none ([ErrScraper]).
type Scraper struct {
	o      Options
	client *http.Client
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.RWMutex
	engines map[string]*engine
	turns   turns
}

type engine struct {
	name   string
	ctx    context.Context // done when it is removed
	cancel context.CancelFunc
	slot   int        // of turns
	from   *selection // of whoever has begun a turn

	mu     sync.RWMutex
	busy   bool // a turn has begun
	missed bool // another came meanwhile
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
	s := &Scraper{o: o, client: o.Client, engines: map[string]*engine{}, turns: newTurns(o.Period)}
	if s.client == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost, t.MaxIdleConns = 1, 0
		t.DisableCompression = true // asked for here, so that it can be left out
		s.client = &http.Client{Transport: t}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.turn)
	return s, nil
}

// Add starts polling an engine at the URL of its metrics page
// ("http://10.0.0.1:8000/metrics"). Another URL under a known name takes the place of
// the first; what was known is forgotten. The error says what is wrong with name or URL,
// that the scraper is closed, or is [ErrScraper].
func (s *Scraper) Add(name, page string) error {
	if s == nil || s.engines == nil {
		return ErrScraper
	}
	if name == "" {
		return fmt.Errorf("scrape: the engine at %q has no name; want one that is not empty", page)
	}
	u, err := parseURL(page)
	if err != nil {
		return fmt.Errorf("scrape: engine %q: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return errors.New("scrape: the scraper is closed")
	}
	f := newFetcher(&s.o, s.client, u)
	whole, err := f.request(page)
	if err != nil {
		return fmt.Errorf("scrape: engine %q: %w", name, err)
	}
	s.remove(name)
	ctx, cancel := context.WithCancel(s.ctx)
	e := &engine{name: name, ctx: ctx, cancel: cancel, from: &selection{fetcher: f, whole: whole}}
	s.engines[name] = e
	s.turns.add(e)
	return nil
}

// parseURL reads the URL of a page, which must be one that can be asked for as it is.
func parseURL(page string) (*url.URL, error) {
	refuse := func(format string, args ...any) (*url.URL, error) {
		return nil, fmt.Errorf("%q is not a URL such as http://10.0.0.1:8000/metrics: %s", page, fmt.Sprintf(format, args...))
	}
	u, err := url.Parse(page)
	if bad := (*url.Error)(nil); errors.As(err, &bad) {
		return refuse("%v", bad.Err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return refuse("want http:// or https:// in front")
	case u.Hostname() == "":
		return refuse("it names no host")
	case strings.Contains(page, "#"):
		return refuse("a fragment (#) is never sent; write %%23 if it is part of a name")
	case strings.ContainsFunc(u.RawQuery, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return refuse("the query has characters that must be escaped (%%20 for a space)")
	}
	if _, err := url.QueryUnescape(u.RawQuery); err != nil {
		return refuse("the query has an %v", err)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return refuse("port %s, want 1 to 65535", port)
		}
	}
	return u, nil
}

// Remove stops polling an engine and forgets it. It reports whether the engine
// was there.
func (s *Scraper) Remove(name string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(name)
}

func (s *Scraper) remove(name string) bool {
	e, ok := s.engines[name]
	if ok {
		e.cancel()
		s.turns.remove(e)
		delete(s.engines, name)
	}
	return ok
}

// Close stops all polling and waits for it to end; Updated, which that waits for, must not call it.
func (s *Scraper) Close() {
	if s == nil || s.engines == nil {
		return
	}
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

// Status returns the state of polling an engine. The error wraps [ErrUnknownEngine] or is
// [ErrScraper].
func (s *Scraper) Status(name string) (Status, error) {
	if s == nil || s.engines == nil {
		return Status{}, ErrScraper
	}
	e := s.engine(name)
	if e == nil {
		return Status{}, fmt.Errorf("%w: %q", ErrUnknownEngine, name)
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.status, nil
}

func (s *Scraper) engine(name string) *engine {
	if s == nil {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.engines[name]
}

// update takes a new page over, or counts the failure.
func (e *engine) update(next *Page, selected bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status.Unreadable += uint64(next.Unreadable)
	if e.status.Err = err; err != nil {
		e.status.Failures++
		return
	}
	e.status.Pages++
	e.status.Selected = selected
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
